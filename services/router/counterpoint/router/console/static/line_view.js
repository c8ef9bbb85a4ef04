// The line of a task: its actions as a timeline, and as a graph with a lane for each agent and what each action read.

import { h, svg } from "./dom.js";
import { badge, clock, exactTime } from "./format.js";
import { to } from "./routes.js";

const SHOWN = 200;
const ROW = 44;
const LANE = 92;
const TOP = 30;
const RADIUS = 8;
const READS = 320;

/** Return the timeline of actions and decisions. `highlight` is the id of a decision, which is scrolled to. */
export function timeline(line, highlight = null) {
  const decisions = new Map(line.decisions.map((decision) => [decision.decision_id, decision]));
  const taken = new Set(line.items.map(({ decision_id }) => decision_id));
  const entries = [
    ...line.items.map((action) => ({ at: action.at, order: action.seq, action, decision: decisions.get(action.decision_id) })),
    ...line.decisions.filter(({ decision_id }) => !taken.has(decision_id)).map((decision) => ({ at: decision.made_at, order: -1, decision })),
  ].sort((a, b) => Date.parse(a.at) - Date.parse(b.at) || a.order - b.order);
  const hidden = Math.max(0, entries.length - SHOWN);
  return h(
    "ol",
    { class: "timeline" },
    hidden ? h("li", { class: "quiet" }, `${hidden} earlier entries are not shown; counterpoint why lists them`) : null,
    entries.slice(hidden).map((entry) => item(entry, line, highlight)),
  );
}

function item({ at, action, decision }, line, highlight) {
  const agent = action?.agent ?? decision.agent;
  const marked = decision && decision.decision_id === highlight;
  return h(
    "li",
    { id: `step-${action?.action_id ?? decision.decision_id}`, class: marked ? "marked" : null, tabindex: "-1", dataset: { decision: decision?.decision_id ?? "" } },
    h("div", { class: "row" },
      h("time", { datetime: at, title: exactTime(at) }, clock(at)),
      badge(agent, "quiet"),
      h("strong", null, action?.kind ?? decision.decision_type),
      decision ? h("span", null, decision.decision) : null,
      decision ? h("a", { class: "permalink", href: to("incident", decision.task_id, { decision: decision.decision_id }), "aria-label": `Permanent link to ${decision.decision_type}, ${clock(at)}` }, "#") : null),
    h("p", null, action?.reasoning ?? decision.reasoning),
    action?.result && action.result !== decision?.decision ? h("details", null, h("summary", null, "Result"), h("pre", { tabindex: "0" }, action.result)) : null,
    reads(action?.sources ?? [], line),
  );
}

function reads(sources, line) {
  if (!sources.length) return null;
  return h("p", { class: "quiet" }, "Read: ", sources.map((source, index) => [index ? ", " : "", nameOf(source, line), source.score === undefined || source.score === null ? "" : ` (${source.score.toFixed(2)})`]));
}

function nameOf(source, line) {
  const named = line.sources.find(({ store, id }) => store === source.store && id === source.id);
  return named ? named.name : `${source.store}/${source.id}`;
}

/** Return the graph of the actions. Choosing one moves to its entry in the timeline. */
export function lineGraph(line, onChoose) {
  const actions = line.items.slice(-SHOWN);
  if (!actions.length) return h("p", { class: "empty" }, "No action yet.");
  const agents = [...new Set(actions.map(({ agent }) => agent))];
  const place = new Map(actions.map((action, index) => [action.action_id, { x: LANE / 2 + agents.indexOf(action.agent) * LANE, y: TOP + ROW / 2 + index * ROW }]));
  const lanes = agents.length * LANE;
  const width = lanes + READS;
  const height = TOP + actions.length * ROW;
  const drawing = svg("svg", { viewBox: `0 0 ${width} ${height}`, width, height, role: "group", "aria-label": `The line: ${actions.length} actions of ${agents.join(", ")}` });
  agents.forEach((agent, index) => {
    const x = LANE / 2 + index * LANE;
    drawing.append(svg("text", { x, y: 16, class: "lane-name" }, agent), svg("line", { x1: x, y1: TOP, x2: x, y2: height, class: "lane" }));
  });
  drawing.append(svg("text", { x: lanes + 8, y: 16, class: "lane-name start" }, "reads"));
  for (const action of actions) {
    for (const [kind, ids] of [["after", action.after], ["beside", action.coordinates_with ?? []]]) {
      for (const id of ids) if (place.has(id)) drawing.append(svg("path", { class: kind, d: curve(place.get(id), place.get(action.action_id)) }));
    }
  }
  for (const action of actions) drawing.append(node(action, place.get(action.action_id), lanes, line, onChoose));
  return h("div", { class: "scroll", tabindex: "0", role: "region", "aria-label": "Graph of the line" }, drawing);
}

function node(action, { x, y }, lanes, line, onChoose) {
  const choose = () => onChoose(action.action_id);
  const sources = action.sources ?? [];
  const names = sources.map((source) => nameOf(source, line));
  const label = `${action.kind} by ${action.agent}${names.length ? `, read ${names.join(", ")}` : ""}`;
  return svg(
    "g",
    { class: `step ${action.decision_id ? "decided" : ""}`, role: "button", tabindex: "0", "aria-label": label, onclick: choose, onkeydown: (event) => (event.key === "Enter" || event.key === " ") && (event.preventDefault(), choose()) },
    svg("title", null, `${label}: ${action.reasoning.slice(0, 300)}`),
    svg("rect", { x: x - LANE / 2 + 2, y: y - ROW / 2 + 2, width: LANE - 4, height: ROW - 4, class: "hitbox", rx: 4 }),
    sources.length ? svg("line", { x1: x + RADIUS, y1: y, x2: lanes + 4, y2: y, class: "read" }) : null,
    svg("circle", { cx: x, cy: y - 5, r: RADIUS }),
    svg("text", { x, y: y + 16, class: "step-name" }, action.kind),
    sources.length ? svg("text", { x: lanes + 8, y: y + 4, class: "source-name" }, shorten(names[0]), names.length > 1 ? ` and ${names.length - 1} more` : "") : null,
  );
}

function curve(a, b) {
  if (a.x === b.x) return `M${a.x} ${a.y - 5 + RADIUS}L${b.x} ${b.y - 5 - RADIUS}`;
  const middle = (a.y + b.y) / 2 - 5;
  return `M${a.x} ${a.y - 5 + RADIUS}C${a.x} ${middle} ${b.x} ${middle} ${b.x} ${b.y - 5 - RADIUS}`;
}

const shorten = (text) => (text.length > 34 ? `…${text.slice(-33)}` : text);
