"""The one door, on a real PostgreSQL: what it refuses in a request, by which rule; each refusal leaves a leaf."""

import json
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from memory_service.house import DECISION, DELEGATED, DUE, PERSON, ROUTED, WORKED, House, decision, task_body
from memory_service.leaves import leaf_bodies

from counterpoint.proto.ids import new_id
from counterpoint.proto.memory import Get, List, LogAfter, Outgoing, QueryReply, VectorSearch, Write

SAMPLE = 12
"""Projects whose part of the audit log is verified after all tests of the file."""
ACTION = {"agent": "developer", "kind": "work"}


@pytest.fixture(scope="module", autouse=True)
def earlier_messages(house: House) -> frozenset[str]:
    """The messages of files that ran before on the same memory: some of them break its log to see it found."""
    return frozenset(house.sent)


class TestStoresAndMessages:
    async def test_stores_outside_the_policy_cannot_be_written_or_read(self, house: House, project: str) -> None:
        developer = house.delivery(await house.delegated(project, "t-1"))
        for store in ("tasks", "principals", "plans", "edges", "nothing", "tasks "):
            new = Write(store=store, id="x", body={})
            await house.refusal("developer", developer, "store", writes=(new,), whole=False)
            await house.refusal(
                "developer", developer, "store", writes=(Write(store=store, id="x", body=None, expect=1),)
            )
        for store in ("submissions", "principals", "dead_letters", "nothing"):
            await house.refusal("developer", developer, "store", Get(store=store, id="x"))
            await house.refusal("developer", developer, "store", Get(store="tasks", id="t-1"), List(store=store))
            await house.refusal("developer", developer, "store", VectorSearch(store=store, text="x"))

    async def test_messages_outside_the_policy_cannot_be_sent(self, house: House, project: str) -> None:
        developer = house.delivery(await house.delegated(project, "t-1"))
        for name in (ROUTED, DELEGATED, "counterpoint.task.submit.v1", "counterpoint.lineage.event.v1", "nothing"):
            await house.refusal(
                "developer", developer, "send", messages=(Outgoing(type=name, data={"task_id": "t-1"}),)
            )

    @pytest.mark.parametrize("name", ["counterpoint.records.changed.v1", "counterpoint.message.died.v1"])
    async def test_only_memory_sends_its_own_announcements(self, house: House, project: str, name: str) -> None:
        developer = house.delivery(await house.delegated(project, "t-1"))
        await house.refusal("developer", developer, "send", messages=(Outgoing(type=name, data={}),))

    async def test_a_service_signs_with_its_own_agents_only(self, house: House, project: str) -> None:
        developer = house.delivery(await house.delegated(project, "t-1"))
        for agent in ("router", "human", "coder-", "coder-x", "coder-12345", "judge "):
            await house.refusal("developer", developer, "agent", messages=(decision(agent),))
            action = Write(store="actions", id=new_id(), body={**ACTION, "agent": agent})
            await house.refusal("developer", developer, "agent", writes=(action,))
        await house.apply("developer", developer, messages=(decision("coder-7"), decision("judge")))

    async def test_writes_and_messages_about_another_task_are_refused(self, house: House, project: str) -> None:
        await house.delegated(project, "t-2")
        developer = house.delivery(await house.delegated(project, "t-1"))
        other = Write(store="actions", id=new_id(), body={**ACTION, "task_id": "t-2"})
        await house.refusal("developer", developer, "task", writes=(other,))
        for about in ({"task_id": "t-2", "data": {}}, {"data": {"task_id": "t-2"}}):
            await house.refusal("developer", developer, "task", messages=(Outgoing(type=WORKED, **about),))

    async def test_another_tasks_record_is_not_written_under_its_id(self, house: House, project: str) -> None:
        await house.delegated(project, "t-2")
        manager = house.delivery(await house.routed(project, "t-1"))
        stolen = Write(store="tasks", id="t-2", body={"kind": "question", "state": "cancelled"}, expect=1)
        reply = await house.commit("manager", manager, writes=(stolen,))
        assert reply.status == "refused"

    async def test_a_message_names_one_task(self, house: House, project: str) -> None:
        developer = house.delivery(await house.delegated(project, "t-1"))
        message = Outgoing(type=WORKED, task_id="t-1", data={"task_id": "t-2"})
        assert (await house.commit("developer", developer, messages=(message,))).status == "refused"

    async def test_a_reader_bound_to_its_task_sees_no_other(self, house: House, project: str) -> None:
        await house.delegated(project, "t-2")
        developer = house.delivery(await house.delegated(project, "t-1"))
        assert (await house.answer("developer", developer, Get(store="tasks", id="t-2"))).items == ()
        listed = await house.answer("developer", developer, List(store="tasks"))
        assert [item.id for item in listed.items] == ["t-1"]

    async def test_a_reader_bound_to_its_task_sees_no_other_in_the_log(self, house: House, project: str) -> None:
        await house.delegated(project, "t-2")
        developer = house.delivery(await house.delegated(project, "t-1"))
        reply = await house.query("developer", developer, LogAfter(after=0))
        assert reply.refusal or {item.body["task_id"] for item in reply.found[0].items} == {"t-1"}

    async def test_another_services_timer_is_not_cancelled(self, house: House, project: str) -> None:
        due = Outgoing(type=DUE, data={}, task_id="t-2", due_at=datetime.now(UTC) + timedelta(days=1), timer="t-2")
        await house.apply("manager", house.delivery(await house.routed(project, "t-2")), messages=(due,))
        developer = house.delivery(await house.delegated(project, "t-1"))
        await house.commit("developer", developer, cancel_timers=("t-2",))
        async with house.superuser() as connection:
            waiting = "SELECT count(*) FROM pending WHERE project = $1 AND timer"
            assert await connection.fetchval(waiting, project) == 1


class TestSteps:
    async def test_a_step_that_is_not_the_last_changes_no_workflow_state(self, house: House, project: str) -> None:
        manager = house.delivery(await house.routed(project, "t-1"))
        task = Write(store="tasks", id="t-1", body=task_body("t-1"))
        await house.refusal("manager", manager, "step", step="plan", last=False, writes=(task,))
        delegated = Outgoing(type=DELEGATED, data={"task_id": "t-1"})
        await house.refusal("manager", manager, "step", step="plan", last=False, messages=(delegated,))
        await house.apply("manager", manager, step="plan", last=False, messages=(decision("manager"),))
        await house.apply("manager", manager, writes=(task,), messages=(delegated,))

    async def test_an_older_delivery_is_refused(self, house: House, project: str) -> None:
        sent = await house.delegated(project, "t-1")
        newer, older = house.delivery(sent, fence=7), house.delivery(sent, fence=6)
        await house.apply("developer", newer, step="one", last=False, messages=(decision(),))
        await house.refusal("developer", older, "fence", Get(store="tasks", id="t-1"))
        await house.refusal("developer", older, "fence", step="two", last=False, messages=(decision(),))
        house.restart()
        await house.refusal("developer", older, "fence", step="two", last=False, messages=(decision(),))
        await house.apply("developer", newer, step="two", last=False, messages=(decision(),))

    async def test_reads_that_memory_does_not_know_any_more_are_asked_for_again(
        self, house: House, project: str
    ) -> None:
        sent = await house.delegated(project, "t-1")
        read = house.delivery(sent, fence=2)
        await house.answer("developer", read, Get(store="tasks", id="t-1"))
        rerun, redelivered = house.delivery(sent, fence=2, run=1), house.delivery(sent, fence=3)
        for origin, reads in ((read, 0), (read, 2), (rerun, 1), (redelivered, 1)):
            refusal = (await house.commit("developer", origin, reads=reads, messages=(decision(),))).refusal
            assert refusal is not None
            assert refusal.kind == ("transient" if origin.fence == 3 or reads != 1 or origin.run else "denied")
        house.restart()
        refusal = (await house.commit("developer", redelivered, reads=1, messages=(decision(),))).refusal
        assert refusal is not None
        assert refusal.kind == "transient"
        await house.answer("developer", redelivered, Get(store="tasks", id="t-1"))
        await house.apply("developer", redelivered, reads=1, messages=(decision(),))

    @pytest.mark.parametrize("again", [{"run": 1}, {"fence": 2}], ids=["run", "delivery"])
    async def test_reads_count_in_every_run_and_delivery_of_a_message(
        self, house: House, project: str, again: dict[str, int]
    ) -> None:
        sent = await house.delegated(project, "t-1")
        async with house.superuser() as connection:
            stamps = "UPDATE records SET label = $2, integrity = $3 WHERE project = $1 AND store = 'tasks'"
            await connection.execute(stamps, project, 2, 0)
        await house.answer("developer", house.delivery(sent), Get(store="tasks", id="t-1"))
        await house.apply("developer", house.delivery(sent, **again), messages=(decision(),))
        async with house.superuser() as connection:
            stamped = await connection.fetchrow(
                "SELECT r.label, r.integrity, s.reads::text AS reads FROM records r JOIN read_sets s USING (commit_id)"
                " WHERE r.project = $1 AND r.store = 'decisions'",
                project,
            )
            await connection.execute(stamps, project, 1, 1)
        assert stamped is not None
        assert (stamped["label"], stamped["integrity"]) == (2, 0)
        assert [read[:3] for read in json.loads(stamped["reads"])] == [["tasks", "t-1", 1]]

    async def test_a_commit_rests_on_the_read_set_of_its_message_and_only_its_cause_lists_it(
        self, house: House, project: str
    ) -> None:
        developer = house.delivery(await house.delegated(project, "t-1"))
        await house.answer("developer", developer, Get(store="tasks", id="t-1"))
        worked = Outgoing(type=WORKED, data={"task_id": "t-1"})
        sent = await house.apply("developer", developer, reads=1, messages=(worked,))
        await house.apply(
            "manager", house.delivery(sent.message_ids[0]), step="after", last=False, messages=(decision("manager"),)
        )
        async with house.superuser() as connection:
            rows = await connection.fetch(
                "SELECT s.reads::jsonb AS every FROM audit a"
                " JOIN read_sets s ON s.project = a.project AND s.commit_id = a.id"
                " WHERE a.project = $1 ORDER BY a.arrival DESC LIMIT 2",
                project,
            )
        every = [[(read[:3], read[3:]) for read in json.loads(row["every"])] for row in rows]
        task = ["tasks", "t-1", 1]
        assert task not in [read for read, _ in every[0]]
        assert every[1] == [(task, [])]
        # After a restart too, the manager may cite what the developer has read.
        house.restart()
        cites = decision("manager", sources=[{"store": "tasks", "id": "t-1", "version": 1}])
        await house.apply("manager", house.delivery(sent.message_ids[0]), step="later", messages=(cites,))

    async def test_after_a_restart_a_commit_may_cite_reads_of_earlier_causes(self, house: House, project: str) -> None:
        developer = house.delivery(await house.delegated(project, "t-1"))
        await house.answer("developer", developer, Get(store="tasks", id="t-1"))
        worked = Outgoing(type=WORKED, data={"task_id": "t-1"})
        first = await house.apply("developer", developer, reads=1, messages=(worked,))
        delegated = Outgoing(type=DELEGATED, data={"task_id": "t-1"})
        second = await house.apply("manager", house.delivery(first.message_ids[0]), messages=(delegated,))
        house.restart()
        cites = decision("developer", sources=[{"store": "tasks", "id": "t-1", "version": 1}])
        await house.apply("developer", house.delivery(second.message_ids[0]), messages=(cites,))


class TestCitations:
    @pytest.mark.parametrize("where", ["sources", "findings"])
    async def test_citations_need_a_read_of_that_version(self, house: House, project: str, where: str) -> None:
        developer = house.delivery(await house.delegated(project, "t-1"))

        def citing(store: str, record: str, version: int) -> Outgoing:
            cited = [{"store": store, "id": record, "version": version}]
            if where == "sources":
                return decision(sources=cited)
            return Outgoing(type=WORKED, data={"task_id": "t-1", "findings": {"citations": cited}})

        await house.refusal("developer", developer, "uncited", messages=(citing("tasks", "t-1", 1),))
        await house.answer("developer", developer, Get(store="tasks", id="t-1"))
        for store, record, version in (("tasks", "t-1", 2), ("tasks", "t-2", 1), ("plans", "t-1", 1)):
            message = citing(store, record, version)
            await house.refusal("developer", developer, "uncited", reads=1, messages=(message,))
        await house.apply("developer", developer, reads=1, messages=(citing("tasks", "t-1", 1),))


SECRETS = {
    "token": "see ghp_" + "a1B2c3D4e5F6g7H8i9J0k1L2m3N4o5P6q7R8",
    "uri": "postgres://admin:hunter2hunter2@db.internal/prod",
    "key": "glpat-" + "a1B2c3D4e5F6g7H8i9J0",
}


class TestSecrets:
    @pytest.mark.parametrize("secret", SECRETS.values(), ids=SECRETS)
    async def test_a_secret_in_a_text_field_is_refused_with_the_fields_name(
        self, house: House, project: str, secret: str
    ) -> None:
        manager = house.delivery(await house.routed(project, "t-1"))
        for body, field in (
            ({"description": secret}, "description"),
            ({"context": {"deep": [{"er": secret}]}}, "context.deep.0.er"),
            ({"context": {"text": ["fine", secret]}}, "context.text.1"),
        ):
            write = Write(store="tasks", id="t-1", body=task_body("t-1", **body))
            refusal = await house.refusal("manager", manager, "sensitive", writes=(write,))
            assert [problem.field for problem in refusal.problems] == [field]
            assert secret not in refusal.model_dump_json()
        proposed = Outgoing(type="counterpoint.task.proposed.v1", data={"task_id": "t-1", "proposal": secret})
        refusal = await house.refusal("manager", manager, "sensitive", messages=(proposed,))
        assert [problem.field for problem in refusal.problems] == ["proposal"]
        async with house.superuser() as connection:
            assert not any(secret in body for body in await leaf_bodies(connection, "project = $1", project))


class TestUnreadableRequests:
    @pytest.mark.parametrize("raw", [b"", b"null", b"[]", b"\xff", b"{}", b'{"origin": {}}', b"[" * 100_000])
    async def test_a_malformed_request_is_refused_as_invalid(self, house: House, raw: bytes) -> None:
        for ask in (house.door.query, house.door.commit):
            reply = QueryReply.model_validate_json(await ask("router", raw))
            assert reply.refusal is not None
            assert reply.refusal.code == "invalid"

    async def test_an_unreadable_request_leaves_a_leaf(self, house: House) -> None:
        leaves = "SELECT count(*) FROM audit WHERE kind = 'refusal'"
        async with house.superuser() as connection:
            before = await connection.fetchval(leaves)
            await house.door.query("router", b'{"origin": {"message_id": "m", "project": "*"}, "queries": []}')
            assert await connection.fetchval(leaves) == before + 1

    async def test_a_record_of_an_unexpected_shape_is_answered(self, house: House, project: str) -> None:
        manager = house.delivery(await house.routed(project, "t-1"))
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
        developer = house.delivery(await house.delegated(project, "t-1"))
        reply = await house.commit("developer", developer, messages=(Outgoing(type=DECISION, data=data),))
        assert reply.status == "refused"

    @pytest.mark.parametrize("query", [Get(store="tasks", id="a\0"), List(store="tasks", task_id="a\0")])
    async def test_a_query_that_the_database_cannot_read_is_refused_for_good(
        self, house: House, project: str, query: Any
    ) -> None:
        reply = await house.query("router", house.standing(project), query)
        assert reply.refusal is not None
        assert reply.refusal.kind == "permanent"

    @pytest.mark.parametrize(
        ("store", "body"),
        [
            ("quarantines", {"kind": "quarantine", "store": "documents", "id": "a\0"}),
            ("erasures", {"scope": "source", "what": "a\0"}),
        ],
    )
    async def test_a_wish_that_the_database_cannot_read_is_refused_for_good(
        self, house: House, project: str, store: str, body: dict[str, Any]
    ) -> None:
        write = Write(store=store, id=new_id(), body={**body, "reason": "it is wrong"})
        await house.refusal("router", house.standing(project, principal=PERSON), "invalid", writes=(write,))

    @pytest.mark.parametrize("task", ["a\0", "x" * 100_000])
    async def test_a_refusal_without_a_task_leaves_a_leaf(self, house: House, project: str, task: str) -> None:
        await house.refusal("developer", house.standing(project, task), "grant", Get(store="tasks", id="t-1"))
        assert (await house.verify(project))["ok"]


async def test_after_all_of_this_the_audit_log_verifies(house: House, earlier_messages: frozenset[str]) -> None:
    sent = dict.fromkeys(
        message.project for message_id, message in house.sent.items() if message_id not in earlier_messages
    )
    projects = list(sent)
    for project in projects[:: max(1, len(projects) // SAMPLE)]:
        assert (await house.verify(project))["broken"] == []
