// Lineage: the graph around a job or data set with hops, what is downstream of it, what rests on a memory, and search.

import { get, replacing } from "../api.js";
import { h, replace } from "../dom.js";
import { age, badge, empty, paged, section, table } from "../format.js";
import { graph } from "../graph.js";
import { errorBox, field } from "../notices.js";
import { keep, to } from "../routes.js";
import { styles } from "../styles.js";
import { dependents } from "./memory.js";

export const title = "Lineage";

const STORES = { job: "jobs", dataset: "datasets" };
const NAMES = { job: "job", dataset: "data set" };
const OWN = "counterpoint"; // namespace of the lineage of the house's own tasks, found when it is searched for
const EDGES = { data: "data", control: "runs after", parent: "part of" };

export async function show(main, { path, query }, signal) {
  const [kind, ...names] = path;
  await styles("views.css");
  main.append(h("h1", null, "Lineage"));
  if (kind === "memory" && names[0]) {
    main.append(h("div", null, await memoryRadius(names.join("/"), signal)));
  } else if (STORES[kind] && names.length === 2) {
    main.append(await around(kind, names, query, signal));
  }
  main.append(search(query, signal));
}

// The graph around a job or data set

async function around(kind, [namespace, name], query, signal) {
  const place = h("div");
  const chosen = { view: query.get("view") ?? "lineage", direction: query.get("direction") ?? "both", depth: query.get("depth") ?? "20", as_of: query.get("as_of") ?? "" };
  const next = replacing();
  const load = async () => {
    const asked = next(signal);
    replace(place, h("p", { class: "quiet" }, "Loading…"));
    const base = `/v1/${STORES[kind]}/${encodeURIComponent(namespace)}/${encodeURIComponent(name)}`;
    const parameters = { depth: chosen.depth, as_of: moment(chosen.as_of) };
    replace(place, chosen.view === "radius"
      ? await radius(await get(`${base}/blast-radius`, parameters, { signal: asked }))
      : await lineage(await get(`${base}/lineage`, { ...parameters, direction: chosen.direction }, { signal: asked }), asked));
  };
  const select = (label, field_name, options) => {
    const control = h("select", { name: field_name, onchange: (event) => change(field_name, event.target.value) },
      options.map(([value, text]) => h("option", { value, selected: chosen[field_name] === value }, text)));
    return field(label, control);
  };
  const shown = async () => {
    try {
      await load();
    } catch (error) {
      if (error.name === "AbortError") return;
      replace(place, errorBox(error));
    }
  };
  const change = (field_name, value) => {
    chosen[field_name] = value;
    keep({ [field_name]: value });
    return shown();
  };
  const time = h("input", { name: "as_of", type: "datetime-local", step: "1", value: chosen.as_of, onchange: (event) => change("as_of", event.target.value) });
  const controls = h("form", { class: "row", onsubmit: (event) => event.preventDefault() },
    select("Show", "view", [["lineage", "Lineage"], ["radius", "Blast radius"]]),
    select("Direction", "direction", [["both", "Both"], ["up", "Upstream"], ["down", "Downstream"]]),
    select("Hops at most", "depth", ["1", "2", "5", "20", "100"].map((each) => [each, each])),
    field("As it was known at", time));
  await shown();
  return section(`The ${NAMES[kind]} ${namespace}/${name}`, controls, place);
}

/** Return a local date and time as RFC 3339, null for none. */
function moment(text) {
  return text ? new Date(text).toISOString() : null;
}

async function lineage(found, signal) {
  const start = found.start;
  const rows = found.nodes.map(({ node, hops, owner }) => ({ ...node, hops, owner, id: ref(node) }));
  const startId = ref(start);
  const nodes = rows.map((row) => ({ ...row, text: row.name, start: row.id === startId }));
  const upstream = rows.filter(({ hops }) => hops < 0).length;
  const description = `Graph of ${rows.length} jobs and data sets, ${upstream} of them upstream. The table below lists them.`;
  const byId = new Map(rows.map((row) => [row.id, row]));
  const open = (id) => byId.has(id) && (location.hash = nodeHash(byId.get(id)));
  const drawn = rows.length > 1 ? await graph({ nodes, edges: found.edges, description, onOpen: open, signal }) : null;
  return h("div", null,
    owner(rows.find(({ id }) => id === startId)?.owner),
    drawn ? [drawn, h("p", { class: "quiet" }, "A solid line is data, a dashed one runs after, a dotted one is a part. Cut corners are data sets.")] : empty("No lineage is known around it.", "Lineage comes from OpenLineage events of the jobs that read and write it."),
    cut(found.truncated),
    table([
      { label: "Name", cell: (row) => nodeLink(row), wide: true },
      { label: "Kind", cell: (row) => NAMES[row.kind] },
      { label: "Hops", cell: (row) => (row.hops > 0 ? `+${row.hops}` : row.hops), numeric: true },
      { label: "Owner", cell: (row) => row.owner ?? "–" },
    ], rows, { caption: "Jobs and data sets around it, nearest first; negative hops are upstream" }));
}

async function radius(found) {
  return h("div", null,
    owner(found.owner),
    cut(found.truncated),
    table([
      { label: "Name", cell: (row) => nodeLink(row), wide: true },
      { label: "Kind", cell: (row) => NAMES[row.kind] ?? row.kind },
      { label: "Hops", cell: (row) => row.hops, numeric: true },
      { label: "By", cell: (row) => EDGES[row.edge] ?? row.edge },
      { label: "Owner", cell: (row) => row.owner ?? "–" },
    ], found.downstream, { caption: "Downstream, nearest first", emptyText: "Nothing downstream is known.", emptyHint: "A failure here hurts nobody whose lineage was reported." }));
}

const owner = (name) => h("p", null, "Owner: ", name ?? h("span", { class: "quiet" }, "not known"));
const cut = (truncated) => (truncated ? h("p", { class: "warn" }, "This is only a part: the graph is larger than the limits. Choose fewer hops.") : null);
const ref = ({ kind, namespace, name }) => `${kind}:${namespace.replaceAll("%", "%25").replaceAll("/", "%2F")}/${name}`;
const nodeHash = ({ kind, namespace, name }) => to("lineage", [kind, namespace, name]);
const nodeLink = (row) => h("a", { href: nodeHash(row) }, h("span", { class: "quiet" }, `${row.namespace}/`), row.name);

// What rests on a memory

async function memoryRadius(item, signal) {
  return section(`The memory ${item}`, await dependents(item, signal));
}

// Search by name

function search(query, signal) {
  const results = h("div", { "aria-live": "polite" });
  const input = h("input", { type: "search", name: "text", value: query.get("text") ?? "", maxlength: "500", size: "40", placeholder: "orders" });
  const list = (kind) => paged(
    (cursor) => get(`/v1/${STORES[kind]}`, { text: input.value, limit: 20, cursor }, { signal }),
    (items) => table([
      { label: "Name", cell: (row) => nodeLink(row), wide: true },
      { label: "Owners", cell: (row) => row.owners?.join(", ") || "–" },
      ...(kind === "job" ? [{ label: "Last run", cell: lastRun }] : []),
    ], input.value ? items : items.filter(({ namespace }) => namespace !== OWN), { caption: `${kind === "job" ? "Jobs" : "Data sets"}, last changed first`, emptyText: input.value ? `No ${NAMES[kind]} of this name.` : `No ${NAMES[kind]} is known yet.`, emptyHint: input.value ? "All words must occur in the namespace or name." : "Lineage comes from OpenLineage events." }));
  const find = () => {
    keep({ text: input.value });
    replace(results, h("div", { class: "columns" }, h("div", null, h("h3", null, "Jobs"), list("job")), h("div", null, h("h3", null, "Data sets"), list("dataset"))));
  };
  find();
  return section("Find a job or data set",
    h("form", { class: "row", onsubmit: (event) => (event.preventDefault(), find()) }, field("Words of its name", input), h("button", null, "Search")),
    results,
    memoryField());
}

function lastRun({ last_success: success, last_failure: failure }) {
  if (failure && (!success || failure.at > success.at)) return h("span", null, badge("failed", "bad"), " ", age(failure.at));
  if (success) return h("span", null, badge("succeeded", "good"), " ", age(success.at));
  return "–";
}

function memoryField() {
  const input = h("input", { name: "item", maxlength: "2000", size: "40", placeholder: "runbook.md, or attempts/ID" });
  return h("form", { class: "row", onsubmit: (event) => (event.preventDefault(), input.value.trim() && (location.hash = to("lineage", ["memory", input.value.trim()]))) },
    field("Or what rests on a memory", input, "STORE/ID, STORE/ID@VERSION, or the source of a document"), h("button", null, "Show"));
}
