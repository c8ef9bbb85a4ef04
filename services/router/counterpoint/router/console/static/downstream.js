// What is downstream of a failure: a column for each hop, with the owners, and the edges where lineage knows them.

import { h, svg } from "./dom.js";
import { number, table } from "./format.js";
import { to } from "./routes.js";

const COLUMN = 230;
const BOX = { width: 200, height: 40 };
const GAP = 12;
const TOP = 26;
const PER_HOP = 30;

/** Return the graph of downstream rows. `lineage` has nodes and edges, or is null where the job is not known. */
export function downstreamGraph(job, rows, lineage) {
  const nodes = new Map();
  if (job) nodes.set(refOf({ kind: "job", ...job }), { kind: "job", ...job, hops: 0, owner: null });
  for (const row of rows) {
    const ref = refOf(row);
    const known = nodes.get(ref);
    if (!known || row.hops < known.hops) nodes.set(ref, { ...row, edge: known?.edge === "data" ? "data" : row.edge });
  }
  if (nodes.size < 2) return h("p", { class: "empty" }, "Nothing downstream is known.");
  const hops = [...new Set([...nodes.values()].map((node) => node.hops))].sort((a, b) => a - b);
  const place = new Map();
  let height = 0;
  let left = 0;
  hops.forEach((hop, column) => {
    const here = [...nodes].filter(([, node]) => node.hops === hop);
    left += Math.max(0, here.length - PER_HOP);
    here.slice(0, PER_HOP).forEach(([ref], index) => place.set(ref, { x: column * COLUMN, y: TOP + index * (BOX.height + GAP) }));
    height = Math.max(height, TOP + Math.min(here.length, PER_HOP) * (BOX.height + GAP));
  });
  const width = hops.length * COLUMN;
  const edges = (lineage?.edges ?? []).filter(({ source, target, kind }) => kind !== "parent" && place.has(source) && place.has(target));
  const drawing = svg(
    "svg",
    { viewBox: `0 0 ${width} ${height}`, width, height, role: "group", "aria-label": `${nodes.size - (job ? 1 : 0)} jobs and data sets downstream` },
    hops.map((hop, column) => svg("text", { x: column * COLUMN, y: 14, class: "lane-name start" }, hop === 0 ? "failed" : hop === 1 ? "1 hop" : `${hop} hops`)),
    edges.map(({ source, target, kind }) => svg("path", { class: `edge ${kind}`, d: edgePath(place.get(source), place.get(target)) })),
    [...place].map(([ref, at]) => box(nodes.get(ref), at)),
  );
  return h(
    "div",
    null,
    h("div", { class: "scroll", tabindex: "0", role: "region", "aria-label": "Graph of what is downstream" }, drawing),
    left ? h("p", { class: "quiet" }, `${number(left)} more are in the table.`) : null,
    h("details", null, h("summary", null, "As a table"), table(
      [
        { label: "Name", wide: true, cell: (node) => h("a", { href: lineageOf(node) }, node.name) },
        { label: "Kind", cell: ({ kind }) => (kind === "dataset" ? "data set" : kind) },
        { label: "Hops", numeric: true, cell: (node) => node.hops },
        { label: "Owner", cell: ({ owner }) => owner ?? "no owner" },
        { label: "Dependency", cell: ({ edge, claimed_by }) => (claimed_by ? `${edge}, as stated by the sender` : edge ?? "") },
      ],
      [...nodes.values()].filter((node) => node.hops > 0),
      { caption: "Jobs and data sets downstream" },
    )),
  );
}

function box(node, { x, y }) {
  const label = `${node.kind === "dataset" ? "data set" : node.kind} ${node.name}${node.owner ? `, owner ${node.owner}` : node.hops ? ", no owner" : ""}`;
  return svg(
    "a",
    { href: lineageOf(node), "aria-label": label, class: `node ${node.kind} ${node.hops ? "" : "failed"}` },
    svg("title", null, label),
    svg("rect", { x: x + 1, y, width: BOX.width, height: BOX.height, rx: node.kind === "dataset" ? 2 : 12 }),
    svg("text", { x: x + 10, y: y + 17 }, shorten(node.name)),
    svg("text", { x: x + 10, y: y + 32, class: "owner" }, node.hops ? node.owner ?? "no owner" : "failed here"),
  );
}

function edgePath(a, b) {
  const [x1, y1] = [a.x + BOX.width + 1, a.y + BOX.height / 2];
  const [x2, y2] = [b.x + 1, b.y + BOX.height / 2];
  if (a.x === b.x) return `M${x1} ${y1}C${x1 + 24} ${y1} ${x1 + 24} ${y2} ${x1} ${y2}`;
  const middle = (x1 + x2) / 2;
  return `M${x1} ${y1}C${middle} ${y1} ${middle} ${y2} ${x2} ${y2}`;
}

const lineageOf = ({ kind, namespace, name }) => to("lineage", [kind, namespace, name]);
const refOf = ({ kind, namespace, name }) => `${kind}:${namespace.replaceAll("%", "%25").replaceAll("/", "%2F")}/${name}`;
const shorten = (text) => (text.length > 26 ? `…${text.slice(-25)}` : text);
