// Dead letters: messages that could not be processed, with the reason; retry of one, or of all like it.

import { get, send } from "../api.js";
import { h, replace } from "../dom.js";
import { age, badge, number, paged, section, table, when } from "../format.js";
import { ask, errorBox, errorText, field, notice } from "../notices.js";
import { keep, to } from "../routes.js";
import { styles } from "../styles.js";

export const title = "Dead letters";

const STATES = [["dead", "Dead"], ["retry", "Retried"], ["", "All"]];
const BATCH = 50;

export async function show(main, { path, query }, signal) {
  await styles("views.css");
  main.append(h("h1", null, "Dead letters"));
  if (path[0]) main.append(await letterSection(path[0], signal));
  main.append(listSection(query, signal));
}

function listSection(query, signal) {
  const place = h("div");
  const list = (state) => replace(place, paged((cursor) => get("/v1/dead-letters", { state, limit: 50, cursor }, { signal }), rows));
  const state = query.get("state") ?? "dead";
  const select = h("select", { name: "state", onchange: (event) => (keep({ state: event.target.value || "all" }), list(event.target.value)) },
    STATES.map(([value, text]) => h("option", { value, selected: value === (state === "all" ? "" : state) }, text)));
  list(state === "all" ? "" : state);
  return section("Messages", h("form", { class: "row", onsubmit: (event) => event.preventDefault() }, field("State", select)), place);
}

function rows(items) {
  return table([
    { label: "Code", cell: (row) => h("a", { href: to("dead-letters", [row.dead_letter_id]) }, row.code) },
    { label: "State", cell: stateOf },
    { label: "Type", cell: (row) => row.type ?? "–", wide: true },
    { label: "Consumer", cell: (row) => row.consumer },
    { label: "Reason", cell: reason, wide: true },
    { label: "When", cell: (row) => age(row.at) },
    { label: "Retry", cell: (row) => retryButton(row) },
  ], items, { caption: "Newest first", emptyText: "No dead letters.", emptyHint: "A message that no service can process is kept here until a person retries it." });
}

const stateOf = (row) => (row.state === "dead" ? badge("dead", "bad") : badge("retried"));
const reason = (row) => (row.problems ?? []).map(({ field: name, problem }) => `${name} ${problem}`).join("; ") || "–";
const retryButton = (row) => (row.state === "dead" ? h("button", { type: "button", "aria-label": `Retry ${row.code} of ${row.consumer}, ${row.dead_letter_id}`, onclick: (event) => retry(row, event.target) }, "Retry") : "–");

async function letterSection(id, signal) {
  let letter;
  try {
    letter = await get(`/v1/dead-letters/${encodeURIComponent(id)}`, {}, { signal });
  } catch (error) {
    if (error.name === "AbortError") throw error;
    return section("The dead letter", errorBox(error));
  }
  const facts = [
    ["State", [stateOf(letter), letter.retried_by ? [` by ${letter.retried_by}, `, when(letter.retried_at)] : null]],
    ["When", when(letter.at)],
    ["Type", letter.type ?? "–"],
    ["Consumer", letter.consumer],
    ["Subject", letter.subject],
    ["Message", letter.message_id],
    ["Task", letter.task_id ? h("a", { href: to("incident", [letter.task_id]) }, letter.task_id) : "–"],
  ];
  return section(`${letter.code} of ${letter.consumer}`,
    h("dl", { class: "facts" }, facts.map(([name, value]) => [h("dt", null, name), h("dd", null, value)])),
    letter.problems?.length ? [h("h3", null, "Problems"), h("ul", null, letter.problems.map(({ field: name, problem }) => h("li", null, h("code", null, name), ` ${problem}`)))] : null,
    h("h3", null, "Body"),
    h("pre", { tabindex: "0", "aria-label": "Body" }, pretty(letter.body) || "(empty)"),
    h("details", null, h("summary", null, "Headers"), h("pre", null, Object.entries(letter.headers ?? {}).map(([name, value]) => `${name}: ${value}\n`))),
    letter.state === "dead"
      ? h("div", { class: "actions" },
        h("button", { type: "button", class: "primary", onclick: (event) => retry(letter, event.target) }, "Retry"),
        h("button", { type: "button", onclick: () => retryAlike(letter) }, "Retry all like it…"))
      : null);
}

function pretty(body) {
  try {
    return JSON.stringify(JSON.parse(body), null, 2);
  } catch {
    return body;
  }
}

async function retry(letter, button) {
  button.disabled = true;
  try {
    await send("POST", `/v1/dead-letters/${encodeURIComponent(letter.dead_letter_id)}/retry`);
    notice("The message was sent again.", "good");
    dispatchEvent(new HashChangeEvent("hashchange"));
  } catch (error) {
    button.disabled = false;
    notice(`It was not retried: ${errorText(error)}`, "bad");
  }
}

async function retryAlike(letter) {
  const progress = h("p", { role: "status" });
  const done = await ask({
    title: "Retry all like it?",
    body: [h("p", null, "Every dead letter of consumer ", h("code", null, letter.consumer), " with the code ", h("code", null, letter.code), " and the type ", h("code", null, letter.type ?? "–"), " is sent again, newest first."), progress],
    confirm: "Retry all",
    act: async () => {
      let cursor = null;
      let retried = 0;
      let refused = 0;
      do {
        const reply = await send("POST", `/v1/dead-letters/${encodeURIComponent(letter.dead_letter_id)}/retry-alike`, undefined, { limit: BATCH, cursor });
        retried += reply.retried.length;
        refused += reply.refused.length;
        cursor = reply.next_cursor;
        replace(progress, `${number(retried)} sent again`);
      } while (cursor !== null);
      notice(`${number(retried)} sent again${refused ? `, ${number(refused)} refused because their task has changed or nobody handles them` : ""}.`, refused ? "bad" : "good");
    },
  });
  if (done) dispatchEvent(new HashChangeEvent("hashchange"));
}
