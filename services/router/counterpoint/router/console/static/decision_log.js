// Live decisions: kept in memory, shown in portions, so that a flood of them does not hold the page up.

import { get } from "./api.js";
import { h, replace } from "./dom.js";
import { stream } from "./event_stream.js";
import { badge, clock, exactTime, number } from "./format.js";
import { keep, to } from "./routes.js";

const KEPT = 20_000;
const PORTION = 200;
const EARLIER = 100;
const RENDER_MS = 100;

/**
 * Return a log of decisions as an element. `onDecision` runs for each new one.
 * `from` is the position of a decision: the log begins there. `filter` are words that all have to occur.
 */
export function decisionLog({ from = null, filter = "", onDecision = () => {}, signal }) {
  const log = new Log(onDecision);
  log.setFilter(filter);
  log.start(from, signal);
  return log;
}

class Log {
  constructor(onDecision) {
    this.onDecision = onDecision;
    this.entries = [];
    this.known = new Set();
    this.words = [];
    this.shownCount = PORTION;
    this.paused = false;
    this.pausedAt = 0;
    this.dropped = 0;
    this.timer = null;
    this.list = h("ol", { class: "decisions", "aria-label": "Decisions, newest first", tabindex: "0" });
    this.state = h("span", { class: "badge quiet" }, "connecting");
    this.count = h("span", { class: "quiet", role: "status" });
    this.older = h("button", { type: "button", hidden: true, onclick: () => ((this.shownCount += PORTION), this.renderAll()) }, "Older ones");
    this.pauseButton = h("button", { type: "button", "aria-pressed": "false", onclick: () => this.togglePause() }, "Pause");
    this.search = h("input", { type: "search", "aria-label": "Filter the decisions", placeholder: "agent, type, words", oninput: () => this.filterSoon() });
    this.element = h(
      "div",
      null,
      h("div", { class: "row bar" }, this.state, this.pauseButton, h("span", { class: "grow" }, this.search), this.count),
      this.list,
      h("div", { class: "actions" }, this.older),
    );
  }

  async start(from, signal) {
    signal.addEventListener("abort", () => clearTimeout(this.timer));
    let after = from === null ? null : Math.max(0, from - 1);
    if (from === null) {
      try {
        const { items } = await get("/v1/decisions", { limit: EARLIER }, { signal });
        items.reverse().forEach((decision) => this.add(decision.seq, decision));
        after = items.at(-1)?.seq ?? null;
      } catch (error) {
        if (error.name === "AbortError") return;
      }
    } else {
      this.mark("from", `From ${from} on.`, h("a", { href: to("now") }, "Show the newest"));
    }
    this.renderAll();
    await stream("/v1/decisions/stream", {
      after,
      signal,
      onEvent: (event) => {
        const { data } = JSON.parse(event.data);
        if (this.add(Number(event.id), data)) {
          this.onDecision(data);
          this.renderSoon();
        }
      },
      onGap: () => {
        this.mark("gap", "Gap: decisions before this point were deleted by retention and are not shown.");
        this.renderSoon();
      },
      onState: (state, { since, error }) => this.connection(state, since, error),
    });
  }

  connection(state, since, error) {
    const [text, kind] = { live: ["live", "good"], waiting: ["reconnecting", "warn"], paused: ["in the background", "quiet"], refused: ["ended", "bad"] }[state];
    replace(this.state, error ? `${text}: ${error.title}` : text);
    this.state.className = `badge ${kind}`;
    if (state === "live" && since) {
      this.mark("lost", `Connection lost at ${clock(since)}, restored at ${clock(new Date())}. What was decided meanwhile follows; nothing is missing.`);
      this.onDecision(null);
      this.renderSoon();
    }
  }

  add(seq, decision) {
    if (this.known.has(decision.decision_id)) return false;
    this.known.add(decision.decision_id);
    const text = [decision.agent, decision.decision_type, decision.decision, decision.reasoning, decision.task_id ?? ""].join(" ").toLowerCase();
    this.entries.push({ seq, decision, text });
    if (this.entries.length > KEPT + PORTION) {
      const gone = this.entries.splice(0, this.entries.length - KEPT);
      this.dropped += gone.length;
      gone.forEach((entry) => entry.decision && this.known.delete(entry.decision.decision_id));
    }
    return true;
  }

  mark(kind, text, ...more) {
    this.entries.push({ seq: null, marker: kind, text: "", message: text, more });
  }

  matches(entry) {
    return entry.marker || this.words.every((word) => entry.text.includes(word));
  }

  setFilter(value) {
    this.search.value = value;
    this.words = value.toLowerCase().split(/\s+/).filter(Boolean);
  }

  filterSoon() {
    clearTimeout(this.filterTimer);
    this.filterTimer = setTimeout(() => {
      keep({ filter: this.search.value.trim() });
      this.setFilter(this.search.value);
      this.shownCount = PORTION;
      this.renderAll();
    }, RENDER_MS);
  }

  togglePause() {
    this.paused = !this.paused;
    this.pausedAt = this.entries.length + this.dropped;
    this.pauseButton.setAttribute("aria-pressed", String(this.paused));
    replace(this.pauseButton, this.paused ? "Continue" : "Pause");
    if (this.paused) this.renderCount();
    else this.renderAll();
  }

  renderSoon() {
    this.timer ??= setTimeout(() => {
      this.timer = null;
      if (this.paused) this.renderCount();
      else this.renderNew();
    }, RENDER_MS);
  }

  renderNew() {
    const fresh = [];
    for (let at = this.entries.length - 1; at >= 0 && this.entries[at] !== this.newest && fresh.length < this.shownCount; at -= 1) {
      if (this.matches(this.entries[at])) fresh.push(row(this.entries[at]));
    }
    this.newest = this.entries.at(-1);
    const atTop = this.list.scrollTop < 8;
    const height = this.list.scrollHeight;
    this.list.prepend(...fresh);
    if (!atTop) this.list.scrollTop += this.list.scrollHeight - height;
    while (this.list.childElementCount > this.shownCount && !this.list.lastElementChild.contains(document.activeElement)) this.list.lastElementChild.remove();
    this.renderCount();
  }

  renderAll() {
    const rows = [];
    for (let at = this.entries.length - 1; at >= 0 && rows.length < this.shownCount; at -= 1) {
      if (this.matches(this.entries[at])) rows.push(row(this.entries[at]));
    }
    this.newest = this.entries.at(-1);
    replace(this.list, rows.length ? rows : h("li", { class: "empty" }, this.words.length ? "No decision contains these words." : "No decision yet. Submit a task: counterpoint ask \"…\""));
    this.renderCount();
  }

  renderCount() {
    const decisions = this.known.size;
    const fresh = this.entries.length + this.dropped - this.pausedAt;
    const text = this.paused ? `paused, ${number(fresh)} new` : `${number(decisions)} decisions${this.dropped ? ", the oldest left out" : ""}`;
    if (this.count.textContent !== text) this.count.textContent = text;
    this.older.hidden = this.list.childElementCount < this.shownCount;
    if (this.list.childElementCount > 1) this.list.querySelector("li.empty")?.remove();
  }
}

function row(entry) {
  if (entry.marker) return h("li", { class: `marker ${entry.marker}` }, entry.message, " ", ...(entry.more ?? []));
  const { decision, seq } = entry;
  const incident = decision.task_id ? to("incident", decision.task_id, { decision: decision.decision_id }) : null;
  return h(
    "li",
    null,
    h("time", { datetime: decision.made_at, title: exactTime(decision.made_at) }, clock(decision.made_at)),
    badge(decision.agent, "quiet"),
    h("span", { class: "what" }, incident ? h("a", { href: incident }, `${decision.decision_type}: ${decision.decision}`) : `${decision.decision_type}: ${decision.decision}`),
    h("a", { class: "permalink", href: to("now", [], { from: seq }), "aria-label": `Permanent link to ${decision.decision_type}, ${clock(decision.made_at)}` }, "#"),
    h("span", { class: "why quiet", title: decision.reasoning }, decision.reasoning),
  );
}
