// One answer with everything that came with it.

import { element, small } from "./dom.js";
import { decimals, duration, named, percent, probability } from "./format.js";
import { heatMap } from "./heat_map.js";
import { linkedTitle, passageList } from "./passages.js";
import { plain, tokenRow } from "./tokens.js";

const MODELS = { token: "RAG-Token", sequence: "RAG-Sequence", "single-prompt": "single prompt" };
const NOTHING = "(an empty answer)";
// as the service tells one, but for measures
const PROCEDURE = new RegExp("\\b(how (do|does|did|can|could|should|would|must|to|i)|why|explain|describe|"
  + "what (happens|happened|steps|(do|should|must|can) (i|we|you) do))\\b", "i");
const UNKNOWN = "I would rather not answer: these passages do not seem to say.";

export function answerText(answer) {
  return answer.abstained ? UNKNOWN : answer.answer || NOTHING;
}

// `link` is the permalink; `leaveOut(passage_id)` asks again without a passage, and `without` names those left out.
export function answerView(question, answer, link, leaveOut = null, without = []) {
  const passages = passageList(answer, answer.passages.length > 1 ? leaveOut : null);
  const readout = element("p", { className: "readout" });
  const select = (at) => {
    const token = at === null ? null : answer.tokens[at];
    row.select(at);
    map.select(at);
    passages.select(token);
    readout.textContent = token ? atToken(answer, token) : overall(answer);
  };
  const row = tokenRow(answer, (at) => {
    select(at);
    if (at !== null) map.reveal(at);
  });
  // what is pointed at in the map itself must not move away under the mouse
  const map = heatMap(answer, select);
  readout.textContent = overall(answer);
  return element("article", { className: "answer" },
    element("h2", { className: "asked" }, question),
    understood(answer),
    element("div", { className: "beside" },
      element("div", {},
        ...said(question, answer),
        element("p", { className: "small" }, `From ${named(answer.index)}. `,
          link && element("a", { href: link }, "Link to this question"),
          without.length ? ` As if these had not been found: ${without.join(", ")}.` : null),
        others(answer)),
      passages.view),
    element("details", { className: "words" },
      element("summary", {}, "Which passage said which word"),
      row.row, readout, map.figure, figures(answer)));
}

// The question that was answered, where it leant on an earlier one.
export function understood({ understood_as: whole }) {
  return whole ? element("p", { className: "small" }, `Understood as “${whole}”`) : null;
}

// The answer, and what it stands on as it stands there, which of a procedure is the answer.
function said(question, answer) {
  const [first, ...rest] = answer.abstained ? [] : answer.evidence;
  const steps = first && PROCEDURE.test(question);
  const audited = !steps && !answer.abstained && answer.audit?.sentences.length;
  const words = audited ? auditedText(answer) : steps ? first.text : answerText(answer);
  const text = element("p", { className: steps || audited ? "says steps" : "says" }, words);
  const quotes = (steps ? rest : answer.abstained ? [] : answer.evidence).map((one) => {
    const passage = answer.passages[one.rank - 1];
    return element("figure", { className: "evidence" },
      element("blockquote", { className: "text" }, one.text),
      element("figcaption", { className: "small" }, linkedTitle(passage, answer.index.version),
        passage.section ? `, ${passage.section}` : ""));
  });
  return [text, audited ? auditNote(answer.audit) : null, ...quotes];
}

// The answer with its unsupported sentences struck through.
function auditedText({ answer, audit }) {
  return audit.sentences.flatMap(({ start, end, supported }, at) => [
    answer.slice(at ? audit.sentences[at - 1].end : 0, start),
    supported === false ? element("s", {}, answer.slice(start, end)) : answer.slice(start, end),
  ]);
}

// What the strokes say, in words.
function auditNote({ sentences, reason }) {
  const struck = sentences.filter((one) => one.supported === false).length;
  const measured = struck ? `Struck through: what the passages do not make likelier (${struck} of ${sentences.length}).`
    : "The passages make each sentence likelier.";
  return element("p", { className: "small audit" }, reason ? `Not audited. ${reason}` : measured);
}

function atToken(answer, token) {
  const most = Math.max(...token.posterior);
  const { rank, prior } = answer.passages[token.posterior.indexOf(most)];
  const figure = `“${plain(token.text).trim()}”: log p ${decimals(token.log_prob)}`;
  return `${figure}, most from passage ${rank} (${percent(most)}, prior ${percent(prior)})`;
}

function overall(answer) {
  return answer.tokens.length ? "Point at a token, or walk along them with the arrow keys." : "";
}

export function figures(answer) {
  const { total, ...rest } = answer.seconds;
  const stages = Object.entries(rest).map(([name, value]) => `${name} ${duration(value)}`);
  return element("dl", { className: "figures" },
    figure("log p(answer)", decimals(answer.log_prob), `p = ${probability(Math.exp(answer.log_prob))}`),
    figure("p(no answer)", probability(answer.no_answer), "that no passage answers"),
    figure("time", duration(total), stages.join(", ")),
    figure("model", MODELS[answer.model], `${answer.checkpoint}, ${answer.retriever}`));
}

function figure(name, value, note) {
  return element("div", {}, element("dt", {}, name), element("dd", {}, value, small(note)));
}

function others(answer) {
  if (answer.answers.length < 2 && !answer.abstained) return null;
  const rows = answer.answers.map((one) => element("tr", {}, element("td", {}, one.text || NOTHING),
    element("td", { className: "number" }, decimals(one.log_prob)),
    element("td", { className: "number" }, probability(Math.exp(one.log_prob)))));
  return element("details", {},
    element("summary", {}, answer.abstained ? "What it would have said" : "Answers by probability"),
    element("table", { className: "others" },
      element("thead", {}, element("tr", {}, element("th", { scope: "col" }, "Answer"),
        element("th", { scope: "col", className: "number" }, "log p"),
        element("th", { scope: "col", className: "number" }, "p"))),
      element("tbody", {}, rows)));
}
