"""Decisions on approvals by memory's own rules: persons alone, one of two at once, bound to the version read."""

import asyncio
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from memory_service.house import PERSON, House

from counterpoint.proto.approvals import Approval, artifact_sha256
from counterpoint.proto.delegations import Delegation
from counterpoint.proto.memory import Outgoing, Write
from counterpoint.proto.principals import Principal, PrincipalKind, Role

DECIDED = "counterpoint.approval.decided.v1"
AT = datetime(2026, 3, 2, 3, tzinfo=UTC)


def approval(project: str, **changes: Any) -> Write:
    """The write of an approval."""
    made = Approval(
        approval_id="a-1",
        project=project,
        task_id="t-1",
        category="proposal",
        autonomy="supervised",
        summary="a proposal",
        artifact="restart",
        artifact_sha256=artifact_sha256("restart"),
        requested_at=AT,
        expires_at=AT + timedelta(days=1),
    )
    body = made.model_copy(update=changes).model_dump(mode="json", exclude_none=True)
    return Write(store="approvals", id="a-1", body=body, expect=1 if changes else 0)


async def request_approval(house: House, project: str) -> None:
    """The manager asks for an approval, by the capability of its message."""
    await house.apply("manager", house.delivery(await house.routed(project, "t-1")), writes=(approval(project),))


async def principal(
    house: House, project: str, name: str, kind: PrincipalKind, *roles: Role, created_at: datetime | None = None
) -> str:
    """A principal of the project."""
    made = Principal(name=name, kind=kind, projects=(project,), roles=roles, created_at=created_at)
    write = Write(store="principals", id=name, body=made.model_dump(mode="json", exclude_none=True))
    await house.apply("router", house.standing("default", principal=PERSON), writes=(write,))
    return name


def message() -> Outgoing:
    body = {"approval_id": "a-1", "task_id": "t-1", "decision": "approved", "artifact_sha256": "0", "by": "ana"}
    return Outgoing(type=DECIDED, data=body)


async def test_two_decisions_on_one_version_are_one_commit_and_one_conflict(house: House, project: str) -> None:
    await request_approval(house, project)
    people = [await principal(house, project, f"{name}-{project}", "person", "approve") for name in ("ana", "ben")]

    async def decide(by: str) -> str:
        write = approval(project, state="approved", decided_by=by, decided_at=AT)
        origin = house.standing(project, principal=by)
        reply = await house.commit("router", origin, writes=(write,), messages=(message(),))
        return reply.refusal.kind if reply.refusal else reply.status

    statuses = await asyncio.gather(*map(decide, people))
    assert sorted(statuses) == ["conflict", "done"], statuses
    body = await house.body(project, "approvals", "a-1") or {}
    assert body["decided_by"] == people[statuses.index("done")]
    assert sum(m.row.type == DECIDED and m.project == project for m in house.sent.values()) == 1


async def test_only_a_person_with_the_right_to_approve_decides(house: House, project: str) -> None:
    await request_approval(house, project)
    write = approval(project, state="approved", decided_by="x", decided_at=AT)
    bot = await principal(house, project, f"bot-{project}", "agent", "approve", "read", "operate", "admin")
    system = await principal(house, project, f"system-{project}", "system", "approve")
    reader = await principal(house, project, f"reader-{project}", "person", "read", "override", "operate", "admin")
    for by in (bot, system, reader, None):
        await house.refusal("router", house.standing(project, principal=by), "store", writes=(write,))
    assert (await house.body(project, "approvals", "a-1") or {})["state"] == "pending"


async def test_no_other_service_writes_an_approval(house: House, project: str) -> None:
    await request_approval(house, project)
    write = approval(project, state="approved", decided_by="x", decided_at=AT)
    delegated = await house.delegated(project, "t-1")
    await house.refusal("developer", house.delivery(delegated), "store", writes=(write,))
    await house.refusal("lineage", house.standing(project), "store", writes=(write,))


def delegation(project: str, by: str, to: str, until: datetime) -> Write:
    """The write of a delegation."""
    made = Delegation(project=project, by=by, to=to, until=until, at=AT)
    return Write(store="delegations", id=made.record_id, body=made.model_dump(mode="json"), expect=0)


async def test_a_deputy_decides_while_a_person_who_may_approve_has_delegated(house: House, project: str) -> None:
    await request_approval(house, project)
    ana = await principal(house, project, f"ana-{project}", "person", "approve", "read")
    ben = await principal(house, project, f"ben-{project}", "person", "read")
    write = approval(project, state="approved", decided_by=ben, decided_at=AT)
    later = datetime.now(UTC) + timedelta(hours=1)
    await house.refusal("router", house.standing(project, principal=ben), "store", writes=(write,))
    made = delegation(project, ana, ben, later)
    await house.apply("router", house.standing(project, principal=ana), writes=(made,))
    await house.apply("router", house.standing(project, principal=ben), writes=(write,), messages=(message(),))
    revoked = Principal(name=ana, kind="person", projects=(project,), roles=("approve",), revoked_at=AT)
    body = revoked.model_dump(mode="json", exclude_none=True)
    change = Write(store="principals", id=ana, body=body, expect=1)
    await house.apply("router", house.standing("default", principal=PERSON), writes=(change,))
    again = write.model_copy(update={"expect": 2})
    await house.refusal("router", house.standing(project, principal=ben), "store", writes=(again,))


@pytest.mark.parametrize("case", ["over", "by one who may not", "agent", "other project", "by the deputy", "namesake"])
async def test_an_invalid_delegation_gives_no_right(house: House, project: str, case: str) -> None:
    await request_approval(house, project)
    now = datetime.now(UTC)
    ana = await principal(house, project, f"ana-{project}", "person", "approve", "read")
    eve = await principal(house, project, f"eve-{project}", "person", "read")
    kind: PrincipalKind = "agent" if case == "agent" else "person"
    created = now + timedelta(hours=1) if case == "namesake" else None
    ben = await principal(house, project, f"ben-{project}", kind, "read", created_at=created)
    by = {"by one who may not": eve, "by the deputy": ben}.get(case, ana)
    until = now - timedelta(seconds=1) if case == "over" else now + timedelta(hours=1)
    place = f"{project}-b" if case == "other project" else project
    made = delegation(place, by, ben, until)
    await house.apply("router", house.standing(place, principal=PERSON), writes=(made,))
    write = approval(project, state="approved", decided_by=ben, decided_at=AT)
    await house.refusal("router", house.standing(project, principal=ben), "store", writes=(write,))


async def test_a_principal_without_the_right_to_approve_cannot_delegate_it(house: House, project: str) -> None:
    reader = await principal(house, project, f"reader-{project}", "person", "read", "operate", "admin")
    bot = await principal(house, project, f"bot-{project}", "agent", "approve", "read")
    for by in (reader, bot):
        made = delegation(project, by, "ben", datetime.now(UTC) + timedelta(hours=1))
        await house.refusal("router", house.standing(project, principal=by), "store", writes=(made,))
