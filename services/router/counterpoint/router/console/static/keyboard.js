// Keys: single ones outside of fields, which can be switched off, and the dialog that lists them.

import { h } from "./dom.js";

const OFF = "counterpoint.keys";
const entries = new Map();
let prefix = "";

/**
 * Add keys until `signal` aborts: `{key: [description, action]}`. `g n` is one key after another.
 * An action gets the event; the browser's own effect of the key is prevented.
 */
export function keys(bindings, signal) {
  for (const [key, [description, action]] of Object.entries(bindings)) {
    const entry = { description, action };
    entries.set(key, entry);
    signal?.addEventListener("abort", () => entries.get(key) === entry && entries.delete(key));
  }
}

/** Start to listen. */
export function start() {
  document.addEventListener("keydown", onKey);
  keys({ "?": ["Show the keys", help] });
}

/** Move the focus among the elements of `selector` in `container` by `step`, and return the focused one. */
export function moveFocus(container, selector, step) {
  const found = [...container.querySelectorAll(selector)].filter((each) => each.checkVisibility());
  if (!found.length) return null;
  const at = found.findIndex((each) => each === document.activeElement || each.contains(document.activeElement));
  const next = found[at < 0 ? (step > 0 ? 0 : found.length - 1) : Math.min(Math.max(at + step, 0), found.length - 1)];
  next.focus();
  next.scrollIntoView({ block: "nearest" });
  return next;
}

function onKey(event) {
  if (event.ctrlKey || event.metaKey || event.altKey || event.isComposing) return;
  if (isField(event.target) || document.querySelector("dialog[open]") || localStorage.getItem(OFF)) return;
  const typed = prefix ? `${prefix} ${event.key}` : event.key;
  prefix = "";
  const entry = entries.get(typed);
  if (entry) {
    event.preventDefault();
    entry.action(event);
  } else if ([...entries.keys()].some((key) => key.startsWith(`${typed} `))) {
    prefix = typed;
  }
}

function isField(target) {
  return target instanceof HTMLElement && (target.isContentEditable || /^(INPUT|TEXTAREA|SELECT)$/.test(target.tagName));
}

/** Open the dialog that lists the keys. */
export function help() {
  const rows = [...entries].map(([key, { description }]) =>
    h("tr", null, h("td", null, key.split(" ").map((one) => h("kbd", null, one))), h("td", null, description)),
  );
  const off = h("input", {
    type: "checkbox",
    checked: !localStorage.getItem(OFF),
    onchange: (event) => (event.target.checked ? localStorage.removeItem(OFF) : localStorage.setItem(OFF, "off")),
  });
  const dialog = h(
    "dialog",
    { "aria-labelledby": "keys-title", onclose: () => dialog.remove() },
    h("h2", { id: "keys-title" }, "Keys"),
    h("table", null, h("thead", null, h("tr", null, h("th", { scope: "col" }, "Key"), h("th", { scope: "col" }, "Effect"))), h("tbody", null, rows)),
    h("p", null, h("label", null, off, " Single keys are active")),
    h("form", { method: "dialog", class: "actions" }, h("button", null, "Close")),
  );
  document.body.append(dialog);
  dialog.showModal();
}
