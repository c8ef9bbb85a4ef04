"""DataHub: the incident of a failed job or data set, on the entity that DataHub knows for it.

The URN of an incident follows from its task, so that a call that is made again writes the same incident. An entity that
DataHub does not know is left alone: an incident on it would create it. Texts are in blocks of code, since DataHub
renders markdown.
"""

import json
import re
from datetime import datetime
from typing import Any

from counterpoint.card.inert import block, span
from counterpoint.proto.ids import derived_id
from counterpoint.router.notify.deliveries import Delivery
from counterpoint.router.notify.outbound import Answer, Call
from counterpoint.router.notify.receivers import Receiver
from counterpoint.router.notify.summary import IncidentSummary, shortened

_ACTOR = "urn:li:corpuser:counterpoint"
_PRIORITY = {"urgent": 0, "high": 1, "normal": 2, "low": 3}
_RESERVED = re.compile(r"[%,()\s]")
_EXISTS = "query exists($urn: String!) { entityExists(urn: $urn) }"
_DESCRIPTION_CHARS = 8000


def candidates(receiver: Receiver, incident: IncidentSummary) -> tuple[str, ...]:
    """Return the URNs that the failed job or data set may have in DataHub, the most exact first.

    A job `dag.task` is a data job of the receiver's platform, and one without a dot a data flow.
    """
    found: list[str] = []
    if incident.job:
        flow, _, job = incident.job.partition(".")
        if job:
            found.append(f"urn:li:dataJob:({_flow(receiver, flow)},{_encoded(job)})")
        found.append(_flow(receiver, flow))
    if incident.dataset:
        platform = re.split(r"[:/]", incident.dataset.namespace)[0].lower()
        name = _encoded(incident.dataset.name)
        found.append(f"urn:li:dataset:(urn:li:dataPlatform:{_encoded(platform)},{name},{receiver.environment})")
    return tuple(found)


def exists_call(receiver: Receiver, urn: str) -> Call:
    """Return the question whether DataHub knows an entity."""
    body = {"query": _EXISTS, "variables": {"urn": urn}}
    return _call(receiver, "/api/graphql", body)


def exists(answer: Answer) -> bool | None:
    """Return whether DataHub knows the entity, None for an answer that does not say so."""
    try:
        data = json.loads(answer.content)["data"]["entityExists"]
    except (ValueError, KeyError, TypeError):
        return None
    return data if isinstance(data, bool) else None


def datahub_call(receiver: Receiver, delivery: Delivery, incident: IncidentSummary, entity: str, now: datetime) -> Call:
    """Return the write of the incident, which replaces an earlier one of the same task."""
    info = {
        "type": "OPERATIONAL",
        "title": shortened(incident.title, 200),
        "description": _description(incident),
        "entities": [entity],
        "priority": _PRIORITY.get(delivery.severity, 2),
        "status": {
            "state": "RESOLVED" if incident.status in ("resolved", "cancelled") else "ACTIVE",
            "message": shortened(incident.headline, 500),
            "lastUpdated": _stamp(now),
        },
        "source": {"type": "MANUAL"},
        "startedAt": _ms(incident.opened_at),
        "created": _stamp(incident.opened_at),
    }
    body = [{"urn": incident_urn(incident), "incidentInfo": {"value": info}}]
    return _call(receiver, "/openapi/v3/entity/incident?async=false", body)


def incident_urn(incident: IncidentSummary) -> str:
    """Return the URN of an incident, always the same for one task."""
    return f"urn:li:incident:{derived_id('datahub', incident.project, incident.task_id)}"


def _description(incident: IncidentSummary) -> str:
    parts = [f"{name}: {span(value)}" for name, value in incident.facts]
    texts = {"Error": incident.error, "Proposal": incident.proposal, "Needs": "\n".join(incident.needs)}
    parts += [f"{name}:\n\n{block(text)}" for name, text in texts.items() if text]
    if incident.impact:
        parts.append(f"Will be late: {span(incident.impact)}")
    parts.append(span(f"counterpoint show {incident.task_id} --project {incident.project}"))
    kept: list[str] = []
    for part in parts:
        if sum(map(len, kept)) + len(part) <= _DESCRIPTION_CHARS:
            kept.append(part)
    return "\n\n".join(kept)


def _call(receiver: Receiver, path: str, body: Any) -> Call:
    headers = {"Content-Type": "application/json"}
    if receiver.secret is not None:
        headers["Authorization"] = f"Bearer {receiver.secret.get_secret_value()}"
    return Call(f"{receiver.address.rstrip('/')}{path}", json.dumps(body).encode(), headers)


def _flow(receiver: Receiver, name: str) -> str:
    return f"urn:li:dataFlow:({receiver.platform},{_encoded(name)},{receiver.environment})"


def _encoded(name: str) -> str:
    """Return a name without the characters that end a part of a URN."""
    return _RESERVED.sub(lambda found: f"%{ord(found.group()):02X}", name)


def _stamp(at: datetime) -> dict[str, Any]:
    return {"time": _ms(at), "actor": _ACTOR}


def _ms(at: datetime) -> int:
    return int(at.timestamp() * 1000)
