// The page: one question at a time, the index as it is now, and the two beside each other.

import { answerText, answerView } from "./answer.js";
import { call, Problem } from "./api.js";
import { bodyOf, fillForm, offerVersions, preselect, readForm, readLimits, startForm } from "./ask_form.js";
import { remember } from "./asked.js";
import { comparisonView, verdict } from "./comparison.js";
import { announce, byId, element } from "./dom.js";
import { examplesOf } from "./examples.js";
import { feedbackView } from "./feedback.js";
import { named } from "./format.js";
import { fromFragment, toFragment } from "./permalink.js";
import { hear } from "./telling.js";
import { hideTrouble, showTrouble } from "./trouble.js";
import { drawVersions, readManifests } from "./versions.js";
import { startWaiting, stopWaiting } from "./waiting.js";
import { watch } from "./watch.js";

const MOST_COMPARED = 8;
const MOST_TURNS = 20;
const LONGEST_ANSWER = 4000;

let latest = null;
let running = null;
let shown = null;
// the conversation of this tab, as `history` takes it
let turns = [];

async function ask(question) {
  running?.abort();
  const asked = { ...question, history: turns };
  const mine = new AbortController();
  running = mine;
  const comparing = asked.versions.length > 0;
  hideTrouble();
  byId("result").classList.add("old");
  startWaiting(`Asking ${whom(asked)} …`, () => mine.abort());
  try {
    if (comparing) showComparison(asked, await call("/compare", { body: bodyOf(asked), signal: mine.signal }));
    else showAnswer(asked, await hear(asked, place, mine.signal));
    document.title = `${asked.question} · Openbook`;
  } catch (problem) {
    if (running !== mine) return;
    if (problem instanceof Problem) {
      byId("result").replaceChildren();
      shown = null;
      announce("");
      showTrouble(problem, () => ask(asked));
    } else if (problem.name === "AbortError") {
      // an older answer stays; half of one does not
      document.querySelector(".telling")?.remove();
      announce("Cancelled.");
    } else {
      throw problem;
    }
  } finally {
    if (running === mine) {
      running = null;
      stopWaiting();
      byId("result").classList.remove("old");
      drawStale();
    }
  }
  look();
}

function whom({ options, versions }) {
  if (versions.length) return versions.join(" and ");
  return options.index || latest?.index.live?.version || "the service";
}

function showAnswer(leaning, found) {
  const asked = whole(leaning, found);
  const said = found.answer === null ? null : Array.from(found.answer).slice(0, LONGEST_ANSWER).join("");
  turns = [...turns, { question: asked.question, answer: said }].slice(-MOST_TURNS);
  shown = { asked, index: found.index };
  const feedback = latest?.index.feedback ? [feedbackView(found.requestId)] : [];
  const { without = [] } = asked;
  const leaveOut = (id) => askAndRemember({ ...asked, without: [...without, id] });
  byId("result").replaceChildren(answerView(leaning.question, found, toFragment(asked), leaveOut, without), ...feedback);
  announce(`${answerText(found)}. From ${named(found.index)}.`);
  note(asked, answerText(found), found.index.version);
}

// A link, and whoever asks again, has no turns before: the question that was understood needs none.
function whole(asked, { understood_as: question }) {
  if (!question) return asked;
  history.replaceState(null, "", toFragment({ ...asked, question }));
  return { ...asked, question };
}

function showComparison(leaning, found) {
  const asked = whole(leaning, found.answers[0]);
  shown = { asked, index: null };
  byId("result").replaceChildren(comparisonView(found, toFragment(asked)));
  announce([verdict(found), ...found.answers.map((one) => `${one.index.version}: ${answerText(one)}.`)].join(" "));
  note(asked, verdict(found), found.answers.map((one) => one.index.version).join(", "));
}

// Half an answer takes the place of an older one.
function place(view) {
  shown = null;
  byId("result").replaceChildren(view);
  byId("result").classList.remove("old");
}

function note(asked, text, versions) {
  remember({ asked, link: toFragment(asked), text, versions }, (again) => {
    fillForm(again);
    askAndRemember(again);
  });
}

function askAndRemember(asked) {
  const fragment = toFragment(asked);
  if (fragment !== location.hash) history.pushState(null, "", fragment);
  return ask(asked);
}

// Opening a link asks what it holds; so do the back and forward buttons.
function askTheLink() {
  const asked = fromFragment(location.hash);
  if (asked === null) return;
  fillForm(asked);
  ask(asked);
}

function openVersions() {
  const open = latest ? latest.index.resident.filter((one) => !one.retiring) : [];
  const order = (one) => one.snapshot_date || one.version;
  const sorted = [...open].sort((one, other) => (order(one) < order(other) ? -1 : 1));
  return sorted.slice(-MOST_COMPARED).map((one) => one.version);
}

function drawStale() {
  const live = latest?.index.live;
  const from = shown?.index;
  const stale = live && from && !shown.asked.options.index && live.generation !== from.generation;
  byId("stale").hidden = !stale || running !== null;
  if (!stale) return;
  byId("stale-text").textContent = `${named(live)}, is live now. This answer is from generation ${from.generation}.`;
  byId("ask-again").onclick = () => ask(shown.asked);
}

function drawLive({ index }) {
  const { live } = index;
  byId("live").classList.toggle("lost", live === null);
  if (live === null) byId("live").textContent = "No index is live";
  else byId("live").replaceChildren(element("b", {}, live.version), named(live).slice(live.version.length));
  byId("checkpoint").textContent = `Answered by ${index.checkpoint}.`;
}

function drawComparing() {
  const versions = openVersions();
  const note = byId("compare-note");
  byId("compare").disabled = versions.length < 2;
  note.hidden = versions.length >= 2;
  note.textContent = "To compare, two versions must be open. Under Versions, one can be opened beside the live one.";
}

function drawSources(manifests) {
  const open = openVersions().map((version) => manifests.get(version)).filter(Boolean);
  byId("sources").replaceChildren(...open.map((one) =>
    element("li", {}, `${one.version}: ${one.source || "source not stated"}. `,
      `Licence: ${one.licence || "not stated"}.`, one.attribution ? ` ${one.attribution}` : "")));
}

function drawExamples(manifest) {
  const questions = examplesOf(manifest?.source || "");
  const list = byId("examples");
  list.hidden = questions.length === 0;
  if (list.childElementCount === questions.length) return;
  list.replaceChildren(...questions.map((question) => {
    const button = element("button", { type: "button" }, question);
    button.addEventListener("click", () => {
      byId("question").value = question;
      byId("ask").requestSubmit();
    });
    return element("li", {}, button);
  }));
}

async function onIndex(now) {
  const before = latest?.index.live?.version;
  latest = now;
  drawLive(now);
  offerVersions(now.index);
  preselect(now.index);
  drawComparing();
  drawVersions(now, look);
  drawStale();
  const live = now.index.live;
  if (before && live && before !== live.version) announce(`${live.version} is live now.`);
  const manifests = await readManifests(now.index.versions);
  drawVersions(latest, look);
  drawSources(manifests);
  drawExamples(manifests.get(live?.version));
}

function onLost(problem) {
  byId("live").textContent = problem.code === "unreachable" ? "The service does not answer" : problem.message;
  byId("live").classList.add("lost");
}

startForm();
const look = watch(onIndex, onLost, () => byId("index").open);
byId("index").addEventListener("toggle", () => byId("index").open && look());
readLimits().catch(() => {});
byId("ask").addEventListener("submit", (event) => {
  event.preventDefault();
  askAndRemember({ ...readForm(), versions: [] });
});
byId("compare").addEventListener("click", () => {
  if (byId("ask").reportValidity()) askAndRemember({ ...readForm(), versions: openVersions() });
});
window.addEventListener("popstate", askTheLink);
askTheLink();
