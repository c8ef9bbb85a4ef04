"""Refusals in plain words: the caller, the request, the rule that refused it, and the missing right."""

import json
from typing import Any

from counterpoint.proto.errors import ErrorCode

RULES = {
    ErrorCode.AGENT: "a service may sign only with the names of its own agents",
    ErrorCode.ATTENUATED: "the capability was narrowed, and the request is outside of it",
    ErrorCode.AUDIENCE: "a capability is valid only for the service that it names",
    ErrorCode.ENDED: "nothing may be written for a task that has ended",
    ErrorCode.EXPIRED: "the capability has expired",
    ErrorCode.FENCE: "only the newest delivery of a message may continue",
    ErrorCode.GATEWAY: "the policy does not let this service use the gateway",
    ErrorCode.GRANT: "the policy does not let this service work without a capability",
    ErrorCode.LABEL: "data labelled above the caller's clearance may be neither read nor written",
    ErrorCode.MALFORMED: "the capability is not a valid token",
    ErrorCode.MESSAGE: "a capability is valid only for the message it came with, which must be in the log",
    ErrorCode.PRINCIPAL: "the request must name a known principal",
    ErrorCode.PROJECT: "work must stay in the project that it was granted for",
    ErrorCode.REVOKED: "the capability was revoked",
    ErrorCode.ROLE: "the caller lacks a role",
    ErrorCode.SEND: "the policy does not let this service send this message",
    ErrorCode.SIGNATURE: "the capability was not signed by memory",
    ErrorCode.STEP: "only the last step may change a task's state or send a workflow message",
    ErrorCode.STORE: "the policy does not give this service this right to the store",
    ErrorCode.TASK: "work must stay in the task that it was granted for",
    ErrorCode.TOO_LARGE: "a commit, record or message exceeds its size limit",
    ErrorCode.SENSITIVE: "free text must not contain secrets or payment cards",
    ErrorCode.UNCITED: "a citation must name an item that was read, at that version",
    ErrorCode.INVALID: "the request is not valid",
    ErrorCode.OLD_WRITER: "a record must not be overwritten by a writer with an older schema version",
    ErrorCode.NOT_FOUND: "the item does not exist",
    ErrorCode.REFUSED: "the database rejects it",
    ErrorCode.CONFLICT: "a record that changed meanwhile must not be overwritten",
}
"""Purpose of each rule."""

_BY_REQUEST = frozenset({ErrorCode.INVALID, ErrorCode.NOT_FOUND, ErrorCode.REFUSED, ErrorCode.CONFLICT})
"""Rules that a request broke by its content, and not for want of a right."""


def explained(row: Any, project: str) -> dict[str, Any]:
    """Return a refusal of the log, with `text` for people. An erased one has only its id, task and time."""
    known = {"id": str(row["id"]), "project": project, "task_id": row["task_id"], "at": row["at"].isoformat()}
    if row["body"] is None:
        return known | {"erased": True, "text": "The refusal was erased."}
    leaf = json.loads(row["body"])
    caller = f"The service {leaf['service']}"
    if leaf.get("principal"):
        caller += f", for {leaf['principal']},"
    about = f" about task {row['task_id']}" if row["task_id"] else ""
    rule = leaf["rule"]
    why = RULES.get(rule)
    lines = [
        f"{caller} requested `{leaf['refused']}`{about} in project {project}, and was refused by the rule `{rule}`"
    ]
    lines[0] += f": {why}." if why else "."
    if leaf.get("needed"):
        lines.append(f"{'Problem' if rule in _BY_REQUEST else 'Required'}: {leaf['needed']}.")
    return known | {
        "service": leaf["service"],
        "principal": leaf.get("principal"),
        "message_id": leaf["message"],
        "asked": leaf["refused"],
        "rule": rule,
        "needed": leaf.get("needed") or "",
        "text": " ".join(lines),
    }
