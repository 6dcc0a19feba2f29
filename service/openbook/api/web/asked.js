// The questions of this tab with what they were answered, newest first. They go with the tab: nothing is stored.

import { byId, element } from "./dom.js";

const MOST = 50;

// `ask` is called with the question that is chosen.
export function remember({ asked, link, text, versions }, ask) {
  const entry = element("a", { href: link }, asked.question);
  entry.addEventListener("click", (event) => {
    if (event.ctrlKey || event.metaKey || event.shiftKey) return;
    event.preventDefault();
    ask(asked);
  });
  const list = byId("asked-list");
  list.prepend(element("li", {}, entry, " ", element("span", { className: "said" }, text), " ",
    element("span", { className: "small" }, versions)));
  while (list.childElementCount > MOST) list.lastElementChild.remove();
  byId("asked-count").textContent = list.childElementCount;
  byId("asked").hidden = false;
}
