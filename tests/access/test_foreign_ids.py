"""An id is no capability: what another project holds is asked for, changed and deleted as if it did not exist.

And no name opens more than it says: wildcards, prefixes, look-alikes, empty and missing ones are refused, or name
nothing.
"""

import json
from typing import Any

import pytest
from memory_service.house import PERSON, House
from memory_service.learning_project import ingest, learn
from pydantic import ValidationError

from counterpoint.proto.memory import (
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
    QueryRequest,
    VectorSearch,
    Write,
)

NAMES = (
    "*",
    ">",
    "%",
    "_",
    "p*",
    "%%",
    "..",
    "",
    " ",
    "null",
    "None",
    "undefined",
    "default",
    "shared",
    "_system",
    ".*",
)
"""Names that elsewhere stand for everybody, or for nobody."""
STORES = ("tasks", "attempts", "decisions", "actions", "sessions", "plans", "documents", "chunks", "submissions")


def like(name: str) -> tuple[str, ...]:
    """Names that look like another, begin like it, or would match it."""
    names = (
        name.upper(),
        name[:-1],
        f"{name}0",
        f"{name} ",
        f"{name}\n",
        f"{name[:-1]}*",
        f"{name[:-1]}%",
        f"{name[:-1]}_",
        name.replace("p", "\u0440"),
        name.replace("-", "\u2011"),
        name.replace("0", "\uff10"),
        f"{name}/../{name}",
        f"{name}\u200b",
    )
    return tuple(each for each in names if each != name)


async def fill_project(house: House, project: str) -> dict[str, str]:
    """A project with something in every store that is asked for: a record of each."""
    await ingest(house, project, "To repair the orders pipeline, restart the worker.")
    await learn(house, project, "t-1")
    submission = Write(store="submissions", id=f"sub-{project[-6:]}", body={"state": "x"})
    await house.apply("router", house.standing(project), writes=(submission,))
    listed = {}
    for store in STORES:
        found = await house.answer("router", house.standing(project), List(store=store, limit=1))
        listed[store] = found.items[0].id
    return listed


async def answer_to(house: House, project: str, query: MemoryQuery) -> dict[str, Any]:
    """All that is answered, without the time that it took and the id of its own leaf."""
    reply = (await house.query("router", house.standing(project), query)).model_dump(mode="json")
    for found in reply["found"]:
        found.pop("took_us")
    if reply["refusal"]:
        reply["refusal"].pop("id")
    return reply


@pytest.fixture
async def neighbour(house: House, project: str) -> dict[str, str]:
    """Return the records of a neighbouring project, `<project>-b`."""
    return await fill_project(house, f"{project}-b")


@pytest.mark.parametrize(
    "illegal",
    ["../../x", "..", "./x", "", " x", "x\n", "a\x00b", "a\x1b[2Jb", "a\u2028b", "a\u202eb", "a\u2066b", "x" * 4096],
)
async def test_a_record_with_an_illegal_id_is_refused(house: House, project: str, illegal: str) -> None:
    write = Write(store="submissions", id=illegal, body={})
    refusal = await house.refusal("router", house.standing(project), "invalid", writes=(write,))
    assert [problem.field for problem in refusal.problems] == ["writes.submissions.id"]


async def test_a_foreign_id_is_answered_like_an_unknown_one(
    house: House, project: str, neighbour: dict[str, str]
) -> None:
    async with house.superuser() as connection:
        at = f"SELECT commit_id::text FROM records WHERE project = '{project}-b' AND store = 'tasks'"
        commit = await connection.fetchval(at)
    refused = await house.refusal("router", house.standing(f"{project}-b"), "store", Get(store="routes", id="r"))
    nobodys = "01900000-0000-7000-8000-000000000000"
    for store, foreign in neighbour.items():
        for ask in (
            lambda one, store=store: Get(store=store, id=one),
            lambda one, store=store: Dependents(store=store, id=one),
            lambda one, store=store: List(store=store, where={"task_id": one}),
            lambda one, store=store: List(store=store, task_id=one),
        ):
            assert blank(await answer_to(house, project, ask(foreign)), foreign) == blank(
                await answer_to(house, project, ask(nobodys)), nobodys
            )
    for ask, foreign in (
        (lambda one: Line(task_id=one), "t-1"),
        (lambda one: LogAfter(after=0, task_id=one), "t-1"),
        (lambda one: EdgeWalk(store="edges", start=(one,)), "t-1"),
        (lambda one: Get(store="tasks", id="t-1", as_of=one), commit),
        (lambda one: List(store="tasks", as_of=one), commit),
        (lambda one: Explain(id=one), str(refused.id)),
    ):
        mine = await answer_to(house, project, ask(foreign))
        assert blank(mine, foreign) == blank(await answer_to(house, project, ask(nobodys)), nobodys)
        assert not any(found["items"] for found in mine["found"])
    for proof in (Prove(task_id="t-1"), Prove(id=str(refused.id))):
        assert (await house.report(project, proof))["leaves"] == []


async def test_changes_of_a_foreign_record_are_answered_like_those_of_an_unknown_one(
    house: House, project: str, neighbour: dict[str, str]
) -> None:
    manager = await house.routed(project, "t-9")
    before = {store: await house.body(f"{project}-b", store, one) for store, one in neighbour.items()}
    for caller, store in (("router", "submissions"), ("manager", "attempts"), ("manager", "plans")):
        for body in ({"state": "mine"}, None):
            for expect in (1, 2, 7):
                answered = []
                for one in (neighbour[store], "nobodys"):
                    origin = house.standing(project) if caller == "router" else house.delivery(manager)
                    write = Write(store=store, id=one, body=body, expect=expect)
                    reply = await house.commit(caller, origin, step=f"{one} {store} {body} {expect}", writes=(write,))
                    assert reply.status == "refused"
                    assert reply.refusal is not None
                    answered.append(blank(reply.model_dump(mode="json", exclude={"refusal": {"id"}}), one))
                assert answered[0] == answered[1]
    for kind in ("quarantine", "rollback"):
        answered = []
        for one in (neighbour["documents"], "nobodys"):
            wish = Write(store="quarantines", id=f"q-{kind}-{one}", body={
                "kind": kind, "store": "documents", "id": one, "reason": "wrong"})  # fmt: skip
            reply = await house.commit("router", house.standing(project, principal=PERSON), writes=(wish,))
            assert reply.refusal is not None
            answered.append(blank(reply.model_dump(mode="json", exclude={"refusal": {"id"}}), one))
        assert answered[0] == answered[1]
    assert {store: await house.body(f"{project}-b", store, one) for store, one in neighbour.items()} == before


def blank(told: Any, name: str) -> Any:
    """An answer without the id that was asked for."""
    return json.loads(json.dumps(told).replace(name, "?"))


async def test_lookalikes_of_an_id_find_nothing(house: House, project: str) -> None:
    mine = await fill_project(house, project)
    for store, one in mine.items():
        for name in (*NAMES, *like(one)):
            found = await house.query("router", house.standing(project), Get(store=store, id=name))
            assert not any(each.items for each in found.found), (store, name)
    for name in (*NAMES, *like("t-1")):
        for query in (
            List(store="actions", task_id=name),
            List(store="actions", where={"task_id": name}),
            List(store="tasks", where={"state": name}),
            Line(task_id=name),
            LogAfter(after=0, task_id=name),
            EdgeWalk(store="edges", start=(name,)),
        ):
            found = await house.query("router", house.standing(project), query)
            assert not any(each.items for each in found.found), query


@pytest.mark.parametrize("where", [None, {}, [], "", "*", ["t-1"], {"$ne": None}, {"$exists": True}])
async def test_a_value_that_is_no_text_matches_itself_alone(house: House, project: str, where: Any) -> None:
    """None is not None: what has no such field is not what has an empty one (elsewhere two missing scopes matched)."""
    await fill_project(house, project)
    for store in ("tasks", "actions", "attempts", "submissions"):
        found = await house.query("router", house.standing(project), List(store=store, where={"user_id": where}))
        assert not any(each.items for each in found.found), (store, where)


async def test_lookalikes_of_a_project_hold_none_of_its_records(house: House, project: str) -> None:
    mine = await fill_project(house, project)
    for name in (*NAMES, *like(project), None):
        try:
            origin = Origin(message_id="m", project=name)
        except ValidationError:
            continue
        for store, one in mine.items():
            for query in (Get(store=store, id=one), List(store=store, task_id="t-1")):
                (found,) = (await house.query("router", house.standing(origin.project), query)).found
                assert not any(item.project == project for item in found.items)
                assert not any(item.id == one for item in found.items if store != "tasks" or item.project == project)
        for search in (VectorSearch(store="chunks", text="restart"), HybridSearch(store="attempts", text="restart")):
            (found,) = (await house.query("router", house.standing(origin.project), search)).found
            assert not any(item.project == project for item in found.items)


@pytest.mark.parametrize(
    "store", [*NAMES, "Tasks", "tasks ", "tasks\n", "t\u0430sks", "records", "records;--", "tasks,plans"]
)
async def test_an_unknown_store_is_refused(house: House, project: str, store: str) -> None:
    for query in (Get(store=store, id="t-1"), List(store=store), VectorSearch(store=store, text="a")):
        await house.refusal("router", house.standing(project), "store", query)
    await house.refusal("router", house.standing(project), "store", writes=(Write(store=store, id="x", body={}),))


@pytest.mark.parametrize("field", ["project", "task_id", "store", "id"])
async def test_a_missing_name_is_no_wildcard(house: House, project: str, field: str) -> None:
    await fill_project(house, project)
    origin = house.standing(project).model_dump(mode="json")
    query: dict[str, Any] = {"op": "get", "store": "tasks", "id": "t-1"}
    if field == "task_id":
        query = {"op": "line"}
    target = origin if field == "project" else query
    for gone in (True, False):
        target.pop(field, None) if gone else target.update({field: None})
        raw = json.dumps({"origin": origin, "queries": [query]}).encode()
        with pytest.raises(ValidationError):
            QueryRequest.model_validate_json(raw)
        reply = json.loads(await house.door.query("router", raw))
        assert reply["refusal"]["code"] == "invalid"
        assert not reply.get("found")
