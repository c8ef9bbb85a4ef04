// The caller, and what it may do. The server decides; the page only leaves out what would be refused.

import { currentProject } from "./api.js";

let caller = { name: "", kind: "person", projects: [], roles: [] };

/** Remember who signed in. */
export function setCaller(value) {
  caller = value;
}

/** Return the caller: `{name, kind, projects, roles, deputy_of}`. */
export function currentCaller() {
  return caller;
}

/** Return whether the caller has one of the roles in the selected project. Approvals are decided by persons. */
export function may(...roles) {
  const inProject = caller.projects.includes("*") || caller.projects.includes(currentProject());
  return inProject && roles.some((role) => (role === "approve" ? decides() : caller.roles.includes(role)));
}

/** Return whether the caller decides approvals, as a person with the role or as the deputy of one. */
function decides() {
  return caller.kind === "person" && (caller.roles.includes("approve") || Boolean(caller.deputy_of));
}
