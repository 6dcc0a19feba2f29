// The passages of an answer: text with the answer marked, the prior beside the posterior.

import { element, setShare } from "./dom.js";
import { decimals, percent } from "./format.js";

// `text` with the spans [start, end) of code points marked, and those of `around` more softly. JavaScript's strings are
// of UTF-16 units, so that an array of code points is cut.
export function marked(text, spans, around = []) {
  const points = Array.from(text);
  const within = (all, at) => all.some(([start, end]) => start <= at && at < end);
  const kinds = points.map((_, at) => (within(spans, at) ? "said" : within(around, at) ? "around" : ""));
  const cuts = [...kinds.keys()].filter((at) => kinds[at] !== kinds[at - 1]);
  return cuts.map((at, i) => {
    const part = points.slice(at, cuts[i + 1]).join("");
    return kinds[at] ? element("mark", { className: kinds[at] === "around" ? "around" : "" }, part) : part;
  });
}

// The passage that the answer stands on, and behind a disclosure the others; and `select(token)`, which shows the
// posterior at that token, or of the whole answer for null. Of an answer that is not whole yet, the posterior is the
// prior, and nothing is marked. `leaveOut(passage_id)` asks without it.
export function passageList(answer, leaveOut = null) {
  const bars = [];
  const whole = answer.passages.map((passage) => passage.posterior ?? passage.prior);
  // a withheld answer stands on nothing
  const evidence = answer.abstained ? [] : answer.evidence || [];
  const source = evidence.length ? evidence[0].rank : answer.passages[0]?.rank;
  const items = answer.passages.map((passage) => {
    const prior = bar("prior", passage.prior);
    const posterior = bar("posterior", passage.posterior ?? passage.prior);
    bars.push(posterior);
    const spans = answer.abstained ? [] : passage.answer_spans || [];
    const sentences = evidence.filter((one) => one.rank === passage.rank).map((one) => [one.start, one.end]);
    return element("li", {},
      element("h4", {}, element("span", { className: "rank" }, passage.rank), " ",
        linkedTitle(passage, answer.index.version)),
      whence(passage),
      element("p", { className: "text" }, ...marked(passage.text, spans, sentences)),
      prior.line, posterior.line,
      element("p", { className: "small" }, `${passage.passage_id}, doc_score ${decimals(passage.doc_score)} `,
        leaveOut && outButton(passage, leaveOut)));
  });
  const select = (token) => bars.forEach(({ show }, k) => show((token ? token.posterior : whole)[k]));
  const list = (those) => element("ol", { className: "passages" }, those);
  const others = items.filter((_, k) => answer.passages[k].rank !== source);
  const view = element("aside", { className: "sources", "aria-label": "Sources" },
    element("h3", {}, answer.abstained ? "The closest passage" : "Source"),
    list(items.filter((one) => !others.includes(one))),
    others.length
      ? element("details", {}, element("summary", {}, `Other passages: ${others.length}`), list(others)) : null,
    attribution(answer));
  return { view, select };
}

// What the terms of the text ask to be shown with it, if anything.
export function attribution(answer) {
  return answer.attribution ? element("p", { className: "small attribution" }, answer.attribution) : null;
}

function outButton({ passage_id: id, rank }, leaveOut) {
  const button = element("button", { type: "button", className: "out", "aria-label": `Leave out passage ${rank}` },
    "Leave out");
  button.addEventListener("click", () => leaveOut(id));
  return button;
}

// The title, which opens the source where the passage has an address that a browser may follow, else the passage within
// its document.
export function linkedTitle(passage, version) {
  const { page } = passage.metadata;
  const place = `/passages/${encodeURIComponent(version)}/${encodeURIComponent(passage.passage_id)}`
    + (page ? `#page=${encodeURIComponent(page)}` : "");
  const href = opens(passage.url) ? passage.url : place;
  return element("a", { href, target: "_blank", rel: "noopener noreferrer" }, passage.title || passage.passage_id);
}

// The page, the section and the day of a passage, where they are known.
function whence(passage) {
  const { page } = passage.metadata;
  const day = passage.published ? passage.published.slice(0, 10) : null;
  const said = [page && `page ${page}`, passage.section, day].filter(Boolean);
  return said.length ? element("p", { className: "small whence" }, said.join(", ")) : null;
}

// An index may have been made by anybody: only http and https, never a script.
function opens(url) {
  try {
    return ["http:", "https:"].includes(new URL(url).protocol);
  } catch {
    return false;
  }
}

export function bar(label, share) {
  const track = element("span", { className: "track", "aria-hidden": "true" });
  const figure = element("span", { className: "figure" });
  const line = element("p", { className: `bar ${label}` }, element("span", {}, label), track, figure);
  const show = (now) => {
    setShare(track, now);
    figure.textContent = percent(now);
  };
  show(share);
  return { line, show };
}
