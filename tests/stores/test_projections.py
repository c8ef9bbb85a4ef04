"""Projections follow the record: what was committed is found, whatever became of the tier in between."""

import asyncio
import shutil
from typing import Any

import pytest
from memory_service.house import House

from counterpoint.memory.projection import episodic_search as recall_module
from counterpoint.memory.projection import projections as tiers_module
from counterpoint.memory.projection.tier import TierPosition
from counterpoint.proto.errors import Away, Permanent
from counterpoint.proto.ids import new_id
from counterpoint.proto.memory import Cypher, Get, Line, QueryResult, Rebuild, VectorSearch, Write

TEXTS = {
    "dns": "The resolver timed out; raising its timeout to five seconds worked",
    "disk": "The disk was full of old logs; rotating them by size worked",
    "auth": "The token had expired; renewing it before each run worked",
}


@pytest.fixture(autouse=True)
def long_catch_up_timeout(monkeypatch: pytest.MonkeyPatch) -> None:
    """However busy the machine, a projection that moves is waited for."""
    monkeypatch.setattr(recall_module, "CATCH_UP_TIMEOUT_S", 20.0)
    monkeypatch.setattr(tiers_module, "CATCH_UP_TIMEOUT_S", 20.0)


async def remember(house: House, project: str, **texts: str) -> None:
    """Episodes of a coder."""
    message = await house.delegated(project, new_id())
    writes = tuple(
        Write(
            store="coder_memory",
            id=name,
            body={"text": text, "language": "python" if name != "auth" else "go", "success": True},
        )
        for name, text in texts.items()
    )
    await house.apply("developer", house.delivery(message), step="learn", last=False, writes=writes)


async def recall(house: House, project: str, text: str = "the name server does not answer", **more: Any) -> QueryResult:
    asked = VectorSearch(store="coder_memory", text=text, **{"k": 10, **more})
    return await house.answer("developer", house.delivery(await house.delegated(project, new_id())), asked)


def order(found: QueryResult) -> list[tuple[str, float | None]]:
    return [(item.id, item.score) for item in found.items]


async def line(house: House, project: str, task: str, length: int = 6) -> list[str]:
    """A line: a chain, and at its end one beside another."""
    ids = [f"{task}-{n:03}" for n in range(length)]
    for start in range(0, length, 40):
        writes = tuple(
            Write(
                store="actions",
                id=ids[n],
                body={
                    "action_id": ids[n],
                    "task_id": task,
                    "agent": "router",
                    "kind": "search" if n % 2 else "assess",
                    "reasoning": f"step {n}",
                    "after": [ids[n - 1]] if n else [],
                    "coordinates_with": [ids[n - 1]] if n == length - 1 else [],
                    "at": "2026-11-20T12:00:00Z",
                },
            )
            for n in range(start, min(start + 40, length))
        )
        await house.apply("router", house.standing(project, task), writes=writes)
    return ids


async def cypher(house: House, project: str, query: str, **parameters: Any) -> list[list[Any]]:
    asked = Cypher(query=query, parameters=parameters, limit=1000, timeout_ms=2500)
    found = await house.answer("router", house.standing(project), asked)
    assert found.tier == "graph"
    assert found.report is not None
    return [list(row) for row in found.report["rows"]]


async def rebuilt(house: House, project: str, tier: Any) -> dict[str, Any]:
    """Start a rebuild, and wait for its end."""
    origin = house.standing(project)
    found = await house.answer("router", origin, Rebuild(tier=tier, start=True))
    async with asyncio.timeout(120):
        while found.report and found.report["state"] == "running":
            await asyncio.sleep(0.01)
            found = await house.answer("router", origin, Rebuild(tier=tier))
    return found.report or {}


async def test_a_search_sees_earlier_commits(house: House, project: str) -> None:
    for name, text in TEXTS.items():
        await remember(house, project, **{name: text})
        found = await recall(house, project, text)
        assert (found.tier, found.plan) == ("episodic", "nearest")
        assert found.items[0].id == name
        assert found.items[0].score == pytest.approx(1, abs=1e-3)
    assert order(await recall(house, project))[0][0] == "dns"


async def test_fields_are_filtered_by(house: House, project: str) -> None:
    await remember(house, project, **TEXTS)
    assert [i.id for i in (await recall(house, project, where={"language": "go", "success": True})).items] == ["auth"]
    assert (await recall(house, project, where={"author": "judge"})).items == ()
    assert len((await recall(house, project, where={"author": "developer"}, k=2)).items) == 2


async def test_a_record_that_changed_or_went_is_followed(house: House, project: str) -> None:
    await remember(house, project, **TEXTS)
    message = await house.delegated(project, new_id())
    gone = Write(store="coder_memory", id="dns", body=None, expect=1)
    changed = Write(store="coder_memory", id="disk", body={"text": TEXTS["dns"]}, expect=1)
    await house.apply("developer", house.delivery(message), writes=(gone, changed))
    found = await recall(house, project, TEXTS["dns"])
    assert [(item.id, item.version) for item in found.items] == [("disk", 2), ("auth", 1)]


@pytest.mark.parametrize("while_it_runs", [True, False])
async def test_a_folder_that_was_deleted_is_built_again(house: House, project: str, while_it_runs: bool) -> None:
    await remember(house, project, **TEXTS)
    task = new_id()
    await line(house, project, task)
    before = order(await recall(house, project))
    drawn = await cypher(house, project, "MATCH (a:Action) RETURN a.action_id ORDER BY a.seq")
    if not while_it_runs:
        await house.unfollow()
    for tier in ("episodic", "graph"):
        (folder,) = (house.folder / tier).rglob(project)
        shutil.rmtree(folder)
    if while_it_runs:
        found = await recall(house, project)
        # What is open may still answer; what it answers is right.
        assert found.tier == "episodic"
        assert [name for name, _ in order(found)] == [name for name, _ in before]
    else:
        await house.refollow()
    found = await recall(house, project)
    assert (found.plan, order(found)) == ("nearest", before)
    assert await cypher(house, project, "MATCH (a:Action) RETURN a.action_id ORDER BY a.seq") == drawn


@pytest.mark.slow
async def test_an_engine_that_does_not_answer_holds_up_no_commit_and_no_search(
    house: House, project: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    await remember(house, project, dns=TEXTS["dns"])

    async def away(*given: Any, **more: Any) -> Any:
        raise Away("nobody is there")

    with monkeypatch.context() as broken:
        for method in ("apply", "search", "position"):
            broken.setattr(type(house.tiers.episodic.tier), method, away)
        await remember(house, project, disk=TEXTS["disk"], auth=TEXTS["auth"])
        found = await recall(house, project)
        assert (found.plan, found.items[0].id, len(found.items)) == ("exact, episodic is away", "dns", 3)
        only = await recall(house, project, where={"language": "go"})
        assert [item.id for item in only.items] == ["auth"]
    async with asyncio.timeout(120):
        while (found := await recall(house, project)).plan != "nearest":  # noqa: ASYNC110 - the tier comes back by itself
            await asyncio.sleep(0.01)
    assert len(found.items) == 3


async def test_another_life_of_a_project_is_not_taken_for_this_one(house: House, project: str) -> None:
    await remember(house, project, **TEXTS)
    await recall(house, project)
    await house.unfollow()
    async with house.superuser() as connection:
        await connection.execute("UPDATE projects SET created_at = now() WHERE project = $1", project)
        await connection.execute("DELETE FROM records WHERE project = $1 AND id = 'dns'", project)
    await house.refollow()
    found = await recall(house, project, k=2)
    assert found.plan == "nearest"
    # What the record never had takes no place.
    assert {item.id for item in found.items} == {"disk", "auth"}


async def test_a_place_ahead_of_the_record_is_not_believed(house: House, project: str) -> None:
    await remember(house, project, **TEXTS)
    await recall(house, project)
    place = await house.tiers.episodic.tier.position(project)
    assert place is not None
    await house.tiers.episodic.tier.apply(project, [], TierPosition(place.life, place.seq + 1_000_000))
    await remember(house, project, extra="The queue was full; more workers helped")
    assert len((await recall(house, project)).items) == 4


@pytest.mark.parametrize("tier", ["episodic", "graph"])
async def test_a_rebuild_answers_the_same_and_loses_nothing_that_is_committed_meanwhile(
    house: House, project: str, tier: str
) -> None:
    await remember(house, project, **TEXTS)
    ids = await line(house, project, new_id())
    before = order(await recall(house, project))
    report, _ = await asyncio.gather(rebuilt(house, project, tier), remember(house, project, late="It was too late"))
    assert (report["state"], report["problem"]) == ("done", None)
    assert report["records"] >= report["of"] > 0
    assert [pair for pair in order(await recall(house, project)) if pair[0] != "late"] == before
    assert "late" in {item.id for item in (await recall(house, project)).items}
    assert [row[0] for row in await cypher(house, project, "MATCH (a:Action) RETURN a.action_id ORDER BY a.seq")] == ids


async def test_a_second_rebuild_is_refused_while_the_first_one_runs(house: House, project: str) -> None:
    await line(house, project, new_id())
    projection = house.tiers.graph
    first = projection.rebuild(project)
    with pytest.raises(Permanent, match="is being rebuilt: 0 of") as refused:
        projection.rebuild(project)
    assert refused.value.code == "conflict"
    async with asyncio.timeout(120):
        while first.state == "running":  # noqa: ASYNC110 - a rebuild has no event to wait for
            await asyncio.sleep(0.01)
    assert first.state == "done"
    assert projection.rebuild(project).state == "running"


# The line, from the record and by Cypher


async def test_the_record_and_the_graph_say_the_same_of_a_line(house: House, project: str) -> None:
    message = await house.delegated(project, task := new_id())
    ids = await line(house, project, task, 12)
    await line(house, project, new_id(), 3)
    origin = house.delivery(message)
    recorded = (await house.answer("developer", origin, Line(task_id=task))).items
    newest = (await house.answer("developer", origin, Line(task_id=task, newest_first=True))).items
    whole = "MATCH (a:Action)-[:PART_OF]->(t:Task {task_id: $task}) RETURN a.action_id, a.kind, a.seq, a.reasoning"

    def of(items: Any) -> list[list[Any]]:
        return [[item.id, item.body["kind"], item.seq, item.body["reasoning"]] for item in items]

    assert await cypher(house, project, f"{whole} ORDER BY a.seq", task=task) == of(recorded)
    assert await cypher(house, project, f"{whole} ORDER BY a.seq DESC", task=task) == of(newest)
    children = "MATCH (:Action {action_id: $id})-[:LEADS_TO]->(b:Action) RETURN b.action_id"
    for one in ids:
        wanted = [[item.id] for item in recorded if one in item.body["after"]]
        assert await cypher(house, project, children, id=one) == wanted
    beside = "MATCH (a:Action {task_id: $task})-[:COORDINATES_WITH]->(b:Action) RETURN a.action_id, b.action_id"
    wanted = [[item.id, other] for item in recorded for other in item.body["coordinates_with"]]
    assert await cypher(house, project, beside, task=task) == wanted != []
    depth = (
        "MATCH p = (:Action {action_id: $first})-[:LEADS_TO* SHORTEST 1..200]->(:Action {action_id: $last}) "
        "RETURN length(p)"
    )
    assert await cypher(house, project, depth, first=ids[0], last=ids[-1]) == [[len(ids) - 1]]
    state = await cypher(house, project, "MATCH (t:Task {task_id: $task}) RETURN t.state, t.version", task=task)
    item = (await house.answer("developer", origin, Get(store="tasks", id=task))).items[0]
    assert state == [[item.body["state"], item.version]]


async def test_cypher_needs_the_right_to_the_projections(house: House, project: str) -> None:
    origin = house.delivery(await house.delegated(project, new_id()))
    for query in (Cypher(query="RETURN 1"), Rebuild(tier="graph", start=True)):
        reply = await house.query("developer", origin, query)
        assert reply.refusal is not None
        assert reply.refusal.kind == "denied"


async def test_a_cypher_query_of_one_project_sees_no_other(house: House, project: str) -> None:
    await line(house, project, new_id())
    assert await cypher(house, f"{project}-b", "MATCH (n) RETURN count(n)") == [[1]]
    assert await cypher(house, f"{project}-b", "MATCH (a:Action) RETURN a") == []
