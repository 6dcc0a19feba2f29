// The question and its options, within what the service allows.

import { call } from "./api.js";
import { byId, element } from "./dom.js";
import { filterOf } from "./filter.js";
import { DEFAULTS } from "./permalink.js";

const CHOICES = ["model", "decoding", "retriever", "abstain", "index", "filter"];
const NUMBERS = ["n_docs", "num_beams", "max_new_tokens", "num_answers"];
// what the service reads of a question that does not say, where the version holds so many
const USUAL_DOCS = 5;
const MOST_COMPARED = 8;

function fields() {
  return byId("ask").elements;
}

export function readForm() {
  const form = fields();
  const options = Object.fromEntries(CHOICES.map((name) => [name, form[name].value]));
  for (const name of NUMBERS) options[name] = form[name].value ? form[name].valueAsNumber : null;
  return { question: form.question.value.trim(), options };
}

export function fillForm({ question, options }) {
  const form = fields();
  form.question.value = question;
  grow();
  for (const name of CHOICES) chosen.add(name);
  for (const [name, value] of Object.entries(options)) {
    // a version that was open when the link was made, and is not now: the service says so
    if (name === "index" && value) offer(form.index, value);
    form[name].value = value;
  }
  settle();
}

// The body of POST /answer; of POST /compare with the versions instead of one.
export function bodyOf({ question, options, versions = [], without = [], history = [] }) {
  const { index, decoding, retriever, abstain, filter, ...rest } = options;
  const limit = Number(abstain) ? { max_no_answer: Number(abstain) } : abstain || null;
  const ways = { decoding: decoding || null, retriever: retriever || null };
  const body = { question, ...rest, ...ways, abstain: limit, filter: filterOf(filter), history };
  return versions.length ? { ...body, versions } : { ...body, index: index || null, without };
}

// The largest values that this service takes, from its own document; without them it says no by itself.
export async function readLimits() {
  const { components } = await call("/openapi.json");
  const properties = components.schemas.AnswerRequest.properties;
  for (const name of NUMBERS) if (properties[name].maximum) fields()[name].max = properties[name].maximum;
  settle();
}

export function offerVersions(index) {
  const select = fields().index;
  const chosen = select.value;
  const open = index.resident.filter((one) => !one.retiring)
    .sort((one, other) => (order(one) < order(other) ? 1 : -1)).map((one) => one.version);
  if ([...select.options].slice(1).map((option) => option.value).join() === open.join()) return open;
  select.replaceChildren(select.options[0], ...open.map((version) => element("option", { value: version }, version)));
  if (chosen) offer(select, chosen);
  select.value = chosen;
  const before = new Set([...byId("compared").querySelectorAll("input")].map((box) => box.value));
  const wanted = comparedVersions();
  byId("compared").replaceChildren(...open.map((value, at) => {
    // the newest two, until somebody chooses
    const checked = before.has(value) ? wanted.includes(value) : at < 2;
    const box = element("input", { type: "checkbox", name: "versions", value, checked });
    return element("label", { className: "check" }, box, ` ${value}`);
  }));
  settle();
  return open;
}

export function comparedVersions() {
  return [...byId("compared").querySelectorAll(":checked")].map((box) => box.value).reverse();
}

function order(one) {
  return one.snapshot_date || one.version;
}

function offer(select, version) {
  if (![...select.options].some((option) => option.value === version)) {
    select.append(element("option", { value: version }, version));
  }
}

// What depends on another field, and the line that says what is chosen.
function settle() {
  const form = fields();
  const sequence = form.model.value === "sequence";
  form.decoding.disabled = !sequence;
  form.num_answers.max = form.num_beams.max;
  if (form.num_answers.valueAsNumber > form.num_beams.valueAsNumber) form.num_answers.value = form.num_beams.value;
  const named = form.model.value === "single-prompt" ? "single prompt" : "RAG-Token";
  const words = [...(sequence ? ["RAG-Sequence", form.decoding.value].filter(Boolean) : [named]),
    many(form.n_docs.value || USUAL_DOCS, "passage"),
    Number(form.num_beams.value) === 1 ? "greedy" : many(form.num_beams.value, "beam")];
  if (Number(form.num_answers.value) > 1) words.push(many(form.num_answers.value, "answer"));
  for (const name of ["retriever", "index"]) if (form[name].value) words.push(form[name].value);
  if (form.abstain.value === "never") words.push("an answer always");
  if (form.filter.value.trim()) words.push("filtered");
  byId("chosen").textContent = words.join(", ");
  const compared = comparedVersions().length;
  byId("compare").disabled = compared < 2 || compared > MOST_COMPARED;
  byId("compare-note").hidden = !byId("compare").disabled;
  byId("compare-note").textContent = byId("compared").childElementCount < 2
    ? "To compare, two versions must be open. Under Versions, one can be opened beside the live one."
    : `Choose from two to ${MOST_COMPARED}.`;
}

// As many beams as answers: what was changed last decides.
function widen(event) {
  const form = fields();
  if (event.target !== form.num_answers) return;
  if (form.num_answers.valueAsNumber > form.num_beams.valueAsNumber) form.num_beams.value = form.num_answers.value;
}

// As high as its text.
function grow() {
  const { question } = fields();
  question.style.height = "auto";
  question.style.height = `${question.scrollHeight + question.offsetHeight - question.clientHeight}px`;
}

function many(number, noun) {
  return `${number} ${noun}${Number(number) === 1 ? "" : "s"}`;
}

// What the checkpoint names as its own, unless a link or somebody has said otherwise.
const chosen = new Set();

export function preselect({ model, generator }) {
  // a language model behind a server alone answers so
  fields().model.querySelector("[value=single-prompt]").hidden = !generator;
  if (!chosen.has("model")) fields().model.value = model;
  chosen.add("model");
  settle();
}

export function startForm() {
  for (const [name, value] of Object.entries(DEFAULTS)) fields()[name].value = value;
  byId("options").addEventListener("input", (event) => {
    chosen.add(event.target.name);
  });
  byId("options").addEventListener("input", widen);
  byId("ask").addEventListener("input", settle);
  byId("question").addEventListener("input", grow);
  byId("question").addEventListener("keydown", (event) => {
    if (event.key !== "Enter" || event.shiftKey || event.isComposing) return;
    event.preventDefault();
    byId("ask").requestSubmit();
  });
  // what does not validate is not to be hidden when the browser points at it
  byId("ask").addEventListener("invalid", (event) => {
    if (byId("options").contains(event.target)) byId("options").open = true;
  }, true);
  settle();
}
