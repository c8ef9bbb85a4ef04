// What happened, for the eye and for screen readers, and questions before a change.

import { h } from "./dom.js";

const SHOWN_MS = 8000;
const region = h("div", { class: "notices", role: "status", "aria-live": "polite" });

/** Add the region to the page. */
export function mountNotices(parent) {
  parent.append(region);
}

/** Show a message for some seconds. `kind` is `info`, `good` or `bad`; a bad one stays until it is closed. */
export function notice(text, kind = "info") {
  const box = h("div", { class: `notice ${kind}` }, h("span", null, text), h("button", { type: "button", class: "plain", "aria-label": "Close this message", onclick: () => box.remove() }, "×"));
  region.append(box);
  if (kind !== "bad") setTimeout(() => box.remove(), SHOWN_MS);
  while (region.childElementCount > 4) region.firstElementChild.remove();
}

/** Return an error as an element: its title, detail, and the problem of each field. */
export function errorBox(error) {
  const problems = error.problems ?? [];
  return h(
    "div",
    { class: "error", role: "alert" },
    h("strong", null, error.title ?? "Error"),
    error.status ? ` (${error.status}${error.code ? ` ${error.code}` : ""})` : null,
    error.detail || !problems.length ? h("p", null, error.detail || error.message) : null,
    problems.length ? h("ul", null, problems.map(({ field, problem }) => h("li", null, h("code", null, field), ` ${problem}`))) : null,
  );
}

/** Return one line of an error, such as `approval: was decided by ann`. */
export function errorText(error) {
  const problems = (error.problems ?? []).map(({ field, problem }) => `${field} ${problem}`);
  return problems.length ? problems.join("; ") : error.detail || error.message;
}

/**
 * Ask in a dialog, and return the values of its fields by name, null if it was cancelled.
 * `body` are elements, which may contain fields. `act(values)` runs before it closes; its error is shown in the dialog.
 */
export function ask({ title, body = [], confirm = "Confirm", danger = false, act = async () => {} }) {
  return new Promise((resolve) => {
    let values = null;
    const problem = h("div");
    const button = h("button", { class: danger ? "danger" : "primary" }, confirm);
    const form = h(
      "form",
      {
        onsubmit: async (event) => {
          event.preventDefault();
          const given = Object.fromEntries(new FormData(form));
          button.disabled = true;
          problem.replaceChildren();
          try {
            await act(given);
            values = given;
            dialog.close();
          } catch (error) {
            problem.append(errorBox(error));
          } finally {
            button.disabled = false;
          }
        },
      },
      body,
      problem,
      h("div", { class: "actions" }, h("button", { type: "button", onclick: () => dialog.close() }, "Cancel"), button),
    );
    const id = `ask-${crypto.getRandomValues(new Uint32Array(1))[0]}`;
    const dialog = h(
      "dialog",
      {
        "aria-labelledby": id,
        onclose: () => {
          dialog.remove();
          resolve(values);
        },
      },
      h("h2", { id }, title),
      form,
    );
    document.body.append(dialog);
    dialog.showModal();
  });
}

/** Return a labelled field. `control` is an element with a name; `hint` explains what belongs into it. */
export function field(label, control, hint = null) {
  const id = control.id || `field-${crypto.getRandomValues(new Uint32Array(1))[0]}`;
  control.id = id;
  if (hint) control.setAttribute("aria-describedby", `${id}-hint`);
  return h("p", { class: "field" }, h("label", { for: id }, label), control, hint ? h("small", { id: `${id}-hint` }, hint) : null);
}
