// The replay of an ended task: what each step was given, whether the record is still what it saw, and what it changed.

import { send } from "./api.js";
import { h, replace } from "./dom.js";
import { badge, exactTime, number } from "./format.js";
import { errorBox } from "./notices.js";

const UNCHANGED = new Set(["version", "last_action_id"]);

/** Return a button that loads the replay, and its place. */
export function replayView(task, signal) {
  const place = h("div", { "aria-live": "polite" });
  const button = h("button", { type: "button", onclick: () => load() }, "Rebuild the steps");
  const load = async () => {
    button.disabled = true;
    replace(place, h("p", { class: "quiet" }, "Reading the record…"));
    try {
      const steps = [];
      let cursor = null;
      do {
        const page = await send("POST", `/v1/tasks/${encodeURIComponent(task.task_id)}/replay`, undefined, { cursor, limit: 10 }, { signal });
        steps.push(...page.items);
        cursor = page.next_cursor;
        replace(place, h("p", { class: "quiet" }, `${number(steps.length)} steps read…`));
      } while (cursor !== null);
      replace(place, report(steps, task));
    } catch (error) {
      if (error.name !== "AbortError") replace(place, errorBox(error));
    } finally {
      button.disabled = false;
    }
  };
  return h("div", null, h("p", null, "Each step with the messages and memories that it was given, compared with the audit log, and what it changed in the task. To run the decisions again with today’s code: ", h("code", null, `counterpoint replay ${task.task_id} --project ${task.project}`)), button, place);
}

function report(steps, task) {
  const broken = steps.flatMap(({ problems }) => problems);
  const verdict = broken.length ? badge(`${broken.length} differ from the audit log`, "bad") : badge(`all ${steps.length} steps are as the audit log says`, "good");
  let before = null;
  return h("div", null, h("p", null, verdict), h("ol", { class: "replay" }, steps.map((step) => {
    const after = step.record?.writes.findLast(({ store, id }) => store === "tasks" && id === task.task_id)?.body ?? null;
    const changes = after ? differences(before ?? {}, after) : [];
    before = after ?? before;
    return stepItem(step, changes);
  })));
}

function stepItem({ leaf, record, requests, problems }, changes) {
  if (!record) return h("li", null, `Leaf ${leaf} `, badge("erased", "warn"), h("ul", null, problems.map(({ problem }) => h("li", null, problem))));
  const items = requests.flat().flatMap(({ result }) => result.items ?? []);
  return h(
    "li",
    null,
    h("div", { class: "row" }, h("strong", null, record.service), record.step, h("small", null, exactTime(record.at)), h("small", null, `leaf ${leaf}`), problems.length ? badge("differs", "bad") : badge("as recorded", "good")),
    problems.length ? h("ul", null, problems.map(({ problem }) => h("li", null, problem))) : null,
    h("p", null, `Given: ${record.inbound?.type ?? "a request"}, ${number(requests.length)} queries, ${number(items.length)} items. Wrote: ${record.writes.map(({ store }) => store).filter(unique).join(", ") || "nothing"}.`),
    items.length ? h("details", null, h("summary", null, "Items that it was given"), h("ul", null, items.slice(0, 100).map(({ store, id, version, score }) => h("li", null, h("code", null, `${store}/${id}@${version}`), score === undefined || score === null ? "" : ` ${score.toFixed(2)}`)))) : null,
    changes.length ? h("details", { open: changes.length <= 8 }, h("summary", null, `${changes.length} fields of the task changed`), diffTable(changes, leaf)) : null,
  );
}

function diffTable(changes, leaf) {
  return h("div", { class: "scroll", tabindex: "0", role: "region", "aria-label": `Changes of the task at leaf ${leaf}` }, h("table", { class: "diff" },
    h("thead", null, h("tr", null, ["Field", "Before", "After"].map((label) => h("th", { scope: "col" }, label)))),
    h("tbody", null, changes.map(({ path, before, after }) => h("tr", null, h("th", { scope: "row" }, h("code", null, path)), h("td", { class: "wide" }, before === undefined ? h("span", { class: "quiet" }, "absent") : h("del", null, shown(before))), h("td", { class: "wide" }, after === undefined ? h("span", { class: "quiet" }, "absent") : h("ins", null, shown(after))))))));
}

/** Return the fields that differ between two JSON objects, by dotted path; lists are compared as a whole. */
export function differences(before, after, path = "") {
  const names = [...new Set([...Object.keys(before), ...Object.keys(after)])].sort();
  return names.filter((name) => path || !UNCHANGED.has(name)).flatMap((name) => {
    const [old, fresh] = [before[name], after[name]];
    if (JSON.stringify(old) === JSON.stringify(fresh) || (empty(old) && empty(fresh))) return [];
    const here = path ? `${path}.${name}` : name;
    if (isObject(old) && isObject(fresh)) return differences(old, fresh, here);
    return [{ path: here, before: empty(old) ? undefined : old, after: empty(fresh) ? undefined : fresh }];
  });
}

function shown(value) {
  const text = typeof value === "string" ? value : JSON.stringify(value);
  return text.length > 600 ? `${text.slice(0, 600)}…` : text;
}

const isObject = (value) => typeof value === "object" && value !== null && !Array.isArray(value);
const empty = (value) => value === undefined || value === null || (Array.isArray(value) && !value.length);
const unique = (value, index, values) => values.indexOf(value) === index;
