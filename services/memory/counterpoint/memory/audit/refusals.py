"""Refusals in plain words: the caller, the request, the rule that refused it, and the missing right."""

import json
from typing import Any

from counterpoint.proto.errors import ErrorCode

RULES = {
    ErrorCode.AGENT: "a service signs with the names of its own agents only",
    ErrorCode.ATTENUATED: "the capability was narrowed, and this is outside of it",
    ErrorCode.AUDIENCE: "a capability works for the service it was made for only",
    ErrorCode.ENDED: "nothing is written for a task that is over",
    ErrorCode.EXPIRED: "a capability ends with its time",
    ErrorCode.FENCE: "only the newest delivery of a message may go on",
    ErrorCode.GATEWAY: "this service does not use the gateway",
    ErrorCode.GRANT: "this service does not work without a capability",
    ErrorCode.LABEL: "what is more secret than the asker's clearance is neither read nor written",
    ErrorCode.MALFORMED: "the capability is no token",
    ErrorCode.MESSAGE: "a capability works for the message it came with, which has to be in the log",
    ErrorCode.PRINCIPAL: "somebody has to ask whom memory knows",
    ErrorCode.PROJECT: "work stays in the project it was given for",
    ErrorCode.REVOKED: "the capability was taken back",
    ErrorCode.ROLE: "the asker needs a role for this",
    ErrorCode.SEND: "the policy says which service sends which message",
    ErrorCode.SIGNATURE: "the capability was not made by memory",
    ErrorCode.STEP: "only the last step changes a task's state or hands it on",
    ErrorCode.STORE: "the policy says which service reads and writes which store",
    ErrorCode.TASK: "work stays in the task it was given for",
    ErrorCode.TOO_LARGE: "there is a limit to what one commit, record or message holds",
    ErrorCode.SENSITIVE: "secrets and payment cards are kept out of free text",
    ErrorCode.UNCITED: "what is cited has to have been read, at that version",
    ErrorCode.INVALID: "what was asked is not of the form that it has to have",
    ErrorCode.OLD_WRITER: "a record is not overwritten by a writer that knows less of its form",
    ErrorCode.NOT_FOUND: "what was asked for is not there",
    ErrorCode.REFUSED: "the database does not take it",
    ErrorCode.CONFLICT: "what was changed meanwhile is not overwritten",
}
"""Purpose of each rule."""


def explained(row: Any, project: str) -> dict[str, Any]:
    """Return a refusal of the log, with `text` for people. An erased one has only its id, task and time."""
    known = {"id": str(row["id"]), "project": project, "task_id": row["task_id"], "at": row["at"].isoformat()}
    if row["body"] is None:
        return known | {"erased": True, "text": "What was refused here was erased."}
    leaf = json.loads(row["body"])
    caller = f"The service {leaf['service']}"
    if leaf.get("principal"):
        caller += f", for {leaf['principal']},"
    about = f" about task {row['task_id']}" if row["task_id"] else ""
    rule = leaf["rule"]
    why = RULES.get(rule)
    lines = [
        f"{caller} asked for `{leaf['refused']}`{about} in project {project}, and was refused by the rule `{rule}`"
    ]
    lines[0] += f": {why}." if why else "."
    if leaf.get("needed"):
        lines.append(f"What would have been needed: {leaf['needed']}.")
    return known | {
        "service": leaf["service"],
        "principal": leaf.get("principal"),
        "message_id": leaf["message"],
        "asked": leaf["refused"],
        "rule": rule,
        "needed": leaf.get("needed") or "",
        "text": " ".join(lines),
    }
