// A directed graph of jobs and data sets, drawn by cytoscape. The table beside it says the same in text.

import { h } from "./dom.js";
import { styles } from "./styles.js";

const COLUMN = 230;
const ROW = 46;
const LABEL_CHARS = 26;

/** Return the last part of a name, cut in front, as the label of a node. */
export function label(name) {
  return name.length > LABEL_CHARS ? `…${name.slice(1 - LABEL_CHARS)}` : name;
}

/**
 * Return an element with a graph. `nodes` are `{id, text, hops, kind, start?}` in columns by hops,
 * `edges` are `{source, target, kind}`; `onOpen(id)` when a node is opened. It is drawn until `signal` aborts.
 */
export async function graph({ nodes, edges, description, onOpen, signal }) {
  const rows = Math.max(...columns(nodes).map(([, members]) => members.length));
  const place = h("div", { class: "graph", role: "img", "aria-label": description, style: { height: `${Math.min(34, 6 + rows * 3.2)}rem` } });
  // Cytoscape adds a style element, which the policy of the page forbids, unless there is a sheet with this id.
  await styles("graph.css", "__________cytoscape_stylesheet");
  const { default: cytoscape } = await import("./vendor/cytoscape.esm.min.mjs");
  if (signal.aborted) return place;
  const drawing = cytoscape({
    container: null,
    headless: true,
    styleEnabled: true,
    elements: [...positioned(nodes).map(element), ...edges.map(arrow)],
    layout: { name: "preset" },
    minZoom: 0.1,
    maxZoom: 2.5,
  });
  drawing.on("tap", "node", (event) => onOpen?.(event.target.id()));
  const mount = () => {
    drawing.mount(place);
    drawing.style(style());
    drawing.resize();
    drawing.fit(undefined, 24);
    if (drawing.zoom() > 1) drawing.zoom(1).center();
  };
  const observer = new ResizeObserver(() => (place.isConnected && place.clientWidth ? (drawing.container() ? drawing.resize() : mount()) : null));
  observer.observe(place);
  const restyle = () => drawing.container() && drawing.style(style());
  const scheme = matchMedia("(prefers-color-scheme: dark)");
  addEventListener("theme", restyle, { signal });
  scheme.addEventListener("change", restyle, { signal });
  signal.addEventListener("abort", () => (observer.disconnect(), drawing.destroy()));
  const zoom = (factor) => drawing.container() && drawing.zoom({ level: drawing.zoom() * factor, renderedPosition: { x: place.clientWidth / 2, y: place.clientHeight / 2 } });
  return h("div", { class: "graph-frame" }, place,
    h("div", { class: "actions" },
      h("button", { type: "button", onclick: () => zoom(1.3) }, "Larger"),
      h("button", { type: "button", onclick: () => zoom(1 / 1.3) }, "Smaller"),
      h("button", { type: "button", onclick: () => drawing.container() && drawing.fit(undefined, 24) }, "All of it")));
}

function columns(nodes) {
  const found = new Map();
  for (const node of nodes) {
    const at = column(node);
    found.set(at, [...(found.get(at) ?? []), node]);
  }
  return [...found];
}

function positioned(nodes) {
  return columns(nodes).flatMap(([at, members]) =>
    members.map((node, index) => ({ ...node, position: { x: at * COLUMN, y: (index - (members.length - 1) / 2) * ROW } })));
}

/** A job stands right of the data it reads and left of the data it writes. */
function column({ hops, kind, start }) {
  if (start) return 0;
  if (kind === "dataset") return 2 * hops - Math.sign(hops || 1);
  return 2 * hops;
}

const element = ({ id, text, kind, start, position }) => ({ group: "nodes", data: { id, text: label(text), kind: start ? "start" : kind }, position });
const arrow = ({ source, target, kind }) => ({ group: "edges", data: { source, target, kind } });

function style() {
  const value = (name) => getComputedStyle(document.documentElement).getPropertyValue(name).trim();
  const node = (kind, shape, fill, text) => ({
    selector: `node[kind = "${kind}"]`,
    style: { shape, "background-color": fill, color: text },
  });
  const edge = (kind, line, colour) => ({
    selector: `edge[kind = "${kind}"]`,
    style: { "line-style": line, "line-color": colour, "target-arrow-color": colour },
  });
  return [
    {
      selector: "node",
      style: {
        label: "data(text)", "text-valign": "center", "text-halign": "center", "font-size": 12, width: 190, height: 30,
        "border-width": 1, "border-color": value("--edge"), "font-family": "sans-serif",
      },
    },
    node("job", "round-rectangle", value("--surface"), value("--text")),
    node("dataset", "cut-rectangle", value("--raised"), value("--text")),
    node("start", "round-rectangle", value("--accent"), value("--accent-text")),
    {
      selector: "edge",
      style: { width: 1.5, "curve-style": "bezier", "target-arrow-shape": "triangle", "line-color": value("--edge"), "target-arrow-color": value("--edge") },
    },
    edge("control", "dashed", value("--warn")),
    { selector: 'edge[kind = "control"]', style: { "curve-style": "unbundled-bezier", "control-point-distances": 34, "control-point-weights": 0.5 } },
    edge("parent", "dotted", value("--quiet")),
    edge("data", "solid", value("--edge")),
  ];
}
