// One question in several versions: side by side, with what differs marked, and each answer to be looked at in whole.

import { answerText, answerView, understood } from "./answer.js";
import { compareWords } from "./difference.js";
import { element, small } from "./dom.js";
import { date, decimals, percent, probability } from "./format.js";
import { attribution, linkedTitle } from "./passages.js";

// Beyond this many characters two texts are not compared: it takes the product of their words.
const LONGEST = 20000;

export function comparisonView(found, link) {
  const whole = element("div", { className: "whole-answer" });
  const buttons = found.answers.map((answer) => {
    const { version } = answer.index;
    const button = element("button", { type: "button", "aria-pressed": "false" }, `Tokens and passages of ${version}`);
    button.addEventListener("click", () => {
      const shown = button.getAttribute("aria-pressed") === "true";
      buttons.forEach((one) => one.setAttribute("aria-pressed", String(one === button && !shown)));
      whole.replaceChildren(...(shown ? [] : [answerView(found.question, answer, null)]));
    });
    return button;
  });
  return element("article", { className: "comparison" },
    element("h2", { className: "asked" }, found.question),
    understood(found.answers[0]),
    element("p", { className: "verdict" }, verdict(found)),
    element("p", { className: "small" }, link && element("a", { href: link }, "Link to this comparison")),
    element("div", { className: "versions" },
      found.answers.map((answer, at) => column(found, answer, at, buttons[at]))),
    whole);
}

export function verdict(found) {
  const two = found.answers.length === 2;
  if (found.agree) return two ? "Both versions say the same." : "All versions say the same.";
  return two ? "The versions differ." : `The versions give ${found.groups.length} different answers.`;
}

function column(found, answer, at, button) {
  // against the first; the first against the second
  const other = found.answers[at === 0 ? 1 : 0];
  const said = found.agree ? [answerText(answer)] : different(answerText(answer), answerText(other));
  return element("section", {},
    element("h3", {}, answer.index.version, small(`text of ${date(answer.index.snapshot_date)}`)),
    element("p", { className: "says" }, said),
    element("p", { className: "small" },
      `log p ${decimals(answer.log_prob)}, p(no answer) ${probability(answer.no_answer)}`),
    element("ol", { className: "found", "aria-label": `Passages of ${answer.index.version}` },
      answer.passages.map((passage) => foundPassage(passage, answer, other))),
    attribution(answer),
    element("p", {}, button));
}

function foundPassage(passage, answer, other) {
  const theirs = other.passages.find((one) => one.passage_id === passage.passage_id);
  const name = element("p", { className: "name" }, element("b", {}, linkedTitle(passage, answer.index.version)), " ",
    small(`posterior ${percent(passage.posterior)}`));
  const tag = (text) => element("p", { className: "tag" }, text);
  const text = (...parts) => element("p", { className: "text" }, ...parts);
  if (!theirs) return element("li", {}, name, tag(`not among those of ${other.index.version}`), text(passage.text));
  if (theirs.text === passage.text) return element("li", {}, name, tag(`the same text as in ${other.index.version}`));
  return element("li", {}, name, text(different(passage.text, theirs.text)));
}

// The words of `text`, those that `other` lacks marked.
function different(text, other) {
  if (Math.max(text.length, other.length) > LONGEST) return [text];
  const parts = [];
  for (const [word, same] of compareWords(text, other)) {
    const last = parts.at(-1);
    if (last && last.same === same) last.words += word;
    else parts.push({ same, words: word });
  }
  return parts.flatMap(({ same, words }) => {
    const marked = words.trimEnd();
    return same ? [words] : [element("mark", { className: "differs" }, marked), words.slice(marked.length)];
  });
}
