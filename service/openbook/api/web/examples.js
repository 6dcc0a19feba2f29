// Questions to begin with. Only of a book that is known: of another one nobody here can say what it answers.

const ENCYCLOPEDIA = "Openbook's encyclopedia";
const QUESTIONS = [
  "Who is the President of Peru?",
  "Who is the Prime Minister of Ethiopia?",
  "Who is the leader of Zimbabwe?",
  "What is the unemployment rate of Spain?",
  "When did Peru gain independence?",
];

export function examplesOf(source) {
  return source.startsWith(ENCYCLOPEDIA) ? QUESTIONS : [];
}
