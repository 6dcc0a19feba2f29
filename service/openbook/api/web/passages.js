// The passages of an answer: text with the answer marked, the prior beside the posterior.

import { element, setShare } from "./dom.js";
import { decimals, percent } from "./format.js";

// `text` with the spans [start, end) of code points marked. JavaScript's strings are of UTF-16 units, so that an array
// of code points is cut.
export function marked(text, spans) {
  const points = Array.from(text);
  const parts = [];
  let at = 0;
  for (const [start, end] of [...spans].sort((one, other) => one[0] - other[0])) {
    if (start < at) continue;
    parts.push(points.slice(at, start).join(""), element("mark", {}, points.slice(start, end).join("")));
    at = end;
  }
  return [...parts, points.slice(at).join("")];
}

// The list, and `select(token)`, which shows the posterior at that token, or of the whole answer for null. Of an answer
// that is not whole yet, the posterior is the prior, and nothing is marked. `leaveOut(passage_id)` asks without it.
export function passageList(answer, leaveOut = null) {
  const bars = [];
  const items = answer.passages.map((passage) => {
    const prior = bar("prior", passage.prior);
    const posterior = bar("posterior", passage.posterior ?? passage.prior);
    bars.push(posterior);
    return element("li", {},
      element("h4", {}, element("span", { className: "rank" }, passage.rank), " ",
        linkedTitle(passage, answer.index.version)),
      whence(passage),
      element("div", { className: "shares" }, prior.line, posterior.line,
        element("p", { className: "small" }, `doc_score ${decimals(passage.doc_score)}`)),
      element("p", { className: "text" }, ...marked(passage.text, passage.answer_spans || [])),
      element("p", { className: "small" }, passage.passage_id, " ", leaveOut && outButton(passage, leaveOut)));
  });
  const whole = answer.passages.map((passage) => passage.posterior ?? passage.prior);
  const select = (token) => bars.forEach(({ show }, k) => show((token ? token.posterior : whole)[k]));
  return { list: element("ol", { className: "passages" }, items), select };
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
