"""Commits, on a real PostgreSQL: once and together, in the order of the task, or not at all."""

import asyncio
import itertools
import json
import secrets
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from cachetools import TTLCache
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from memory_service.house import CHANGED, DELEGATED, DUE, ROUTED, WORKED, House, decision, running_house, task_body
from memory_service.leaves import leaf_bodies

from counterpoint.memory.commit import statement
from counterpoint.memory.commit.inbound import ENDED_WITHIN_S
from counterpoint.memory.commit.leaf import stored_reply
from counterpoint.proto.decisions import DecisionMade
from counterpoint.proto.ids import new_id
from counterpoint.proto.memory import (
    CommitReply,
    DeadLetter,
    GatewayToken,
    Get,
    HybridSearch,
    List,
    Origin,
    Outgoing,
    QueryReply,
    QueryRequest,
    Write,
)

STATES = ("completed", "failed", "cancelled")
FAILS_AT_ITS_END = """
CREATE FUNCTION public.fails() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN RAISE EXCEPTION 'at the end'; END $$;
CREATE CONSTRAINT TRIGGER fails AFTER INSERT ON messages DEFERRABLE INITIALLY DEFERRED
    FOR EACH ROW WHEN (NEW.project = '{project}') EXECUTE FUNCTION public.fails();
"""


def submission(record: str, expect: int = 0, **body: Any) -> Write:
    """A record that the router owns."""
    return Write(store="submissions", id=record, body=body, expect=expect)


async def leaves(house: House, project: str) -> list[str]:
    async with house.superuser() as connection:
        return await leaf_bodies(connection, "project = $1", project)


async def rows(house: House, table: str, project: str) -> list[dict[str, Any]]:
    """A table's rows of a project, as they are."""
    async with house.superuser() as connection:
        return [dict(row) for row in await connection.fetch(f"SELECT * FROM {table} WHERE project = $1", project)]


class TestOnce:
    async def test_the_same_step_twice_is_applied_once_and_answered_with_what_was_stored(
        self, house: House, project: str
    ) -> None:
        manager = house.handed(await house.routed(project, "t-1"))
        write = Write(store="tasks", id="t-1", body=task_body("t-1"))
        delegated = Outgoing(type=DELEGATED, data={"task_id": "t-1"})
        first = await house.done("manager", manager, writes=(write,), messages=(delegated,))
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
        first = await house.done("router", origin, **given)
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
            await house.done("router", origin, step=step, last=False, writes=(submission(step),))
        redelivered = origin.model_copy(update={"fence": 2})
        for step in ("one", "two"):
            reply = await house.commit("router", redelivered, step=step, last=False, writes=(submission(step),))
            assert reply.status == "replayed"
        await house.done("router", redelivered, step="three", writes=(submission("three"),))

    async def test_after_the_last_step_another_one_is_stale(self, house: House, project: str) -> None:
        origin = house.standing(project)
        await house.done("router", origin, writes=(submission("s"),))
        assert (await house.commit("router", origin, step="later", writes=(submission("x"),))).status == "stale"

    async def test_versions_are_answered(self, house: House, project: str) -> None:
        writes = (submission("a"), submission("b"))
        reply = await house.done("router", house.standing(project), writes=writes)
        assert reply.versions == {"submissions/a": 1, "submissions/b": 1}
        writes = (submission("a", 1), Write(store="submissions", id="b", body=None, expect=1), submission("c"))
        reply = await house.done("router", house.standing(project), writes=writes)
        assert reply.versions == {"submissions/a": 2, "submissions/b": 2, "submissions/c": 1}
        assert await house.body(project, "submissions", "b") is None


class TestAnnouncements:
    """The records of a commit are announced to the services that act on them, and live to whoever listens."""

    def changed(self, house: House) -> tuple[list[tuple[str, ...]], list[dict[str, Any]]]:
        """The audiences of the announcements in the log, and the announcements that are only live."""
        logged = [sent.row.audience for sent in house.sent.values() if sent.row.type == CHANGED]
        return logged, [json.loads(row.body) for row in house.announced]

    async def test_what_no_service_acts_on_is_live_and_neither_logged_nor_accounted_for(
        self, house: House, project: str
    ) -> None:
        logged, live = self.changed(house)
        reply = await house.done("router", house.standing(project), writes=(submission("s", n=1),))
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
        await house.done("router", house.standing(project), messages=(decision("router"), routed))
        assert [row["type"] for row in await rows(house, "messages", project)] == [DecisionMade.TYPE, ROUTED]
        async with house.superuser() as connection:
            waiting = "SELECT m.type FROM pending p JOIN messages m ON m.id = p.message_id WHERE m.project = $1"
            assert [row["type"] for row in await connection.fetch(waiting, project)] == [ROUTED]

    async def test_a_link_is_announced_to_lineage(self, house: House, project: str) -> None:
        logged, live = self.changed(house)
        link = Write(store="links", id="l-1", body={})
        await house.done("router", house.standing(project), writes=(link, submission("s")))
        assert self.changed(house) == ([*logged, ("lineage",)], live)

    async def test_a_task_is_announced_to_lineage_when_it_ends(self, house: House, project: str) -> None:
        manager = house.handed(await house.routed(project, "t-1"))
        logged, live = self.changed(house)
        await house.done("manager", manager, writes=(Write(store="tasks", id="t-1", body=task_body("t-1")),))
        assert (self.changed(house)[0], len(self.changed(house)[1])) == (logged, len(live) + 1)
        later = house.handed(await house.reported(project, "t-1"))
        live = self.changed(house)[1]
        ended = Write(store="tasks", id="t-1", body=task_body("t-1", "completed"), expect=1)
        await house.done("manager", later, writes=(ended,))
        assert self.changed(house) == ([*logged, ("lineage",)], live)


class TestConflicts:
    @pytest.mark.parametrize("expect", [0, 2, 7])
    async def test_a_write_that_expects_another_version_is_a_conflict_and_the_whole_commit_has_no_effect(
        self, house: House, project: str, expect: int
    ) -> None:
        await house.done("router", house.standing(project), writes=(submission("s", n=1),))
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
        await house.done("router", house.standing(project), writes=(submission("s"),))
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
    async def test_what_the_database_cannot_take_harms_nobody_else(
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
    async def test_what_the_database_can_never_take_is_refused_for_good(
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
        await house.commit("manager", house.handed(await house.routed(project, "t-1")), writes=tuple(writes))
        await house.done("router", house.standing(project), writes=(submission("s"),))

    async def test_an_infinite_number_is_refused_for_good(self, house: House, project: str) -> None:
        origin = house.standing(project).model_dump_json(exclude_none=True)
        write = '{"store": "submissions", "id": "x", "body": {"n": 1e400}}'
        raw = f'{{"origin": {origin}, "commit": {{"writes": [{write}]}}}}'
        reply = CommitReply.model_validate_json(await house.door.commit("router", raw.encode()))
        assert reply.status == "refused"

    async def test_a_deleted_record_keeps_its_place_and_is_made_anew_at_its_version(
        self, house: House, project: str
    ) -> None:
        await house.done("router", house.standing(project), writes=(submission("s", n=1),))
        gone = Write(store="submissions", id="s", body=None, expect=1)
        await house.done("router", house.standing(project), writes=(gone,))
        # Who sees none makes it anew, as a version after the deletion; who saw it before does not.
        stale = await house.commit("router", house.standing(project), writes=(submission("s", 1, n=2),))
        assert stale.status == "refused"
        reply = await house.done("router", house.standing(project), writes=(submission("s", n=3),))
        assert reply.versions == {"submissions/s": 3}
        again = await house.commit("router", house.standing(project), writes=(submission("s", n=4),))
        assert again.status == "refused"


class TestTaskOrder:
    async def handed_at(self, house: House, project: str, version: int) -> Origin:
        """The developer's message, sent when the task's record came to `version`."""
        routed = house.handed(await house.routed(project, "t-1"))
        message = Outgoing(type=DELEGATED, data={"task_id": "t-1"})
        for n in range(version):
            last = n == version - 1
            origin = routed if n == 0 else house.handed(await house.reported(project, "t-1"))
            write = Write(store="tasks", id="t-1", body=task_body("t-1", n=n), expect=n)
            done = await house.done("manager", origin, writes=(write,), messages=(message,) if last else ())
        sent = done.message_ids[0]
        assert house.sent[sent].task_version == version
        return house.handed(sent)

    async def test_a_message_of_an_older_version_of_its_task_is_stale_and_has_no_effect(
        self, house: House, project: str
    ) -> None:
        developer = await self.handed_at(house, project, 1)
        moved = Write(store="tasks", id="t-1", body=task_body("t-1", n=2), expect=1)
        await house.done("manager", house.handed(await house.reported(project, "t-1")), writes=(moved,))
        worked = Outgoing(type=WORKED, data={"task_id": "t-1"})
        for restarted in (False, True):
            if restarted:
                house.restart()
            reply = await house.commit("developer", developer, messages=(worked,))
            assert reply == CommitReply(status="stale")
        assert WORKED not in {row["type"] for row in await rows(house, "messages", project)}

    async def test_a_message_of_a_version_that_is_not_there_yet_comes_too_early(
        self, house: House, project: str
    ) -> None:
        developer = await self.handed_at(house, project, 2)
        async with house.superuser() as connection:
            back = "UPDATE records SET version = $2 WHERE project = $1 AND store = 'tasks'"
            await connection.execute(back, project, 1)
            reply = await house.commit(
                "developer", developer, messages=(Outgoing(type=WORKED, data={"task_id": "t-1"}),)
            )
            await connection.execute(back, project, 2)
        assert reply.refusal is not None
        assert reply.refusal.kind == "transient"
        await house.done("developer", developer, messages=(Outgoing(type=WORKED, data={"task_id": "t-1"}),))

    @pytest.mark.parametrize("state", STATES)
    async def test_an_ended_task_takes_nothing_but_what_logs_a_late_event(
        self, house: House, project: str, state: str
    ) -> None:
        unversioned = Outgoing(
            type=DUE, data={}, task_id="t-1", due_at=datetime.now(UTC) + timedelta(days=1), timer="t"
        )
        manager = house.handed(await house.routed(project, "t-1"))
        ended = Write(store="tasks", id="t-1", body=task_body("t-1", state))
        await house.done("manager", manager, writes=(ended,), messages=(unversioned,))
        origin = house.handed(await house.reported(project, "t-1"))
        plan = Write(store="plans", id="t-1", body={"task_id": "t-1"})
        proposed = Outgoing(type="counterpoint.task.proposed.v1", data={"task_id": "t-1"})
        await house.refused("manager", origin, "ended", writes=(plan,))
        await house.refused("manager", origin, "ended", messages=(proposed,))
        late = decision("manager", task_id="t-1")
        replaced = Write(store="tasks", id="t-1", body=task_body("t-1", state, outcome="reported"), expect=1)
        await house.done("manager", origin, writes=(replaced,), messages=(late,))

    async def test_who_worked_on_an_ended_task_only_leaves_a_trace(self, house: House, project: str) -> None:
        developer = house.handed(await house.delegated(project, "t-1"))
        assert (await house.found("developer", developer, Get(store="tasks", id="t-1"))).items
        cancelled = Write(store="tasks", id="t-1", body=task_body("t-1", "cancelled"), expect=1)
        manager = house.handed(await house.reported(project, "t-1"))
        await house.done("manager", manager, writes=(cancelled,))
        assert (await house.found("manager", manager, Get(store="tasks", id="t-1"))).items
        for query in (
            Get(store="tasks", id="t-1"),
            List(store="attempts"),
            HybridSearch(store="chunks", text="disk full"),
        ):
            await house.refused("developer", developer, "ended", query)
        attempt = Write(store="attempts", id="a-1", body={"task_id": "t-1", "tried": "curl"})
        stale = await house.commit("developer", developer, reads=1, step="a", last=False, writes=(attempt,))
        assert stale.status == "stale"
        request = QueryRequest(origin=developer, gateway=GatewayToken(purpose="model", reads=1))
        reply = QueryReply.model_validate_json(await house.door.query("developer", request.model_dump_json().encode()))
        assert reply.refusal is not None
        assert reply.refusal.code == "ended"
        assert await house.body(project, "attempts", "a-1") is None

    async def test_an_end_that_another_process_wrote_is_known_within_a_second(
        self, house: House, project: str, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        clock = itertools.count(step=ENDED_WITHIN_S)
        monkeypatch.setattr(house.causes, "_ended", TTLCache(100, ENDED_WITHIN_S, timer=lambda: next(clock)))
        developer = house.handed(await house.delegated(project, "t-1"))
        assert (await house.found("developer", developer, Get(store="tasks", id="t-1"))).items
        async with house.superuser() as connection:
            await connection.execute(
                "UPDATE records SET body = jsonb_set(body, '{state}', '\"failed\"') WHERE project = $1"
                " AND store = 'tasks'",
                project,
            )
        await house.refused("developer", developer, "ended", Get(store="tasks", id="t-1"))

    async def test_an_end_that_a_commit_wrote_is_known_without_reading_it(self, house: House, project: str) -> None:
        developer = house.handed(await house.delegated(project, "t-1"))
        manager = house.handed(await house.reported(project, "t-1"))
        ended = Write(store="tasks", id="t-1", body=task_body("t-1", "failed"), expect=1)
        await house.done("manager", manager, writes=(ended,))
        async with house.superuser() as connection:
            await connection.execute(
                "UPDATE records SET body = jsonb_set(body, '{state}', '\"working\"') WHERE project = $1"
                " AND store = 'tasks'",
                project,
            )
        await house.refused("developer", developer, "ended", Get(store="tasks", id="t-1"))

    async def test_a_dead_letter_of_an_ended_task_is_kept(self, house: House, project: str) -> None:
        manager = house.handed(await house.routed(project, "t-1"))
        ended = Write(store="tasks", id="t-1", body=task_body("t-1", "failed"))
        await house.done("manager", manager, writes=(ended,))
        origin = house.handed(await house.reported(project, "t-1"))
        letter = DeadLetter(code="malformed", subject=f"tasks.{project}.outcome_reported", body="{}")
        await house.done("manager", origin, step="dead", dead_letter=letter)
        assert "dead_letters" in {row["store"] for row in await rows(house, "records", project)}

    async def test_a_batch_is_like_its_commits_one_after_the_other(self, house: House, project: str) -> None:
        developer = await self.handed_at(house, project, 1)
        again = house.handed(await house.reported(project, "t-1"))
        moved = Write(store="tasks", id="t-1", body=task_body("t-1", "working"), expect=1)
        worked = Outgoing(type=WORKED, data={"task_id": "t-1"})
        first, second = await house.together(
            house.commit("manager", again, writes=(moved,)), house.commit("developer", developer, messages=(worked,))
        )
        assert first.status == "done"
        assert second.status == "stale" or house.sent[second.message_ids[0]].task_version == 1


class TestTimers:
    def due(self, timer: str, in_s: float) -> Outgoing:
        at = datetime.now(UTC) + timedelta(seconds=in_s)
        return Outgoing(type=DUE, data={"task_id": "t-1"}, task_id="t-1", due_at=at, timer=timer)

    async def test_a_timer_waits_for_its_time_and_carries_the_version_at_which_it_was_set(
        self, house: House, project: str
    ) -> None:
        manager = house.handed(await house.routed(project, "t-1"))
        write = Write(store="tasks", id="t-1", body=task_body("t-1"))
        timers = (self.due("soon", -1), self.due("later", 3600))
        done = await house.done("manager", manager, writes=(write,), messages=timers)
        assert [house.sent[sent].task_version for sent in done.message_ids[:2]] == [1, 1]
        async with house.superuser() as connection:
            due = "SELECT message_id::text FROM take_due('1 hour', 1000) WHERE project = $1"
            assert [row["message_id"] for row in await connection.fetch(due, project)] == [done.message_ids[0]]

    async def test_a_cancelled_timer_never_comes(self, house: House, project: str) -> None:
        manager = house.handed(await house.routed(project, "t-1"))
        timers = (self.due("one", 3600), self.due("two", 3600))
        kept = (await house.done("manager", manager, messages=timers)).message_ids
        cancelling = house.handed(await house.reported(project, "t-1"))
        await house.done("manager", cancelling, cancel_timers=("one", "unknown"), messages=())
        waiting = {str(row["message_id"]) for row in await rows(house, "pending", project) if row["timer"]}
        assert waiting == {kept[1]}
        outcomes = {row["message_id"]: row["outcome"] for row in await rows(house, "inbox", project)}
        assert outcomes[kept[0]] == "cancelled"

    async def test_a_timer_of_the_same_name_in_another_project_stays(self, house: House, project: str) -> None:
        other = f"{project}-b"
        manager = house.handed(await house.routed(other, "t-1"))
        await house.done("manager", manager, messages=(self.due("one", 3600),))
        await house.done("manager", house.handed(await house.routed(project, "t-1")), cancel_timers=("one",))
        assert [row["timer"] for row in await rows(house, "pending", other) if row["timer"]] == [True]

    async def test_a_timer_cancelled_on_its_way_is_stale(self, house: House, project: str) -> None:
        manager = house.handed(await house.routed(project, "t-1"))
        timer = (await house.done("manager", manager, messages=(self.due("one", 3600),))).message_ids[0]
        await house.done("manager", house.handed(await house.reported(project, "t-1")), cancel_timers=("one",))
        plan = Write(store="plans", id="t-1", body={"task_id": "t-1"})
        assert (await house.commit("manager", house.handed(timer), writes=(plan,))).status in ("stale", "replayed")


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
                items = (await house.found("router", router, Get(store="submissions", id=prefix + record))).items
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


_ROWS_READ = """
SELECT sum(pg_stat_get_xact_tuples_returned(oid) + pg_stat_get_xact_tuples_fetched(oid))
FROM pg_class WHERE relname IN ('inbox', 'records', 'messages', 'pending')
"""


@pytest.mark.parametrize("analyzed", [False, True])
async def test_a_commit_reads_no_more_rows_in_a_large_project_than_in_a_small_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, analyzed: bool
) -> None:
    """Without statistics the planner takes every table for empty, and would rather read all of a project at once."""
    async with running_house(tmp_path) as house:
        async with house.superuser() as connection:
            # Statistics of a table that was small for a moment count until the next ones.
            await connection.execute("ALTER SYSTEM SET autovacuum = off")
            await connection.execute("SELECT pg_reload_conf()")
        call = house.committer._call
        read: list[int] = []

        async def counted(connection: Any, place: str, steps: Any) -> Any:
            async with connection.transaction():
                before = await connection.fetchval(_ROWS_READ)
                found = await call(connection, place, steps)
                read.append(await connection.fetchval(_ROWS_READ) - before)
            return found

        async def task(name: str) -> None:
            manager = house.handed(await house.routed(PROJECT, name))
            write = Write(store="tasks", id=name, body=task_body(name))
            made = await house.done(
                "manager", manager, writes=(write,), messages=(Outgoing(type=DELEGATED, data={"task_id": name}),)
            )
            developer = house.handed(made.message_ids[0])
            await house.done("developer", developer, messages=(Outgoing(type=WORKED, data={"task_id": name}),))

        for n in range(300):
            await task(f"t-{n}")
        if analyzed:
            async with house.superuser() as connection:
                await connection.execute("ANALYZE")
        monkeypatch.setattr(house.committer, "_call", counted)
        await task("t-last")
    assert len(read) == 3
    assert max(read) < 30


async def test_the_more_a_commit_writes_the_longer_it_may_take(
    house: House, project: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Else what is very large could never be erased or taken back."""
    manager = house.handed(await house.routed(project, "t-1"))
    monkeypatch.setattr(statement, "_STATEMENT_S", 0.0)
    monkeypatch.setattr(statement, "_WRITE_S", 0.1)
    plans = tuple(Write(store="plans", id=f"p-{n}", body={"text": "x"}) for n in range(200))
    await house.done("manager", manager, writes=plans)
    assert await house.body(project, "plans", "p-199") == {"text": "x"}


async def test_a_commit_without_effect_finishes_its_message(house: House, project: str) -> None:
    """A consumer that has nothing to do says so: its message is not published again when the stream has dropped it."""
    origin = house.standing(project)
    await house.done("router", origin)
    assert (await house.commit("router", origin)).status == "replayed"
    async with house.superuser() as database:
        finished = await database.fetchval(
            "SELECT last FROM inbox WHERE project = $1 AND message_id = $2", project, origin.message_id
        )
    assert finished is True
