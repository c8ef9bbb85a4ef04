"""A take-back can be undone, in any order, and leaves no trace: records, order, times and what a search finds."""

from typing import Any, Literal

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from memory_service.house import PERSON, REPORTED, WORKED, House, decision
from memory_service.learning_project import GOOD, POISON, commit_of, ingest, learn, reading, there, wish

from counterpoint.memory.operations.changes import OriginalVersion, standing_version
from counterpoint.memory.provenance.influence import Influence
from counterpoint.proto.ids import new_id
from counterpoint.proto.memory import Cypher, Get, HybridSearch, Line, List, Outgoing, VectorSearch, Write

WRONG = st.frozensets(st.integers(1, 6), max_size=6)
VERSIONS = st.lists(st.booleans(), min_size=1, max_size=6).map(
    lambda there: [OriginalVersion(n, 10 * n, each) for n, each in enumerate(there, 1)]
)
TAKE_BACKS = st.lists(
    st.tuples(st.integers(1, 70).filter(lambda place: place % 10), st.booleans(), WRONG),
    max_size=5,
    unique_by=lambda each: each[0],
)
LEARNED = ("documents", "chunks", "attempts", "decisions", "actions", "sessions", "plans")

Step = tuple[Literal["quarantine", "rollback", "lift"], int, int]
STEPS = st.lists(
    st.tuples(st.sampled_from(("quarantine", "rollback", "lift")), st.integers(0, 2), st.integers(0, 5)),
    min_size=1,
    max_size=6,
)
LIFTS = st.lists(st.integers(0, 5), max_size=6)


@given(VERSIONS, TAKE_BACKS)
def test_without_take_backs_the_last_version_stands(
    written: list[OriginalVersion], take_backs: list[tuple[int, bool, frozenset[int]]]
) -> None:
    assert standing_version(written, ()) == (written[-1].version if written[-1].has_body else None)
    standing = standing_version(written, take_backs)
    if standing is not None:
        assert next(each for each in written if each.version == standing).has_body
    ended = [each for each in take_backs if each[0] > written[-1].position]
    last = max(ended, default=None)
    if last is not None and not last[1]:
        assert standing is None or standing not in last[2]


class World:
    """Two pages of two versions each, and tasks that used one, both, or were only shown them."""

    def __init__(self, house: House, project: str) -> None:
        self.house = house
        self.project = project
        self.items: list[dict[str, Any]] = []
        self.tasks: list[str] = []

    async def fill(self) -> None:
        one = await ingest(self.house, self.project, GOOD, source="one.md")
        await self._task()
        await ingest(self.house, self.project, POISON, source="one.md")
        two = await ingest(self.house, self.project, f"{POISON} At once.", source="two.md")
        await self._task()
        shown = await self.house.delegated(self.project, new_id())
        await reading(self.house, self.house.delivery(shown))
        self.items = [
            {"store": "documents", "id": one},
            {"store": "documents", "id": one, "version": 2},
            {"store": "documents", "id": two},
        ]

    async def _task(self) -> None:
        self.tasks.append(new_id())
        await learn(self.house, self.project, self.tasks[-1])

    async def state(self) -> Any:
        """All that can be read of what is learned, in the order in which it is read."""
        person = self.house.standing(self.project, principal=PERSON)
        queries = (
            *(List(store=store, limit=200) for store in LEARNED),
            *(Line(task_id=task) for task in self.tasks),
            VectorSearch(store="chunks", text="repair the orders pipeline", k=10),
            *(HybridSearch(store="attempts", text=task, k=10) for task in self.tasks),
        )
        reply = await self.house.query("router", person, *queries)
        assert reply.refusal is None, reply.refusal
        return [
            [(each.model_dump(mode="json", exclude={"version"}), each.score) for each in found.items]
            for found in reply.found
        ]

    async def play(self, steps: list[Step], lifts: list[int]) -> None:
        """Take back and lift, and then lift what stands yet, in an order of one's own."""
        standing: list[str] = []
        for kind, item, which in steps:
            if kind == "lift" and standing:
                await wish(self.house, self.project, "lift", id=standing.pop(which % len(standing)))
            elif kind != "lift":
                standing.append(await wish(self.house, self.project, kind, **self.items[item]))
        for which in lifts:
            if standing:
                await wish(self.house, self.project, "lift", id=standing.pop(which % len(standing)))
        while standing:
            await wish(self.house, self.project, "lift", id=standing.pop())


async def undone(house: House, steps: list[Step], lifts: list[int]) -> None:
    """In a project of its own all is as it was when nothing stands any more."""
    world = World(house, f"p-{new_id()}")
    await world.fill()
    before = await world.state()
    await world.play(steps, lifts)
    assert await world.state() == before
    assert (await house.verify(world.project))["ok"]


@settings(max_examples=6, deadline=None, suppress_health_check=list(HealthCheck))
@given(steps=STEPS, lifts=LIFTS)
async def test_undoing_every_take_back_restores_every_record(house: House, steps: list[Step], lifts: list[int]) -> None:
    await undone(house, steps, lifts)


@pytest.mark.slow
@pytest.mark.timeout(900)
@settings(max_examples=150, deadline=None, suppress_health_check=list(HealthCheck))
@given(steps=STEPS, lifts=LIFTS)
async def test_all_is_as_it_was_when_much_is_undone(house: House, steps: list[Step], lifts: list[int]) -> None:
    await undone(house, steps, lifts)


async def test_a_rollback_is_lifted_and_the_wrong_version_stands_again(house: House, project: str) -> None:
    document = await ingest(house, project, GOOD)
    await ingest(house, project, POISON)
    bad = await learn(house, project, new_id())
    rolled = await wish(house, project, "rollback", store="documents", id=document)
    assert not any(await there(house, project, *bad.values()))
    await wish(house, project, "lift", id=rolled)
    assert all(await there(house, project, *bad.values()))
    chunk = await house.body(project, "chunks", f"{document}-00000")
    assert chunk is not None
    assert chunk["text"] == POISON


async def test_undoing_names_other_operations_on_the_same_records(house: House, project: str) -> None:
    document = await ingest(house, project, GOOD)
    await ingest(house, project, POISON)
    out = await wish(house, project, "quarantine", store="documents", id=document)
    rolled = await wish(house, project, "rollback", store="documents", id=document)
    lifted = await wish(house, project, "lift", id=out)
    done = await house.body(project, "quarantines", lifted)
    assert done is not None
    assert done["others"] == [rolled]


async def test_lessons_learned_under_a_rollback_go_with_it(house: House, project: str) -> None:
    """A quarantine that a rollback had overruled counts again, also for what came between."""
    document = await ingest(house, project, GOOD)
    await ingest(house, project, POISON)
    await wish(house, project, "quarantine", store="documents", id=document)
    rolled = await wish(house, project, "rollback", store="documents", id=document)
    between = await learn(house, project, new_id())
    await wish(house, project, "lift", id=rolled)
    assert not any(await there(house, project, *between.values(), ("documents", document)))


async def test_a_lift_is_nothing_that_can_be_lifted(house: House, project: str) -> None:
    document = await ingest(house, project, POISON)
    out = await wish(house, project, "quarantine", store="documents", id=document)
    lifted = await wish(house, project, "lift", id=out)
    again = Write(store="quarantines", id=new_id(), body={"kind": "lift", "id": lifted, "reason": "again"})
    await house.refusal("router", house.standing(project, principal=PERSON), "not_found", writes=(again,))


async def test_records_that_were_only_shown_a_page_are_left_alone(house: House, project: str) -> None:
    document = await ingest(house, project, POISON)
    used = await learn(house, project, new_id())
    origin = house.delivery(await house.delegated(project, new_id()))
    await reading(house, origin)
    made = decision(project=project)
    attempt = Write(store="attempts", id="own", body={"attempt_id": "own", "tried": "it", "error_message": ""})
    await house.apply("developer", origin, reads=1, messages=(made,), writes=(attempt,))
    await wish(house, project, "quarantine", store="documents", id=document)
    assert not any(await there(house, project, *used.values()))
    assert all(await there(house, project, ("attempts", "own"), ("decisions", made.data["decision_id"])))


async def test_a_candidate_is_quoted_and_not_used(house: House, project: str) -> None:
    """A stop shows where to look further. Nothing that follows rests on that; but it is erased with what it quotes."""
    document = await ingest(house, project, POISON)
    task = new_id()
    origin = house.delivery(await house.delegated(project, task))
    (source,) = await reading(house, origin)
    cited = {**source, "source_path": "runbook.md", "start": 0, "end": 2, "quote": "To", "role": "candidate"}
    stopped = Outgoing(type=WORKED, data={"task_id": task, "outcome": "stopped", "findings": {"citations": [cited]}})
    done = await house.apply("developer", origin, reads=1, messages=(stopped,))
    plan = Write(store="plans", id=task, body={"plan_id": task, "task_id": task, "text": "wait"})
    await house.apply("manager", house.delivery(done.message_ids[0]), writes=(plan,))
    await wish(house, project, "quarantine", store="documents", id=document)
    assert await there(house, project, ("plans", task)) == [True]
    influence = Influence(house.database)
    roots = await influence.roots(project, "documents", document)
    assert not (await influence.of(project, roots, limit=100)).touched
    named = await influence.of(project, roots, reach="named", limit=100)
    assert ("plans", task, 1) in {each.key for each in named.touched}


async def test_a_record_with_sources_of_its_own_rests_on_these(house: House, project: str) -> None:
    """A person's fix, noted by who also decides on a task that used a page, rests on what the person said."""
    document = await ingest(house, project, POISON)
    task = new_id()
    await learn(house, project, task)
    said = Write(store="actions", id="said", body={"action_id": "said", "task_id": task, "agent": "human",
                                                   "kind": "outcome", "reasoning": "the disk was full"})  # fmt: skip
    reported = Outgoing(type=REPORTED, data={"task_id": task})
    person = house.standing(project, task, principal=PERSON)
    message = (await house.apply("router", person, writes=(said,), messages=(reported,))).message_ids[0]
    origin = house.delivery(message)
    (record,) = (await house.answer("manager", origin, Get(store="tasks", id=task))).items
    fix = {"attempt_id": "fix", "task_id": task, "tried": "freed the disk", "error_message": "",
           "sources": [{"store": "actions", "id": "said", "version": 1}]}  # fmt: skip
    source = {"store": "tasks", "id": task, "version": record.version}
    made = decision("manager", task_id=task, project=project, sources=[source])
    await house.apply(
        "manager", origin, reads=1, messages=(made,), writes=(Write(store="attempts", id="fix", body=fix),)
    )
    await wish(house, project, "quarantine", store="documents", id=document)
    assert await there(house, project, ("attempts", "fix"), ("decisions", made.data["decision_id"])) == [True, False]
    await wish(house, project, "quarantine", store="actions", id="said")
    assert await there(house, project, ("attempts", "fix")) == [False]


async def test_records_written_after_a_shown_page_keep_its_label_and_integrity(house: House, project: str) -> None:
    """Integrity and label follow all that was read, used or not."""
    await ingest(house, project, POISON)
    async with house.superuser() as connection:
        await connection.execute(
            "UPDATE records SET integrity = 0, label = 2 WHERE project = $1 AND store = 'chunks'", project
        )
    origin = house.delivery(await house.delegated(project, new_id()))
    await reading(house, origin)
    attempt = Write(store="attempts", id="own", body={"attempt_id": "own", "tried": "it", "error_message": ""})
    await house.apply("developer", origin, reads=1, writes=(attempt,))
    (kept,) = (await house.answer("router", house.standing(project), Get(store="attempts", id="own"))).items
    assert (kept.integrity, kept.label) == (0, 2)


async def test_the_past_shows_each_record_once_as_it_stood(house: House, project: str) -> None:
    """A restored record has its old place, and stands again from the restoration on."""
    document = await ingest(house, project, POISON)
    learned = await learn(house, project, new_id())
    store, record = learned["attempt"]
    person = house.standing(project, principal=PERSON)

    async def stood(as_of: str) -> list[str]:
        found = await house.answer("router", person, List(store=store, as_of=as_of, limit=10))
        return [each.id for each in found.items]

    learned_at = await commit_of(house, project, store, record)
    out = await wish(house, project, "quarantine", store="documents", id=document)
    out_at = await commit_of(house, project, "quarantines", out)
    lifted = await wish(house, project, "lift", id=out)
    lifted_at = await commit_of(house, project, "quarantines", lifted)
    assert [await stood(each) for each in (learned_at, out_at, lifted_at)] == [[record], [], [record]]


async def test_projections_and_epochs_follow_a_take_back_and_its_undo(house: House, project: str) -> None:
    """The graph, and the epoch by which an answer in the cache is known to be old."""
    document = await ingest(house, project, POISON)
    task = new_id()
    await learn(house, project, task)
    person = house.standing(project, principal=PERSON)
    count = Cypher(query="MATCH (a:Action) RETURN count(a)")

    async def actions() -> Any:
        return (await house.answer("router", person, count)).report

    before = await actions()
    out = await wish(house, project, "quarantine", store="documents", id=document)
    assert await actions() != before
    lifted = await wish(house, project, "lift", id=out)
    assert await actions() == before
    house.restart()
    epoch = await house.epochs.of(project, ["attempts"])
    assert epoch.commits[0] == await commit_of(house, project, "quarantines", lifted)
