"""The lineage graph as it was known at an earlier moment."""

from typing import Any

import pytest
from memory_service.house import PERSON, House

from counterpoint.graph.edges import EdgeKind, LineageEdge, edge
from counterpoint.graph.lineage import blast_radius_of, lineage_of
from counterpoint.graph.names import dataset, job
from counterpoint.proto.errors import Permanent
from counterpoint.proto.memory import Write

FETCH, CLEAN, REPORT, ORDERS = job("n", "fetch"), job("n", "clean"), job("n", "report"), dataset("file", "orders")


class Reader:
    """Queries as the router's, on behalf of a person."""

    def __init__(self, house: House, project: str) -> None:
        self._house = house
        self._project = project

    async def query(self, *queries: Any) -> tuple[Any, ...]:
        origin = self._house.standing(self._project, principal=PERSON)
        reply = await self._house.query("router", origin, *queries)
        if reply.refusal is not None:
            raise Permanent(reply.refusal.code)
        return reply.found


async def record_edges(house: House, project: str, *edges: LineageEdge) -> str:
    writes = tuple(Write(store="edges", id=each.id, body=each.model_dump(mode="json")) for each in edges)
    await house.apply("lineage", house.standing(project), writes=writes)
    async with house.superuser() as connection:
        where = "project = $1 AND store = 'edges' AND id = $2"
        return str(await connection.fetchval(f"SELECT commit_id FROM records WHERE {where}", project, edges[0].id))


async def test_edges_that_came_later_are_left_out(house: House, project: str) -> None:
    first = await record_edges(house, project, edge(EdgeKind.DATA, FETCH, ORDERS), edge(EdgeKind.DATA, ORDERS, CLEAN))
    second = await record_edges(house, project, edge(EdgeKind.DATA, ORDERS, REPORT))
    memory = Reader(house, project)

    async def below(as_of: str | None) -> set[str]:
        return {row.name for row in (await blast_radius_of(memory, FETCH, as_of=as_of)).downstream}

    assert await below(None) == await below(second) == {"orders", "clean", "report"}
    assert await below(first) == {"orders", "clean"}
    assert await below("2001-01-01T00:00:00Z") == set()
    for as_of, around in ((first, {"clean", "orders", "fetch"}), (second, {"clean", "orders", "fetch"})):
        found = await lineage_of(memory, CLEAN, as_of=as_of)
        assert {each.node.name for each in found.nodes} == around
    found = await lineage_of(memory, REPORT, as_of=first)
    assert [each.node.name for each in found.nodes] == ["report"]


@pytest.mark.parametrize(
    ("as_of", "code"), [("yesterday", "invalid"), ("0" * 8 + "-0000-7000-8000-" + "0" * 12, "unknown_commit")]
)
async def test_an_invalid_moment_is_refused(house: House, project: str, as_of: str, code: str) -> None:
    await record_edges(house, project, edge(EdgeKind.DATA, FETCH, ORDERS))
    with pytest.raises(Permanent) as refused:
        await lineage_of(Reader(house, project), FETCH, as_of=as_of)
    assert refused.value.code == code
