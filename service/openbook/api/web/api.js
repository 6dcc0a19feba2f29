// Calls of the service. Whatever goes wrong comes out as one kind of error, with the code of the service or our own.

import { EventReader } from "./events.js";
import { anotherKey, heldKey } from "./key.js";

export class Problem extends Error {
  constructor({ code, detail, status = 0, retryAfterS = null, requestId = null }) {
    super(detail);
    Object.assign(this, { code, status, retryAfterS, requestId });
  }
}

// Resolves with the body. Raises Problem, or AbortError where `signal` ended it.
export async function call(path, { body, token, signal } = {}) {
  const response = await send(path, { body, token, signal });
  const answer = await reached(read(response));
  if (response.ok && answer !== null) return answer;
  throw problemOf(answer || {}, response);
}

// The events of an answer as the service tells them: [name, data] of `passages`, of each `token`, and of `answer`,
// which is the last. Before them `request` with the request id. Raises as `call` does, also in the middle.
export async function* stream(path, { body, signal }) {
  const response = await send(path, { body, signal });
  if (!response.ok) throw problemOf(await reached(read(response)) || {}, response);
  yield ["request", response.headers.get("x-request-id")];
  const reader = response.body.pipeThrough(new TextDecoderStream()).getReader();
  const events = new EventReader();
  for (;;) {
    const { done, value } = await reached(reader.read());
    // cut off: an answer or an error is always the last event
    if (done) throw unreachable();
    for (const [name, data] of events.feed(value)) {
      if (name === "error") throw problemOf(JSON.parse(data));
      yield [name, JSON.parse(data)];
      if (name === "answer") return;
    }
  }
}

// A service that wants a key is asked again with one.
async function send(path, { body, token, signal }) {
  for (;;) {
    const key = heldKey();
    const response = await sendOnce(path, { body, token: token || key, signal });
    if (response.status !== 401 || token || !await anotherKey(key, body !== undefined)) return response;
  }
}

function sendOnce(path, { body, token, signal }) {
  const options = { signal, headers: {} };
  if (body !== undefined) {
    options.method = "POST";
    options.headers["content-type"] = "application/json";
    options.body = JSON.stringify(body);
  }
  if (token) options.headers.authorization = `Bearer ${token}`;
  return reached(fetch(path, options));
}

// What the network breaks off is a Problem as well.
async function reached(promise) {
  try {
    return await promise;
  } catch (error) {
    if (error.name === "AbortError") throw error;
    throw unreachable();
  }
}

function unreachable() {
  return new Problem({
    code: "unreachable",
    detail: "The service does not answer. It may be starting again, or the network may be gone.",
  });
}

function problemOf(body, response = null) {
  const status = response?.status || body.status;
  return new Problem({
    code: body.code || `http_${status}`,
    detail: body.detail || `Something between here and the service answered with status ${status}.`,
    status,
    retryAfterS: Number.parseInt(response?.headers.get("retry-after"), 10) || null,
    requestId: body.request_id || response?.headers.get("x-request-id"),
  });
}

// null for what is no JSON: the page of a proxy, perhaps.
async function read(response) {
  const text = await response.text();
  try {
    return JSON.parse(text);
  } catch {
    return null;
  }
}
