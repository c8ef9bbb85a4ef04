// Health: services and their lag, messages on their way, recall, cache, and verification of the audit log.

import { get } from "../api.js";
import { h, replace } from "../dom.js";
import { age, badge, number, percent, section, table, when } from "../format.js";
import { errorBox } from "../notices.js";
import { may } from "../session.js";
import { styles } from "../styles.js";

export const title = "Health";

const EVERY_MS = 5000;
const STATES = { ready: ["ready", "good"], busy: ["busy", "info"], away: ["away", "bad"] };

export async function show(main, _, signal) {
  const services = h("div");
  const searches = h("div");
  const updated = h("p", { class: "quiet" });
  const load = async () => {
    try {
      const found = await get("/v1/health", {}, { signal });
      replace(services, servicesOf(found));
      replace(searches, recallOf(found), cacheOf(found));
      replace(updated, "As of ", age(found.at), ". Renewed every five seconds.");
    } catch (error) {
      if (error.name === "AbortError") return;
      replace(updated);
      replace(services, errorBox(error));
      if (error.status === 403) return;
    }
    if (signal.aborted) return;
    const timer = setTimeout(() => (document.hidden ? document.addEventListener("visibilitychange", load, { once: true, signal }) : load()), EVERY_MS);
    signal.addEventListener("abort", () => clearTimeout(timer), { once: true });
  };
  await styles("views.css");
  main.append(h("h1", null, "Health"), section("Services", services, updated), section("Searches and cache", searches), verifySection(signal));
  await load();
}

function servicesOf(found) {
  const away = found.services.filter(({ state }) => state === "away");
  const waiting = (row) => row.consumers.reduce((sum, each) => sum + each.waiting, 0);
  const handled = (row) => row.consumers.reduce((sum, each) => sum + each.unacknowledged, 0);
  return h("div", null,
    h("p", { role: "status" }, away.length ? badge(`${away.map(({ service }) => service).join(", ")} away`, "bad") : badge("All services answer", "good")),
    table([
      { label: "Service", cell: (row) => row.service },
      { label: "State", cell: (row) => badge(...(STATES[row.state] ?? [row.state])) },
      { label: "Waiting", cell: (row) => number(waiting(row)), numeric: true },
      { label: "Being handled", cell: (row) => number(handled(row)), numeric: true },
      { label: "Streams", cell: (row) => row.consumers.map((each) => each.stream).join(", ") || "–", wide: true },
    ], found.services, { caption: "Messages that wait for each service" }),
    h("dl", { class: "facts" },
      h("dt", null, "Not yet on the bus"), h("dd", null, `${number(found.pending_messages)} ${found.pending_messages === 1 ? "message" : "messages"}`),
      h("dt", null, "Memory since"), h("dd", null, when(found.since)),
      h("dt", null, "Embedding model"), h("dd", null, found.embedding_model)));
}

function recallOf(found) {
  return table([
    { label: "Store", cell: (row) => row.store },
    { label: "Plan", cell: (row) => row.plan },
    { label: "Recall", cell: (row) => badge(percent(row.ratio), row.ratio >= 0.95 ? "good" : "warn") },
    { label: "Samples", cell: (row) => number(row.samples), numeric: true },
  ], found.recall, {
    caption: `${percent(found.recall_share)} of the searches by an index or a filter are compared with the exact answer`,
    emptyText: "No search was compared yet.",
    emptyHint: "Small projects are searched exactly, without an index.",
  });
}

function cacheOf({ cache }) {
  const hits = cache.l1_hits + cache.l2_hits;
  const lookups = hits + cache.misses;
  return h("dl", { class: "facts" },
    h("dt", null, "Answers from a cache"), h("dd", null, lookups ? `${percent(hits / lookups)} of ${number(lookups)} lookups` : "no lookup yet"),
    h("dt", null, "In memory's own"), h("dd", null, number(cache.l1_hits)),
    h("dt", null, "In Valkey"), h("dd", null, cache.valkey ? number(cache.l2_hits) : "not used"));
}

function verifySection(signal) {
  if (!may("audit")) return section("Audit log", h("p", { class: "quiet" }, "Verification needs the role audit."));
  const result = h("div", { role: "status" });
  const button = h("button", { type: "button" }, "Verify the audit log");
  button.addEventListener("click", async () => {
    button.disabled = true;
    replace(result, h("p", { class: "quiet" }, "Reading the whole log…"));
    try {
      replace(result, verification(await get("/v1/audit/verify", {}, { signal })));
    } catch (error) {
      if (error.name !== "AbortError") replace(result, errorBox(error));
    } finally {
      button.disabled = false;
    }
  });
  const last = h("p", { class: "quiet" });
  get("/v1/audit/checkpoints", { limit: 1 }, { signal })
    .then(({ items: [newest] }) => replace(last, newest ? ["The newest signed checkpoint covers ", number(newest.size), " leaves, ", age(newest.at), "."] : "No checkpoint was signed yet."))
    .catch((error) => error.name !== "AbortError" && replace(last, error.message));
  return section("Audit log", last, h("div", { class: "actions" }, button), result);
}

function verification(report) {
  return h("div", null,
    h("p", null, report.ok ? badge("Nothing was changed", "good") : badge(`${number(report.broken_count)} faults`, "bad")),
    h("p", null, `${number(report.leaves)} leaves: ${number(report.commits)} commits, ${number(report.refusals)} refusals, ${number(report.records)} records, ${number(report.checkpoints)} checkpoints.`),
    report.unread?.length ? h("p", { class: "warn" }, `Copies of checkpoints that did not answer: ${report.unread.join(", ")}`) : null,
    report.broken?.length ? h("ul", null, report.broken.map((fault) => h("li", null, fault))) : null);
}
