// What is open, what needs a person, and what is being decided right now.

import { get } from "../api.js";
import { acceptDrops, addDocuments, addDropped } from "../documents.js";
import { decisionLog } from "../decision_log.js";
import { h, replace } from "../dom.js";
import { age, badge, empty, number, section } from "../format.js";
import { keyed, refresher } from "../keyed.js";
import * as keyboard from "../keyboard.js";
import { needsCaller, needsLane, readLane, severityKind } from "../needs_lane.js";
import { errorBox } from "../notices.js";
import { to } from "../routes.js";
import { may } from "../session.js";

export const title = "Now";
const POLL_MS = 15_000;
const STATES = { input_required: "waits", working: "in progress", submitted: "accepted" };

export async function show(main, parameters, signal) {
  const status = h("p", { class: "quiet", role: "status" });
  const problem = h("div");
  const rows = h("tbody");
  const openTable = h("div", { class: "scroll", tabindex: "0", role: "region", "aria-label": "Open incidents" }, incidentTable(rows));
  const nothing = empty("Nothing is open.", "Failures that lineage reports, and tasks that are submitted, appear here.");
  const lane = h("ul", { class: "needs" });
  const quiet = empty("Nothing needs a person.");
  const lists = [openTable, nothing, quiet];
  lists.forEach((each) => (each.hidden = true));
  const updateRows = keyed(rows, ({ task_id }) => task_id, incidentRow);
  const [updateLane, more] = needsLane(lane, () => refresh.now());

  const refresh = refresher(async () => {
    try {
      const open = await get("/v1/incidents", { limit: 500 }, { signal });
      const entries = await readLane(open.items, signal);
      if (signal.aborted) return;
      updateRows(open.items);
      updateLane(entries);
      openTable.hidden = !open.items.length;
      nothing.hidden = Boolean(open.items.length);
      quiet.hidden = Boolean(entries.length);
      replace(status, `${number(open.total)}${open.complete ? "" : " or more"} open, ${needed(entries)}`);
      problem.replaceChildren();
    } catch (error) {
      if (error.name === "AbortError" || error.status === 401) return;
      replace(problem, errorBox(error));
      // What could not be read is not empty.
      nothing.hidden = quiet.hidden = true;
    }
  }, signal);

  const from = Number.parseInt(parameters.query.get("from") ?? "", 10);
  const log = decisionLog({ from: Number.isSafeInteger(from) ? from : null, filter: parameters.query.get("filter") ?? "", signal, onDecision: () => refresh.request() });
  const add = may("ingest") ? h("button", { type: "button", onclick: () => addDocuments() }, "Add a document") : null;
  main.append(
    h("div", { class: "row" }, h("h1", { class: "grow" }, "Now"), add),
    status,
    problem,
    h("div", { class: "now" },
      h("div", { class: "work" }, section("Needs a person", lane, more, quiet), section("Open", openTable, nothing)),
      section("Decisions", log.element)),
  );
  if (may("ingest")) acceptDrops(main, addDropped);
  main.querySelectorAll("h2").forEach((heading) => heading.setAttribute("tabindex", "-1"));
  keyboard.keys({
    j: ["Next in the list", () => keyboard.moveFocus(main, "li.need h3 a, tbody th a, .decisions a.permalink", 1)],
    k: ["The one before", () => keyboard.moveFocus(main, "li.need h3 a, tbody th a, .decisions a.permalink", -1)],
    s: ["Stop or continue the live decisions", () => log.togglePause()],
  }, signal);
  const timer = setInterval(() => document.hidden || refresh.request(), POLL_MS);
  signal.addEventListener("abort", () => clearInterval(timer));
  await refresh.now();
}

function needed(entries) {
  const own = entries.filter(needsCaller).length;
  const others = entries.length - own;
  return `${number(own)} ${own === 1 ? "needs" : "need"} you${others ? `, ${number(others)} ${others === 1 ? "waits" : "wait"} for others` : ""}`;
}

function incidentTable(rows) {
  const columns = ["Incident", "Severity", "Open for", "State", "Count", "Who is hit"];
  return h("table", null, h("caption", null, "By severity and age"), h("thead", null, h("tr", null, columns.map((label) => h("th", { scope: "col" }, label)))), rows);
}

function incidentRow(incident) {
  const { hit } = incident;
  const parts = [hit.jobs && `${number(hit.jobs)} ${hit.jobs === 1 ? "job" : "jobs"}`, hit.datasets && `${number(hit.datasets)} data ${hit.datasets === 1 ? "set" : "sets"}`].filter(Boolean);
  return h(
    "tr",
    null,
    h("th", { scope: "row", class: "wide" }, h("a", { href: to("incident", incident.task_id), dataset: { focus: "row" } }, incident.title), h("br"), h("small", null, [incident.kind, incident.job, incident.owner && `owner ${incident.owner}`].filter(Boolean).join(", "))),
    h("td", null, badge(incident.severity, severityKind(incident.severity))),
    h("td", null, age(incident.opened_at, { suffix: "" })),
    h("td", null, incident.state === "input_required" ? `waits for ${incident.waiting_for ?? "input"}` : STATES[incident.state] ?? incident.state, incident.band ? h("div", null, h("small", null, `confidence ${incident.band}`)) : null),
    h("td", { class: "numeric" }, number(incident.count), incident.affected ? h("div", null, h("small", null, `+${number(incident.affected)} that follow`)) : null, incident.previous ? h("div", null, h("small", null, "seen before")) : null),
    h("td", { class: "wide" }, parts.join(", ") || h("span", { class: "quiet" }, "nothing known"), hit.owners.length ? h("div", null, h("small", null, hit.owners.join(", "))) : null),
  );
}
