// Renders /openapi.json: each call with its fields, its responses and an example that can be sent from here.
"use strict";

function element(name, properties = {}, ...children) {
  const made = Object.assign(document.createElement(name), properties);
  made.append(...children);
  return made;
}

function resolve(document_, schema) {
  if (!schema || !schema.$ref) return schema || {};
  return schema.$ref.slice(2).split("/").reduce((node, part) => node[part], document_);
}

function typeOf(document_, schema) {
  if (schema.$ref) return schema.$ref.split("/").pop();
  if (schema.enum) return schema.enum.map((value) => JSON.stringify(value)).join(" | ");
  if (schema.anyOf) return schema.anyOf.map((one) => typeOf(document_, one)).join(" | ");
  if (schema.type === "array") return `[${typeOf(document_, schema.items || {})}]`;
  return schema.type || "any";
}

function bounds(schema) {
  const all = [schema, ...(schema.anyOf || [])];
  const words = { minimum: "from ", maximum: "to ", exclusiveMinimum: "above ", maxLength: "at most ",
    minItems: "at least ", maxItems: "at most " };
  const units = { maxLength: " characters", minItems: " entries", maxItems: " entries" };
  return all.flatMap((one) => Object.keys(words).filter((key) => key in one)
    .map((key) => words[key] + one[key] + (units[key] || ""))).join(", ");
}

function fields(document_, schema) {
  const rows = Object.entries(schema.properties || {}).map(([name, field]) => element("tr", {},
    element("th", { scope: "row" }, element("code", {}, name)),
    element("td", {}, typeOf(document_, field)),
    element("td", {}, (schema.required || []).includes(name) ? "required"
      : field.default === undefined ? "" : JSON.stringify(field.default)),
    element("td", {}, [bounds(field), field.description].filter(Boolean).join(". "))));
  const names = ["field", "type", "default", "means"];
  const head = element("tr", {}, ...names.map((text) => element("th", { scope: "col" }, text)));
  return element("table", {}, element("thead", {}, head), element("tbody", {}, ...rows));
}

function trial(path, method, example, secured) {
  const body = example && element("textarea", { value: JSON.stringify(example, null, 2), rows: 6, spellcheck: false });
  const token = element("input", { type: "password", autocomplete: "off" });
  const version = path.includes("{version}") && element("input", { value: "wiki-2018" });
  const output = element("pre", { tabIndex: 0, hidden: true });
  const form = element("form", {});
  for (const [label, field] of [["body", body], [secured ? "admin token" : "API key", token], ["version", version]]) {
    if (field) form.append(element("label", {}, label, field));
  }
  // a service that wants a key says so
  token.parentElement.hidden = !secured;
  form.append(element("button", {}, "Send"), output);
  form.addEventListener("submit", async (event) => {
    event.preventDefault();
    output.hidden = false;
    output.textContent = "...";
    const headers = {};
    if (body) headers["content-type"] = "application/json";
    if (token.value) headers.authorization = `Bearer ${token.value}`;
    const address = version ? path.replace("{version}", encodeURIComponent(version.value)) : path;
    try {
      const sent = { method: method.toUpperCase(), headers, body: body ? body.value : undefined };
      const response = await fetch(address, sent);
      if (response.status === 401) token.parentElement.hidden = false;
      const text = await response.text();
      const json = (response.headers.get("content-type") || "").includes("json");
      output.textContent = `${response.status}\n${json ? JSON.stringify(JSON.parse(text), null, 2) : text}`;
    } catch (error) {
      output.textContent = String(error);
    }
  });
  return form;
}

function call(document_, path, method, operation) {
  const request = operation.requestBody && operation.requestBody.content["application/json"].schema;
  const schema = request && resolve(document_, request);
  const section = element("section", {},
    element("h2", {}, element("code", {}, `${method.toUpperCase()} ${path}`)),
    element("p", {}, operation.description || ""));
  if (schema) section.append(element("h3", {}, "Request"), fields(document_, schema));
  const ok = operation.responses["200"];
  const answer = ok && ok.content && ok.content["application/json"];
  if (answer) section.append(element("h3", {}, "Response"), fields(document_, resolve(document_, answer.schema)));
  const errors = Object.entries(operation.responses).filter(([status]) => status >= "400");
  if (errors.length) {
    section.append(element("h3", {}, "Errors"), element("ul", {}, ...errors.map(([status, response]) =>
      element("li", {}, `${status}: ${response.description.replaceAll("`", "")}`))));
  }
  section.append(element("h3", {}, "Try it"),
    trial(path, method, schema && schema.examples && schema.examples[0], Boolean(operation.security)));
  return section;
}

async function show() {
  const main = document.getElementById("calls");
  try {
    const document_ = await (await fetch("/openapi.json")).json();
    main.replaceChildren(...Object.entries(document_.paths).flatMap(([path, methods]) =>
      Object.entries(methods).map(([method, operation]) => call(document_, path, method, operation))));
  } catch (error) {
    main.replaceChildren(element("p", { role: "alert" }, `The document could not be read: ${error}`));
  }
  main.removeAttribute("aria-busy");
}

show();
