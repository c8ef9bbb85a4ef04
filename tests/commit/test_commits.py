"""Commits, on a real PostgreSQL: once and together, in the order of the task, or not at all."""

import asyncio
import json
import secrets
from typing import Any

import pytest
from commit.commit_records import leaves, rows, submission
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from memory_service.house import CHANGED, DELEGATED, ROUTED, House, decision, task_body

from counterpoint.memory.commit.leaf import stored_reply
from counterpoint.proto.decisions import DecisionMade
from counterpoint.proto.ids import new_id
from counterpoint.proto.memory import CommitReply, Get, Outgoing, Write

FAILS_AT_ITS_END = """
CREATE FUNCTION public.fails() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN RAISE EXCEPTION 'at the end'; END $$;
CREATE CONSTRAINT TRIGGER fails AFTER INSERT ON messages DEFERRABLE INITIALLY DEFERRED
    FOR EACH ROW WHEN (NEW.project = '{project}') EXECUTE FUNCTION public.fails();
"""


class TestOnce:
    async def test_the_same_step_twice_is_applied_once_and_answered_with_the_stored_reply(
        self, house: House, project: str
    ) -> None:
        manager = house.delivery(await house.routed(project, "t-1"))
        write = Write(store="tasks", id="t-1", body=task_body("t-1"))
        delegated = Outgoing(type=DELEGATED, data={"task_id": "t-1"})
        first = await house.apply("manager", manager, writes=(write,), messages=(delegated,))
        for restarted in (False, True):
            if restarted:
                house.restart()
            other = Write(store="plans", id="t-9", body={"task_id": "t-1"})
            again = await house.commit("manager", manager, writes=(other,))
            assert again == first.model_copy(update={"status": "replayed"})
        assert await house.body(project, "plans", "t-9") is None
        assert len([row for row in await rows(house, "messages", project) if row["type"] == DELEGATED]) == 1

    async def test_a_reply_that_is_no_longer_in_ram_is_made_of_the_leaf(self, house: House, project: str) -> None:
        sent = Outgoing(type="counterpoint.task.submitted.v1", data={"task_id": "t-1"})
        given: dict[str, Any] = {"writes": (submission("s", n=1), submission("t")), "messages": (sent,)}
        origin = house.standing(project)
        first = await house.apply("router", origin, **given)
        assert len(first.versions) == 2
        assert first.message_ids
        (stored,) = await rows(house, "inbox", project)
        assert json.loads(stored["reply"]) == {"status": "done"}
        house.committer._applied.clear()
        again = await house.commit("router", origin, **given)
        assert again == first.model_copy(update={"status": "replayed"})
        (leaf,) = await leaves(house, project)
        assert stored_reply(json.loads(stored["reply"]), leaf) == first
        assert stored_reply(json.loads(stored["reply"]), None) == CommitReply(status="done")
        for body in (leaf, None):
            assert stored_reply(first.model_dump(mode="json"), body) == first, "as earlier releases stored it"

    async def test_the_same_step_twice_in_one_batch_is_applied_once(self, house: House, project: str) -> None:
        origin = house.standing(project)
        commits = [house.commit("router", origin, writes=(submission("s"),)) for _ in range(3)]
        commits.append(house.commit("router", origin.model_copy(update={"fence": 2}), writes=(submission("s"),)))
        replies = await house.together(*commits, queued=2)
        assert {reply.status for reply in replies} == {"done", "replayed"}
        assert len({reply.message_ids for reply in replies}) == 1
        assert [row["version"] for row in await rows(house, "records", project)] == [1]

    async def test_finished_steps_are_replayed_and_the_next_is_applied(self, house: House, project: str) -> None:
        origin = house.standing(project)
        for step in ("one", "two"):
            await house.apply("router", origin, step=step, last=False, writes=(submission(step),))
        redelivered = origin.model_copy(update={"fence": 2})
        for step in ("one", "two"):
            reply = await house.commit("router", redelivered, step=step, last=False, writes=(submission(step),))
            assert reply.status == "replayed"
        await house.apply("router", redelivered, step="three", writes=(submission("three"),))

    async def test_after_the_last_step_another_one_is_stale(self, house: House, project: str) -> None:
        origin = house.standing(project)
        await house.apply("router", origin, writes=(submission("s"),))
        assert (await house.commit("router", origin, step="later", writes=(submission("x"),))).status == "stale"

    async def test_versions_are_answered(self, house: House, project: str) -> None:
        writes = (submission("a"), submission("b"))
        reply = await house.apply("router", house.standing(project), writes=writes)
        assert reply.versions == {"submissions/a": 1, "submissions/b": 1}
        writes = (submission("a", 1), Write(store="submissions", id="b", body=None, expect=1), submission("c"))
        reply = await house.apply("router", house.standing(project), writes=writes)
        assert reply.versions == {"submissions/a": 2, "submissions/b": 2, "submissions/c": 1}
        assert await house.body(project, "submissions", "b") is None


class TestAnnouncements:
    """The records of a commit are announced to the services that act on them, and live to whoever listens."""

    def changed(self, house: House) -> tuple[list[tuple[str, ...]], list[dict[str, Any]]]:
        """The audiences of the announcements in the log, and the announcements that are only live."""
        logged = [sent.row.audience for sent in house.sent.values() if sent.row.type == CHANGED]
        return logged, [json.loads(row.body) for row in house.announced]

    async def test_an_announcement_without_a_consumer_is_live_and_not_logged(self, house: House, project: str) -> None:
        logged, live = self.changed(house)
        reply = await house.apply("router", house.standing(project), writes=(submission("s", n=1),))
        assert reply.message_ids == ()
        assert await rows(house, "messages", project) == []
        (leaf,) = await leaves(house, project)
        assert json.loads(leaf)["messages"] == []
        assert self.changed(house)[0] == logged
        (announced,) = self.changed(house)[1][len(live) :]
        assert (announced["service"], announced["writes"]) == (
            "router",
            [{"store": "submissions", "id": "s", "version": 1}],
        )

    async def test_a_decision_is_in_the_log_and_waits_for_no_stream(self, house: House, project: str) -> None:
        routed = Outgoing(type=ROUTED, data={"task_id": "t-1"}, task_id="t-1")
        await house.apply("router", house.standing(project), messages=(decision("router"), routed))
        assert [row["type"] for row in await rows(house, "messages", project)] == [DecisionMade.TYPE, ROUTED]
        async with house.superuser() as connection:
            waiting = "SELECT m.type FROM pending p JOIN messages m ON m.id = p.message_id WHERE m.project = $1"
            assert [row["type"] for row in await connection.fetch(waiting, project)] == [ROUTED]

    async def test_a_link_is_announced_to_lineage(self, house: House, project: str) -> None:
        logged, live = self.changed(house)
        link = Write(store="links", id="l-1", body={})
        await house.apply("router", house.standing(project), writes=(link, submission("s")))
        assert self.changed(house) == ([*logged, ("lineage",)], live)

    async def test_a_task_is_announced_to_lineage_when_it_ends(self, house: House, project: str) -> None:
        manager = house.delivery(await house.routed(project, "t-1"))
        logged, live = self.changed(house)
        await house.apply("manager", manager, writes=(Write(store="tasks", id="t-1", body=task_body("t-1")),))
        assert (self.changed(house)[0], len(self.changed(house)[1])) == (logged, len(live) + 1)
        later = house.delivery(await house.reported(project, "t-1"))
        live = self.changed(house)[1]
        ended = Write(store="tasks", id="t-1", body=task_body("t-1", "completed"), expect=1)
        await house.apply("manager", later, writes=(ended,))
        assert self.changed(house) == ([*logged, ("lineage",)], live)


class TestConflicts:
    @pytest.mark.parametrize("expect", [0, 2, 7])
    async def test_a_write_that_expects_another_version_is_a_conflict_and_the_whole_commit_has_no_effect(
        self, house: House, project: str, expect: int
    ) -> None:
        await house.apply("router", house.standing(project), writes=(submission("s", n=1),))
        writes = (submission("a"), submission("s", expect, n=2), submission("z"))
        sent = Outgoing(type="counterpoint.task.submitted.v1", data={"task_id": "t-1"})
        reply = await house.commit("router", house.standing(project), writes=writes, messages=(sent,))
        assert reply.refusal is not None
        assert (reply.refusal.kind, reply.refusal.detail.split()[0]) == ("conflict", "submissions/s")
        assert await house.body(project, "submissions", "s") == {"n": 1}
        assert [row["id"] for row in await rows(house, "records", project)] == ["s"]
        assert sent.type not in {row["type"] for row in await rows(house, "messages", project)}
        assert await rows(house, "history", project) == []

    async def test_a_commit_that_fails_at_its_very_end_has_published_nothing(self, house: House, project: str) -> None:
        sent = Outgoing(type="counterpoint.task.submitted.v1", data={"task_id": "t-1"})
        async with house.superuser() as connection:
            await connection.execute(FAILS_AT_ITS_END.format(project=project))
            try:
                reply = await house.commit("router", house.standing(project), messages=(sent,))
            finally:
                await connection.execute("DROP FUNCTION public.fails CASCADE")
        assert reply.refusal is not None
        assert reply.refusal.kind == "transient"
        assert [message for message in house.sent.values() if message.project == project] == []
        assert await rows(house, "messages", project) == []

    async def test_in_a_batch_with_one_at_fault_only_that_one_is_refused(self, house: House, project: str) -> None:
        await house.apply("router", house.standing(project), writes=(submission("s"),))
        other = f"{project}-b"
        commits = [house.commit("router", house.standing(project), writes=(submission(f"n-{n}"),)) for n in range(20)]
        commits += [house.commit("router", house.standing(other), writes=(submission(f"n-{n}"),)) for n in range(5)]
        commits.insert(9, house.commit("router", house.standing(project), writes=(submission("x"), submission("s"))))
        replies = await house.together(*commits)
        assert [reply.status for reply in replies].count("done") == 25
        assert replies[9].refusal is not None
        assert replies[9].refusal.kind == "conflict"
        assert {row["id"] for row in await rows(house, "records", project)} == {"s", *(f"n-{n}" for n in range(20))}
        assert len(await rows(house, "records", other)) == 5

    @pytest.mark.parametrize(
        "poison",
        [{"id": "x", "expect": 2**40}, {"id": "x", "body": {"task_id": 5}}, {"id": "x\0"}],
        ids=["a version out of range", "a task that is a number", "a NUL in an id"],
    )
    async def test_a_body_that_the_database_rejects_harms_no_other_commit(
        self, house: House, project: str, poison: dict[str, Any]
    ) -> None:
        bad = Write(**{"store": "submissions", "body": {}, **poison})
        commits = [house.commit("router", house.standing(project), writes=(submission(f"n-{n}"),)) for n in range(4)]
        replies = await house.together(*commits, house.commit("router", house.standing(project), writes=(bad,)))
        assert [reply.status for reply in replies] == ["done"] * 4 + ["refused"]

    @pytest.mark.parametrize(
        "poison",
        [
            {"id": "x\0"},
            {"id": "x", "expect": 2**40},
            {"id": secrets.token_hex(3000)},
        ],
        ids=["a NUL in an id", "a version out of range", "an id too long for the index"],
    )
    async def test_a_body_that_the_database_rejects_is_a_permanent_refusal(
        self, house: House, project: str, poison: dict[str, Any]
    ) -> None:
        bad = Write(**{"store": "submissions", "body": {}, **poison})
        reply = await house.commit("router", house.standing(project), writes=(bad,))
        assert reply.refusal is not None
        assert reply.refusal.kind == "permanent"

    @pytest.mark.parametrize(
        "odd", [{"submitted_at": "soon", "ended_at": "late"}, {"submitted_at": 7, "ended_at": None}, {"kind": [1]}]
    )
    async def test_a_record_of_an_odd_shape_does_not_end_the_one_who_counts_it(
        self, house: House, project: str, odd: dict[str, Any]
    ) -> None:
        writes = [Write(store="tasks", id="t-1", body=task_body("t-1", "completed", **odd))]
        writes += [Write(store="decisions", id="d-1", body={"task_id": "t-1", "confidence": "high"})]
        await house.commit("manager", house.delivery(await house.routed(project, "t-1")), writes=tuple(writes))
        await house.apply("router", house.standing(project), writes=(submission("s"),))

    async def test_an_infinite_number_is_refused_for_good(self, house: House, project: str) -> None:
        origin = house.standing(project).model_dump_json(exclude_none=True)
        write = '{"store": "submissions", "id": "x", "body": {"n": 1e400}}'
        raw = f'{{"origin": {origin}, "commit": {{"writes": [{write}]}}}}'
        reply = CommitReply.model_validate_json(await house.door.commit("router", raw.encode()))
        assert reply.status == "refused"

    async def test_a_deleted_record_keeps_its_place_and_is_made_anew_at_its_version(
        self, house: House, project: str
    ) -> None:
        await house.apply("router", house.standing(project), writes=(submission("s", n=1),))
        gone = Write(store="submissions", id="s", body=None, expect=1)
        await house.apply("router", house.standing(project), writes=(gone,))
        # Who sees none makes it anew, as a version after the deletion; who saw it before does not.
        stale = await house.commit("router", house.standing(project), writes=(submission("s", 1, n=2),))
        assert stale.status == "refused"
        reply = await house.apply("router", house.standing(project), writes=(submission("s", n=3),))
        assert reply.versions == {"submissions/s": 3}
        again = await house.commit("router", house.standing(project), writes=(submission("s", n=4),))
        assert again.status == "refused"


PROJECT, RECORDS, WRITERS = "interleaved", ("a", "b"), 4
ROUND = st.lists(st.tuples(st.integers(0, WRITERS - 1), st.sampled_from(RECORDS)), min_size=1, max_size=8)


@settings(max_examples=25, deadline=None, suppress_health_check=list(HealthCheck))
@given(schedule=st.lists(ROUND, min_size=1, max_size=8), batched=st.booleans())
async def test_writers_lose_no_update_however_they_interleave(
    house: House, schedule: list[list[tuple[int, str]]], batched: bool
) -> None:
    """Each writer adds one to what it saw last, and looks again when it was too late; a round's commits run at once."""
    project, prefix = PROJECT, new_id()
    router = house.standing(project)
    seen: dict[tuple[int, str], tuple[int, int]] = {}
    counted = dict.fromkeys(RECORDS, 0)
    for turn in schedule:
        for writer, record in turn:
            if (writer, record) not in seen:
                items = (await house.answer("router", router, Get(store="submissions", id=prefix + record))).items
                seen[writer, record] = (items[0].version, items[0].body["n"]) if items else (0, 0)
        commits = [
            house.commit(
                "router",
                house.standing(project),
                writes=(submission(prefix + record, seen[writer, record][0], n=seen[writer, record][1] + 1),),
            )
            for writer, record in turn
        ]
        replies = await (house.together(*commits) if batched else asyncio.gather(*commits))
        for (writer, record), reply in zip(turn, replies, strict=True):
            seen.pop((writer, record), None)
            if reply.status == "done":
                counted[record] += 1
                assert reply.versions == {f"submissions/{prefix}{record}": counted[record]}
            else:
                assert reply.refusal is not None
                assert reply.refusal.kind == "conflict"
    for record in RECORDS:
        body = await house.body(project, "submissions", prefix + record)
        assert (body["n"] if body else 0) == counted[record]
    stored = [*await rows(house, "records", project), *await rows(house, "history", project)]
    assert len({row["seq"] for row in stored}) == len(stored)
    for record in RECORDS:
        versions = sorted((row["version"], row["body"]) for row in stored if row["id"] == prefix + record)
        assert [version for version, _ in versions] == list(range(1, counted[record] + 1))


async def test_after_all_of_this_nothing_is_missing_and_the_audit_log_verifies(house: House) -> None:
    stored = [row for table in ("records", "history", "messages") for row in await rows(house, table, PROJECT)]
    assert sorted(row["seq"] for row in stored) == list(range(1, len(stored) + 1))
    assert (await house.verify(PROJECT))["broken"] == []


async def test_a_commit_without_effect_finishes_its_message(house: House, project: str) -> None:
    """A consumer that has nothing to do says so: its message is not published again when the stream has dropped it."""
    origin = house.standing(project)
    await house.apply("router", origin)
    assert (await house.commit("router", origin)).status == "replayed"
    async with house.superuser() as database:
        finished = await database.fetchval(
            "SELECT last FROM inbox WHERE project = $1 AND message_id = $2", project, origin.message_id
        )
    assert finished is True
