// A receipt of an answer, to keep and to print. The service makes none of a stream, so the question is asked once more.

import { call } from "./api.js";
import { bodyOf } from "./ask_form.js";
import { element } from "./dom.js";

export function receiptView(asked) {
  const said = element("span", { role: "status" });
  const keep = element("button", { type: "button" }, "Keep a receipt");
  keep.addEventListener("click", async () => {
    keep.disabled = true;
    said.textContent = "Asking once more …";
    try {
      const { receipt } = await call("/answer", { body: { ...bodyOf(asked), receipt: true } });
      const link = { href: `/receipts/${receipt}`, target: "_blank", rel: "noopener noreferrer" };
      said.replaceChildren(element("a", link, "The receipt"), ", signed, to print or save.");
      keep.remove();
    } catch (problem) {
      said.textContent = problem.message;
      keep.disabled = false;
    }
  });
  return element("aside", { className: "feedback", "aria-label": "Receipt" },
    element("p", { className: "actions" }, keep, " ", said));
}
