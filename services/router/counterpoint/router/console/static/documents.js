// Documents of a person: files that are chosen or dropped become memory.

import { send } from "./api.js";
import { h, replace } from "./dom.js";
import { badge, bytes } from "./format.js";
import { ask, errorBox, field, notice } from "./notices.js";

const LIMIT_BYTES = 11 * 1024 * 1024;
const KINDS = { added: "good", replaced: "good", unchanged: "quiet", quarantined: "warn", refused: "bad", deleted: "quiet" };

/** Ask for files, and add them. `reason` says what is needed. */
export async function addDocuments(reason = null, files = []) {
  let chosen = [...files];
  const names = h("ul");
  const list = () => replace(names, chosen.map((file) => h("li", null, `${file.name}, ${bytes(file.size)}`)));
  const choose = h("input", { type: "file", multiple: true, onchange: () => ((chosen = [...choose.files]), list()) });
  const target = h("div", { class: "drop" }, field("Files", choose, "Markdown, text, HTML, PDF, source code. Or drop them here."), names);
  acceptDrops(target, (dropped) => ((chosen = [...chosen, ...dropped]), list()));
  list();
  const results = h("div", { role: "status" });
  let done = false;
  await ask({
    title: "Add a document",
    body: [reason ? h("p", null, reason) : null, target, results],
    confirm: "Add",
    act: async () => {
      if (!chosen.length) throw { title: "No file", message: "Choose a file, or drop one." };
      const added = await ingest(chosen);
      done = true;
      const bad = added.filter(({ status }) => status === "refused" || status === "quarantined");
      replace(results, resultList(added));
      if (bad.length) throw { title: `${bad.length} of ${added.length} not searchable`, problems: bad.map(({ source, problem }) => ({ field: source, problem: problem ?? "was refused" })) };
      notice(`${added.length === 1 ? added[0].source : `${added.length} documents`} can be found now. Tasks that wait for a document continue by themselves.`, "good");
    },
  });
  return done;
}

/** Send files as documents and return the result of each. Throws `ApiError`. */
export async function ingest(files) {
  const results = [];
  for (const file of files) {
    if (file.size > LIMIT_BYTES) {
      results.push({ source: file.name, status: "refused", problem: `is larger than ${bytes(LIMIT_BYTES)}; use counterpoint ingest` });
      continue;
    }
    const document = { source: file.name, content: await base64(file) };
    results.push(...(await send("POST", "/v1/documents", { documents: [document] })).documents);
  }
  return results;
}

/** Call `onFiles` with files that are dropped on an element, which shows that it takes them. */
export function acceptDrops(element, onFiles) {
  let depth = 0;
  const takes = (event) => [...(event.dataTransfer?.types ?? [])].includes("Files");
  const mark = () => element.classList.toggle("dropping", depth > 0);
  element.addEventListener("dragenter", (event) => takes(event) && (event.preventDefault(), (depth += 1), mark()));
  element.addEventListener("dragover", (event) => takes(event) && event.preventDefault());
  element.addEventListener("dragleave", (event) => takes(event) && ((depth = Math.max(0, depth - 1)), mark()));
  element.addEventListener("drop", (event) => {
    if (!takes(event)) return;
    event.preventDefault();
    event.stopPropagation();
    depth = 0;
    mark();
    onFiles([...event.dataTransfer.files]);
  });
}

/** Add dropped files at once, and show the result of each. */
export async function addDropped(files) {
  try {
    const added = await ingest(files);
    for (const { source, status, problem } of added) notice(`${source}: ${status}${problem ? `, ${problem}` : ""}`, KINDS[status] ?? "info");
  } catch (error) {
    await ask({ title: "The documents were not taken", body: [errorBox(error)], confirm: "Close" });
  }
}

function resultList(added) {
  return h("ul", null, added.map(({ source, status, chunks, problem }) => h("li", null, source, " ", badge(status, KINDS[status]), chunks ? ` ${chunks} ${chunks === 1 ? "passage" : "passages"}` : "", problem ? ` ${problem}` : "")));
}

function base64(file) {
  return new Promise((resolve, reject) => {
    const reader = new FileReader();
    reader.onload = () => resolve(reader.result.slice(reader.result.indexOf(",") + 1));
    reader.onerror = () => reject(new Error(`${file.name} cannot be read`));
    reader.readAsDataURL(file);
  });
}
