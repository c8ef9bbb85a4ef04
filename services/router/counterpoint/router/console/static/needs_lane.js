// The lane of what waits for a person: approvals, escalations, proposals without an outcome, unexplained recoveries.

import { all, get } from "./api.js";
import { h } from "./dom.js";
import { addDocuments } from "./documents.js";
import { age, badge, number, when } from "./format.js";
import * as interventions from "./interventions.js";
import { keyed } from "./keyed.js";
import { to } from "./routes.js";
import { may } from "./session.js";

const WAITS_FOR = {
  approval: "waits for an approval",
  documents: "needs a document or a decision",
  override: "needs your instruction",
  outcome: "has a proposal; report how it ended",
  change: "recovered; nobody has said why",
};

const RIGHTS = {
  approval: ["approve"],
  documents: ["ingest", "override", "report"],
  override: ["override", "report"],
  outcome: ["report", "override"],
  change: ["report"],
};

const PORTION = 30;

const RANKS = { urgent: 0, high: 1, normal: 2, low: 3 };
const rank = ({ severity }) => RANKS[severity] ?? RANKS.normal;

/** Return whether the caller may act on an entry. */
export const needsCaller = ({ waits }) => may(...(RIGHTS[waits] ?? RIGHTS.override));

/** Return the entries of the lane: what the caller may act on, then the rest; of each what is open, the urgent and old
 * first, then recoveries. */
export async function readLane(incidents, signal) {
  const [approvals, recoveries] = await Promise.all([
    all("/v1/approvals", { limit: 200 }, { signal, limit: 200 }),
    get("/v1/recoveries", { limit: 50 }, { signal }),
  ]);
  const byTask = new Map(incidents.map((incident) => [incident.task_id, incident]));
  const decided = approvals.items.map((approval) => ({ waits: "approval", key: approval.approval_id, title: byTask.get(approval.task_id)?.title ?? approval.summary, approval, task_id: approval.task_id, since: approval.requested_at, severity: byTask.get(approval.task_id)?.severity ?? "normal" }));
  const pending = new Set(decided.map(({ task_id }) => task_id));
  const waiting = incidents
    // A task may wait for an approval that was decided a moment ago.
    .filter(({ state, task_id, waiting_for }) => state === "input_required" && waiting_for !== "approval" && !pending.has(task_id))
    .map((incident) => ({ waits: incident.waiting_for ?? "override", key: incident.task_id, since: incident.opened_at, ...incident }));
  const open = new Set(incidents.map(({ task_id }) => task_id));
  const unexplained = recoveries.items
    .filter(({ task_id }) => !open.has(task_id))
    .map((task) => ({ waits: "change", key: task.task_id, task_id: task.task_id, title: task.title || task.description.split("\n")[0], since: task.ended_at ?? task.submitted_at, severity: task.priority, attempt: task.attempt }));
  const ordered = [...decided, ...waiting].sort((a, b) => rank(a) - rank(b) || Date.parse(a.since) - Date.parse(b.since));
  const entries = [...ordered, ...unexplained];
  return [...entries.filter(needsCaller), ...entries.filter((entry) => !needsCaller(entry))];
}

/** Return `update(entries)` for the container of the lane, and the button that shows more of them. `onChange` runs after
 * an intervention. */
export function needsLane(container, onChange) {
  const update = keyed(container, ({ waits, key }) => `${waits} ${key}`, (entry) => card(entry, onChange));
  const more = h("button", { type: "button", hidden: true, onclick: showMore });
  let entries = [];
  let most = PORTION;
  function show() {
    update(entries.slice(0, most));
    more.hidden = entries.length <= most;
    more.textContent = `Show ${Math.min(PORTION, entries.length - most)} of ${number(entries.length - most)} more`;
  }
  function showMore() {
    most += PORTION;
    show();
    container.children[most - PORTION]?.querySelector("a, button")?.focus();
  }
  return [(found) => { entries = found; show(); }, more];
}

function card(entry, onChange) {
  const act = (name, label, work, primary = false) =>
    h("button", { type: "button", class: primary ? "primary" : null, dataset: { focus: name }, "aria-label": `${label}: ${entry.title}`, onclick: async () => (await work()) && onChange() }, label);
  return h(
    "li",
    { class: `need ${entry.waits}` },
    h("div", { class: "row" }, badge(entry.severity, severityKind(entry.severity)), h("span", { class: "quiet" }, WAITS_FOR[entry.waits] ?? `waits for ${entry.waits}`), h("span", { class: "quiet" }, age(entry.since))),
    h("h3", null, entry.task_id ? h("a", { href: to("incident", entry.task_id), dataset: { focus: "title" } }, entry.title) : entry.title),
    details(entry),
    h("div", { class: "actions" }, actions(entry, act)),
  );
}

function details(entry) {
  if (entry.waits === "approval") {
    return [h("p", null, entry.approval.summary), h("p", { class: "quiet" }, `${entry.approval.category.replaceAll("_", " ")}, ${entry.approval.requested_by ? `asked for by ${entry.approval.requested_by}, ` : ""}open until `, when(entry.approval.expires_at))];
  }
  const needs = entry.needs ?? [];
  return [
    entry.code ? h("p", { class: "quiet" }, `${entry.code.replaceAll("_", " ")}${entry.to ? `, for ${entry.to === "human" ? "a person" : entry.to}` : ""}`) : null,
    entry.proposal ? h("p", { class: "proposed" }, entry.proposal) : null,
    needs.length ? h("ul", null, needs.slice(0, 4).map(({ kind, what }) => h("li", null, h("strong", null, kind), ` ${what}`))) : null,
  ];
}

function actions(entry, act) {
  const buttons = [];
  const primary = entry.waits;
  if (entry.waits === "approval" && may("approve")) {
    buttons.push(act("approve", "Approve", () => interventions.decide(entry.key, "approved"), true));
    buttons.push(act("reject", "Reject", () => interventions.decide(entry.key, "rejected")));
  }
  if (entry.waits === "change" && may("report")) buttons.push(act("change", "What did you change?", () => interventions.answerChange(entry), true));
  if (entry.waits === "outcome" && may("report")) {
    buttons.push(act("worked", "It worked", () => interventions.reportOutcome(entry, "succeeded"), true));
    buttons.push(act("failed", "It did not help", () => interventions.reportOutcome(entry, "failed")));
  }
  if (entry.waits === "documents" && may("ingest")) buttons.push(act("document", "Add a document", () => addDocuments(needOf(entry)), true));
  if (entry.task_id && entry.waits !== "change" && may("override")) buttons.push(act("override", "Override", () => interventions.override(entry), primary === "override"));
  if (primary !== "outcome" && primary !== "change" && primary !== "approval" && may("report")) buttons.push(act("report", "Report the outcome", () => interventions.reportOutcome(entry)));
  return buttons.length ? buttons : h("span", { class: "quiet" }, "You may read this, and not decide it.");
}

function needOf(entry) {
  return (entry.needs ?? []).filter(({ kind }) => kind === "document").map(({ what }) => `Needed: ${what}`)[0] ?? null;
}

/** Return the colour of a severity. */
export function severityKind(severity) {
  return { urgent: "bad", high: "warn", normal: "info" }[severity] ?? "quiet";
}
