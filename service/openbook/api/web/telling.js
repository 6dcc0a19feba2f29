// An answer while it is made: its passages, and its tokens as they come. The whole answer takes its place.

import { stream } from "./api.js";
import { bodyOf } from "./ask_form.js";
import { element } from "./dom.js";
import { named } from "./format.js";
import { heatMap } from "./heat_map.js";
import { passageList } from "./passages.js";
import { END, plain } from "./tokens.js";

// The whole answer, with its request id. Until it is there, `place(view)` receives what is certain of it, which grows.
export async function hear(asked, place, signal) {
  let telling = null;
  let requestId = null;
  for await (const [name, data] of stream("/answer", { body: { ...bodyOf(asked), stream: true }, signal })) {
    if (name === "request") requestId = data;
    if (name === "answer") return { ...data, requestId };
    if (name === "token") telling.add(data);
    if (name === "passages") {
      telling = tellingView(asked, data);
      place(telling.view);
    }
  }
  return null;
}

// The view, and `add(token)`. `found` is the body of /retrieve. Nothing here is announced: the whole answer is.
function tellingView({ question, options }, found) {
  const passages = passageList(found);
  const posteriorKind = { token: "per_token", "single-prompt": "prior" }[options.model] || "running";
  const map = heatMap({ ...found, tokens: [], posterior_kind: posteriorKind }, () => {});
  const says = element("p", { className: "says" });
  let count = 0;
  const add = (token) => {
    if (plain(token.text) !== END) says.append(token.text);
    map.add(token);
    map.reveal(count++);
    passages.select(token);
  };
  const view = element("article", { className: "telling", "aria-busy": "true" },
    element("h2", { className: "asked" }, question),
    element("div", { className: "beside" },
      element("div", {}, says, element("p", { className: "small" }, `From ${named(found.index)}.`)), passages.view),
    element("details", { className: "words" }, element("summary", {}, "Which passage said which word"), map.figure));
  return { view, add };
}
