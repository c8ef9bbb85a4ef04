"""A filter is inside the search: k rows come back when k exist, however few of all rows match."""

from typing import Any

import pytest
from memory_service.house import PERSON, House, running_house

from counterpoint.proto.ids import new_id
from counterpoint.proto.memory import HybridSearch, VectorSearch, Write

ROWS, MATCHING = 300, 12


@pytest.fixture(scope="module")
async def house(tmp_path_factory: pytest.TempPathFactory) -> Any:
    async with running_house(tmp_path_factory.mktemp("filtered")) as house:
        yield house


@pytest.fixture(scope="module")
async def project_of_few_matches(house: House) -> str:
    """A project in which few rows match the filter, and all others are nearer."""
    project = f"p-{new_id()}"
    writes = []
    for n in range(ROWS):
        rare = n % (ROWS // MATCHING) == 0
        tried = "something quite different, the cable" if rare else f"restart the resolver, try {n}"
        body = {
            "attempt_id": str(n),
            "tried": tried,
            "error_message": "resolver",
            "outcome": "rare" if rare else "common",
        }
        writes.append(Write(store="attempts", id=f"a{n}", body=body))
    origin = house.delivery(await house.routed(project, new_id()))
    await house.apply("manager", origin, writes=tuple(writes))
    return project


@pytest.mark.parametrize("weight", [None, 0.0, 0.5, 1.0])
async def test_rare_rows_are_all_found_though_the_others_are_nearer(
    house: House, project_of_few_matches: str, weight: float | None
) -> None:
    query: Any = VectorSearch(store="attempts", text="restart the resolver", where={"outcome": "rare"}, k=MATCHING)
    if weight is not None:
        query = HybridSearch(**query.model_dump(exclude={"op"}), vector_weight=weight)
    found = await house.answer("router", house.standing(project_of_few_matches, principal=PERSON), query)
    assert len(found.items) == MATCHING
    assert {each.body["outcome"] for each in found.items} == {"rare"}
    assert found.plan == "exact"


async def test_a_filter_that_nothing_matches_finds_nothing(house: House) -> None:
    project = f"p-{new_id()}"
    origin = house.delivery(await house.routed(project, new_id()))
    body = {"attempt_id": "a", "tried": "restart", "error_message": "x", "outcome": "common"}
    await house.apply("manager", origin, writes=(Write(store="attempts", id="a", body=body),))
    query = HybridSearch(store="attempts", text="restart", where={"outcome": "rare"})
    assert not (await house.answer("router", house.standing(project, principal=PERSON), query)).items
