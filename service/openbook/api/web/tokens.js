// The tokens of an answer as one row of buttons: hover, focus or walk with the arrow keys.

import { element } from "./dom.js";
import { decimals, percent } from "./format.js";

export const END = "end of the answer";
const SPECIAL = /^(\[SEP\]|\[CLS\]|\[PAD\]|<\/?s>|<pad>)$/;

export function plain(text) {
  return SPECIAL.test(text.trim()) ? END : text;
}

// The row, and `onPoint(i)` for the token that is pointed at, null for none. One stop of the Tab key for all.
export function tokenRow(answer, onPoint) {
  let pointed = null;
  let focused = null;
  const tell = () => onPoint(pointed ?? focused);
  const buttons = answer.tokens.map((token, i) => {
    const text = plain(token.text);
    const button = element("button", {
      type: "button", tabIndex: i === 0 ? 0 : -1, "aria-label": spoken(token, text, answer.passages),
      className: text === END ? "end" : text.startsWith(" ") || i === 0 ? "word" : "piece",
    }, text === END ? "end" : text.trim() || "␣");
    button.addEventListener("pointerenter", () => { pointed = i; tell(); });
    // what came last wins: the arrow keys over a mouse that rests on a token
    button.addEventListener("focus", () => { focused = i; pointed = null; tell(); });
    button.addEventListener("blur", () => { focused = null; tell(); });
    // a button that is touched or clicked does not take the focus in every browser
    button.addEventListener("click", () => button.focus());
    return button;
  });
  const row = element("div", { className: "tokens", role: "toolbar", "aria-label": "Tokens of the answer" }, buttons);
  row.addEventListener("pointerleave", () => { pointed = null; tell(); });
  row.addEventListener("keydown", (event) => {
    const at = buttons.indexOf(document.activeElement);
    const last = buttons.length - 1;
    const to = { ArrowRight: Math.min(at + 1, last), ArrowLeft: Math.max(at - 1, 0), Home: 0, End: last }[event.key];
    if (event.key === "Escape") document.activeElement.blur();
    if (to === undefined || at < 0) return;
    event.preventDefault();
    buttons[at].tabIndex = -1;
    buttons[to].tabIndex = 0;
    buttons[to].focus();
  });
  const select = (at) => buttons.forEach((button, i) => button.classList.toggle("at", i === at));
  return { row, select };
}

// What a screen reader says at a token: the passages that it owes most to. The table has them all.
function spoken(token, text, passages) {
  const most = token.posterior
    .map((share, k) => [share, passages[k]])
    .sort((one, other) => other[0] - one[0])
    .slice(0, 3)
    .filter(([share]) => share >= 0.005)
    .map(([share, passage]) => `passage ${passage.rank}, ${passage.title}, ${percent(share)}`);
  return `${text.trim()}: log probability ${decimals(token.log_prob)}; ${most.join("; ")}`;
}
