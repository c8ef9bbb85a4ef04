// Costs: sums by group, a chart by day, the forecast of the month, and limits.

import { currentProject, get, replacing, send } from "../api.js";
import { bars } from "../chart.js";
import { h, link, replace } from "../dom.js";
import { badge, empty, exactTime, money, number, section, table } from "../format.js";
import { ask, errorBox, field, notice } from "../notices.js";
import { keep, to } from "../routes.js";
import { may } from "../session.js";
import { styles } from "../styles.js";

export const title = "Costs";

const GROUPS = [["model", "Model"], ["agent", "Agent"], ["project", "Project"], ["day", "Day"], ["session", "Session"], ["task", "Task"]];
const SPANS = [["7", "7 days"], ["30", "30 days"], ["90", "90 days"], ["", "All time"]];
const CHART_DAYS = 30;
const PACE_DAYS = 7;
const DAY_MS = 86_400_000;

export async function show(main, { query }, signal) {
  await styles("views.css");
  main.append(h("h1", null, "Costs"), chartSection(signal), groupsSection(query, signal), limitsSection(signal));
}

// By day

function chartSection(signal) {
  const place = h("div", null, h("p", { class: "quiet" }, "Loading…"));
  const first = dayOf(Date.now() - (CHART_DAYS - 1) * DAY_MS);
  get("/v1/costs", { by: "day", since: `${first}T00:00:00Z`, limit: CHART_DAYS + 1 }, { signal })
    .then(async ({ lines }) => replace(place, await byDay(lines, signal)))
    .catch((error) => error.name !== "AbortError" && replace(place, errorBox(error)));
  return section(`The last ${CHART_DAYS} days`, place);
}

async function byDay(lines, signal) {
  if (!lines.length) return empty("No model call in this time.", "Without a model, answers are extracted from memory and cost nothing.");
  const known = new Map(lines.map((line) => [line.key, Number(line.usd)]));
  const days = Array.from({ length: CHART_DAYS }, (_, back) => dayOf(Date.now() - (CHART_DAYS - 1 - back) * DAY_MS));
  const values = days.map((day) => known.get(day) ?? 0);
  const total = values.reduce((sum, value) => sum + value, 0);
  const description = `Costs by day, ${money(total)} in ${CHART_DAYS} days. The group Day lists them in a table.`;
  const { spent, expected } = forecast(known, new Date());
  return h("div", null,
    h("dl", { class: "facts" },
      h("dt", null, `Last ${CHART_DAYS} days`), h("dd", null, money(total)),
      h("dt", null, "This month"), h("dd", null, money(spent)),
      h("dt", null, "Forecast of the month"), h("dd", null, `${money(expected)} at the pace of the last ${PACE_DAYS} days`)),
    await bars({ days, values, name: "USD", description, show: money, signal }));
}

/** Return what was spent this month, and what will be at its end at the pace of the last days. Days are UTC. */
export function forecast(costs, now) {
  const today = dayOf(now);
  let spent = 0;
  for (const [day, usd] of costs) if (day.slice(0, 7) === today.slice(0, 7)) spent += usd;
  let recent = 0;
  for (let back = 0; back < PACE_DAYS; back += 1) recent += costs.get(dayOf(now - back * DAY_MS)) ?? 0;
  const end = Date.UTC(now.getUTCFullYear(), now.getUTCMonth() + 1, 1);
  return { spent, expected: spent + (recent / PACE_DAYS) * ((end - now) / DAY_MS) };
}

const dayOf = (time) => new Date(time).toISOString().slice(0, 10);

// By group

function groupsSection(query, signal) {
  const chosen = { by: query.get("by") ?? "model", days: query.get("days") ?? "30" };
  const place = h("div", { "aria-live": "polite" });
  const next = replacing();
  const load = async () => {
    const asked = next(signal);
    try {
      const since = chosen.days ? new Date(Date.now() - Number(chosen.days) * DAY_MS).toISOString() : null;
      const report = chosen.by === "project" ? await allProjects(since, asked) : await get("/v1/costs", { by: chosen.by, since, limit: 200 }, { signal: asked });
      replace(place, reportTable(report));
    } catch (error) {
      if (error.name !== "AbortError") replace(place, errorBox(error));
    }
  };
  const select = (label, name, options) => field(label, h("select", {
    name,
    onchange: (event) => {
      chosen[name] = event.target.value;
      keep({ [name]: event.target.value });
      load();
    },
  }, options.map(([value, text]) => h("option", { value, selected: chosen[name] === value }, text))));
  load();
  return section("By group", h("form", { class: "row", onsubmit: (event) => event.preventDefault() }, select("Group", "by", GROUPS), select("Since", "days", SPANS)), place);
}

/** Return one report of the projects that the caller may read. */
async function allProjects(since, signal) {
  const caller = await get("/v1/whoami", {}, { signal });
  const names = new Set([currentProject(), ...caller.projects.filter((name) => name !== "*")]);
  if (caller.roles.includes("admin")) {
    const { items } = await get("/v1/principals", { limit: 200 }, { signal });
    items.forEach((one) => one.projects.forEach((name) => name !== "*" && names.add(name)));
  }
  const reports = await Promise.all([...names].map((project) => get("/v1/costs", { by: "project", since, project }, { signal })));
  const lines = reports.flatMap((report) => report.lines).sort((one, other) => Number(other.usd) - Number(one.usd));
  const sum = (name) => lines.reduce((so_far, line) => so_far + Number(line[name]), 0);
  const total = Object.fromEntries(["usd", "calls", "input_tokens", "output_tokens", "unpriced", "unknown", "under_way", "reserved_usd"].map((name) => [name, sum(name)]));
  return { by: "project", lines, total, truncated: false };
}

function reportTable(report) {
  const rows = report.lines.length > 1 ? [...report.lines, { ...report.total, key: null }] : report.lines;
  return h("div", null,
    report.truncated ? h("p", { class: "warn" }, "There are more groups than are shown; the total has them all.") : null,
    table([
      { label: GROUPS.find(([value]) => value === report.by)[1], cell: (row) => groupName(report.by, row), wide: true },
      { label: "Cost", cell: (row) => money(row.usd), numeric: true },
      { label: "Calls", cell: (row) => number(row.calls), numeric: true },
      { label: "Tokens in", cell: (row) => number(row.input_tokens), numeric: true },
      { label: "Tokens out", cell: (row) => number(row.output_tokens), numeric: true },
      { label: "Notes", cell: notes, wide: true },
    ], rows, { caption: `Model calls by ${report.by}`, emptyText: "No model call in this time." }));
}

function groupName(by, { key }) {
  if (key === null) return h("strong", null, "Total");
  if (key === "") return h("span", { class: "quiet" }, "no task");
  if (by === "task") return link(to("incident", [key]), key);
  return key;
}

function notes(row) {
  return [
    row.unpriced ? `${number(row.unpriced)} without a known price` : "",
    row.unknown ? `${number(row.unknown)} of unknown outcome, at their estimate` : "",
    row.under_way ? `${number(row.under_way)} under way, ${money(row.reserved_usd)} reserved` : "",
  ].filter(Boolean).join("; ");
}

// Limits

function limitsSection(signal) {
  const place = h("div", { "aria-live": "polite" });
  const load = () => get("/v1/limits", {}, { signal }).then(({ items }) => replace(place, limitsTable(items, load))).catch((error) => error.name !== "AbortError" && replace(place, errorBox(error)));
  load();
  return section("Limits", place, may("operate") ? h("div", { class: "actions" }, h("button", { type: "button", onclick: () => set(load) }, "Set a limit…")) : null);
}

function limitsTable(items, load) {
  return table([
    { label: "For", cell: (row) => nameOf(row), wide: true },
    { label: "Limit", cell: (row) => amounts(row.usd, row.tokens) || "–" },
    { label: "Soft", cell: (row) => amounts(row.soft_usd, row.soft_tokens) || "–" },
    { label: "Used", cell: (row) => [amounts(row.usd ?? row.soft_usd ? row.used_usd : null, row.tokens ?? row.soft_tokens ? row.used_tokens : null), row.most_used ? h("span", { class: "quiet" }, ` by ${row.most_used}, the most`) : row.everywhere === false ? h("span", { class: "quiet" }, " by this project") : null] },
    { label: "Forecast", cell: (row) => reached(row) },
    { label: "Remove", cell: (row) => row.everywhere === false || !may("operate") ? null : h("button", { type: "button", "aria-label": `Remove the limit for ${nameOf(row)}`, onclick: () => remove(row, load) }, "Remove…") },
  ], items, { caption: "A call whose estimate exceeds what is left is refused; over a soft amount a cheaper model is used", emptyText: "No limit is set." });
}

const PERIODS = { day: "a day", month: "a month", total: "in all" };
const nameOf = ({ scope, name, projects, period }) => `${scopeOf(scope, name, projects)}, ${PERIODS[period]}`;
const amounts = (usd, tokens) => [usd === null || usd === undefined ? "" : money(usd), tokens === null || tokens === undefined ? "" : `${number(tokens)} tokens`].filter(Boolean).join(" and ");

function scopeOf(scope, name, projects) {
  if (scope === "project") return "the project";
  if (scope === "organisation") return name ? `${name} of the organisation (${projects.join(", ")})` : "the organisation, all projects";
  return name ?? `each ${scope}`;
}

const addressOf = (scope) => (scope === "organisation" ? "/v1/limits/organisation" : "/v1/limits");

function reached(row) {
  if (row.reached) return badge("reached", "bad");
  if (row.reached_at) {
    const now = Date.parse(row.reached_at) <= Date.now();
    return badge(now ? "reached" : `reached on ${exactTime(row.reached_at)}`, now ? "bad" : "warn");
  }
  return row.warned ? badge("soft amount reached", "warn") : badge("not reached", "good");
}

async function remove(row, load) {
  const done = await ask({
    title: `Remove the limit for ${nameOf(row)}?`,
    confirm: "Remove",
    danger: true,
    act: () => send("DELETE", addressOf(row.scope), undefined, { scope: row.scope, name: row.name, period: row.period }),
  });
  if (done) await load();
}

async function set(load) {
  const choice = (name, options) => h("select", { name }, options.map(([value, text]) => h("option", { value }, text)));
  const caller = await get("/v1/whoami");
  const scopes = [["project", "The project"], ["agent", "An agent"], ["session", "A session"], ["task", "A task"]];
  const everywhere = caller.roles.includes("admin") && caller.projects.includes("*");
  if (everywhere) scopes.push(["organisation", "The organisation"]);
  const amount = (name, step) => h("input", { name, type: "number", min: "0", step, inputmode: "decimal" });
  const done = await ask({
    title: "Set a limit",
    confirm: "Set",
    body: [
      field("For", choice("scope", scopes)),
      field("Name", h("input", { name: "name", maxlength: "64" }), "An agent, or the id of a session or task. Empty: each of them by itself."),
      everywhere ? field("Projects", h("input", { name: "projects" }), "For the organisation: the projects of a named limit, separated by commas. Empty, without a name: all projects.") : null,
      field("Period", choice("period", [["day", "A day"], ["month", "A month"], ["total", "In all"]])),
      h("div", { class: "columns" }, field("US dollars", amount("usd", "any")), field("Tokens", amount("tokens", "1")), field("Soft, US dollars", amount("soft_usd", "any")), field("Soft, tokens", amount("soft_tokens", "1"))),
    ],
    act: async ({ scope, name, period, usd, tokens, soft_usd: softUsd, soft_tokens: softTokens, projects }) => {
      const named = (projects ?? "").split(",").map((each) => each.trim()).filter(Boolean);
      const body = { scope, name: name.trim() || null, period, usd: usd || null, soft_usd: softUsd || null, tokens: tokens ? Number(tokens) : null, soft_tokens: softTokens ? Number(softTokens) : null, projects: named.length ? named : null };
      await send("PUT", addressOf(scope), Object.fromEntries(Object.entries(body).filter(([, value]) => value !== null)));
      notice("The limit holds from the next call on.", "good");
    },
  });
  if (done) await load();
}
