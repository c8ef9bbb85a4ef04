// The HTTP API, as the principal who signed in. The browser sends the cookie; no script can read it.

/** An answer other than success. `problems` are `{field, problem}`; `status` 0 means that no answer came. */
export class ApiError extends Error {
  constructor(status, problem) {
    super(problem.detail ?? problem.title ?? "the request failed");
    this.status = status;
    this.title = problem.title ?? "Error";
    this.code = problem.code ?? "";
    this.detail = problem.detail ?? "";
    this.problems = problem.errors ?? [];
  }
}

let project = null;
let onUnauthenticated = () => {};

/** Select the project of all requests. */
export function setProject(name) {
  project = name;
}

/** Return the selected project. */
export function currentProject() {
  return project;
}

/** Call `listener` when a request is refused because nobody is signed in, or the token was revoked. */
export function whenUnauthenticated(listener) {
  onUnauthenticated = listener;
}

/** Return the address of an API path with the project and other parameters. Absent ones are left out. */
export function address(path, parameters = {}) {
  const query = new URLSearchParams();
  for (const [name, value] of Object.entries({ project, ...parameters })) {
    if (value === null || value === undefined || value === "") continue;
    for (const one of Array.isArray(value) ? value : [value]) query.append(name, String(one));
  }
  return query.size ? `${path}?${query}` : path;
}

/** Return `next(signal)`: the signal of one more request, which ends the one before. An answer that is late replaces nothing. */
export function replacing() {
  let last = null;
  return (signal) => {
    last?.abort();
    last = new AbortController();
    return AbortSignal.any([signal, last.signal]);
  };
}

/** Read. Return the JSON of the answer. Throws `ApiError`. */
export async function get(path, parameters = {}, { signal } = {}) {
  return answer(await request("GET", path, parameters, undefined, signal));
}

/** Change. Return the JSON of the answer, null without one. Throws `ApiError`. */
export async function send(method, path, body, parameters = {}, { signal } = {}) {
  return answer(await request(method, path, parameters, body, signal));
}

/** Return all items of a list, page by page, at most `limit`. `complete` is false if there are more. */
export async function all(path, parameters = {}, { signal, limit = 1000 } = {}) {
  const items = [];
  let cursor = null;
  do {
    const page = await get(path, { ...parameters, cursor }, { signal });
    items.push(...page.items);
    cursor = page.next_cursor;
  } while (cursor !== null && items.length < limit);
  return { items: items.slice(0, limit), complete: cursor === null && items.length <= limit };
}

/** Send a request and return the response. Throws `ApiError` for an answer that is no success. */
export async function request(method, path, parameters, body, signal, headers = {}) {
  let response;
  try {
    response = await fetch(address(path, parameters), {
      method,
      signal,
      cache: "no-store",
      credentials: "same-origin",
      headers: body === undefined ? headers : { "Content-Type": "application/json", ...headers },
      body: body === undefined ? undefined : JSON.stringify(body),
    });
  } catch (error) {
    if (error.name === "AbortError") throw error;
    throw new ApiError(0, { title: "No answer", detail: "The server does not answer. Is it running?" });
  }
  if (response.ok) return response;
  const error = new ApiError(response.status, await problemOf(response));
  if (error.status === 401) onUnauthenticated(error);
  throw error;
}

async function answer(response) {
  if (response.status === 204) return null;
  const text = await response.text();
  return text ? JSON.parse(text) : null;
}

async function problemOf(response) {
  try {
    return await response.json();
  } catch {
    return { title: response.statusText || `Status ${response.status}` };
  }
}
