// A chart of values by day, drawn by uPlot. The table beside it says the same in text.

import { h } from "./dom.js";
import { styles } from "./styles.js";

const DAY_S = 86_400;

/**
 * Return an element with bars by day. `days` are `YYYY-MM-DD` without gaps, `values` numbers;
 * `show(value)` is the text of a value. It is drawn until `signal` aborts.
 */
export async function bars({ days, values, name, description, show, signal }) {
  const place = h("div", { class: "chart", role: "img", "aria-label": description });
  await Promise.all([styles("vendor/uPlot.min.css"), styles("views.css")]);
  const { default: UPlot } = await import("./vendor/uPlot.esm.js");
  let plot = null;
  const draw = () => {
    plot?.destroy();
    plot = new UPlot(options(UPlot, { width: place.clientWidth, name, show }), [days.map((day) => Date.parse(`${day}T00:00:00Z`) / 1000), values], place);
  };
  const observer = new ResizeObserver(() => place.isConnected && place.clientWidth && (plot && plot.width === place.clientWidth ? null : draw()));
  observer.observe(place);
  const redraw = () => plot && draw();
  addEventListener("theme", redraw, { signal });
  matchMedia("(prefers-color-scheme: dark)").addEventListener("change", redraw, { signal });
  signal.addEventListener("abort", () => (observer.disconnect(), plot?.destroy()));
  return place;
}

function options(UPlot, { width, name, show }) {
  const value = (property) => getComputedStyle(document.documentElement).getPropertyValue(property).trim();
  const axis = { stroke: value("--quiet"), grid: { stroke: value("--line"), width: 1 }, ticks: { stroke: value("--line"), width: 1 } };
  return {
    width,
    height: 220,
    tzDate: (seconds) => UPlot.tzDate(new Date(seconds * 1000), "UTC"),
    cursor: { y: false },
    legend: { live: true },
    scales: { x: { time: true, range: (_, least, most) => [least - DAY_S / 2, most + DAY_S / 2] }, y: { range: (_, __, most) => [0, most > 0 ? most * 1.1 : 1] } },
    axes: [{ ...axis, values: (_, ticks) => ticks.map((tick) => new Date(tick * 1000).toISOString().slice(5, 10)) }, { ...axis, size: 70, values: (_, ticks) => ticks.map(show) }],
    series: [
      { label: "Day", value: (_, seconds) => (seconds === null ? "–" : new Date(seconds * 1000).toISOString().slice(0, 10)) },
      { label: name, stroke: value("--series-1"), fill: value("--series-1"), paths: UPlot.paths.bars({ size: [0.6, 60] }), points: { show: false }, value: (_, amount) => (amount === null ? "–" : show(amount)) },
    ],
  };
}
