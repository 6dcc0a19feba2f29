// Asks for the key of a service that wants one. The key lives in this module, that is in this tab, and nowhere else.

import { byId } from "./dom.js";

let key = null;
let asking = null;
let declined = false;

export function heldKey() {
  return key;
}

// Resolves with whether there is another key than `tried`, which was refused. Who has declined is asked again only for
// what they do themselves, as `insist` says.
export function anotherKey(tried, insist) {
  if (key !== tried) return Promise.resolve(true);
  if (asking === null && declined && !insist) return Promise.resolve(false);
  asking ??= ask().finally(() => {
    asking = null;
  });
  return asking;
}

function ask() {
  const dialog = byId("key");
  const form = dialog.querySelector("form");
  byId("key-trouble").textContent = key === null ? "" : "The service does not know that key, or not any more.";
  return new Promise((resolve) => {
    declined = true;
    form.onsubmit = (event) => {
      event.preventDefault();
      key = form.elements.key.value.trim();
      declined = false;
      dialog.close();
    };
    byId("key-cancel").onclick = () => dialog.close();
    // Escape ends here as well
    dialog.onclose = () => {
      form.elements.key.value = "";
      resolve(!declined);
    };
    dialog.showModal();
  });
}
