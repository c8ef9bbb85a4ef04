"""Contents of a store at any past commit, against a model of every version, in any order of writes and deletions."""

import json
from typing import Any

import pytest
from memory_service.house import House
from memory_service.leaves import leaf_bodies

from counterpoint.memory.query import as_of
from counterpoint.proto.ids import new_id
from counterpoint.proto.memory import Get, HybridSearch, Line, List, MemoryQuery, QueryResult, VectorSearch, Write

IDS = ("a", "b", "c")


def attempt(tried: str) -> dict[str, Any]:
    return {"attempt_id": "a", "tried": tried, "error_message": "", "description": ""}


async def commit_of(house: House, project: str, seq: int) -> str:
    """The commit that took a place in the order of a project."""
    async with house.superuser() as connection:
        return str(
            await connection.fetchval(
                "SELECT commit_id FROM records WHERE project = $1 AND seq = $2 UNION ALL"
                " SELECT commit_id FROM history WHERE project = $1 AND seq = $2",
                project,
                seq,
            )
        )


async def write(house: House, project: str, record: str, body: dict[str, Any] | None, expect: int) -> str:
    """A version of an entity, written by memory's own hand; its commit."""
    origin = house.standing(project)
    await house.apply("memory", origin, writes=(Write(store="entities", id=record, body=body, expect=expect),))
    async with house.superuser() as connection:
        return str(
            await connection.fetchval(
                "SELECT commit_id FROM records WHERE project = $1 AND store = 'entities' AND id = $2", project, record
            )
        )


async def stood(house: House, project: str, query: MemoryQuery) -> QueryResult:
    return await house.answer("manager", house.delivery(await house.routed(project, new_id())), query)


@pytest.mark.parametrize("seed", range(3))
async def test_a_query_as_of_a_commit_shows_the_versions_of_that_time(house: House, project: str, seed: int) -> None:
    present: dict[str, tuple[int, dict[str, Any] | None]] = {}
    moments: list[tuple[str, dict[str, tuple[int, dict[str, Any]]]]] = []
    for n in range(18):
        record = IDS[(n * (seed + 2) + n // 3) % 3]
        version, body = present.get(record, (0, None))
        deletes = body is not None and (n + seed) % 4 == 3
        new = None if deletes else {"name": f"{record} {n}", "n": n}
        commit = await write(house, project, record, new, version)
        present[record] = (version + 1, new)
        moments.append((commit, {each: (v, b) for each, (v, b) in present.items() if b is not None}))
    for commit, expected in moments:
        listed = await stood(house, project, List(store="entities", as_of=commit))
        assert {each.id: (each.version, each.body) for each in listed.items} == expected
        for record in IDS:
            got = await stood(house, project, Get(store="entities", id=record, as_of=commit))
            assert [(each.version, each.body) for each in got.items] == (
                [expected[record]] if record in expected else []
            )


async def test_a_page_goes_on_where_it_ended(house: House, project: str) -> None:
    last = ""
    for n in range(7):
        last = await write(house, project, f"r{n}", {"n": n}, 0)
    for n in range(7):
        await write(house, project, f"r{n}", {"n": -n}, 1)
    seen, cursor = [], None
    while True:
        page = await stood(house, project, List(store="entities", as_of=last, limit=3, cursor=cursor))
        seen += [each.body["n"] for each in page.items]
        cursor = page.next_cursor
        if cursor is None:
            break
    assert seen == [6, 5, 4, 3, 2, 1, 0]


async def test_filters_as_of_a_commit_apply_to_the_versions_of_that_time(house: House, project: str) -> None:
    before = await write(house, project, "x", {"state": "open"}, 0)
    await write(house, project, "x", {"state": "closed"}, 1)
    for state, count in (("open", 1), ("closed", 0)):
        found = await stood(house, project, List(store="entities", where={"state": state}, as_of=before))
        assert len(found.items) == count


async def test_a_search_as_of_a_commit_finds_the_texts_of_that_time(house: House, project: str) -> None:
    task = new_id()
    origin = house.delivery(await house.delegated(project, task))
    await house.apply(
        "developer",
        origin,
        step="one",
        last=False,
        writes=(Write(store="attempts", id="a", body=attempt("open the firewall")),),
    )
    async with house.superuser() as connection:
        commit = await connection.fetchval("SELECT commit_id FROM records WHERE project = $1 AND id = 'a'", project)
    await house.apply(
        "developer", origin, writes=(Write(store="attempts", id="a", body=attempt("renew the certificate"), expect=1),)
    )
    search = HybridSearch(store="attempts", text="open the firewall", as_of=str(commit))
    found = await stood(house, project, search)
    assert [each.body["tried"] for each in found.items] == ["open the firewall"]
    assert (found.plan, found.partial) == ("as of, exact", False)


async def test_a_search_of_the_past_is_marked_as_partial_over_the_row_limit(
    house: House, project: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(as_of, "EXACT_ROWS", 2)
    origin = house.delivery(await house.delegated(project, new_id()))
    writes = tuple(Write(store="attempts", id=name, body=attempt(f"try {name}")) for name in "abc")
    await house.apply("developer", origin, writes=writes)
    search = VectorSearch(store="attempts", text="try a", as_of="2100-01-01T00:00:00Z")
    found = await stood(house, project, search)
    assert (sorted(each.id for each in found.items), found.partial) == (["b", "c"], True)


async def test_a_line_as_it_was(house: House, project: str) -> None:
    task = new_id()
    origin = house.delivery(await house.delegated(project, task))
    commits = []
    for n in range(3):
        body = {"action_id": f"{task}-{n}", "task_id": task, "agent": "developer", "kind": "look", "reasoning": str(n)}
        await house.apply(
            "developer", origin, step=str(n), last=False, writes=(Write(store="actions", id=f"{task}-{n}", body=body),)
        )
        async with house.superuser() as connection:
            commits.append(str(await connection.fetchval("SELECT commit_id FROM records WHERE id = $1", f"{task}-{n}")))
    for n, commit in enumerate(commits):
        line = await house.answer("developer", origin, Line(task_id=task, as_of=commit))
        assert [each.body["reasoning"] for each in line.items] == [str(m) for m in range(n + 1)]


async def test_a_commit_of_another_project_is_unknown(house: House, project: str) -> None:
    commit = await write(house, f"{project}-b", "x", {"n": 1}, 0)
    origin = house.standing(project, principal="administrator")
    for moment, code in ((commit, "unknown_commit"), (new_id(), "unknown_commit"), ("yesterday", "invalid")):
        await house.refusal("router", origin, code, List(store="entities", as_of=moment))


async def test_a_time_is_a_moment_too(house: House, project: str) -> None:
    await write(house, project, "x", {"n": 1}, 0)
    async with house.superuser() as connection:
        at = await connection.fetchval("SELECT clock_timestamp()")
    await write(house, project, "x", {"n": 2}, 1)
    found = await stood(house, project, Get(store="entities", id="x", as_of=at.isoformat()))
    assert found.items[0].body == {"n": 1}
    found = await stood(house, project, Get(store="entities", id="x", as_of="2020-01-01T00:00:00Z"))
    assert not found.items


async def test_commits_applied_together_are_moments_apart(house: House, project: str) -> None:
    origins = [house.standing(project) for _ in range(4)]
    writes = [(Write(store="entities", id=f"r{n}", body={"n": n}),) for n in range(3)]
    await house.together(
        *(
            house.apply("memory", origin, writes=each)
            for origin, each in zip(origins, [*writes[:2], (), writes[2]], strict=True)
        )
    )
    async with house.superuser() as connection:
        leaves = [json.loads(body) for body in await leaf_bodies(connection, "project = $1", project)]
    wrote = dict(zip((origin.message_id for origin in origins), ("r0", "r1", None, "r2"), strict=True))
    stand: set[str] = set()
    for leaf in leaves:
        record = wrote[leaf["message"]]
        stand |= {record} if record else set()
        found = await stood(house, project, List(store="entities", as_of=leaf["commit"]))
        assert {each.id for each in found.items} == stand
    assert len(stand) == 3
