// The field of the filter: what is written there as JSON, and what is wrong with it.

import { Problem } from "./api.js";
import { byId } from "./dom.js";

// Raises Problem for what is no JSON; whether it is a filter, the service says.
export function filterOf(text) {
  if (!text.trim()) return null;
  try {
    return JSON.parse(text);
  } catch (error) {
    throw new Problem({ code: "filter_invalid", detail: `filter: this is no JSON. ${error.message}.` });
  }
}

// What is wrong with the filter, beside it; null where nothing is.
export function showFilterTrouble(problem) {
  const wrong = problem !== null && problem.code.startsWith("filter_");
  byId("filter-trouble").textContent = wrong ? problem.message : "";
  byId("filter-trouble").hidden = !wrong;
  byId("ask").elements.filter.setAttribute("aria-invalid", wrong);
  if (wrong) byId("options").open = true;
}
