// Memory: search with both scores, documents, what rests on an item, quarantine and rollback with a preview.

import { get, replacing, send } from "../api.js";
import { h, replace } from "../dom.js";
import { age, badge, empty, loaded, number, paged, section, table } from "../format.js";
import { ask, errorBox, field, notice } from "../notices.js";
import { keep, to } from "../routes.js";
import { styles } from "../styles.js";

export const title = "Memory";

const STORES = [["chunks", "Documents"], ["attempts", "Attempts"], ["entities", "Entities"]];
const INTEGRITY = ["untrusted", "from an agent", "from a person or an operated system"];
const EXCERPT_CHARS = 320;
const PASSAGES = 10;
const STORED = /^(chunks|attempts|entities|documents|relationships|decisions|actions|tasks)\/[^/]+$/;

export async function show(main, { path, query }, signal) {
  await styles("views.css");
  main.append(h("h1", null, "Memory"));
  if (path.length) main.append(itemSection(path.join("/"), signal));
  main.append(searchSection(query, signal), documentsSection(query, signal), takeBacksSection(signal));
}

// Search

function searchSection(query, signal) {
  const results = h("div", { "aria-live": "polite" });
  const text = h("input", { type: "search", name: "text", value: query.get("text") ?? "", maxlength: "2000", size: "40", placeholder: "TABLE_OR_VIEW_NOT_FOUND" });
  const store = h("select", { name: "store" }, STORES.map(([value, label]) => h("option", { value, selected: query.get("store") === value }, label)));
  const asOf = h("input", { type: "datetime-local", name: "as_of", step: "1", value: query.get("as_of") ?? "" });
  const next = replacing();
  const find = async () => {
    const asked = next(signal);
    keep({ text: text.value, store: store.value, as_of: asOf.value });
    if (!text.value.trim()) return replace(results);
    replace(results, h("p", { class: "quiet" }, "Searching…"));
    try {
      const then = asOf.value ? { as_of: new Date(asOf.value).toISOString() } : {};
      const found = await send("POST", "/v1/search", { text: text.value, store: store.value, k: 10, ...then }, {}, { signal: asked });
      replace(results, hits(found));
    } catch (error) {
      if (error.name !== "AbortError") replace(results, errorBox(error));
    }
  };
  if (text.value) find();
  return section("Search",
    h("form", { class: "row", onsubmit: (event) => (event.preventDefault(), find()) },
      field("Words or an error", text), field("In", store), field("As of", asOf), h("button", { class: "primary" }, "Search")),
    results);
}

function hits(found) {
  const score = (label, name) => ({ label, numeric: true, cell: (row) => rounded(row.scores?.[name]) });
  return h("div", null,
    table([
      { label: "Found in", cell: (row) => itemLink(itemOf(row), titleOf(row)), wide: true },
      { label: "Text", cell: (row) => h("div", { class: "excerpt" }, cutText(textOf(row))), wide: true },
      { label: "Score", cell: (row) => rounded(row.score), numeric: true },
      score("Meaning", "cosine"),
      score("Words", "lexical"),
      { label: "Trust", cell: (row) => INTEGRITY[row.integrity] ?? row.integrity },
    ], found.items, { caption: `${found.items.length} results, best first; by meaning (cosine of the embeddings) and by words (BM25)`, emptyText: "Nothing was found.", emptyHint: "Try fewer or other words, or another store." }),
    h("p", { class: "quiet" }, `Tier ${found.tier}, plan ${found.plan}, ${number(found.took_us / 1000)} ms`));
}

const rounded = (value) => (value === null || value === undefined ? "–" : number(Math.abs(value) < 0.005 ? 0 : value));
const itemOf = (row) => (row.store === "chunks" && row.source ? row.source : `${row.store}/${row.id}`);
const titleOf = (row) => row.source ?? row.title ?? row.name ?? row.id;
const textOf = (row) => row.text ?? [row.error_message, row.tried, row.note].filter(Boolean).join("\n") ?? "";
const cutText = (text) => (text.length > EXCERPT_CHARS ? `${text.slice(0, EXCERPT_CHARS)}…` : text);
const itemLink = (item, text) => h("a", { href: to("memory", [item]) }, text);

// One item

function itemSection(item, signal) {
  return section(item,
    h("div", { class: "actions" },
      h("button", { type: "button", class: "danger", onclick: () => takeBack("quarantine", item, signal) }, "Quarantine…"),
      h("button", { type: "button", onclick: () => takeBack("rollback", item, signal) }, "Roll back…"),
      h("a", { class: "button", href: to("lineage", ["memory", item]) }, "As lineage")),
    textOfDocument(item, signal),
    h("h3", null, "What rests on it"),
    loaded(() => dependents(item, signal), (element) => element));
}

/** Return the passages of a document under their headings, as text, with more on request; nothing for another item. */
function textOfDocument(item, signal) {
  if (STORED.test(item)) return null;
  let heading = null;
  const passage = ({ context, text }) => {
    const above = context && context !== heading ? h("p", { class: "quiet" }, context) : null;
    heading = context;
    return [above, h("pre", null, text)];
  };
  return [
    h("h3", null, "Text"),
    paged((cursor) => passagesOf(item, cursor, signal),
      (items) => ((heading = null), items.length ? h("div", { class: "passages" }, items.map(passage)) : empty("No text is stored that you may read."))),
  ];
}

/** Return a page of passages; an empty one for what is not a document, which the list below says. */
async function passagesOf(source, cursor, signal) {
  try {
    return await get("/v1/passages", { source, limit: PASSAGES, cursor }, { signal });
  } catch (error) {
    if (error.status !== 404) throw error;
    return { items: [], next_cursor: null };
  }
}

/** Return what rests on a memory, as an element, with a choice to show what only read it. */
export async function dependents(item, signal) {
  const place = h("div", { "aria-live": "polite" });
  const load = async (shown) => {
    const found = await get("/v1/blast-radius", { item, limit: 500, shown: shown || null }, { signal });
    replace(place,
      found.tasks.length ? h("p", null, found.tasks.length === 1 ? "1 task: " : `${number(found.tasks.length)} tasks: `, found.tasks.slice(0, 20).map((task, index) => [index ? ", " : "", h("a", { href: to("incident", [task]) }, task.slice(0, 8))])) : null,
      found.truncated ? h("p", { class: "warn" }, "There are more than are shown.") : null,
      table([
        { label: "Item", cell: (row) => itemLink(`${row.store}/${row.id}`, `${row.store}/${row.id}`), wide: true },
        { label: "Version", cell: (row) => row.version, numeric: true },
        { label: "Hops", cell: (row) => row.hops, numeric: true },
        { label: "Use", cell: (row) => (row.cited ? badge("used", "info") : badge("read only")) },
        { label: "Task", cell: (row) => (row.task_id ? h("a", { href: to("incident", [row.task_id]) }, row.task_id.slice(0, 8)) : "–") },
        { label: "When", cell: (row) => age(row.at) },
      ], found.items, { caption: "Items that rest on it, nearest first", emptyText: "Nothing rests on it." }));
  };
  await load(false);
  const toggle = h("input", { type: "checkbox", onchange: (event) => load(event.target.checked).catch((error) => replace(place, errorBox(error))) });
  return h("div", null, h("p", null, h("label", null, toggle, " Also what read it without using it")), place);
}

// Quarantine and rollback

async function takeBack(kind, item, signal) {
  const verb = kind === "quarantine" ? "Quarantine" : "Roll back";
  let preview;
  try {
    preview = await send("POST", "/v1/quarantines", { kind, item, preview: true }, {}, { signal });
  } catch (error) {
    return ask({ title: `${verb} ${item}`, body: [errorBox(error)], confirm: "Close" });
  }
  const reason = h("textarea", { name: "reason", required: true, maxlength: "2000" });
  const done = await ask({
    title: `${verb} ${item}?`,
    body: [previewOf(preview), field("Reason, which is recorded", reason)],
    confirm: verb,
    danger: true,
    act: async (given) => {
      const reply = await send("POST", "/v1/quarantines", { kind, item, reason: given.reason });
      if (reply.approval_id) {
        notice(`Nothing was changed: it changes many records, so a second person approves it first, on the page Now. Then do this again.`, "info");
        return;
      }
      notice(`${counted(reply.out, "taken out")}${counted(reply.restored, "restored")}Undo it under Quarantines and rollbacks.`, "good");
    },
  });
  if (done) dispatchEvent(new HashChangeEvent("hashchange"));
}

function previewOf(preview) {
  const nothing = !preview.records.length;
  return h("div", { class: "preview" },
    h("p", null, h("strong", null, nothing ? "Nothing would change." : "This would change:")),
    nothing ? null : h("ul", null,
      Object.entries(preview.out).map(([store, count]) => h("li", null, `${records(count)} of ${store} taken out of every read`)),
      Object.entries(preview.restored).map(([store, count]) => h("li", null, `${records(count)} of ${store} restored to an earlier version`)),
      h("li", null, tasksOf(preview.tasks_count)),
      preview.other_projects ? h("li", null, `and what ${number(preview.other_projects)} other projects derived from it`) : null),
    nothing ? null : table([
      { label: "Item", cell: (row) => `${row.store}/${row.id}`, wide: true },
      { label: "Version", cell: (row) => row.version, numeric: true },
      { label: "Then", cell: (row) => (row.restored ? `version ${row.restored}` : "taken out") },
    ], preview.records.slice(0, 50), { caption: preview.truncated || preview.records.length > 50 ? "The first of the records" : "The records" }));
}

function tasksOf(count) {
  if (!count) return "No task rests on it";
  return count === 1 ? "1 task rests on it; its record is kept" : `${number(count)} tasks rest on it; their records are kept`;
}

const records = (count) => `${number(count)} ${count === 1 ? "record" : "records"}`;
const counted = (counts, verb) => Object.entries(counts ?? {}).map(([store, count]) => `${records(count)} of ${store} ${verb}. `).join("");

function takeBacksSection(signal) {
  const undo = (row) => ask({
    title: `Undo the ${row.kind} of ${row.store}/${row.id}?`,
    body: [h("p", null, "Its records come back as they would be without it.")],
    confirm: "Undo",
    act: () => send("POST", "/v1/quarantines", { kind: "lift", item: row.quarantine_id }),
  }).then((done) => done && dispatchEvent(new HashChangeEvent("hashchange")));
  return section("Quarantines and rollbacks",
    paged((cursor) => get("/v1/quarantines", { limit: 20, cursor }, { signal }),
      (items) => table([
        { label: "Item", cell: (row) => `${row.store}/${row.id}`, wide: true },
        { label: "Kind", cell: (row) => badge(row.lifted ? `${row.kind}, undone` : row.kind, row.lifted || row.kind === "lift" ? "quiet" : "warn") },
        { label: "Reason", cell: (row) => row.reason, wide: true },
        { label: "By", cell: (row) => row.by },
        { label: "When", cell: (row) => age(row.at) },
        { label: "Effect", cell: (row) => `${counted(row.out, "taken out")}${counted(row.restored, "restored")}` || "–", wide: true },
        { label: "Undo", cell: (row) => (row.lifted || row.kind === "lift" ? "–" : h("button", { type: "button", "aria-label": `Undo the ${row.kind} of ${row.store}/${row.id}`, onclick: () => undo(row) }, "Undo…")) },
      ], items, { caption: "Newest first", emptyText: "Nothing was taken back." })));
}

// Documents

function documentsSection(query, signal) {
  const results = h("div");
  const root = h("input", { name: "root", value: query.get("root") ?? "", maxlength: "2000", size: "40", placeholder: "runbooks" });
  const list = () => {
    keep({ root: root.value });
    replace(results, paged(
      (cursor) => get("/v1/documents", { limit: 25, cursor, root: root.value }, { signal }),
      (items) => (items.length ? table([
        { label: "Source", cell: (row) => itemLink(row.source, row.source), wide: true },
        { label: "Title", cell: (row) => (row.title === row.source ? "" : row.title), wide: true },
        { label: "Type", cell: (row) => row.type },
        { label: "Passages", cell: (row) => number(row.chunks), numeric: true },
        { label: "Trust", cell: (row) => [INTEGRITY[row.integrity] ?? row.integrity, row.quarantined ? badge("quarantined", "warn") : null, row.untrusted ? badge("untrusted", "warn") : null] },
        { label: "By", cell: (row) => row.ingested_by },
      ], items, { caption: "Documents, last written first" }) : empty("No documents.", "Ingest some: counterpoint ingest FOLDER"))));
  };
  list();
  return section("Documents",
    h("form", { class: "row", onsubmit: (event) => (event.preventDefault(), list()) }, field("Of the folder or repository", root), h("button", null, "List")),
    results);
}
