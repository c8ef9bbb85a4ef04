"""Principals have the rights of their roles, and an HTTP token is that of a live one."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from access.principals import principal
from memory_service.house import PERSON, ROUTED, House, decision

from counterpoint.memory.access.principals import Principals
from counterpoint.proto.errors import Denied
from counterpoint.proto.ids import new_id
from counterpoint.proto.memory import Get, List, LogAfter, Outgoing, Write


class HeldUp:
    """The house's database, whose answers arrive when they are let through."""

    def __init__(self, house: House) -> None:
        self._database = house.database
        self.read = asyncio.Event()
        self.let = asyncio.Event()

    @asynccontextmanager
    async def reading(self, project: str) -> AsyncIterator[object]:
        async with self._database.reading(project) as connection:
            yield connection
        self.read.set()
        await self.let.wait()


class TestPrincipals:
    async def test_a_principal_has_exactly_the_rights_of_its_roles(self, house: House, project: str) -> None:
        submitter = await principal(house, (project,), "submit")
        submission = Write(store="submissions", id="s", body={})
        routed = Outgoing(type=ROUTED, data={"task_id": "t-1"})
        asked = house.standing(project, "t-1", principal=submitter)
        await house.apply("router", asked, writes=(submission,), messages=(routed, decision("human")))
        overridden = Outgoing(type="counterpoint.task.overridden.v1", data={"task_id": "t-1"})
        again = house.standing(project, "t-1", principal=submitter)
        await house.refusal("router", again, "send", messages=(overridden,))
        await house.refusal("router", again, "store", Get(store="tasks", id="t-1"))
        await house.refusal("router", again, "store", LogAfter(after=0))

    async def test_foreign_unknown_and_revoked_principals_are_refused(self, house: House, project: str) -> None:
        stranger = await principal(house, (f"{project}-b",), "read", "submit")
        write = Write(store="submissions", id="s", body={})
        await house.refusal("router", house.standing(project, principal=stranger), "role", writes=(write,))
        await house.refusal("router", house.standing(project, principal="nobody"), "principal", List(store="tasks"))
        revoked = {"name": stranger, "kind": "person", "projects": [project], "roles": ["read"]}
        revoked |= {"revoked_at": datetime.now(UTC).isoformat()}
        write = Write(store="principals", id=stranger, body=revoked, expect=1)
        await house.apply("router", house.standing("default", principal=PERSON), writes=(write,))
        await house.refusal("router", house.standing(project, principal=stranger), "principal", List(store="tasks"))

    async def test_an_expired_principal_is_refused(self, house: House, project: str) -> None:
        ends = datetime.now(UTC) + timedelta(hours=1)
        body = {"name": project, "kind": "person", "projects": [project], "roles": ["read", "approve"]}
        write = Write(store="principals", id=new_id(), body=body | {"expires_at": ends.isoformat()})
        await house.apply("router", house.standing("default", principal=PERSON), writes=(write,))
        await house.answer("router", house.standing(project, principal=project), List(store="tasks"))
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr("counterpoint.memory.access.principals.utc_now", lambda: ends)
            await house.refusal("router", house.standing(project, principal=project), "principal", List(store="tasks"))

    async def test_a_principal_revoked_during_its_lookup_is_not_cached(self, house: House, project: str) -> None:
        name, held_up = await principal(house, (project,), "read"), HeldUp(house)
        principals = Principals(held_up)  # type: ignore[arg-type]
        asked = asyncio.create_task(principals.of(name))
        await held_up.read.wait()
        revoked = {"name": name, "kind": "person", "projects": [project], "roles": ["read"]}
        revoked |= {"revoked_at": datetime.now(UTC).isoformat()}
        write = Write(store="principals", id=name, body=revoked, expect=1)
        await house.apply("router", house.standing("default", principal=PERSON), writes=(write,))
        principals.clear()
        held_up.let.set()
        await asked
        with pytest.raises(Denied):
            await principals.of(name)

    async def test_a_name_has_one_live_principal_even_when_created_concurrently(
        self, house: House, project: str
    ) -> None:
        def made(principal_id: str, expect: int = 0, **more: str) -> Any:
            body = {"name": project, "kind": "person", "projects": [project], "roles": ["read"], **more}
            writes = (Write(store="principals", id=principal_id, body=body, expect=expect),)
            return house.commit("router", house.standing("default", principal=PERSON), writes=writes)

        ids = [new_id() for _ in range(4)]
        replies = await house.together(*(made(one) for one in ids))
        assert sorted(reply.status for reply in replies) == ["done", "refused", "refused", "refused"]
        assert {reply.refusal.kind for reply in replies if reply.refusal} == {"conflict"}
        (live,) = [one for one, reply in zip(ids, replies, strict=True) if reply.status == "done"]
        assert (await made(new_id())).status == "refused"
        assert (await made(live, 1, revoked_at=datetime.now(UTC).isoformat())).status == "done"
        assert (await made(new_id())).status == "done"

    async def test_only_an_administrator_of_all_projects_makes_principals(self, house: House, project: str) -> None:
        one = await principal(house, (project,), "admin", "read")
        body = {"name": "mallory", "kind": "person", "projects": ["*"], "roles": ["admin"]}
        for name in (one, None):
            await house.refusal(
                "router", house.standing(project, principal=name), "store",
                writes=(Write(store="principals", id=new_id(), body=body),),
            )  # fmt: skip

    async def test_a_service_without_a_standing_needs_a_token(self, house: House, project: str) -> None:
        for service in ("manager", "developer", "stranger", "develope", "developer.x"):
            origin = house.standing(project, principal=PERSON)
            await house.refusal(service, origin, "grant", Get(store="tasks", id="t-1"))
            await house.refusal(service, origin, "grant", messages=(decision(),))
