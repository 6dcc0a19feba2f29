// A question with its options as a fragment. A fragment stays in the browser: no log of a server or proxy holds it.

export const DEFAULTS = {
  model: "token", decoding: "", retriever: "", index: "", abstain: "", filter: "",
  n_docs: null, num_beams: 1, max_new_tokens: 32, num_answers: 1,
};
const NUMBERS = ["n_docs", "num_beams", "max_new_tokens", "num_answers"];
const CHOICES = {
  model: ["token", "sequence", "single-prompt"], decoding: ["thorough", "fast"], abstain: ["never", "0.5"],
  retriever: ["auto", "dense", "bm25", "hybrid", "reranked"],
};

// `versions` are those to compare; none means to ask, without the passages `without`.
export function toFragment({ question, options, versions = [], without = [] }) {
  const parameters = new URLSearchParams({ question });
  for (const [name, value] of Object.entries(options)) {
    if (value !== DEFAULTS[name]) parameters.set(name, value);
  }
  if (versions.length) parameters.set("compare", versions.join(","));
  for (const id of without) parameters.append("without", id);
  return `#${parameters}`;
}

// null where the fragment holds no question. What is no value of an option leaves its default.
export function fromFragment(fragment) {
  const parameters = new URLSearchParams(fragment.replace(/^#/, ""));
  const question = (parameters.get("question") || "").trim();
  if (!question) return null;
  const options = { ...DEFAULTS, index: parameters.get("index") || "", filter: parameters.get("filter") || "" };
  for (const name of NUMBERS) {
    const value = Number(parameters.get(name));
    if (Number.isInteger(value) && value > 0) options[name] = value;
  }
  if (!parameters.has("num_beams")) options.num_beams = options.num_answers;
  for (const [name, values] of Object.entries(CHOICES)) {
    if (values.includes(parameters.get(name))) options[name] = parameters.get(name);
  }
  const versions = (parameters.get("compare") || "").split(",").filter(Boolean);
  return { question, options, versions, without: parameters.getAll("without") };
}
