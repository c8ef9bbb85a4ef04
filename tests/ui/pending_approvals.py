"""Approvals that wait for a person."""

from datetime import timedelta
from typing import Any

from agents.router_house import NOW, PROJECT
from ui.http_front import RunningFront

from counterpoint.proto.approvals import Approval, Lift, artifact_sha256

URL = "/v1/approvals"
LIFT = Lift(spend_id="t1", limit="the budget of the task", cap_tokens=10, used_tokens=9, by_tokens=1000)


def put_approval(front: RunningFront, approval_id: str = "a1", **changes: Any) -> Approval:
    """Put an approval that waits for an hour into the record."""
    artifact = changes.pop("artifact", "restart the service")
    fields = {
        "approval_id": approval_id,
        "project": PROJECT,
        "task_id": "t1",
        "category": "proposal",
        "autonomy": "supervised",
        "summary": "a proposal",
        "artifact": artifact,
        "artifact_sha256": artifact_sha256(artifact),
        "requested_at": NOW,
        "expires_at": NOW + timedelta(hours=1),
        "held": {"text": "what only the manager needs"},
    }
    made = Approval.model_validate(fields | changes)
    front.house.put("approvals", approval_id, made.model_dump(mode="json", exclude_none=True))
    return made
