// Figure 2 of the paper as a table: passages by tokens, the prior before and the posterior of the whole answer behind.

import { element, setShare } from "./dom.js";
import { percent } from "./format.js";
import { END, plain } from "./tokens.js";

const NAME = "Posterior of each passage at each token";
const MEANS = {
  per_token: "A column is p(passage | question, tokens up to this one), the share of each passage in that token. "
    + "The last column is their mean.",
  prior: "All passages were read at once, so each keeps its prior: what a sentence stands on, the audit says.",
  running: "A column is p(passage | question, the answer up to this token). The last column is that of the whole.",
};

// The figure; `add(token)`, which adds a column behind the others; `select(i)`, which marks the column of token i, or
// none for null; and `reveal(i)`, which scrolls it into view. `onPoint(i)` tells of the mouse. While the answer is not
// whole, its passages have no posterior.
export function heatMap(answer, onPoint) {
  const columns = [];
  const head = element("tr", {}, element("th", { scope: "col" }, "Passage"),
    element("th", { scope: "col", className: "token prior" }, element("span", {}, "prior")),
    element("th", { scope: "col", className: "token whole" }, element("span", {}, "posterior")));
  const rows = answer.passages.map((passage) => {
    const title = element("span", { className: "title" }, passage.title || passage.passage_id);
    const rank = element("span", { className: "rank" }, passage.rank);
    return element("tr", {}, element("th", { scope: "row" }, rank, " ", title),
      cell(passage.prior, "prior"), cell(passage.posterior, "whole"));
  });
  const add = (token) => {
    const at = columns.length;
    const text = plain(token.text).trim() || "␣";
    const cells = [
      element("th", { scope: "col", className: "token" }, element("span", {}, text === END ? "end" : text)),
      ...token.posterior.map((share) => cell(share)),
    ];
    cells.forEach((one, k) => {
      one.addEventListener("pointerenter", () => onPoint(at));
      (k === 0 ? head : rows[k - 1]).lastElementChild.before(one);
    });
    columns.push(cells);
  };
  answer.tokens.forEach(add);

  const table = element("table", { className: "heat", "aria-label": NAME },
    element("thead", {}, head),
    element("tbody", { onpointerleave: () => onPoint(null) }, rows));
  // wider than a narrow screen: it scrolls by itself, by keyboard as well
  const scroll = element("div", { className: "scroll", role: "region", tabIndex: 0, "aria-label": NAME }, table);
  const select = (at) => columns.forEach((cells, i) => cells.forEach((one) => one.classList.toggle("at", i === at)));
  const means = element("p", { className: "small" }, MEANS[answer.posterior_kind], " In percent.");
  return { figure: [scroll, means], add, select, reveal: (at) => reveal(scroll, columns[at][0]) };
}

// The first column stays where it is, over what is scrolled.
function reveal(scroll, head) {
  const left = head.offsetLeft - scroll.querySelector("th").offsetWidth;
  const right = head.offsetLeft + head.offsetWidth - scroll.clientWidth;
  if (scroll.scrollLeft > left) scroll.scrollLeft = left;
  else if (scroll.scrollLeft < right) scroll.scrollLeft = right;
}

function cell(share, kind = "") {
  if (share === undefined) return element("td", { className: `unknown ${kind}` });
  const strength = share >= 0.7 ? "strong" : share >= 0.5 ? "mid" : "weak";
  const text = String(Math.round(100 * share));
  const shown = element("td", { className: `${strength} ${kind}`.trim(), title: percent(share) }, text);
  setShare(shown, share);
  return shown;
}
