// Signing in: the token is sent once, and comes back as a cookie that no script can read.

import { get, send } from "./api.js";
import { h } from "./dom.js";
import { errorBox, field } from "./notices.js";
import { to } from "./routes.js";

let open = null;

/** Return the caller, after it signed in if necessary. `reason` is shown above the field. */
export async function signedIn(reason = null) {
  const link = new URLSearchParams(location.hash.slice(1));
  const code = link.get("code");
  const project = link.get("project");
  if (code !== null) history.replaceState(null, "", to(link.get("task") ? "incident" : "now", link.get("task") ?? [], project ? { project } : {}));
  try {
    return code === null ? await get("/v1/whoami") : await send("POST", "/v1/sign-in", { code });
  } catch (error) {
    if (error.status !== 401 && code === null) throw error;
    return askForToken(code === null ? reason : "The sign-in link is no longer valid. It works once, for five minutes.");
  }
}

/** Ask for a token until one is accepted, and return the caller. A second call waits for the same dialog. */
export function askForToken(reason = null) {
  open ??= new Promise((resolve) => {
    const problem = h("div");
    const input = h("input", { name: "token", type: "password", required: true, autocomplete: "off", spellcheck: "false", maxlength: "500" });
    const dialog = h(
      "dialog",
      { "aria-labelledby": "sign-in-title", class: "sign-in", oncancel: (event) => event.preventDefault() },
      h("h1", { id: "sign-in-title" }, "Sign in to Counterpoint"),
      reason ? h("p", { class: "reason", role: "alert" }, reason) : null,
      h(
        "form",
        {
          onsubmit: async (event) => {
            event.preventDefault();
            problem.replaceChildren();
            try {
              const caller = await send("POST", "/v1/sign-in", { token: input.value.trim() });
              dialog.close();
              dialog.remove();
              open = null;
              resolve(caller);
            } catch (error) {
              problem.append(error.status === 401 ? errorBox({ title: "This token is not valid", message: "It is that of no principal, or was revoked." }) : errorBox(error));
              input.select();
            }
          },
        },
        field("Token", input, "The token of a principal. On your own machine, the command counterpoint console prints a link that signs you in."),
        problem,
        h("div", { class: "actions" }, h("button", { class: "primary" }, "Sign in")),
      ),
    );
    document.body.append(dialog);
    dialog.showModal();
    input.focus();
  });
  return open;
}

/** Remove the cookie and begin again. */
export async function signOut() {
  await send("POST", "/v1/sign-out");
  location.reload();
}
