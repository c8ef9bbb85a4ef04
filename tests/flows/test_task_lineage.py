"""The lineage of our own tasks: the sources that they used, and what they left."""

from collections.abc import Iterable

from agents.lineage_house import NOW, PROJECT, House

from counterpoint.client import record
from counterpoint.graph.edges import EdgeKind, LineageEdge
from counterpoint.graph.lineage import blast_radius_of
from counterpoint.graph.names import dataset, job, own_item, own_task
from counterpoint.proto.attempts import Attempt
from counterpoint.proto.decisions import DecisionMade, Source
from counterpoint.proto.memory import RecordsChanged

# our own tasks


def ended(house: House, task_id: str, used: Iterable[str], attempts: Iterable[str]) -> RecordsChanged:
    """The end of a task whose decisions rested on these items, and that left these attempts."""
    sources = tuple(Source(store=s, id=i, version=1) for s, _, i in (name.partition("/") for name in used))
    decision = DecisionMade(
        decision_id=f"{task_id}-{len(house.records)}", task_id=task_id, project=PROJECT, agent="developer",
        decision_type="propose", decision="restart", reasoning="-", sources=sources, made_at=NOW,
    )  # fmt: skip
    house.put("decisions", decision.decision_id, decision.model_dump(mode="json"))
    for attempt_id in attempts:
        attempt = Attempt(
            attempt_id=attempt_id, task_id=task_id, project=PROJECT, attempt=1, description="-", tried="restart",
            by="developer", at=NOW,
        )  # fmt: skip
        house.put("attempts", attempt_id, attempt.model_dump(mode="json"))
    return house.ended(task_id, "completed")


async def test_a_wrong_document_leads_to_the_tasks_that_used_it_and_their_results() -> None:
    house = House()
    for message in (
        ended(house, "t1", ["chunks/wrong", "chunks/right"], ["a1"]),
        ended(house, "t2", ["chunks/right", "attempts/a1"], ["a2"]),
        ended(house, "t3", ["chunks/right"], ["a3"]),
    ):
        await house.deliver(message, task_id=message.task_id)
    found = await blast_radius_of(house.memory(), own_item("chunks", "wrong"))
    jobs = [(row.name, row.hops) for row in found.downstream if row.kind == "job"]
    assert jobs == [("t1", 1), ("t2", 2)]
    items = {row.name for row in found.downstream if row.kind == "dataset"}
    assert items == {"attempts/a1", "attempts/a2"}
    assert house.sent == []


async def test_the_lineage_of_a_task_is_written_at_its_end_and_is_nothing_where_nothing_was_used_or_left() -> None:
    house = House()
    at_the_end = ended(house, "t1", ["chunks/c"], ["a"])
    under_way = at_the_end.model_copy(update={"ended": False})
    await house.deliver(under_way, task_id="t1")
    await house.deliver(house.ended("t0", "failed"), task_id="t0")
    assert house.written == []
    await house.deliver(at_the_end, task_id="t1")
    written = list(house.written)
    assert len(written) == 3
    assert house.one("jobs", own_task("t1").id).body["name"] == "t1"
    edges = {record(item, LineageEdge) for item in house.items("edges")}
    assert edges == {
        LineageEdge(
            kind=EdgeKind.DATA, source=dataset("counterpoint", "chunks/c").ref, target=job("counterpoint", "t1").ref
        ),
        LineageEdge(
            kind=EdgeKind.DATA, source=job("counterpoint", "t1").ref, target=dataset("counterpoint", "attempts/a").ref
        ),
    }
    await house.deliver(at_the_end, task_id="t1")
    assert house.written == written


async def test_sources_used_after_the_first_end_are_added() -> None:
    house = House()
    await house.deliver(ended(house, "t1", ["chunks/c"], ["a"]), task_id="t1")
    await house.deliver(ended(house, "t1", ["chunks/c", "chunks/d"], []), task_id="t1")
    assert len(house.items("edges")) == 3
    assert {item.version for item in (*house.items("edges"), *house.items("jobs"))} == {1}
