// Event streams (SSE). Read with fetch and not with EventSource: it shows the status of a refusal, so the end of a
// revoked token is not retried for ever, and a new connection can continue after an event of an earlier one.

import { ApiError, request } from "./api.js";

const FIRST_WAIT_MS = 500;
const LONGEST_WAIT_MS = 10_000;

/**
 * Read a stream until `signal` aborts, and continue after the last event when the connection is lost.
 *
 * `onEvent({id, name, data})` for each event. `onGap({after})` where retention has deleted events.
 * `onState("live" | "waiting" | "refused" | "paused", {since, error})` when the connection changes; `since` is the time of the loss.
 * A hidden tab holds no connection (browsers allow six to a server) and continues after the last event when it is shown.
 * `after` is the id to continue after, `parameters` the query.
 */
export async function stream(path, { parameters = {}, after = null, onEvent, onGap, onState = () => {}, signal }) {
  let last = after;
  let wait = FIRST_WAIT_MS;
  let lostAt = null;
  while (!signal.aborted) {
    await visible(signal, () => onState("paused", { since: null }));
    const connection = new AbortController();
    const end = () => connection.abort();
    const hide = () => document.hidden && end();
    signal.addEventListener("abort", end);
    document.addEventListener("visibilitychange", hide);
    try {
      const headers = { Accept: "text/event-stream", ...(last === null ? {} : { "Last-Event-ID": String(last) }) };
      const response = await request("GET", path, parameters, undefined, connection.signal, headers);
      onState("live", { since: lostAt });
      lostAt = null;
      wait = FIRST_WAIT_MS;
      for await (const event of events(response.body)) {
        if (event.id !== "") last = event.id;
        if (event.name === "gap") onGap?.(JSON.parse(event.data));
        else onEvent(event);
      }
    } catch (error) {
      if (signal.aborted) return;
      if (error instanceof ApiError && error.status >= 400 && error.status < 500 && error.status !== 429) {
        onState("refused", { since: null, error });
        return;
      }
    } finally {
      signal.removeEventListener("abort", end);
      document.removeEventListener("visibilitychange", hide);
    }
    if (signal.aborted) return;
    if (document.hidden) continue;
    lostAt ??= new Date();
    onState("waiting", { since: lostAt });
    await pause(wait * (0.75 + Math.random() / 2), signal);
    wait = Math.min(wait * 2, LONGEST_WAIT_MS);
  }
}

/** Yield the events of a body in `text/event-stream`, as `{id, name, data}`; comments are left out. */
export async function* events(body) {
  const reader = body.pipeThrough(new TextDecoderStream()).getReader();
  let rest = "";
  let event = { id: "", name: "message", data: [] };
  try {
    for (;;) {
      const { done, value } = await reader.read();
      if (done) return;
      const lines = (rest + value).split(/\r\n|\n|\r(?!$)/);
      rest = lines.pop();
      for (const line of lines) {
        if (line === "") {
          if (event.data.length) yield { ...event, data: event.data.join("\n") };
          event = { id: "", name: "message", data: [] };
          continue;
        }
        const colon = line.indexOf(":");
        const field = colon < 0 ? line : line.slice(0, colon);
        const text = colon < 0 ? "" : line.slice(colon + 1).replace(/^ /, "");
        if (field === "data") event.data.push(text);
        else if (field === "id") event.id = text;
        else if (field === "event") event.name = text;
      }
    }
  } finally {
    reader.cancel().catch(() => {});
  }
}

function visible(signal, onHidden) {
  if (!document.hidden) return Promise.resolve();
  onHidden();
  return new Promise((resolve) => {
    const end = () => {
      if (document.hidden && !signal.aborted) return;
      document.removeEventListener("visibilitychange", end);
      signal.removeEventListener("abort", end);
      resolve();
    };
    document.addEventListener("visibilitychange", end);
    signal.addEventListener("abort", end);
  });
}

function pause(ms, signal) {
  return new Promise((resolve) => {
    const end = () => {
      clearTimeout(timer);
      signal.removeEventListener("abort", end);
      resolve();
    };
    const timer = setTimeout(end, ms);
    signal.addEventListener("abort", end);
  });
}
