// Asks whoever administers, and for their token. The token lives in this module, that is in this tab, and nowhere else.

import { byId } from "./dom.js";

let token = null;

export function heldToken() {
  return token;
}

export function forgetToken() {
  token = null;
}

// Resolves with {policy, checksum} once it is to be done, null where it is not. `flips` says whether a policy matters.
export function confirmed({ title, text, button, flips, trouble = "" }) {
  const dialog = byId("admin");
  const form = dialog.querySelector("form");
  const { token: field, policy, checksum } = form.elements;
  byId("admin-title").textContent = title;
  byId("admin-text").textContent = text;
  byId("admin-trouble").textContent = trouble;
  byId("admin-do").textContent = button;
  byId("policy-field").hidden = !flips;
  byId("token-field").hidden = byId("token-note").hidden = token !== null;
  field.required = token === null;
  field.value = "";
  return new Promise((resolve) => {
    let answer = null;
    form.onsubmit = (event) => {
      event.preventDefault();
      token ??= field.value;
      field.value = "";
      answer = { policy: flips && policy.value ? policy.value : undefined, checksum: checksum.checked };
      dialog.close();
    };
    byId("admin-cancel").onclick = () => dialog.close();
    // Escape ends here as well
    dialog.onclose = () => {
      field.value = "";
      resolve(answer);
    };
    dialog.showModal();
  });
}
