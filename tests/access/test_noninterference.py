"""The contents of a project change no answer to another: no id, order, score, count, cursor or plan.

A project is asked everything with a neighbour that holds nothing, then the same ids, texts and sources as itself, then
more, other and less. A project that was there before its neighbour is compared with itself, and one that came after
with one that came first.
"""

import json
import random
import re
from collections.abc import Sequence
from typing import Any

import pytest
from memory_service.house import PERSON, House
from memory_service.learning_project import learn

from counterpoint.proto.ingest import Document, IngestReply, IngestRequest
from counterpoint.proto.memory import (
    Cypher,
    Dependents,
    EdgeWalk,
    Explain,
    Get,
    HybridSearch,
    Line,
    List,
    LogAfter,
    MemoryQuery,
    Origin,
    Prove,
    QueryResult,
    VectorSearch,
    Write,
)

SEEDS = (1,)
MORE_SEEDS = (2, 3, 4, 5, 6, 7, 8, 9, 10)
TASKS, SOURCES, EPISODES, NODES = 2, 4, 6, 6
WORDS = (
    "repair restart drop check open close read write move copy lose find the orders pipeline worker task table queue "
    "port firewall resolver clean_orders ORA-12170 disk when after before because and then unless slowly again at_once"
)
_ID = re.compile(
    r"[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}|\b[0-9a-f]{32,64}\b"
    r"|(?<![A-Za-z0-9_-])[A-Za-z0-9_-]{43}(?![A-Za-z0-9_-])"
)
_MOMENT = re.compile(r'(placed\\*":\[\d+,\d+),\d{16}(?=])')
"""Time at which a leaf was placed, in microseconds."""
_TIME = re.compile(r"\d{4}-\d\d-\d\d(T|t| )\d\d:\d\d:\d\d[.\d]*(Z|[+]\d\d:\d\d)?")
EVERY_SEED = [*SEEDS, *(pytest.param(seed, marks=pytest.mark.slow) for seed in MORE_SEEDS)]


def sentence(draw: random.Random) -> str:
    """Some words of the trade."""
    return " ".join(draw.choices(WORDS.split(), k=draw.randrange(6, 20))) + "."


class Content:
    """Contents of a project by seed: the same ids, texts and sources wherever it is written."""

    def __init__(self, seed: int) -> None:
        draw = random.Random(seed)
        self.documents = {f"runbook-{n}.md": "\n\n".join(sentence(draw) for _ in range(3)) for n in range(SOURCES)}
        self.episodes = {f"e-{n}": sentence(draw) for n in range(EPISODES)}
        pairs = [(f"job:{draw.randrange(NODES)}", f"job:{draw.randrange(NODES)}") for _ in range(2 * NODES)]
        self.edges = {f"edge-{n}": {"kind": "data", "source": one, "target": two} for n, (one, two) in enumerate(pairs)}
        self.questions = (sentence(draw), "repair the orders pipeline")


async def fill(house: House, project: str, content: Content) -> None:
    """Write it all, as the services do."""
    await ingested(house, project, content.documents)
    for n in range(TASKS):
        await learn(house, project, f"t-{n}")
    edges = tuple(Write(store="edges", id=name, body=body) for name, body in content.edges.items())
    await house.apply("lineage", house.standing(project), writes=edges)
    developer = house.delivery(await house.delegated(project, "t-e"))
    episodes = tuple(
        Write(store="coder_memory", id=name, body={"agent": "developer", "text": text, "success": len(text) % 2 == 0})
        for name, text in content.episodes.items()
    )
    await house.apply("developer", developer, writes=episodes)
    for _ in range(3):
        await house.refusal("router", house.standing(project, "t-0"), "store", writes=(Write(store="tasks", id="t"),))


async def change(house: House, project: str, seed: int) -> None:
    """Other texts in the same places, some of them gone, and much more of all."""
    draw = random.Random(f"other {seed}")
    documents = {f"runbook-{n}.md": sentence(draw) for n in range(2 * SOURCES)}
    documents["runbook-0.md"] = "repair the orders pipeline " * 20
    await ingested(house, project, documents)
    gone = tuple(Write(store="edges", id=f"edge-{n}", expect=1) for n in range(NODES))
    await house.apply("lineage", house.standing(project), writes=gone)
    await learn(house, project, "t-9")
    developer = house.delivery(await house.delegated(project, "t-f"))
    episodes = tuple(
        Write(
            store="coder_memory", id=f"e-{n}", body={"agent": "developer", "text": sentence(draw)}, expect=n < EPISODES
        )
        for n in range(3 * EPISODES)
    )
    await house.apply("developer", developer, writes=episodes)
    await house.refusal("router", house.standing(project, "t-0"), "store", writes=(Write(store="tasks", id="t"),))


async def ingested(house: House, project: str, documents: dict[str, str]) -> None:
    """One after the other: those of one request are written in whatever order they are done."""
    for source, text in documents.items():
        origin = house.standing(project, principal=PERSON)
        request = IngestRequest(origin=origin, documents=(Document(source=source, text=text),))
        reply = IngestReply.model_validate_json(await house.door.ingest("router", request.model_dump_json().encode()))
        assert {each.status for each in reply.documents} <= {"added", "replaced"}, reply


async def answers(house: House, project: str, content: Content, moments: Sequence[str]) -> dict[str, Any]:
    """Everything that can be asked, with what was answered."""
    router = house.standing(project)
    developer = house.delivery(await once(house, project, "t-d"))
    stores = ("documents", "chunks", "tasks", "attempts", "decisions", "actions", "sessions", "plans", "edges")
    asked: list[tuple[str, Origin, MemoryQuery]] = []
    for as_of in (None, *moments):
        for store in stores:
            asked.append(("router", router, List(store=store, limit=2, as_of=as_of)))
            asked.append(("router", router, List(store=store, ascending=True, as_of=as_of)))
        for store, name in (("tasks", "t-0"), ("attempts", "t-0-1"), ("edges", "edge-3"), ("edges", "none")):
            asked.append(("router", router, Get(store=store, id=name, as_of=as_of)))
        asked.append(("router", router, List(store="tasks", where={"state": "completed"}, as_of=as_of)))
        asked.append(("router", router, List(store="edges", where={"source": "job:1"}, limit=1, as_of=as_of)))
        asked.append(("router", router, List(store="edges", where={"kind": "data"}, limit=3, as_of=as_of)))
        asked.append(("router", router, List(store="attempts", task_id="t-0", as_of=as_of)))
        asked += [("router", router, Line(task_id=task, newest_first=True, as_of=as_of)) for task in ("t-0", "t-9")]
        for text in content.questions:
            for store in ("chunks", "attempts"):
                asked.append(("router", router, VectorSearch(store=store, text=text, k=4, as_of=as_of)))
                asked += [
                    ("router", router, HybridSearch(store=store, text=text, k=20, vector_weight=weight, as_of=as_of))
                    for weight in (0.0, 0.5)
                ]
            asked.append(("developer", developer, VectorSearch(store="coder_memory", text=text, k=3, as_of=as_of)))
            wanted = {"success": True}
            asked.append(("developer", developer, HybridSearch(store="coder_memory", text=text, where=wanted)))
    for direction in ("down", "up"):
        asked.append(("router", router, EdgeWalk(store="edges", start=("job:1", "job:2"), direction=direction)))
    asked += [("router", router, LogAfter(after=after, limit=3, kinds=("tasks", "changes"))) for after in (0, 5, 1000)]
    asked += [("router", router, Dependents(store="documents", id=name)) for name in await documents(house, project)]
    asked.append(("router", router, Dependents(store="tasks", id="t-0")))
    asked += [("router", router, Explain(limit=limit)) for limit in (1, 2, 10)]
    asked += [("router", router, Prove(task_id=task)) for task in ("t-0", "t-9")]
    for cypher in ("MATCH (a:Action)-[:PART_OF]->(t:Task) RETURN t.task_id, a.action_id ORDER BY a.action_id",
                   "MATCH (n) RETURN count(n)"):  # fmt: skip
        asked.append(("router", router, Cypher(query=cypher)))
    for tier in (house.tiers.episodic, house.tiers.graph):
        assert await tier.caught_up(project, 30)
    told = {}
    for caller, origin, query in asked:
        found = await house.answer(caller, origin, query)
        told[query.model_dump_json(exclude_none=True)] = visible_part(found, query)
    return told


def visible_part(found: QueryResult, query: MemoryQuery) -> dict[str, Any]:
    """An answer but for what it took. The log of all projects is one tree, so of proofs only what is proved counts."""
    told = found.model_dump(mode="json", exclude={"took_us", "cache"})
    if isinstance(query, Prove):
        told["report"] = [
            {k: leaf[k] for k in ("leaf", "salt", "previous", "body")} for leaf in told["report"]["leaves"]
        ]
    return told


async def once(house: House, project: str, task: str) -> str:
    """The message of a task that was delegated, the same at every call."""
    known = [key for key, sent in house.sent.items() if sent.project == project and sent.row.task_id == task]
    delegated = [key for key in known if house.sent[key].row.audience == ("developer",)]
    return delegated[0] if delegated else await house.delegated(project, task)


async def documents(house: House, project: str) -> list[str]:
    found = await house.answer("router", house.standing(project), List(store="documents", ascending=True))
    return [each.id for each in found.items]


async def moments(house: House, project: str) -> list[str]:
    """A commit of the project, and a time between two others."""
    async with house.superuser() as connection:
        row = await connection.fetchrow(
            "SELECT commit_id, at FROM records WHERE project = $1 ORDER BY seq OFFSET 12 LIMIT 1", project
        )
    return [str(row["commit_id"]), row["at"].isoformat()]


@pytest.mark.parametrize("seed", EVERY_SEED)
@pytest.mark.parametrize("indexed", [False, True], ids=["exact", "indexed"])
async def test_no_answer_depends_on_the_contents_of_another_project(
    house: House, project: str, seed: int, indexed: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    content, other = Content(seed), f"{project}-b"
    await fill(house, project, content)
    if indexed:
        monkeypatch.setattr(house.search, "_exact_rows", 0)
        await house.index(project)
    await once(house, project, "t-d")
    then = await moments(house, project)
    alone = await answers(house, project, content, then)
    assert await answers(house, project, content, then) == alone
    await fill(house, other, content)
    assert await answers(house, project, content, then) == alone
    await change(house, other, seed)
    assert await answers(house, project, content, then) == alone
    found = [told for told in alone.values() if told["items"]]
    assert len(found) > len(alone) / 2
    plans = {told["plan"] for told in alone.values()}
    assert {"primary key", "list", "task index", "recursive", "log", "nearest", "as of", "cypher", "influence"} <= plans
    assert ("indexed" in plans) == indexed


@pytest.mark.parametrize("seed", EVERY_SEED)
async def test_a_project_after_its_neighbours_has_the_answers_of_the_first(
    house: House, project: str, seed: int
) -> None:
    content = Content(seed)
    places = (f"{project}-a", f"{project}-b", f"{project}-c")
    told = []
    for place in places:
        await fill(house, place, content)
        await once(house, place, "t-d")
        told.append(nameless(await answers(house, place, content, await moments(house, place)), place))
        await change(house, place, seed)
    assert told[0] == told[1] == told[2]


def nameless(told: dict[str, Any], project: str) -> str:
    """The answers without what has to differ: the project's name, times, random ids and hashes, each by its place."""
    text = _TIME.sub("T", json.dumps(told).replace(project, "P"))
    text = _MOMENT.sub(r"\1,T", text)
    places: dict[str, str] = {}
    return _ID.sub(lambda found: places.setdefault(found.group(), f"#{len(places)}"), text)
