// The page: a column of questions with their answers, the newest first, below the index as it is now.

import { answerText, answerView } from "./answer.js";
import { call, Problem } from "./api.js";
import { bodyOf, comparedVersions, fillForm, offerVersions, preselect, readForm, readLimits } from "./ask_form.js";
import { startForm } from "./ask_form.js";
import { comparisonView, verdict } from "./comparison.js";
import { announce, byId, element } from "./dom.js";
import { feedbackView } from "./feedback.js";
import { named } from "./format.js";
import { fromFragment, toFragment } from "./permalink.js";
import { receiptView } from "./receipt.js";
import { hear } from "./telling.js";
import { hideTrouble, showTrouble } from "./trouble.js";
import { drawVersions, readManifests } from "./versions.js";
import { startWaiting, stopWaiting } from "./waiting.js";
import { watch } from "./watch.js";
import { drawBook } from "./welcome.js";

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
  byId("welcome").hidden = true;
  startWaiting(`Asking ${whom(asked)} …`, () => mine.abort());
  // what is certain of an answer while it is made, which the whole takes the place of
  let telling = null;
  const place = (view) => {
    if (telling) succeed(telling, view);
    else byId("turns").prepend(view);
    telling = view;
    while (byId("turns").childElementCount > MOST_TURNS) byId("turns").lastElementChild.remove();
  };
  try {
    if (comparing) showComparison(asked, await call("/compare", { body: bodyOf(asked), signal: mine.signal }), place);
    else showAnswer(asked, await hear(asked, place, mine.signal), place);
    document.title = `${asked.question} · Openbook`;
  } catch (problem) {
    // half an answer does not stay
    telling?.remove();
    if (running !== mine) return;
    if (problem instanceof Problem) {
      announce("");
      showTrouble(problem, () => ask(asked));
    } else if (problem.name === "AbortError") {
      announce("Cancelled.");
    } else {
      throw problem;
    }
  } finally {
    if (running === mine) {
      running = null;
      stopWaiting();
      drawStale();
    }
  }
  look();
}

// What somebody has opened stays open, and keeps the focus.
function succeed(telling, view) {
  const [before, after] = [telling, view].map((one) => one.querySelector(".words"));
  after.open = before.open;
  const focused = before.contains(document.activeElement);
  telling.replaceWith(view);
  if (focused) after.querySelector("summary").focus();
}

function whom({ options, versions }) {
  if (versions.length) return versions.join(" and ");
  return options.index || latest?.index.live?.version || "the service";
}

function showAnswer(leaning, found, place) {
  const asked = whole(leaning, found);
  const said = found.answer === null ? null : Array.from(found.answer).slice(0, LONGEST_ANSWER).join("");
  turns = [...turns, { question: asked.question, answer: said }].slice(-MOST_TURNS);
  shown = { asked, index: found.index };
  const { without = [] } = asked;
  // as many as were found, without those
  const leaveOut = (id) =>
    askAndRemember({ ...asked, n_docs: found.passages.length + without.length, without: [...without, id] });
  const view = answerView(leaning.question, found, toFragment(asked), leaveOut, without);
  if (latest?.index.feedback) view.append(feedbackView(found.requestId));
  if (latest?.index.offers.includes("receipt")) view.append(receiptView(asked));
  place(view);
  announce(`${answerText(found)}. From ${named(found.index)}.`);
}

// A link, and whoever asks again, has no turns before: the question that was understood needs none.
function whole(asked, { understood_as: question }) {
  if (!question) return asked;
  history.replaceState(null, "", toFragment({ ...asked, question }));
  return { ...asked, question };
}

function showComparison(leaning, found, place) {
  const asked = whole(leaning, found.answers[0]);
  shown = { asked, index: null };
  place(comparisonView(found, toFragment(asked)));
  announce([verdict(found), ...found.answers.map((one) => `${one.index.version}: ${answerText(one)}.`)].join(" "));
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

function drawSources(manifests, versions) {
  const open = versions.map((version) => manifests.get(version)).filter(Boolean);
  byId("sources").replaceChildren(...open.map((one) =>
    element("li", {}, `${one.version}: ${one.source || "source not stated"}. `,
      `Licence: ${one.licence || "not stated"}.`, one.attribution ? ` ${one.attribution}` : "")));
}

function askThis(question) {
  byId("question").value = question;
  byId("ask").requestSubmit();
}

async function onIndex(now) {
  const before = latest?.index.live?.version;
  latest = now;
  drawLive(now);
  const open = offerVersions(now.index);
  preselect(now.index);
  drawVersions(now, look);
  drawStale();
  const live = now.index.live;
  if (before && live && before !== live.version) announce(`${live.version} is live now.`);
  const manifests = await readManifests(now.index.versions);
  drawVersions(latest, look);
  drawSources(manifests, open.toReversed());
  if (live && !byId("turns").childElementCount && !running) await drawBook(manifests.get(live.version), askThis);
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
  if (byId("ask").reportValidity()) askAndRemember({ ...readForm(), versions: comparedVersions() });
});
window.addEventListener("popstate", askTheLink);
askTheLink();
