// What this book is, what it holds, and questions that it answers: before anything is asked.

import { call } from "./api.js";
import { byId, element } from "./dom.js";
import { count, dated } from "./format.js";
import { linkedTitle } from "./passages.js";

// the version that is drawn, once all is there that the service tells of it
let whole = null;
let begun = false;

// `ask(question)` is called with a question that is chosen. Without the plug-in, the manifest says what there is.
export async function drawBook(manifest, ask) {
  byId("welcome").hidden = manifest === null;
  if (manifest === null || whole === manifest.version) return;
  const { version } = manifest;
  const book = await call("/welcome").catch(() => ({ version, complete: true, questions: [], documents: null }));
  if (book.version !== version) return;
  if (book.complete) whole = version;
  const documents = book.documents === null ? "" : `${count(book.documents)} documents in `;
  byId("book").textContent = `${version}: ${documents}${count(manifest.n_passages)} passages${dated(manifest)}`;
  byId("offered").hidden = book.questions.length === 0;
  const listed = byId("examples");
  // a button that has the focus keeps it
  if (listed.dataset.version !== version) listed.replaceChildren();
  listed.dataset.version = version;
  listed.append(...book.questions.slice(listed.childElementCount).map((question) => {
    const button = element("button", { type: "button" }, question);
    button.addEventListener("click", () => ask(question));
    return element("li", {}, button);
  }));
  byId("documents").hidden = book.documents === null;
  if (begun) return;
  begun = true;
  byId("documents").addEventListener("toggle", list);
  byId("titles").addEventListener("input", list);
}

async function list() {
  const contains = byId("titles").value;
  const found = await call(`/welcome/documents?contains=${encodeURIComponent(contains)}`).catch(() => null);
  // a later letter has been typed meanwhile
  if (found === null || contains !== byId("titles").value) return;
  const { total, documents } = found;
  byId("listed").textContent = total > documents.length
    ? `The first ${documents.length} of ${count(total)}.` : `${count(total)} of them.`;
  byId("listing").replaceChildren(...documents.map((one) => element("li", {}, linkedTitle(one, found.version))));
}
