"""The one door, on a real PostgreSQL: what it refuses, by which rule, and that each refusal leaves a leaf."""

import json
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from diode.memory_house import DECISION, DELEGATED, DUE, PERSON, ROUTED, WORKED, House, decided, task_body
from pydantic import ValidationError

from counterpoint.guard.capabilities import attenuate, revocation_ids
from counterpoint.proto.ids import new_id
from counterpoint.proto.memory import (
    Get,
    Line,
    List,
    LogAfter,
    Origin,
    Outgoing,
    QueryReply,
    VectorSearch,
    Walk,
    Write,
)

ILLEGAL_PROJECTS = ("*", ">", "demo.*", "demo-*", "", "Demo", "d\u0435mo", "demo\n", "-demo", "_system", "a" * 64, None)
ACTION = {"agent": "developer", "kind": "work"}


def decision(agent: str = "developer", **fields: Any) -> Outgoing:
    """A decision of an agent."""
    return Outgoing(type=DECISION, data=decided(agent, **fields))


class TestProjects:
    async def test_a_foreign_record_is_as_if_it_did_not_exist(self, house: House, project: str) -> None:
        theirs, mine = f"{project}-b", project
        await house.delegated(theirs, "t-1")
        await house.done("router", house.standing(theirs), writes=(Write(store="submissions", id="s", body={}),))
        router = house.standing(mine)
        for store, record in (("tasks", "t-1"), ("submissions", "s"), ("tasks", "nobody's")):
            foreign = await house.found("router", router, Get(store=store, id=record))
            assert foreign.items == ()
        for query in (List(store="tasks"), Line(task_id="t-1"), LogAfter(after=0, kinds=("tasks", "changes"))):
            assert (await house.found("router", router, query)).items == ()
        walked = await house.found("router", router, Walk(store="edges", start=("a",)))
        assert walked.items == ()
        manager = house.handed(await house.routed(mine, "t-1"))
        assert (await house.found("manager", manager, Get(store="tasks", id="t-1"))).items == ()

    async def test_a_foreign_record_is_not_in_the_way_of_ones_own(self, house: House, project: str) -> None:
        for place in (f"{project}-b", project):
            done = await house.done(
                "router", house.standing(place), writes=(Write(store="submissions", id="s", body={}),)
            )
            assert done.versions == {"submissions/s": 1}

    async def test_what_begins_like_ones_project_is_another(self, house: House, project: str) -> None:
        await house.done("router", house.standing(project), writes=(Write(store="submissions", id="s", body={}),))
        for place in (project[:-1], f"{project}0", project.replace("-", "0", 1)):
            assert await house.body(place, "submissions", "s") is None

    @pytest.mark.parametrize("illegal", ILLEGAL_PROJECTS)
    async def test_a_project_that_is_no_name_is_refused(self, house: House, illegal: str | None) -> None:
        with pytest.raises(ValidationError):
            Origin(message_id="m", project=illegal)
        origin = {"message_id": new_id(), "fence": 1, "project": illegal}
        query = {"origin": origin, "queries": [{"op": "list", "store": "submissions"}]}
        asked = json.loads(await house.door.query("router", json.dumps(query).encode()))
        commit = {"origin": origin, "commit": {"writes": [{"store": "submissions", "id": "s", "body": {}}]}}
        written = json.loads(await house.door.commit("router", json.dumps(commit).encode()))
        for reply in (asked, written):
            assert reply["refusal"]["code"] == "invalid"
            assert [problem["field"] for problem in reply["refusal"]["problems"]] == ["origin.project"]

    async def test_a_token_for_one_project_opens_no_other(self, house: House, project: str) -> None:
        sent = await house.delegated(project, "t-1")
        for other in (f"{project}-b", project[:-1], "shared", "default"):
            await house.refused("developer", house.handed(sent, project=other), "project", Get(store="tasks", id="t-1"))
            await house.refused("developer", house.handed(sent, project=other), "project", messages=(decision(),))

    async def test_the_shared_project_is_written_for_administrators_only(self, house: House) -> None:
        write = Write(store="submissions", id=new_id(), body={})
        reader = await principal(house, ("*",), "read", "submit")
        for origin in (house.standing("shared"), house.standing("shared", principal=reader)):
            await house.refused("router", origin, "store", writes=(write,))
        await house.done("router", house.standing("shared", principal=PERSON), writes=(write,))

    async def test_what_a_store_does_not_share_is_not_seen_from_elsewhere(self, house: House, project: str) -> None:
        write = Write(store="submissions", id=new_id(), body={"kept": "in shared"})
        await house.done("router", house.standing("shared", principal=PERSON), writes=(write,))
        assert await house.body(project, "submissions", write.id) is None
        provider = Write(store="providers", id=new_id(), body={})
        await house.refused("router", house.standing("shared", principal=PERSON), "store", writes=(provider,))


async def principal(house: House, projects: tuple[str, ...], *roles: str) -> str:
    """A new principal's name."""
    name = new_id()
    body = {"name": name, "kind": "person", "projects": projects, "roles": roles}
    await house.done(
        "router", house.standing("default", principal=PERSON), writes=(Write(store="principals", id=name, body=body),)
    )
    return name


class TestPrincipals:
    async def test_a_principal_does_what_its_roles_say_and_no_more(self, house: House, project: str) -> None:
        submitter = await principal(house, (project,), "submit")
        submission = Write(store="submissions", id="s", body={})
        routed = Outgoing(type=ROUTED, data={"task_id": "t-1"})
        asked = house.standing(project, "t-1", principal=submitter)
        await house.done("router", asked, writes=(submission,), messages=(routed, decision("human")))
        overridden = Outgoing(type="counterpoint.task.overridden.v1", data={"task_id": "t-1"})
        again = house.standing(project, "t-1", principal=submitter)
        await house.refused("router", again, "send", messages=(overridden,))
        await house.refused("router", again, "store", Get(store="tasks", id="t-1"))
        await house.refused("router", again, "store", LogAfter(after=0))

    async def test_a_principal_of_another_project_an_unknown_and_a_revoked_one_may_nothing(
        self, house: House, project: str
    ) -> None:
        stranger = await principal(house, (f"{project}-b",), "read", "submit")
        write = Write(store="submissions", id="s", body={})
        await house.refused("router", house.standing(project, principal=stranger), "role", writes=(write,))
        await house.refused("router", house.standing(project, principal="nobody"), "principal", List(store="tasks"))
        revoked = {"name": stranger, "kind": "person", "projects": [project], "roles": ["read"]}
        revoked |= {"revoked_at": datetime.now(UTC).isoformat()}
        write = Write(store="principals", id=stranger, body=revoked, expect=1)
        await house.done("router", house.standing("default", principal=PERSON), writes=(write,))
        await house.refused("router", house.standing(project, principal=stranger), "principal", List(store="tasks"))

    async def test_only_an_administrator_of_all_projects_makes_principals(self, house: House, project: str) -> None:
        one = await principal(house, (project,), "admin", "read")
        body = {"name": "mallory", "kind": "person", "projects": ["*"], "roles": ["admin"]}
        for name in (one, None):
            await house.refused(
                "router", house.standing(project, principal=name), "store",
                writes=(Write(store="principals", id=new_id(), body=body),),
            )  # fmt: skip

    async def test_a_service_without_a_standing_needs_a_token(self, house: House, project: str) -> None:
        for service in ("manager", "developer", "stranger", "develope", "developer.x"):
            origin = house.standing(project, principal=PERSON)
            await house.refused(service, origin, "grant", Get(store="tasks", id="t-1"))
            await house.refused(service, origin, "grant", messages=(decision(),))


class TestTokens:
    @pytest.mark.parametrize("thief", ["router", "manager", "lineage", "memory", "publisher", "develope", "developer2"])
    async def test_a_token_is_useless_from_any_other_user(self, house: House, project: str, thief: str) -> None:
        stolen = house.handed(await house.delegated(project, "t-1"))
        await house.refused(thief, stolen, "audience", Get(store="tasks", id="t-1"))
        await house.refused(thief, stolen, "audience", messages=(decision(),))

    async def test_a_token_for_another_task_or_message_is_refused(self, house: House, project: str) -> None:
        sent, other = await house.delegated(project, "t-1"), await house.delegated(project, "t-2")
        for changes, rule in (
            ({"task_id": "t-2"}, "task"),
            ({"task_id": None}, "task"),
            ({"message_id": other}, "message"),
            ({"message_id": new_id()}, "message"),
            ({"capability": house.handed(other).capability}, "message"),
        ):
            origin = house.handed(sent, **changes)
            await house.refused("developer", origin, rule, Get(store="tasks", id="t-1"))
            await house.refused("developer", origin, rule, messages=(decision(),))

    async def test_an_expired_token_is_refused(self, house: House, project: str) -> None:
        sent = await house.delegated(project, "t-1")
        for lives_s in (0, -1, -3600):
            await house.refused("developer", house.handed(sent, lives_s=lives_s), "expired", messages=(decision(),))

    async def test_a_revoked_token_is_refused_and_all_that_was_made_from_it(
        self, house: House, project: str, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        stolen, other = [house.handed(await house.delegated(project, task)) for task in ("t-1", "t-2")]
        assert stolen.capability
        monkeypatch.setattr(house.door, "_revoked", frozenset(revocation_ids(stolen.capability)))
        narrow = stolen.model_copy(update={"capability": attenuate(stolen.capability, stores=["tasks"])})
        for origin in (stolen, narrow):
            await house.refused("developer", origin, "revoked", Get(store="tasks", id="t-1"))
            await house.refused("developer", origin, "revoked", messages=(decision(),))
        assert (await house.found("developer", other, Get(store="tasks", id="t-2"))).items

    async def test_a_token_with_any_bit_flipped_is_refused(self, house: House, project: str) -> None:
        sent = await house.delegated(project, "t-1")
        token = house.handed(sent).capability
        assert token is not None
        for at in range(0, len(token), 41):
            flipped = token[:at] + ("A" if token[at] != "A" else "B") + token[at + 1 :]
            reply = await house.commit("developer", house.handed(sent, capability=flipped), messages=(decision(),))
            assert reply.refusal is not None
            assert reply.refusal.code in ("signature", "malformed")

    async def test_a_token_of_a_message_that_memory_never_sent_is_refused(self, house: House, project: str) -> None:
        like = house.sent[await house.delegated(project, "t-1")]
        await house.refused("developer", house.handed_as(new_id(), like), "message", messages=(decision(),))

    async def test_an_attenuated_token_does_only_what_is_left_of_it(self, house: House, project: str) -> None:
        sent = await house.delegated(project, "t-1")
        whole = house.handed(sent)
        assert whole.capability
        narrow = house.handed(sent, capability=attenuate(whole.capability, stores=["tasks"], operations=["read"]))
        assert (await house.found("developer", narrow, Get(store="tasks", id="t-1"))).items
        await house.refused("developer", narrow, "attenuated", Get(store="plans", id="t-1"))
        write = Write(store="checkpoints", id="c", body={})
        await house.refused("developer", narrow, "attenuated", reads=1, writes=(write,))
        over = attenuate(whole.capability, expires_at=datetime.now(UTC) - timedelta(seconds=5))
        await house.refused(
            "developer", house.handed(sent, capability=over), "attenuated", Get(store="tasks", id="t-1")
        )

    async def test_an_attenuated_token_sends_nothing_it_may_not(self, house: House, project: str) -> None:
        sent = await house.delegated(project, "t-1")
        token = house.handed(sent).capability
        assert token
        reader = attenuate(token, stores=["tasks"], operations=["read"])
        over = attenuate(token, expires_at=datetime.now(UTC) - timedelta(seconds=5))
        worked = Outgoing(type=WORKED, data={"task_id": "t-1"})
        for number, capability in enumerate((reader, over)):
            reply = await house.commit(
                "developer", house.handed(sent, capability=capability), step=f"s-{number}", messages=(worked,)
            )
            assert reply.status == "refused"


class TestStoresAndMessages:
    async def test_a_store_that_is_not_ones_own_is_not_written_or_read(self, house: House, project: str) -> None:
        developer = house.handed(await house.delegated(project, "t-1"))
        for store in ("tasks", "principals", "plans", "edges", "nothing", "tasks "):
            await house.refused("developer", developer, "store", writes=(Write(store=store, id="x", body={}),))
            await house.refused(
                "developer", developer, "store", writes=(Write(store=store, id="x", body=None, expect=1),)
            )
        for store in ("submissions", "principals", "dead_letters", "nothing"):
            await house.refused("developer", developer, "store", Get(store=store, id="x"))
            await house.refused("developer", developer, "store", Get(store="tasks", id="t-1"), List(store=store))
            await house.refused("developer", developer, "store", VectorSearch(store=store, text="x"))

    async def test_a_message_that_is_not_ones_own_is_not_sent(self, house: House, project: str) -> None:
        developer = house.handed(await house.delegated(project, "t-1"))
        for name in (ROUTED, DELEGATED, "counterpoint.task.submit.v1", "counterpoint.lineage.event.v1", "nothing"):
            await house.refused(
                "developer", developer, "send", messages=(Outgoing(type=name, data={"task_id": "t-1"}),)
            )

    @pytest.mark.parametrize("name", ["counterpoint.records.changed.v1", "counterpoint.message.died.v1"])
    async def test_what_memory_announces_is_announced_by_nobody_else(
        self, house: House, project: str, name: str
    ) -> None:
        developer = house.handed(await house.delegated(project, "t-1"))
        await house.refused("developer", developer, "send", messages=(Outgoing(type=name, data={}),))

    async def test_nobody_signs_as_another(self, house: House, project: str) -> None:
        developer = house.handed(await house.delegated(project, "t-1"))
        for agent in ("router", "human", "coder-", "coder-x", "coder-12345", "judge "):
            await house.refused("developer", developer, "agent", messages=(decision(agent),))
            action = Write(store="actions", id=new_id(), body={**ACTION, "agent": agent})
            await house.refused("developer", developer, "agent", writes=(action,))
        await house.done("developer", developer, messages=(decision("coder-7"), decision("judge")))

    async def test_nothing_is_written_or_sent_about_another_task(self, house: House, project: str) -> None:
        await house.delegated(project, "t-2")
        developer = house.handed(await house.delegated(project, "t-1"))
        other = Write(store="actions", id=new_id(), body={**ACTION, "task_id": "t-2"})
        await house.refused("developer", developer, "task", writes=(other,))
        for about in ({"task_id": "t-2", "data": {}}, {"data": {"task_id": "t-2"}}):
            await house.refused("developer", developer, "task", messages=(Outgoing(type=WORKED, **about),))

    async def test_another_tasks_record_is_not_written_under_its_id(self, house: House, project: str) -> None:
        await house.delegated(project, "t-2")
        manager = house.handed(await house.routed(project, "t-1"))
        stolen = Write(store="tasks", id="t-2", body={"kind": "question", "state": "cancelled"}, expect=1)
        reply = await house.commit("manager", manager, writes=(stolen,))
        assert reply.status == "refused"

    async def test_a_message_names_one_task(self, house: House, project: str) -> None:
        developer = house.handed(await house.delegated(project, "t-1"))
        message = Outgoing(type=WORKED, task_id="t-1", data={"task_id": "t-2"})
        assert (await house.commit("developer", developer, messages=(message,))).status == "refused"

    async def test_a_reader_bound_to_its_task_sees_no_other(self, house: House, project: str) -> None:
        await house.delegated(project, "t-2")
        developer = house.handed(await house.delegated(project, "t-1"))
        assert (await house.found("developer", developer, Get(store="tasks", id="t-2"))).items == ()
        listed = await house.found("developer", developer, List(store="tasks"))
        assert [item.id for item in listed.items] == ["t-1"]

    async def test_a_reader_bound_to_its_task_sees_no_other_in_the_log(self, house: House, project: str) -> None:
        await house.delegated(project, "t-2")
        developer = house.handed(await house.delegated(project, "t-1"))
        reply = await house.query("developer", developer, LogAfter(after=0))
        assert reply.refusal or {item.body["task_id"] for item in reply.found[0].items} == {"t-1"}

    async def test_another_services_timer_is_not_cancelled(self, house: House, project: str) -> None:
        due = Outgoing(type=DUE, data={}, task_id="t-2", due_at=datetime.now(UTC) + timedelta(days=1), timer="t-2")
        await house.done("manager", house.handed(await house.routed(project, "t-2")), messages=(due,))
        developer = house.handed(await house.delegated(project, "t-1"))
        await house.commit("developer", developer, cancel_timers=("t-2",))
        async with house.superuser() as connection:
            waiting = "SELECT count(*) FROM pending WHERE project = $1 AND timer"
            assert await connection.fetchval(waiting, project) == 1


class TestSteps:
    async def test_a_step_that_is_not_the_last_changes_no_workflow_state(self, house: House, project: str) -> None:
        manager = house.handed(await house.routed(project, "t-1"))
        task = Write(store="tasks", id="t-1", body=task_body("t-1"))
        await house.refused("manager", manager, "step", step="plan", last=False, writes=(task,))
        delegated = Outgoing(type=DELEGATED, data={"task_id": "t-1"})
        await house.refused("manager", manager, "step", step="plan", last=False, messages=(delegated,))
        await house.done("manager", manager, step="plan", last=False, messages=(decision("manager"),))
        await house.done("manager", manager, writes=(task,), messages=(delegated,))

    async def test_an_older_delivery_is_refused(self, house: House, project: str) -> None:
        sent = await house.delegated(project, "t-1")
        newer, older = house.handed(sent, fence=7), house.handed(sent, fence=6)
        await house.done("developer", newer, step="one", last=False, messages=(decision(),))
        await house.refused("developer", older, "fence", Get(store="tasks", id="t-1"))
        await house.refused("developer", older, "fence", step="two", last=False, messages=(decision(),))
        house.restart()
        await house.refused("developer", older, "fence", step="two", last=False, messages=(decision(),))
        await house.done("developer", newer, step="two", last=False, messages=(decision(),))

    async def test_reads_that_memory_does_not_know_any_more_are_asked_for_again(
        self, house: House, project: str
    ) -> None:
        sent = await house.delegated(project, "t-1")
        read = house.handed(sent, fence=2)
        await house.found("developer", read, Get(store="tasks", id="t-1"))
        rerun, redelivered = house.handed(sent, fence=2, run=1), house.handed(sent, fence=3)
        for origin, reads in ((read, 0), (read, 2), (rerun, 1), (redelivered, 1)):
            refusal = (await house.commit("developer", origin, reads=reads, messages=(decision(),))).refusal
            assert refusal is not None
            assert refusal.kind == ("transient" if origin.fence == 3 or reads != 1 or origin.run else "denied")
        house.restart()
        refusal = (await house.commit("developer", redelivered, reads=1, messages=(decision(),))).refusal
        assert refusal is not None
        assert refusal.kind == "transient"
        await house.found("developer", redelivered, Get(store="tasks", id="t-1"))
        await house.done("developer", redelivered, reads=1, messages=(decision(),))


class TestCitations:
    @pytest.mark.parametrize("where", ["sources", "findings"])
    async def test_only_what_was_read_is_cited_at_the_version_that_was_read(
        self, house: House, project: str, where: str
    ) -> None:
        developer = house.handed(await house.delegated(project, "t-1"))

        def citing(store: str, record: str, version: int) -> Outgoing:
            cited = [{"store": store, "id": record, "version": version}]
            if where == "sources":
                return decision(sources=cited)
            return Outgoing(type=WORKED, data={"task_id": "t-1", "findings": {"citations": cited}})

        await house.refused("developer", developer, "uncited", messages=(citing("tasks", "t-1", 1),))
        await house.found("developer", developer, Get(store="tasks", id="t-1"))
        for store, record, version in (("tasks", "t-1", 2), ("tasks", "t-2", 1), ("plans", "t-1", 1)):
            message = citing(store, record, version)
            await house.refused("developer", developer, "uncited", reads=1, messages=(message,))
        await house.done("developer", developer, reads=1, messages=(citing("tasks", "t-1", 1),))


SECRETS = {
    "token": "see ghp_" + "a1B2c3D4e5F6g7H8i9J0k1L2m3N4o5P6q7R8",
    "uri": "postgres://admin:hunter2hunter2@db.internal/prod",
    "card": "paid with 4111 1111 1111 1111",
}


class TestSecrets:
    @pytest.mark.parametrize("secret", SECRETS.values(), ids=SECRETS)
    async def test_a_secret_in_a_text_field_is_refused_with_the_fields_name(
        self, house: House, project: str, secret: str
    ) -> None:
        manager = house.handed(await house.routed(project, "t-1"))
        for body, field in (
            ({"description": secret}, "description"),
            ({"context": {"deep": [{"er": secret}]}}, "context.deep.0.er"),
            ({"result": {"text": ["fine", secret]}}, "result.text.1"),
        ):
            write = Write(store="tasks", id="t-1", body=task_body("t-1", **body))
            refusal = await house.refused("manager", manager, "sensitive", writes=(write,))
            assert [problem.field for problem in refusal.problems] == [field]
            assert secret not in refusal.model_dump_json()
        proposed = Outgoing(type="counterpoint.task.proposed.v1", data={"task_id": "t-1", "proposal": secret})
        refusal = await house.refused("manager", manager, "sensitive", messages=(proposed,))
        assert [problem.field for problem in refusal.problems] == ["proposal"]
        async with house.superuser() as connection:
            assert not await connection.fetchval(
                "SELECT count(*) FROM audit WHERE project = $1 AND strpos(body, $2) > 0", project, secret
            )

    async def test_fields_that_are_no_text_are_not_scanned(self, house: House, project: str) -> None:
        manager = house.handed(await house.routed(project, "t-1"))
        body = task_body("t-1", sha256=SECRETS["card"])
        await house.done("manager", manager, writes=(Write(store="tasks", id="t-1", body=body),))


class TestUnreadable:
    @pytest.mark.parametrize("raw", [b"", b"null", b"[]", b"\xff", b"{}", b'{"origin": {}}', b"[" * 100_000])
    async def test_what_is_no_request_is_refused_with_the_field(self, house: House, raw: bytes) -> None:
        for ask in (house.door.query, house.door.commit):
            reply = QueryReply.model_validate_json(await ask("router", raw))
            assert reply.refusal is not None
            assert reply.refusal.code == "invalid"

    async def test_it_leaves_a_leaf_too(self, house: House) -> None:
        leaves = "SELECT count(*) FROM audit WHERE kind = 'refusal'"
        async with house.superuser() as connection:
            before = await connection.fetchval(leaves)
            await house.door.query("router", b'{"origin": {"message_id": "m", "project": "*"}, "queries": []}')
            assert await connection.fetchval(leaves) == before + 1

    async def test_a_record_of_an_unexpected_shape_is_answered(self, house: House, project: str) -> None:
        manager = house.handed(await house.routed(project, "t-1"))
        await house.commit("manager", manager, writes=(Write(store="tasks", id="t-1", body={"task_id": "t-1"}),))

    @pytest.mark.parametrize(
        "data",
        [
            {"agent": "developer"},
            {"decision_id": "d", "agent": "developer", "sources": [{}]},
            {"decision_id": "d", "agent": "developer", "sources": None},
            {"decision_id": "d", "agent": "developer", "findings": [1]},
        ],
        ids=["no id", "a source without an id", "no list of sources", "findings that are none"],
    )
    async def test_a_malformed_message_is_refused(self, house: House, project: str, data: dict[str, Any]) -> None:
        developer = house.handed(await house.delegated(project, "t-1"))
        reply = await house.commit("developer", developer, messages=(Outgoing(type=DECISION, data=data),))
        assert reply.status == "refused"

    @pytest.mark.parametrize("query", [Get(store="tasks", id="a\0"), List(store="tasks", task_id="a\0")])
    async def test_a_query_that_the_database_cannot_read_is_refused_for_good(
        self, house: House, project: str, query: Any
    ) -> None:
        reply = await house.query("router", house.standing(project), query)
        assert reply.refusal is not None
        assert reply.refusal.kind == "permanent"


async def test_after_all_of_this_the_audit_log_verifies(house: House) -> None:
    for project in {message.project for message in list(house.sent.values())[::-10]}:
        assert (await house.verify(project))["broken"] == []
