// Asks, and shows which passage every token came from. What the service sends is only ever put into text nodes.
"use strict";

const ask = document.getElementById("ask");
const swap = document.getElementById("swap");
const trouble = document.getElementById("trouble");

function element(name, properties = {}, ...children) {
  const made = Object.assign(document.createElement(name), properties);
  made.append(...children);
  return made;
}

async function request(path, options = {}) {
  const response = await fetch(path, options);
  const body = await response.json();
  if (!response.ok) throw new Error(body.detail || `The service answered ${response.status}.`);
  return body;
}

function post(path, body, headers = {}) {
  return request(path, {
    method: "POST", headers: { "content-type": "application/json", ...headers }, body: JSON.stringify(body),
  });
}

function percent(share) {
  return `${(100 * share).toFixed(share < 0.1 ? 1 : 0)} %`;
}

// Spans count Unicode code points, JavaScript strings count UTF-16 units: cut an array of code points.
function marked(text, spans) {
  const points = Array.from(text);
  const parts = [];
  let at = 0;
  for (const [start, end] of [...spans].sort((one, other) => one[0] - other[0])) {
    if (start < at) continue;
    parts.push(points.slice(at, start).join(""), element("mark", {}, points.slice(start, end).join("")));
    at = end;
  }
  return [...parts, points.slice(at).join("")];
}

function bar(label, share) {
  const meter = element("meter", { min: 0, max: 1, value: share });
  const figure = element("span", {}, percent(share));
  meter.setAttribute("aria-label", label);
  return { line: element("span", {}, `${label} `, meter, " ", figure), meter, figure };
}

function show(answer) {
  document.getElementById("answer").textContent = answer.answer || "(an empty answer)";
  document.getElementById("facts").textContent = `from ${answer.index.version}, generation ${answer.index.generation}`
    + ` · log p = ${answer.log_prob.toFixed(2)} · ${(1000 * answer.seconds.total).toFixed(0)} ms · ${answer.checkpoint}`;
  document.getElementById("posterior-hint").textContent = answer.posterior_kind === "per_token"
    ? "Point at a token, or focus it, to see which passages it came from."
    : "Point at a token, or focus it, to see what the answer up to there says about the passages.";

  const shares = [];
  document.getElementById("passages").replaceChildren(...answer.passages.map((passage) => {
    const prior = bar("prior", passage.prior);
    const posterior = bar("posterior", passage.posterior);
    shares.push(posterior);
    return element("li", {}, element("h4", {}, `${passage.rank}. ${passage.title}`),
      element("p", {}, ...marked(passage.text, passage.answer_spans)),
      element("p", { className: "bars" }, prior.line, posterior.line));
  }));

  const whole = answer.passages.map((passage) => passage.posterior);
  const buttons = [];
  const point = (posterior, pressed) => {
    posterior.forEach((share, rank) => {
      shares[rank].meter.value = share;
      shares[rank].figure.textContent = percent(share);
    });
    buttons.forEach((button) => button.setAttribute("aria-pressed", String(button === pressed)));
  };
  for (const token of answer.tokens) {
    const button = element("button", { type: "button", title: `log p = ${token.log_prob.toFixed(2)}` }, token.text);
    for (const event of ["focus", "mouseenter", "click"]) {
      button.addEventListener(event, () => point(token.posterior, button));
    }
    buttons.push(button);
  }
  const tokens = document.getElementById("tokens");
  tokens.replaceChildren(...buttons);
  tokens.onmouseleave = () => point(whole, null);
  point(whole, null);
  document.getElementById("result").hidden = false;
}

async function showIndex() {
  const index = await request("/index");
  document.getElementById("live").textContent = index.live
    ? `${index.live.version}, text of ${index.live.snapshot_date || "no date"}, generation ${index.live.generation}`
    : "no index is live";
  const versions = swap.elements.version;
  const chosen = versions.value;
  versions.replaceChildren(...index.versions.map((version) => element("option", {}, version)));
  const others = index.versions.filter((version) => !index.live || version !== index.live.version);
  versions.value = others.includes(chosen) ? chosen : others[0] || index.versions[0] || "";
}

async function attempt(form, work) {
  const button = form.querySelector("button");
  button.disabled = true;
  trouble.hidden = true;
  try {
    await work();
  } catch (error) {
    trouble.textContent = error.message;
    trouble.hidden = false;
  } finally {
    button.disabled = false;
  }
}

ask.elements.model.addEventListener("change", () => {
  ask.elements.decoding.disabled = ask.elements.model.value !== "sequence";
});

ask.addEventListener("submit", (event) => {
  event.preventDefault();
  attempt(ask, async () => {
    const { question, model, decoding, n_docs, num_beams } = ask.elements;
    show(await post("/answer", {
      question: question.value, model: model.value, decoding: decoding.value,
      n_docs: n_docs.valueAsNumber, num_beams: num_beams.valueAsNumber,
    }));
    await showIndex();
  });
});

swap.addEventListener("submit", (event) => {
  event.preventDefault();
  attempt(swap, async () => {
    const { version, token } = swap.elements;
    const done = await post("/index/swap", { version: version.value }, { authorization: `Bearer ${token.value}` });
    document.getElementById("swapped").textContent =
      `${done.version} is live since ${(1000 * done.seconds.total).toFixed(0)} ms, generation ${done.generation}`;
    await showIndex();
  });
});

showIndex().catch((error) => {
  trouble.textContent = error.message;
  trouble.hidden = false;
});
