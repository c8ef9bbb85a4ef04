// Pages by the hash of the address: `#/<page>/<path>?project=<project>&<query>`. A page is loaded when it is first opened.

import { currentProject } from "./api.js";

/** The pages in the order of the navigation; `key` follows `g`. Those without a label are reached by links. */
export const PAGES = [
  { name: "now", label: "Now", key: "n" },
  { name: "incident", label: null, key: null },
  { name: "lineage", label: "Lineage", key: "l" },
  { name: "memory", label: "Memory", key: "m" },
  { name: "costs", label: "Costs", key: "c" },
  { name: "dead-letters", label: "Dead letters", key: "d" },
  { name: "health", label: "Health", key: "h" },
];

/** Return the page, path and query of a hash. An unknown page is `null`. */
export function parse(hash) {
  const [route, query] = hash.replace(/^#\/?/, "").split("?", 2);
  const [name, ...path] = route.split("/").filter(Boolean).map(decode);
  const page = PAGES.find((each) => each.name === (name ?? "now")) ?? null;
  return { page, parameters: { path, query: new URLSearchParams(query ?? "") } };
}

/** Return the hash of a page, such as `to("incident", [id])`, in the selected project unless `query` names another. */
export function to(page, path = [], query = {}) {
  const parts = [page, ...[path].flat()].map((part) => encodeURIComponent(part));
  const search = new URLSearchParams();
  for (const [name, value] of Object.entries({ project: currentProject(), ...query })) {
    if (value !== null && value !== undefined && value !== "") search.set(name, String(value));
  }
  return `#/${parts.join("/")}${search.size ? `?${search}` : ""}`;
}

/** Change parameters of the address without opening the page again. An empty value removes one. */
export function keep(query) {
  const { page, parameters } = parse(location.hash);
  for (const [name, value] of Object.entries(query)) {
    if (value === null || value === undefined || value === "") parameters.query.delete(name);
    else parameters.query.set(name, String(value));
  }
  history.replaceState(null, "", to(page?.name ?? "now", parameters.path, Object.fromEntries(parameters.query)));
}

/** Return the module of a page: `title` and `show(main, parameters, signal)`. */
export function load(page) {
  return import(`./pages/${page.name.replaceAll("-", "_")}.js`);
}

function decode(part) {
  try {
    return decodeURIComponent(part);
  } catch {
    return part;
  }
}
