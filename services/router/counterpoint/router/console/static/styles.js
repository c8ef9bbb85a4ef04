// Style sheets of the pages that need one of their own.

import { h } from "./dom.js";

/** Load a style sheet of the console once. Return when it applies. */
export function styles(file, id = null) {
  const href = `/console/${file}`;
  if (document.querySelector(`link[href="${href}"]`)) return Promise.resolve();
  return new Promise((resolve) => document.head.append(h("link", { rel: "stylesheet", href, id, onload: resolve, onerror: resolve })));
}
