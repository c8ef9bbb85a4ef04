"""The order of the messages of a task, and its timers."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import UTC, datetime, timedelta
from types import SimpleNamespace
from typing import Any

import pytest
from commit.commit_records import rows
from memory_service.house import DELEGATED, DUE, WORKED, House, decision, task_body

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


async def set_states(house: House, project: str, state: str) -> None:
    """Set the state of the tasks of a project in the database, past memory."""
    async with house.superuser() as connection:
        await connection.execute(
            "UPDATE records SET body = jsonb_set(body, '{state}', to_jsonb($2::text)) WHERE project = $1"
            " AND store = 'tasks'",
            project,
            state,
        )


class TestTaskOrder:
    async def handed_at(self, house: House, project: str, version: int) -> Origin:
        """The developer's message, sent when the task's record came to `version`."""
        routed = house.delivery(await house.routed(project, "t-1"))
        message = Outgoing(type=DELEGATED, data={"task_id": "t-1"})
        for n in range(version):
            last = n == version - 1
            origin = routed if n == 0 else house.delivery(await house.reported(project, "t-1"))
            write = Write(store="tasks", id="t-1", body=task_body("t-1", n=n), expect=n)
            done = await house.apply("manager", origin, writes=(write,), messages=(message,) if last else ())
        sent = done.message_ids[0]
        assert house.sent[sent].task_version == version
        return house.delivery(sent)

    async def test_a_message_of_an_older_version_of_its_task_is_stale_and_has_no_effect(
        self, house: House, project: str
    ) -> None:
        developer = await self.handed_at(house, project, 1)
        moved = Write(store="tasks", id="t-1", body=task_body("t-1", n=2), expect=1)
        await house.apply("manager", house.delivery(await house.reported(project, "t-1")), writes=(moved,))
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
        await house.apply("developer", developer, messages=(Outgoing(type=WORKED, data={"task_id": "t-1"}),))

    @pytest.mark.parametrize("state", STATES)
    async def test_an_ended_task_accepts_only_late_events(self, house: House, project: str, state: str) -> None:
        unversioned = Outgoing(
            type=DUE, data={}, task_id="t-1", due_at=datetime.now(UTC) + timedelta(days=1), timer="t"
        )
        manager = house.delivery(await house.routed(project, "t-1"))
        ended = Write(store="tasks", id="t-1", body=task_body("t-1", state))
        await house.apply("manager", manager, writes=(ended,), messages=(unversioned,))
        origin = house.delivery(await house.reported(project, "t-1"))
        plan = Write(store="plans", id="t-1", body={"task_id": "t-1"})
        proposed = Outgoing(type="counterpoint.task.proposed.v1", data={"task_id": "t-1"})
        await house.refusal("manager", origin, "ended", writes=(plan,))
        await house.refusal("manager", origin, "ended", messages=(proposed,))
        late = decision("manager", task_id="t-1")
        replaced = Write(store="tasks", id="t-1", body=task_body("t-1", state, outcome="reported"), expect=1)
        await house.apply("manager", origin, writes=(replaced,), messages=(late,))

    async def test_work_on_an_ended_task_leaves_only_a_trace(self, house: House, project: str) -> None:
        developer = house.delivery(await house.delegated(project, "t-1"))
        assert (await house.answer("developer", developer, Get(store="tasks", id="t-1"))).items
        cancelled = Write(store="tasks", id="t-1", body=task_body("t-1", "cancelled"), expect=1)
        manager = house.delivery(await house.reported(project, "t-1"))
        await house.apply("manager", manager, writes=(cancelled,))
        assert (await house.answer("manager", manager, Get(store="tasks", id="t-1"))).items
        for query in (
            Get(store="tasks", id="t-1"),
            List(store="attempts"),
            HybridSearch(store="chunks", text="disk full"),
        ):
            await house.refusal("developer", developer, "ended", query)
        attempt = Write(store="attempts", id="a-1", body={"task_id": "t-1", "tried": "curl"})
        stale = await house.commit("developer", developer, reads=1, step="a", last=False, writes=(attempt,))
        assert stale.status == "stale"
        for request in (
            QueryRequest(origin=developer, gateway=GatewayToken(purpose="model", reads=1)),
            QueryRequest(origin=developer, names=("orders",)),
        ):
            raw = await house.door.query("developer", request.model_dump_json().encode())
            reply = QueryReply.model_validate_json(raw)
            assert reply.refusal is not None
            assert reply.refusal.code == "ended"
        assert await house.body(project, "attempts", "a-1") is None

    @pytest.mark.parametrize("lease", [None, 2], ids=["not confirmed", "taken anew"])
    async def test_an_end_that_another_process_wrote_is_known_as_soon_as_the_lease_was_in_doubt(
        self, house: House, project: str, monkeypatch: pytest.MonkeyPatch, lease: int | None
    ) -> None:
        monkeypatch.setattr(house.causes, "_lease", lambda: 1)
        developer = house.delivery(await house.delegated(project, "t-1"))
        assert (await house.answer("developer", developer, Get(store="tasks", id="t-1"))).items
        monkeypatch.setattr(house.causes, "_lease", lambda: lease)
        await set_states(house, project, "failed")
        await house.refusal("developer", developer, "ended", Get(store="tasks", id="t-1"))

    async def test_the_state_of_a_task_is_not_read_again_and_again(self, house: House, project: str) -> None:
        developer = house.delivery(await house.delegated(project, "t-1"))
        house.causes._ended.clear()
        for _ in range(2):
            await house.answer("developer", developer, Get(store="tasks", id="t-1"))
            await set_states(house, project, "failed")

    async def test_an_end_is_known_whose_commit_was_not_answered(
        self, house: House, project: str, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        developer = house.delivery(await house.delegated(project, "t-1"))
        manager = house.delivery(await house.reported(project, "t-1"))
        monkeypatch.setattr(house.causes, "applied", lambda steps: None)
        ended = Write(store="tasks", id="t-1", body=task_body("t-1", "failed"), expect=1)
        await house.apply("manager", manager, writes=(ended,))
        await house.refusal("developer", developer, "ended", Get(store="tasks", id="t-1"))

    async def test_an_end_is_known_whose_commit_was_not_answered_after_the_state_was_read(
        self, house: House, project: str, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        developer = house.delivery(await house.delegated(project, "t-1"))
        manager = house.delivery(await house.reported(project, "t-1"))
        under_way: Any = SimpleNamespace(project=project, writes=(SimpleNamespace(store="tasks", id="t-1"),))
        house.causes.begin([under_way])
        await house.answer("developer", developer, Get(store="tasks", id="t-1"))
        for part in ("begin", "applied"):
            monkeypatch.setattr(house.causes, part, lambda steps: None)
        ended = Write(store="tasks", id="t-1", body=task_body("t-1", "failed"), expect=1)
        await house.apply("manager", manager, writes=(ended,))
        await house.refusal("developer", developer, "ended", Get(store="tasks", id="t-1"))

    async def test_a_state_read_during_a_commit_is_not_remembered(
        self, house: House, project: str, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        developer = house.delivery(await house.delegated(project, "t-1"))
        manager = house.delivery(await house.reported(project, "t-1"))
        house.causes._ended.clear()
        reading = house.database.reading

        @asynccontextmanager
        async def slow(of: str) -> AsyncIterator[Any]:
            async with reading(of) as connection:
                yield connection
            monkeypatch.undo()
            ended = Write(store="tasks", id="t-1", body=task_body("t-1", "failed"), expect=1)
            await house.apply("manager", manager, writes=(ended,))

        monkeypatch.setattr(house.database, "reading", slow)
        assert not await house.causes.has_ended(house.keyring.verified(developer.capability or "").grant)
        await house.refusal("developer", developer, "ended", Get(store="tasks", id="t-1"))

    async def test_an_end_that_a_commit_wrote_is_known_without_reading_it(self, house: House, project: str) -> None:
        developer = house.delivery(await house.delegated(project, "t-1"))
        manager = house.delivery(await house.reported(project, "t-1"))
        ended = Write(store="tasks", id="t-1", body=task_body("t-1", "failed"), expect=1)
        await house.apply("manager", manager, writes=(ended,))
        await set_states(house, project, "working")
        await house.refusal("developer", developer, "ended", Get(store="tasks", id="t-1"))

    async def test_a_dead_letter_of_an_ended_task_is_kept(self, house: House, project: str) -> None:
        manager = house.delivery(await house.routed(project, "t-1"))
        ended = Write(store="tasks", id="t-1", body=task_body("t-1", "failed"))
        await house.apply("manager", manager, writes=(ended,))
        origin = house.delivery(await house.reported(project, "t-1"))
        letter = DeadLetter(code="malformed", subject=f"tasks.{project}.outcome_reported", body="{}")
        await house.apply("manager", origin, step="dead", dead_letter=letter)
        assert "dead_letters" in {row["store"] for row in await rows(house, "records", project)}

    async def test_a_batch_is_like_its_commits_one_after_the_other(self, house: House, project: str) -> None:
        developer = await self.handed_at(house, project, 1)
        again = house.delivery(await house.reported(project, "t-1"))
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
        manager = house.delivery(await house.routed(project, "t-1"))
        write = Write(store="tasks", id="t-1", body=task_body("t-1"))
        timers = (self.due("soon", -1), self.due("later", 3600))
        done = await house.apply("manager", manager, writes=(write,), messages=timers)
        assert [house.sent[sent].task_version for sent in done.message_ids[:2]] == [1, 1]
        async with house.superuser() as connection:
            due = "SELECT message_id::text FROM take_due('1 hour', 1000) WHERE project = $1"
            assert [row["message_id"] for row in await connection.fetch(due, project)] == [done.message_ids[0]]

    async def test_a_cancelled_timer_never_comes(self, house: House, project: str) -> None:
        manager = house.delivery(await house.routed(project, "t-1"))
        timers = (self.due("one", 3600), self.due("two", 3600))
        kept = (await house.apply("manager", manager, messages=timers)).message_ids
        cancelling = house.delivery(await house.reported(project, "t-1"))
        await house.apply("manager", cancelling, cancel_timers=("one", "unknown"), messages=())
        waiting = {str(row["message_id"]) for row in await rows(house, "pending", project) if row["timer"]}
        assert waiting == {kept[1]}
        outcomes = {row["message_id"]: row["outcome"] for row in await rows(house, "inbox", project)}
        assert outcomes[kept[0]] == "cancelled"

    async def test_a_timer_of_the_same_name_in_another_project_stays(self, house: House, project: str) -> None:
        other = f"{project}-b"
        manager = house.delivery(await house.routed(other, "t-1"))
        await house.apply("manager", manager, messages=(self.due("one", 3600),))
        await house.apply("manager", house.delivery(await house.routed(project, "t-1")), cancel_timers=("one",))
        assert [row["timer"] for row in await rows(house, "pending", other) if row["timer"]] == [True]

    async def test_a_timer_cancelled_on_its_way_is_stale(self, house: House, project: str) -> None:
        manager = house.delivery(await house.routed(project, "t-1"))
        timer = (await house.apply("manager", manager, messages=(self.due("one", 3600),))).message_ids[0]
        await house.apply("manager", house.delivery(await house.reported(project, "t-1")), cancel_timers=("one",))
        plan = Write(store="plans", id="t-1", body={"task_id": "t-1"})
        assert (await house.commit("manager", house.delivery(timer), writes=(plan,))).status in ("stale", "replayed")
