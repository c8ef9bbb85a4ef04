// One task: its card, what agents did and why, what was tried, who is hit, and the proof that the record is whole.

import { get } from "../api.js";
import { confidencePicture } from "../confidence.js";
import { addDocuments } from "../documents.js";
import { h, link, replace } from "../dom.js";
import { downstreamGraph } from "../downstream.js";
import { stream } from "../event_stream.js";
import { age, badge, clock, empty, exactTime, number, section, table } from "../format.js";
import * as interventions from "../interventions.js";
import { refresher } from "../keyed.js";
import { lineGraph, timeline } from "../line_view.js";
import { inline } from "../markdown.js";
import { errorBox } from "../notices.js";
import { BrokenProof, canProve, provenTask } from "../proof.js";
import { replayView } from "../replay_view.js";
import { to } from "../routes.js";
import { may } from "../session.js";
import { taskCard } from "../task_card.js";

export const title = "Incident";
const ENDED = new Set(["completed", "failed", "cancelled"]);
const EVENTS = 500;
const STATES = { completed: "good", failed: "bad", cancelled: "quiet", input_required: "warn", working: "info", submitted: "info" };

export async function show(main, { path, query }, signal) {
  const taskId = path[0];
  if (!taskId) {
    main.append(h("h1", null, "Incident"), empty("No task is named in the address.", "Choose one on the page Now."));
    return;
  }
  const parts = Object.fromEntries(["head", "problem", "card", "why", "timeline", "graph", "attempts", "downstream", "replay"].map((name) => [name, h("div")]));
  const events = rawEvents();
  parts.body = h("div", { hidden: true },
    h("div", { class: "columns" }, section("Card", parts.card), section("Why", parts.why)),
    section("Attempts and outcomes", parts.attempts),
    section("Who is hit", parts.downstream),
    h("div", { class: "columns" }, section("Timeline", parts.timeline), section("Line", parts.graph)),
    section("Raw events", events.element),
    section("Replay", parts.replay));
  main.append(parts.head, parts.problem, parts.body);
  const view = new TaskView(taskId, parts, query.get("decision"), signal);
  await view.refresh();
  const refresh = refresher(() => view.refresh(), signal);
  view.onChange = () => refresh.now();
  view.prove();
  stream(`/v1/tasks/${encodeURIComponent(taskId)}/events`, {
    parameters: { line: true },
    signal,
    onEvent: (event) => events.add(event),
    onGap: () => events.mark("Gap: events before this point were deleted by retention."),
    onState: (state, { since }) => {
      if (state === "live" && since) events.mark(`Connection lost at ${clock(since)}, restored at ${clock(new Date())}; nothing is missing.`);
    },
  });
  events.onAdd = () => refresh.request();
}

class TaskView {
  constructor(taskId, parts, decision, signal) {
    Object.assign(this, { taskId, parts, decision, signal, onChange: () => {}, shown: {} });
    this.proof = h("span", null, badge("audit not read", "quiet"));
  }

  async refresh() {
    const id = encodeURIComponent(this.taskId);
    const options = { signal: this.signal };
    try {
      const [task, card, line, attempts] = await Promise.all([
        get(`/v1/tasks/${id}`, {}, options),
        get(`/v1/tasks/${id}/card`, {}, options),
        get(`/v1/tasks/${id}/line`, {}, options),
        get("/v1/attempts", { task_id: this.taskId, limit: 100 }, options),
      ]);
      this.parts.problem.replaceChildren();
      this.parts.body.hidden = false;
      document.title = `${card.title} – Counterpoint`;
      this.render("head", { card, task }, () => this.head(task, card));
      this.render("card", card, () => taskCard(card));
      this.render("why", { line: line.decisions, task }, () => why(task, line));
      this.render("timeline", line, () => timeline(line, this.decision));
      this.render("graph", line, () => lineGraph(line, (action) => focusStep(action)));
      this.render("attempts", { attempts, task }, () => this.attempts(task, attempts.items));
      this.render("replay", { state: task.state }, () => this.replay(task));
      await this.renderDownstream(task);
      this.scrollToDecision();
    } catch (error) {
      if (error.name === "AbortError" || error.status === 401) return;
      if (!Object.keys(this.shown).length) replace(this.parts.head, h("h1", null, "Incident"));
      replace(this.parts.problem, errorBox(error));
    }
  }

  render(name, content, make) {
    const now = JSON.stringify(content);
    if (this.shown[name] === now) return;
    this.shown[name] = now;
    const place = this.parts[name];
    const focus = place.contains(document.activeElement) ? document.activeElement.getAttribute("aria-label") ?? document.activeElement.textContent : null;
    const open = new Set([...place.querySelectorAll("details[open] > summary")].map((summary) => summary.textContent));
    replace(place, make());
    for (const summary of place.querySelectorAll("details > summary")) if (open.has(summary.textContent)) summary.parentElement.open = true;
    if (focus) [...place.querySelectorAll("a, button, [tabindex]")].find((each) => (each.getAttribute("aria-label") ?? each.textContent) === focus)?.focus({ preventScroll: true });
  }

  head(task, card) {
    const shown = { ...task, title: card.title };
    const act = (label, work, kind = null) => h("button", { type: "button", class: kind, onclick: async () => (await work()) && this.onChange() }, label);
    const ended = ENDED.has(task.state);
    const approval = task.state === "input_required" ? task.approval : null;
    const asks = ended && task.needs.some(({ kind }) => kind === "outcome");
    return [
      h("p", null, h("a", { href: to("now") }, "← Now")),
      h("h1", null, card.title),
      h("div", { class: "row" }, badge(task.state === "input_required" ? `waits for ${task.waiting_for}` : task.state, STATES[task.state] ?? "quiet"), badge(task.priority, "quiet"), this.proof, h("span", { class: "quiet" }, "opened ", age(task.submitted_at)), task.ended_at ? h("span", { class: "quiet" }, "ended ", age(task.ended_at)) : null),
      card.subtitles.map((subtitle) => h("p", { class: "quiet" }, subtitle)),
      h("div", { class: "actions" },
        approval && may("approve") ? [act("Approve", () => interventions.decide(approval.approval_id, "approved"), "primary"), act("Reject", () => interventions.decide(approval.approval_id, "rejected"))] : null,
        asks && may("report") ? act("What did you change?", () => interventions.answerChange(shown), "primary") : null,
        !ended && may("report") ? act("Report the outcome", () => interventions.reportOutcome(shown), task.waiting_for === "outcome" ? "primary" : null) : null,
        !ended && may("override") ? act("Override", () => interventions.override(shown)) : null,
        task.waiting_for === "documents" && !ended && may("ingest") ? act("Add a document", () => addDocuments(task.escalation?.needs.find(({ kind }) => kind === "document")?.what ?? null)) : null,
        !ended && may("submit", "override") ? act("Cancel the task", () => interventions.cancel(shown)) : null,
        ["postmortem", "runbook"].map((form) => h("button", { type: "button", onclick: () => interventions.showDraft(shown, form) }, `Draft a ${form}`))),
    ];
  }

  attempts(task, attempts) {
    const similar = task.findings?.similar_attempts ?? [];
    return [
      table(
        [
          { label: "Attempt", cell: ({ attempt }) => attempt },
          { label: "Tried", wide: true, cell: ({ tried }) => tried },
          { label: "Outcome", cell: ({ outcome, evidence }) => [outcomeBadge(outcome), h("div", null, outcome === "unknown" ? null : h("small", null, evidence))] },
          { label: "By", cell: ({ by }) => by },
          { label: "When", cell: ({ at }) => age(at) },
          { label: "Note", wide: true, cell: ({ note }) => note ?? "" },
        ],
        [...attempts].reverse(),
        { caption: "Attempts of this task", emptyText: "Nothing was tried yet." },
      ),
      task.waiting_for === "outcome" && may("report") ? h("div", { class: "actions" }, ["succeeded", "failed"].map((outcome) => h("button", { type: "button", class: outcome === "succeeded" ? "primary" : null, onclick: async () => (await interventions.reportOutcome(task, outcome)) && this.onChange() }, outcome === "succeeded" ? "It worked" : "It did not help"))) : null,
      similar.length ? table(
        [
          { label: "Earlier attempt", wide: true, cell: ({ summary, tried }) => summary ?? tried },
          { label: "Likely the same", numeric: true, cell: ({ likelihood }) => (likelihood === undefined || likelihood === null ? "–" : likelihood.toFixed(2)) },
          { label: "Outcome", cell: ({ outcome, evidence }) => [outcomeBadge(outcome), h("div", null, outcome === "unknown" ? null : h("small", null, evidence))] },
          { label: "By", cell: ({ by }) => by },
          { label: "When", cell: ({ when }) => age(when) },
          { label: "Because", wide: true, cell: ({ because }) => because.join("; ") },
        ],
        similar,
        { caption: "Attempts at earlier failures that look alike" },
      ) : null,
    ];
  }

  async renderDownstream(task) {
    const rows = task.findings?.downstream.length ? task.findings.downstream : Array.isArray(task.context?.downstream) ? task.context.downstream : [];
    const job = task.target?.job ?? null;
    const key = JSON.stringify([rows, job]);
    if (this.shown.downstreamKey === key) return;
    this.shown.downstreamKey = key;
    let lineage = null;
    if (job && rows.length) {
      lineage = await get(`/v1/jobs/${encodeURIComponent(job.namespace)}/${encodeURIComponent(job.name)}/lineage`, { direction: "down", depth: 20 }, { signal: this.signal }).catch((error) => {
        if (error.name === "AbortError" || error.status !== 404) throw error;
        return null;
      });
    }
    replace(this.parts.downstream, rows.length ? downstreamGraph(job, rows, lineage) : empty("Nothing downstream is known.", "Jobs report it by OpenLineage events."));
  }

  replay(task) {
    if (!ENDED.has(task.state)) return empty("The task has not ended.", "The steps of an ended task can be rebuilt and compared with the audit log.");
    if (!may("audit")) return empty("This needs the role audit.");
    return replayView(task, this.signal);
  }

  async prove() {
    const say = (text, kind, detail) => replace(this.proof, h("span", { title: detail }, badge(text, kind)));
    if (!may("audit")) return say("audit needs the role audit", "quiet");
    if (!canProve()) return say("audit not checked: the page has no TLS", "quiet", "counterpoint verify checks it");
    try {
      const { leaves, erased, size, signature, key } = await provenTask(this.taskId, this.signal);
      const how = signature === "valid" ? "the signature is valid" : "this browser cannot check the signature";
      say(`audit: ${number(leaves)} ${leaves === 1 ? "step" : "steps"} proved${signature === "valid" ? "" : ", signature unchecked"}`, signature === "valid" ? "good" : "warn", `In the signed log of ${number(size)} leaves; ${how}${erased ? `; ${erased} erased` : ""}. Key ${key}`);
    } catch (error) {
      if (error.name === "AbortError") return;
      if (error instanceof BrokenProof) say(`audit: broken, ${error.message}`, "bad");
      else say(`audit not read: ${error.title ?? error.message}`, "warn");
    }
  }

  scrollToDecision() {
    if (!this.decision || this.scrolled) return;
    const step = this.parts.timeline.querySelector(`[data-decision="${CSS.escape(this.decision)}"]`);
    if (!step) return;
    this.scrolled = true;
    step.scrollIntoView({ block: "center" });
    step.focus({ preventScroll: true });
  }
}

function why(task, line) {
  const assessed = line.decisions.findLast(({ confidence }) => confidence);
  const confidence = task.confidence ?? assessed?.confidence;
  const citations = task.findings?.citations ?? [];
  return [
    confidence ? confidencePicture(confidence) : empty("No confidence was computed yet."),
    assessed ? h("p", null, h("strong", null, `${assessed.agent}: `), assessed.reasoning) : null,
    task.findings?.caveats.length ? [h("h3", null, "Caveats"), h("ul", null, task.findings.caveats.map((each) => h("li", null, inline(each))))] : null,
    citations.length ? [h("h3", null, "Rests on"), h("ul", { class: "quotes" }, citations.map((each) => h("li", null, h("blockquote", null, each.quote), h("small", null, source(each), `, version ${each.version}`))))] : null,
  ];
}

function source({ store, id, source_path }) {
  return /^https?:\/\//.test(source_path) ? link(source_path, source_path) : h("span", { title: `${store}/${id}` }, source_path);
}

function outcomeBadge(outcome) {
  return badge(outcome, { succeeded: "good", failed: "bad", partial: "warn" }[outcome] ?? "quiet");
}

function focusStep(actionId) {
  const step = document.getElementById(`step-${actionId}`);
  step?.scrollIntoView({ block: "center" });
  step?.focus({ preventScroll: true });
}

function rawEvents() {
  const list = h("ol", { class: "events" });
  const count = h("p", { class: "quiet", role: "status" }, "No event yet.");
  let total = 0;
  const put = (node) => {
    list.prepend(node);
    while (list.childElementCount > EVENTS) list.lastElementChild.remove();
  };
  const found = {
    element: h("div", null, count, list),
    onAdd: () => {},
    mark: (text) => put(h("li", { class: "marker" }, text)),
    add: (event) => {
      const data = JSON.parse(event.data);
      total += 1;
      count.textContent = `${number(total)} events, newest first${total > EVENTS ? `; the latest ${EVENTS} are shown` : ""}`;
      const [name, time] = event.name === "action" ? [`action ${data.kind}`, data.at] : [data.type, data.time];
      const body = h("pre", { tabindex: "0" });
      put(h("li", null, h("details", { ontoggle: () => body.textContent || (body.textContent = JSON.stringify(data, null, 2)) }, h("summary", null, `${event.id} `, h("code", null, name), " ", h("time", { datetime: time, title: exactTime(time) }, clock(time))), body)));
      found.onAdd();
    },
  };
  return found;
}
