"""Bodies of records as their stores' models demand them: a test names the fields that it is about, the rest is here."""

from typing import Any

from counterpoint.proto.memory import Write

_AT = "2026-01-01T00:00:00Z"
_BY = {"by": "a person", "by_kind": "person"}


def completed(write: Write, project: str, task: str | None, agent: str) -> Write:
    """The same with the fields that the store's model demands besides."""
    if write.body is None:
        return write
    return write.model_copy(update={"body": {**rest(write.store, write.id, project, task, agent), **write.body}})


def rest(store: str, record_id: str, project: str, task: str | None = None, agent: str = "manager") -> dict[str, Any]:
    """Return the required fields of a record, whatever it is about; none for a store without a model."""
    about = {"task_id": task or "t-1", "project": project}
    match store:
        case "tasks":
            told = {"kind": "question", "state": "working", "description": "", "submitted_by": "a", "submitted_at": _AT}
            return {**about, "task_id": record_id, **told}
        case "attempts":
            return {
                **about,
                "attempt_id": record_id,
                "attempt": 1,
                "description": "",
                "tried": "",
                "by": "a",
                "at": _AT,
            }
        case "decisions":
            made = {"decision_type": "route", "decision": "", "reasoning": "", "made_at": _AT}
            return {**about, "decision_id": record_id, "agent": agent, **made}
        case "actions":
            made = {"kind": "route", "reasoning": "", "at": _AT}
            return {"task_id": about["task_id"], "action_id": record_id, "agent": agent, **made}
        case "sessions":
            times = {"opened_at": _AT, "continued_at": _AT}
            return {"session_id": record_id, "project": project, "task_ids": [], "summary": "", **times}
        case "links":
            pair = [{"task_id": "t-1"}, {"task_id": "t-2"}]
            return {"link_id": record_id, "project": project, "relation": "same", "pair": pair, **_BY, "at": _AT}
        case "incident_settings":
            return {"project": project, "by": "a person", "at": _AT}
        case "limits":
            return {"project": project, "usd": "1", "by": "a person", "at": _AT}
        case "organisation_limits":
            return {"usd": "1", "by": "a person", "at": _AT}
        case "delegations":
            return {"project": project, "by": "a person", "to": "another", "until": _AT, "at": _AT}
        case "approvals":
            text = {
                "category": "spend",
                "autonomy": "supervised",
                "summary": "-",
                "artifact": "",
                "artifact_sha256": "-",
            }
            return {**about, "approval_id": record_id, **text, "requested_at": _AT, "expires_at": _AT}
        case "principals":
            return {"name": record_id, "kind": "person", "projects": [project], "roles": []}
        case "providers":
            return {"name": "a system", "package": "a-package"}
        case "revocations":
            return {"revocation_id": "0" * 128, "reason": "stolen", "revoked_by": "a person", "revoked_at": _AT}
        case "jobs" | "datasets":
            return {"namespace": "n", "name": record_id}
        case "runs":
            return {"run_id": record_id, "job": "job:n/j"}
        case "edges":
            return {"kind": "data", "source": "job:n/j", "target": "dataset:n/d"}
        case _:
            return {}
