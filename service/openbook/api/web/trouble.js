// What went wrong, in a sentence, with what can be done about it.

import { byId, element } from "./dom.js";
import { showFilterTrouble } from "./filter.js";

const TITLES = {
  overloaded: "The service is busy",
  not_ready: "No index is live at the moment",
  deadline_exceeded: "The time for this question is up",
  unreachable: "No connection",
  index_not_resident: "This version is not open",
  unknown_index: "There is no such version",
  invalid_request: "The service does not take this",
  filter_invalid: "This is no filter",
  filter_field_unknown: "The filter does not fit this version",
  filter_type_wrong: "The filter does not fit this version",
  filter_matches_nothing: "No passage passes the filter",
};
const AGAIN = new Set(["overloaded", "not_ready", "deadline_exceeded", "unreachable", "internal_error"]);

let timer = null;

export function showTrouble(problem, retry) {
  const names = [problem.code, problem.requestId && `request ${problem.requestId}`].filter(Boolean);
  byId("trouble-text").replaceChildren(
    element("h2", {}, TITLES[problem.code] || "That did not work"),
    element("p", {}, problem.message),
    element("p", { className: "small" }, names.join(", ")));
  const button = byId("retry");
  button.hidden = !AGAIN.has(problem.code);
  button.onclick = retry;
  count(button.hidden ? null : problem.retryAfterS);
  showFilterTrouble(problem);
  byId("trouble").hidden = false;
  byId("trouble").scrollIntoView({ block: "nearest" });
}

export function hideTrouble() {
  clearInterval(timer);
  showFilterTrouble(null);
  byId("trouble").hidden = true;
  byId("trouble-text").replaceChildren();
}

// Down to when the service says that a place may be free. The button works before as well.
function count(seconds) {
  clearInterval(timer);
  const text = byId("retry-when");
  text.textContent = "";
  if (!seconds) return;
  const end = Date.now() + 1000 * seconds;
  const tick = () => {
    const left = Math.ceil((end - Date.now()) / 1000);
    text.textContent = left > 0 ? `The service suggests to wait ${left} s.` : "Now is a good moment.";
    if (left <= 0) clearInterval(timer);
  };
  tick();
  timer = setInterval(tick, 250);
}
