// Calls of the service. Whatever goes wrong comes out as one kind of error, with the code of the service or our own.

export class Problem extends Error {
  constructor({ code, detail, status = 0, retryAfterS = null, requestId = null }) {
    super(detail);
    Object.assign(this, { code, status, retryAfterS, requestId });
  }
}

// Resolves with the body. Raises Problem, or AbortError where `signal` ended it.
export async function call(path, { body, token, signal } = {}) {
  const options = { signal, headers: {} };
  if (body !== undefined) {
    options.method = "POST";
    options.headers["content-type"] = "application/json";
    options.body = JSON.stringify(body);
  }
  if (token) options.headers.authorization = `Bearer ${token}`;
  let response;
  let answer;
  try {
    response = await fetch(path, options);
    answer = await read(response);
  } catch (error) {
    if (error.name === "AbortError") throw error;
    throw new Problem({
      code: "unreachable",
      detail: "The service does not answer. It may be starting again, or the network may be gone.",
    });
  }
  if (response.ok && answer !== null) return answer;
  throw new Problem({
    code: answer?.code || `http_${response.status}`,
    detail: answer?.detail || `Something between here and the service answered with status ${response.status}.`,
    status: response.status,
    retryAfterS: Number.parseInt(response.headers.get("retry-after"), 10) || null,
    requestId: answer?.request_id || response.headers.get("x-request-id"),
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
