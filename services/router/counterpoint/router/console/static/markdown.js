// Markdown of agents and people as elements. Markup in the text stays text; links lead to http(s) alone.

import { h, link } from "./dom.js";

const INLINE = /(`+)([^`]+?)\1|\*\*([^*]+)\*\*|(?<![\w*])\*([^*\n]+)\*(?![\w*])|\[([^[\]\n]+)\]\(([^)[\s]+)\)|(https?:\/\/[^\s<>"'`)\]]+)|\\([\\`*_{}[\]()#+\-.!<>|~])/g;

const NESTED_QUOTES = 5;

/** Return markdown as an element: headings, lists, quotes, code and paragraphs. */
export function markdown(text) {
  return h("div", { class: "markdown" }, blocks(text.replaceAll("\r\n", "\n").split("\n")));
}

/** Return a line with its code, emphasis and links. */
export function inline(text) {
  const parts = [];
  let at = 0;
  for (const match of text.matchAll(INLINE)) {
    const [all, , code, strong, emphasis, label, target, url, escaped] = match;
    parts.push(text.slice(at, match.index));
    at = match.index + all.length;
    if (code !== undefined) parts.push(h("code", null, code.trim()));
    else if (strong !== undefined) parts.push(h("strong", null, inline(strong)));
    else if (emphasis !== undefined) parts.push(h("em", null, inline(emphasis)));
    else if (label !== undefined) parts.push(link(/^https?:\/\//.test(target) ? target : "", label));
    else if (url !== undefined) parts.push(link(url, url));
    else parts.push(escaped);
  }
  return [...parts, text.slice(at)];
}

function blocks(lines, depth = 0) {
  const found = [];
  let at = 0;
  while (at < lines.length) {
    const line = lines[at];
    const fence = /^\s*(`{3,}|~{3,})/.exec(line);
    if (!line.trim()) at += 1;
    else if (fence) {
      const end = endOf(lines, at + 1, (each) => !each.trim().startsWith(fence[1]));
      found.push(h("pre", { tabindex: "0" }, lines.slice(at + 1, end).join("\n")));
      at = end + 1;
    } else if (/^#{1,6} /.test(line)) {
      found.push(h("p", null, h("strong", null, inline(line.replace(/^#+ /, "")))));
      at += 1;
    } else if (depth < NESTED_QUOTES && /^\s*>/.test(line)) {
      const end = endOf(lines, at, (each) => /^\s*>/.test(each));
      found.push(h("blockquote", null, blocks(lines.slice(at, end).map((each) => each.replace(/^\s*> ?/, "")), depth + 1)));
      at = end;
    } else if (/^\s*([-*+]|\d+[.)]) /.test(line)) {
      const ordered = /^\s*\d/.test(line);
      const end = endOf(lines, at, (each) => /^\s*([-*+]|\d+[.)]) /.test(each) || (/^\s{2,}\S/.test(each)));
      const items = [];
      for (const each of lines.slice(at, end)) {
        if (/^\s*([-*+]|\d+[.)]) /.test(each)) items.push(each.replace(/^\s*([-*+]|\d+[.)]) /, ""));
        else items[items.length - 1] += ` ${each.trim()}`;
      }
      found.push(h(ordered ? "ol" : "ul", null, items.map((item) => h("li", null, inline(item)))));
      at = end;
    } else {
      const end = Math.max(at + 1, endOf(lines, at, (each) => each.trim() && !/^\s*(`{3,}|~{3,}|>|#{1,6} |[-*+] |\d+[.)] )/.test(each)));
      found.push(h("p", null, inline(lines.slice(at, end).join("\n"))));
      at = end;
    }
  }
  return found;
}

function endOf(lines, from, belongs) {
  let end = from;
  while (end < lines.length && belongs(lines[end])) end += 1;
  return end;
}
