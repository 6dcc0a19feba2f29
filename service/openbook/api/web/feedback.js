// What a reader says of an answer, where the service keeps it: right or wrong, and what it should have been.

import { call } from "./api.js";
import { element } from "./dom.js";

export function feedbackView(requestId) {
  const said = element("span", { role: "status" });
  const send = async (rating, correction) => {
    const body = { request_id: requestId, rating, ...(correction && { correction }) };
    try {
      await call("/feedback", { body });
      wrong.hidden = true;
      said.textContent = "Kept. Thank you.";
    } catch (problem) {
      said.textContent = problem.message;
    }
  };
  const correction = element("input", { maxLength: 2000 });
  const wrong = element("form", { hidden: true },
    element("label", {}, "What should it say? (You may leave this empty.) ", correction), " ",
    element("button", {}, "Send"));
  wrong.addEventListener("submit", (event) => {
    event.preventDefault();
    send("down", correction.value.trim());
  });
  const up = element("button", { type: "button" }, "Right");
  up.addEventListener("click", () => send("up"));
  const down = element("button", { type: "button" }, "Wrong");
  down.addEventListener("click", () => {
    wrong.hidden = false;
    correction.focus();
  });
  const actions = element("p", { className: "actions" }, "Is this answer right? ", up, " ", down, " ", said);
  return element("aside", { className: "feedback", "aria-label": "Feedback" }, actions, wrong);
}
