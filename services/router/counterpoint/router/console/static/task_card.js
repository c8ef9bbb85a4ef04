// The card of a task: sections of lines, as the command line shows them.

import { h, link } from "./dom.js";
import { markdown } from "./markdown.js";

/** Return the sections of a card as an element. */
export function taskCard(card) {
  return h("dl", { class: "card" }, card.sections.map(({ label, lines, style }) => h("div", null, h("dt", null, label), h("dd", null, body(lines, style)))));
}

function body(lines, style) {
  if (style === "code") return h("pre", { tabindex: "0" }, lines.join("\n"));
  if (style === "markdown") return markdown(lines.join("\n"));
  const parts = [];
  for (const line of lines) {
    if (Array.isArray(line)) {
      const last = parts.at(-1);
      if (last?.rows) last.rows.push(line);
      else parts.push({ rows: [line] });
    } else parts.push({ line });
  }
  return parts.map(({ rows, line }) => (rows ? rowTable(rows) : h("p", null, shown(line))));
}

function rowTable(rows) {
  return h("ul", { class: "rows" }, rows.map((row) => h("li", null, row.filter(Boolean).map((cell, index) => [index ? ", " : "", shown(cell)]))));
}

function shown(text) {
  const clean = text.trim();
  if (clean.startsWith("counterpoint ")) return h("code", null, clean);
  if (/^https?:\/\/\S+$/.test(clean)) return link(clean, clean);
  return text.replace(/^> ?/, "");
}
