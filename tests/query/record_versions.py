"""Versions of records."""

from typing import Any

from counterpoint.memory.record.plan import CommitPlan, PlannedWrite, canonical
from counterpoint.proto.ids import new_id


def attempt(says: str = "restarted the database") -> dict[str, Any]:
    return {"description": says, "tried": says, "error_message": "ORA-12170"}


def version_of(
    project: str, record: str, version: int, says: str | None, *, label: int = 1, store: str = "attempts"
) -> CommitPlan:
    """The step that writes it."""
    row = PlannedWrite(
        store=store, id=record, expect=version - 1, body=None if says is None else canonical(attempt(says)),
        task_id=None, author="developer", label=label, integrity=1, sha256=b"x" * 32,
    )  # fmt: skip
    return CommitPlan(
        project=project, commit_id=new_id(), consumer="test", message_id=new_id(), step="done", last=True, fence=1,
        task_id=None, task_version=None, ended_ok=True, audit="{}", salt=b"s" * 16, reads=None,
        writes=(row,),
    )  # fmt: skip
