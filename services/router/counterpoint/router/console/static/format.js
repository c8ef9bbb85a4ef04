// Values as people read them, tables, and lists by page.

import { h, replace } from "./dom.js";
import { errorBox } from "./notices.js";

const NUMBER = new Intl.NumberFormat("en", { maximumFractionDigits: 2 });
const COMPACT = new Intl.NumberFormat("en", { notation: "compact", maximumFractionDigits: 1 });
const UNITS = [[31_536_000, "y"], [2_592_000, "mo"], [86_400, "d"], [3600, "h"], [60, "min"], [1, "s"]];

/** Return a number with separators; `compact` as 1.2K. */
export const number = (value, { compact = false } = {}) => (value === null || value === undefined ? "–" : (compact ? COMPACT : NUMBER).format(value));

/** Return a share as a percentage. */
export const percent = (value) => (value === null || value === undefined ? "–" : `${NUMBER.format(value * 100)}%`);

/** Return an amount in USD, from a decimal string. Small amounts keep two significant digits. */
export function money(value) {
  if (value === null || value === undefined) return "–";
  const amount = Number(value);
  const digits = amount !== 0 && Math.abs(amount) < 0.01 ? { maximumSignificantDigits: 2 } : { minimumFractionDigits: 2, maximumFractionDigits: 2 };
  return new Intl.NumberFormat("en", { style: "currency", currency: "USD", ...digits }).format(amount);
}

/** Return bytes as kB, MB, GB. */
export function bytes(value) {
  if (value === null || value === undefined) return "–";
  const power = Math.min(Math.floor(Math.log10(Math.max(value, 1)) / 3), 4);
  return `${NUMBER.format(value / 1000 ** power)} ${["B", "kB", "MB", "GB", "TB"][power]}`;
}

/** Return a duration in seconds as its largest unit or two: 45 s, 2 h 5 min. */
export function duration(seconds) {
  if (seconds < 1) return seconds > 0 ? `${Math.round(seconds * 1000)} ms` : "0 s";
  const at = UNITS.findIndex(([length]) => seconds >= length);
  const [length, unit] = UNITS[at];
  const whole = Math.floor(seconds / length);
  const [next, nextUnit] = UNITS[at + 1] ?? [0, ""];
  const rest = next ? Math.floor((seconds - whole * length) / next) : 0;
  return rest && whole < 10 ? `${whole} ${unit} ${rest} ${nextUnit}` : `${whole} ${unit}`;
}

/** Return a time as an element: how long ago, and the exact time in its title. Ages in the page grow by themselves. */
export function age(time, { suffix = " ago" } = {}) {
  const element = h("time", { datetime: time, title: exactTime(time), dataset: { age: suffix } });
  element.textContent = ageText(time, suffix);
  return element;
}

/** Return a time as an element with date and time of day. */
export const when = (time) => h("time", { datetime: time, title: time }, exactTime(time));

/** Return date and time of day as text, in the reader's time zone. */
export function exactTime(time) {
  return new Date(time).toLocaleString("en-GB", { dateStyle: "medium", timeStyle: "medium" });
}

/** Return the time of day as text. */
export const clock = (time) => new Date(time).toLocaleTimeString("en-GB");

/** Let all ages in the page grow. */
export function refreshAges() {
  for (const element of document.querySelectorAll("time[data-age]")) {
    const text = ageText(element.dateTime, element.dataset.age);
    if (element.textContent !== text) element.textContent = text;
  }
}

function ageText(time, suffix) {
  const seconds = Math.max(0, (Date.now() - Date.parse(time)) / 1000);
  return seconds < 1 ? "now" : `${duration(Math.floor(seconds))}${suffix}`;
}

/** Return a label in a colour: `good`, `warn`, `bad`, `info`, `quiet`. The text says the same as the colour. */
export const badge = (text, kind = "quiet") => h("span", { class: `badge ${kind}` }, text);

/** Return the sentence for a list without items, and what to do. */
export const empty = (text, hint = null) => h("div", { class: "empty" }, h("p", null, text), hint ? h("p", { class: "quiet" }, hint) : null);

/** Return a table. `columns` are `{label, cell(row), numeric?, wide?}`; the first cell of a row is its header. */
export function table(columns, rows, { caption, emptyText = "Nothing here.", emptyHint = null } = {}) {
  if (!rows.length) return empty(emptyText, emptyHint);
  const cell = (column, row, index) =>
    h(index ? "td" : "th", { ...(index ? {} : { scope: "row" }), class: column.numeric ? "numeric" : column.wide ? "wide" : null }, column.cell(row));
  return h(
    "div",
    { class: "scroll", tabindex: "0", role: "region", "aria-label": caption },
    h(
      "table",
      null,
      h("caption", null, caption),
      h("thead", null, h("tr", null, columns.map((column) => h("th", { scope: "col", class: column.numeric ? "numeric" : null }, column.label)))),
      h("tbody", null, rows.map((row) => h("tr", null, columns.map((column, index) => cell(column, row, index))))),
    ),
  );
}

/** Return a section with a heading, which names it. */
export function section(title, ...children) {
  const id = `section-${crypto.getRandomValues(new Uint32Array(1))[0]}`;
  return h("section", { "aria-labelledby": id }, h("h2", { id }, title), children);
}

/** Return a list that grows by page: `load(cursor)` returns `{items, next_cursor}`, `render(items)` an element of all so far. */
export function paged(load, render) {
  const place = h("div", { class: "paged" });
  let items = [];
  const more = async (cursor) => {
    try {
      const page = await load(cursor);
      items = [...items, ...page.items];
      const button = h("button", { type: "button", onclick: () => more(page.next_cursor) }, "More");
      replace(place, render(items), page.next_cursor === null ? null : button);
    } catch (error) {
      if (error.name === "AbortError") return;
      waiting.remove();
      place.append(errorBox(error));
    }
  };
  const waiting = h("p", { class: "quiet" }, "Loading…");
  replace(place, waiting);
  more(null);
  return place;
}

/** Return an element that shows what `load()` returns, rendered, and its error. */
export function loaded(load, render) {
  const place = h("div", { "aria-busy": "true" }, h("p", { class: "quiet" }, "Loading…"));
  load()
    .then((value) => replace(place, render(value)))
    .catch((error) => error.name !== "AbortError" && replace(place, errorBox(error)))
    .finally(() => place.removeAttribute("aria-busy"));
  return place;
}
