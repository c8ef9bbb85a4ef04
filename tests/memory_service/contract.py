"""Behaviour of memory that tests of other services rely on: `MemoryContract` holds for the fake and for the service."""

import json
from collections.abc import Awaitable
from typing import Any, Protocol

import pytest
from memory_service.record_bodies import rest

from counterpoint.client import Memory
from counterpoint.proto.decisions import DecisionMade
from counterpoint.proto.errors import Conflict, Denied, Permanent
from counterpoint.proto.ids import new_id
from counterpoint.proto.memory import Commit, EdgeWalk, Get, Line, List, LogAfter, Outgoing, Write

OUTCOME = "counterpoint.task.outcome_reported.v1"
ROUTED = "counterpoint.task.routed.v1"
DELEGATED = "counterpoint.task.delegated.v1"
COMPLETED = "counterpoint.task.completed.v1"


class MemoryDriver(Protocol):
    """A memory to prove the contract on. Its router and lineage work without a task, its manager on a routed one."""

    project: str

    def router(self, message_id: str | None = None, *, principal: str | None = None) -> Memory: ...

    def lineage(self) -> Memory: ...

    async def manager(self, task_id: str, *, late: bool = False) -> Memory:
        """On a routed task, or `late` on an outcome that was reported of it."""
        ...


def write(store: str, record_id: str, expect: int = 0, **body: Any) -> Write:
    """A write of a record that its store's model accepts."""
    return Write(store=store, id=record_id, body={**rest(store, record_id, "a-project"), **body}, expect=expect)


def decision(**fields: Any) -> Outgoing:
    """A decision of the router, as a message."""
    body = rest("decisions", new_id(), "a-project", agent="router") | {"reasoning": "it is so", **fields}
    return Outgoing(type=DecisionMade.TYPE, data=body)


async def denied(rule: str, work: Awaitable[Any]) -> None:
    """The work is refused by a rule."""
    with pytest.raises(Denied) as refused:
        await work
    assert refused.value.rule == rule


class MemoryContract:
    """Subclasses have a fixture `memory` that yields a `MemoryDriver` of a project of its own."""

    async def test_a_record_has_versions_and_its_stamps(self, memory: MemoryDriver) -> None:
        reply = await memory.router().step(Commit(writes=(write("submissions", "s-1", text="first"),)))
        assert reply.versions == {"submissions/s-1": 1}
        await memory.router().step(Commit(writes=(write("submissions", "s-1", 1, text="second"),)))
        item = await memory.router().get("submissions", "s-1")
        assert item is not None
        assert (item.version, item.body["text"], item.author, item.project) == (2, "second", "router", memory.project)
        assert await memory.router().get("submissions", "s-2") is None

    async def test_a_commit_at_another_version_is_refused_whole(self, memory: MemoryDriver) -> None:
        await memory.router().step(Commit(writes=(write("submissions", "s-1"),)))
        both = (write("submissions", "s-2"), write("submissions", "s-1"))
        with pytest.raises(Conflict) as refused:
            await memory.router().step(Commit(writes=both, messages=(decision(),)))
        assert (refused.value.store, refused.value.record_id) == ("submissions", "s-1")
        assert await memory.router().get("submissions", "s-2") is None
        assert not await logged_decisions(memory)

    async def test_a_deleted_record_is_gone(self, memory: MemoryDriver) -> None:
        await memory.router().step(Commit(writes=(write("submissions", "s-1"),)))
        await memory.router().step(Commit(writes=(Write(store="submissions", id="s-1", body=None, expect=1),)))
        assert await memory.router().get("submissions", "s-1") is None

    async def test_a_step_is_applied_once(self, memory: MemoryDriver) -> None:
        message_id = new_id()
        commit = Commit(writes=(write("submissions", "s-1"),), messages=(decision(),))
        first = await memory.router(message_id).step(commit)
        again = await memory.router(message_id).step(commit)
        assert (first.status, again.status) == ("done", "replayed")
        assert (again.versions, again.message_ids) == (first.versions, first.message_ids)
        assert len(await logged_decisions(memory)) == 1

    async def test_lists_are_in_commit_order_and_in_pages(self, memory: MemoryDriver) -> None:
        for number in range(7):
            body = {"state": "odd" if number % 2 else "even", "about": {"n": number, "tags": ["a", f"t{number}"]}}
            await memory.router().step(Commit(writes=(write("submissions", f"s-{number}", **body),)))
        await memory.router().step(Commit(writes=(write("submissions", "s-0", 1, state="even"),)))
        router = memory.router()
        assert await names(router, List(store="submissions", ascending=True)) == [
            "s-1", "s-2", "s-3", "s-4", "s-5", "s-6", "s-0",
        ]  # fmt: skip
        assert await names(router, List(store="submissions", where={"state": "odd"})) == ["s-5", "s-3", "s-1"]
        nested = {"about": {"tags": ["t4"]}}
        assert await names(router, List(store="submissions", where=nested)) == ["s-4"]
        pages = [page async for page in router.pages(List(store="submissions", limit=3))]
        assert [[item.id for item in page.items] for page in pages] == [
            ["s-0", "s-6", "s-5"],
            ["s-4", "s-3", "s-2"],
            ["s-1"],
        ]

    async def test_a_walk_follows_edges_one_way_to_its_depth(self, memory: MemoryDriver) -> None:
        pairs = (("a", "b"), ("b", "c"), ("c", "a"), ("c", "d"), ("x", "b"))
        edges = [write("edges", f"{s}{t}", source=f"job:n/{s}", target=f"job:n/{t}") for s, t in pairs]
        await memory.lineage().step(Commit(writes=tuple(edges)))

        async def walked(start: str, direction: Any, depth: int) -> list[str]:
            walk = EdgeWalk(store="edges", start=(f"job:n/{start}",), direction=direction, depth=depth)
            return sorted(await names(memory.lineage(), walk))

        assert await walked("a", "down", 1) == ["ab"]
        assert await walked("a", "down", 2) == ["ab", "bc"]
        assert await walked("a", "down", 9) == ["ab", "bc", "ca", "cd"]
        assert await walked("c", "up", 2) == ["ab", "bc", "xb"]

    async def test_the_log_holds_what_was_sent_in_order(self, memory: MemoryDriver) -> None:
        for number in range(3):
            await memory.router().step(Commit(messages=(decision(decision=f"number {number}"),)))
        logged = await logged_decisions(memory)
        assert [json.loads(item.body["data"])["decision"] for item in logged] == ["number 0", "number 1", "number 2"]
        assert {item.body["type"] for item in logged} == {DecisionMade.TYPE}
        (later,) = await memory.router().query(LogAfter(after=logged[1].seq, kinds=("decisions",)))
        assert [item.id for item in later.items] == [logged[2].id]
        (others,) = await memory.router().query(LogAfter(after=0, kinds=("tasks",)))
        assert not others.items

    async def test_a_decision_is_also_a_record(self, memory: MemoryDriver) -> None:
        made = decision(decision="go on")
        await memory.router().step(Commit(messages=(made,)))
        kept = await memory.router().get("decisions", made.data["decision_id"])
        assert kept is not None
        assert kept.body["decision"] == "go on"

    async def test_the_line_of_a_task_is_in_order(self, memory: MemoryDriver) -> None:
        for name in ("a", "b", "c"):
            action = write("actions", f"{memory.project}-{name}", task_id="t", agent="router", reasoning=name)
            await memory.router().step(Commit(writes=(action,)))
        for newest_first, wanted in ((False, ["a", "b", "c"]), (True, ["c", "b", "a"])):
            (found,) = await memory.router().query(Line(task_id="t", newest_first=newest_first))
            assert [item.body["reasoning"] for item in found.items] == wanted

    async def test_requests_that_the_policy_does_not_grant_are_denied(self, memory: MemoryDriver) -> None:
        await denied("store", memory.router().query(Get(store="checkpoints", id="x")))
        await denied("store", memory.router().step(Commit(writes=(write("edges", "e"),))))
        await denied("send", memory.lineage().step(Commit(messages=(Outgoing(type=COMPLETED, data={}),))))
        foreign = decision(agent="manager")
        await denied("agent", memory.router().step(Commit(messages=(foreign,))))

    async def test_citations_of_unread_records_are_refused(self, memory: MemoryDriver) -> None:
        await memory.router().step(Commit(writes=(write("submissions", "s-1"),)))
        cites = decision(sources=[{"store": "submissions", "id": "s-1", "version": 1}])
        with pytest.raises(Permanent) as refused:
            await memory.router().step(Commit(messages=(cites,)))
        assert refused.value.code == "uncited"
        reader = memory.router()
        await reader.get("submissions", "s-1")
        await reader.step(Commit(messages=(cites,)))

    async def test_a_body_its_store_does_not_know_is_refused_by_its_field(self, memory: MemoryDriver) -> None:
        with pytest.raises(Permanent) as refused:
            await memory.lineage().step(Commit(writes=(write("edges", "e", source=None),)))
        assert refused.value.code == "invalid"
        assert [problem.field for problem in refused.value.problems] == ["writes.edges/e.source"]

    async def test_a_capability_is_for_its_own_task(self, memory: MemoryDriver) -> None:
        manager = await memory.manager("t-1")
        await denied("task", manager.step(Commit(writes=(write("tasks", "t-2"),))))
        await manager.step(Commit(writes=(write("tasks", "t-1", state="working"),)))

    async def test_only_the_last_step_changes_the_workflow(self, memory: MemoryDriver) -> None:
        manager = await memory.manager("t-1")
        early = Commit(step="early", last=False, writes=(write("tasks", "t-1"),))
        await denied("step", manager.step(early))

    async def test_a_task_that_has_ended_stays_as_it_is(self, memory: MemoryDriver) -> None:
        manager, late = await memory.manager("t-1"), await memory.manager("t-1", late=True)
        times = {"ended_at": "2026-01-01T00:00:00Z"}
        await manager.step(Commit(writes=(write("tasks", "t-1", state="completed", **times),)))
        await denied("ended", late.step(Commit(writes=(write("plans", "p", task_id="t-1", text="on"),))))
        assert await late.get("tasks", "t-1") is not None
        await denied("ended", late.get("spend", "t-1"))

    async def test_a_secret_in_a_name_is_taken_out(self, memory: MemoryDriver) -> None:
        key = "AKIA" + "Z7QF3MPLKD2WXYTB"
        told = await memory.lineage().redact_names({"name": f"orders.{key}", "other": "orders"})
        assert key not in str(told)
        assert told["other"] == "orders"
        assert "[redacted:aws_access_key:" in told["name"]


async def names(memory: Memory, query: Any) -> list[str]:
    """The ids that a query finds, in order."""
    (found,) = await memory.query(query)
    return [item.id for item in found.items]


async def logged_decisions(memory: MemoryDriver) -> list[Any]:
    """The decisions in the log of the project."""
    (found,) = await memory.router().query(LogAfter(after=0, kinds=("decisions",)))
    return list(found.items)
