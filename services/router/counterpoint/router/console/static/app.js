// Start of the console: sign in, navigation, the project, keys, dark and light.

import { get, setProject, whenUnauthenticated } from "./api.js";
import { h, replace } from "./dom.js";
import { refreshAges } from "./format.js";
import * as keyboard from "./keyboard.js";
import { errorBox, mountNotices } from "./notices.js";
import { PAGES, load, parse, to } from "./routes.js";
import { setCaller } from "./session.js";
import { askForToken, signOut, signedIn } from "./sign_in.js";

const PROJECT = "counterpoint.project";
const THEME = "counterpoint.theme";
const AGES_MS = 1000;

const main = h("main", { id: "main", tabindex: "-1" });
const navigation = h("nav", { "aria-label": "Pages" });
const projectField = h("input", { id: "project", list: "projects", size: "14", spellcheck: "false", autocomplete: "off", pattern: "[a-z0-9][a-z0-9\\-]{0,62}" });
const projectNames = h("datalist", { id: "projects" });
let caller = null;
let leave = new AbortController();
let signingIn = false;

async function start() {
  applyTheme();
  document.body.append(h("div", { class: "boot" }, h("p", null, "Counterpoint")));
  mountNotices(document.body);
  try {
    caller = await signedIn();
  } catch (error) {
    replace(document.querySelector(".boot"), errorBox(error), h("button", { type: "button", onclick: () => location.reload() }, "Try again"));
    return;
  }
  setCaller(caller);
  document.querySelector(".boot").remove();
  document.body.prepend(skip(), header(), main);
  whenUnauthenticated(signInAgain);
  keyboard.start();
  keyboard.keys({
    ...Object.fromEntries(PAGES.filter(({ key }) => key).map(({ name, label, key }) => [`g ${key}`, [`Open ${label}`, () => (location.hash = to(name))]])),
    "/": ["Go to the filter or search field", () => main.querySelector("input[type=search]")?.focus()],
    p: ["Go to the field of the project", () => projectField.select()],
    t: ["Dark or light", toggleTheme],
  });
  window.addEventListener("hashchange", open);
  setInterval(refreshAges, AGES_MS);
  nameProjects();
  await open();
}

async function open() {
  leave.abort();
  leave = new AbortController();
  const { signal } = leave;
  const opened = location.hash;
  const { page, parameters } = parse(opened);
  selectProject(parameters.query.get("project"));
  renderNavigation(page);
  document.querySelectorAll("dialog[open]:not(.sign-in)").forEach((dialog) => dialog.close());
  replace(main, h("p", { class: "quiet" }, "Loading…"));
  if (page === null) {
    document.title = "Not found – Counterpoint";
    replace(main, h("h1", null, "There is no such page"), h("p", null, h("a", { href: to("now") }, "Open Now")));
    return;
  }
  try {
    const [module] = await Promise.all([load(page), learnDeputy(signal)]);
    if (signal.aborted) return;
    document.title = `${module.title} – Counterpoint`;
    main.replaceChildren();
    await module.show(main, parameters, signal);
  } catch (error) {
    if (signal.aborted || error.name === "AbortError") return;
    console.warn(error);
    replace(main, h("h1", null, page.label ?? page.name), errorBox(error), h("p", null, h("button", { type: "button", onclick: open }, "Try again")));
  }
  if (!signal.aborted) main.dataset.shown = opened;
}

/** Learn whose deputy the caller is in the selected project. */
async function learnDeputy(signal) {
  if (caller.kind !== "person" || caller.roles.includes("approve")) return;
  const { deputy_of } = await get("/v1/whoami", {}, { signal });
  setCaller({ ...caller, deputy_of });
}

function selectProject(named) {
  const own = caller.projects.filter((name) => name !== "*");
  const fallback = caller.projects.includes("*") ? "default" : own[0] ?? "default";
  const kept = localStorage.getItem(PROJECT);
  const allowed = caller.projects.includes("*") || own.includes(kept);
  const project = named || (allowed && kept) || fallback;
  localStorage.setItem(PROJECT, project);
  setProject(project);
  projectField.value = project;
}

function changeProject() {
  const name = projectField.value.trim();
  if (!name || !projectField.checkValidity()) return projectField.reportValidity();
  const { page, parameters } = parse(location.hash);
  const stays = page !== null && page.label !== null;
  location.hash = to(stays ? page.name : "now", stays ? parameters.path : [], { project: name });
}

async function nameProjects() {
  const names = new Set(["default", ...caller.projects].filter((name) => name !== "*" && (name !== "default" || caller.projects.includes("*"))));
  if (caller.roles.includes("admin")) {
    const { items } = await get("/v1/principals", { limit: 200 }).catch(() => ({ items: [] }));
    items.filter((one) => !one.revoked_at).forEach((one) => one.projects.forEach((name) => name !== "*" && names.add(name)));
  }
  replace(projectNames, [...names].sort().map((value) => h("option", { value })));
}

async function signInAgain() {
  if (signingIn) return;
  signingIn = true;
  leave.abort();
  caller = await askForToken("You are no longer signed in: the token was revoked, or the cookie expired.");
  signingIn = false;
  setCaller(caller);
  replace(document.querySelector("header"), ...header().childNodes);
  nameProjects();
  await open();
}

function header() {
  return h(
    "header",
    null,
    h("a", { class: "brand", href: "#/now" }, h("img", { src: "/console/icon.svg", alt: "", width: "22", height: "22" }), "Counterpoint"),
    navigation,
    h("div", { class: "tools" },
      h("form", { class: "inline", onsubmit: (event) => (event.preventDefault(), changeProject()) },
        h("label", { for: "project" }, "Project"), projectField, projectNames),
      h("button", { type: "button", class: "plain", "aria-label": "Keys", title: "Keys (?)", onclick: keyboard.help }, "?"),
      h("button", { type: "button", class: "plain", "aria-label": "Dark or light", title: "Dark or light (t)", onclick: toggleTheme }, "◐"),
      h("span", { class: "caller", title: `${caller.kind}: ${caller.roles.join(", ")}` }, caller.name),
      h("button", { type: "button", onclick: signOut }, "Sign out"),
    ),
  );
}

function renderNavigation(current) {
  replace(navigation, PAGES.filter(({ label }) => label).map(({ name, label }) =>
    h("a", { href: to(name), "aria-current": current?.name === name ? "page" : null }, label)));
}

function skip() {
  return h("button", { type: "button", class: "skip", onclick: () => main.focus() }, "Skip to the page");
}

function applyTheme() {
  const kept = localStorage.getItem(THEME);
  if (kept) document.documentElement.dataset.theme = kept;
}

function toggleTheme() {
  const shown = document.documentElement.dataset.theme ?? (matchMedia("(prefers-color-scheme: dark)").matches ? "dark" : "light");
  localStorage.setItem(THEME, shown === "dark" ? "light" : "dark");
  applyTheme();
  dispatchEvent(new CustomEvent("theme"));
}

projectField.addEventListener("change", changeProject);
start();
