"""A search by a type that no document has is an error that names the field and the types."""

from typing import Any

import pytest
from ui.http_front import RunningFront
from ui.mcp_front import mcp_front

from counterpoint.router.mcp.problems import META

RECIPE = {"source": "recipes/bread.md", "title": "Bread", "type": "markdown", "metadata": {"doc_type": "recipe"}}


@pytest.mark.parametrize(
    ("where", "field", "named"),
    [
        ({"type": "recipe"}, "where.type", "markdown"),
        ({"metadata": {"doc_type": "recipes"}}, "where.metadata.doc_type", "recipe"),
    ],
)
async def test_a_search_by_an_unknown_type_names_the_field_and_the_types(
    front: RunningFront, where: dict[str, Any], field: str, named: str
) -> None:
    front.house.put("documents", "d1", RECIPE)
    response = await front.me.post("/v1/search", json={"text": "bread", "where": where})
    assert (response.status_code, response.json()["code"]) == (422, "invalid")
    (error,) = response.json()["errors"]
    assert error["field"] == field
    assert named in error["problem"].partition("known are ")[2].split(", ")


@pytest.mark.parametrize(
    "where", [{}, {"type": "pdf"}, {"metadata": {"doc_type": "adr"}}, {"metadata": {"doc_type": "recipe"}}]
)
async def test_a_search_by_a_known_type_may_find_nothing(front: RunningFront, where: dict[str, Any]) -> None:
    front.house.put("documents", "d1", RECIPE)
    response = await front.me.post("/v1/search", json={"text": "bread", "where": where})
    assert (response.status_code, response.json()["items"]) == (200, [])


async def test_an_agent_learns_which_types_there_are() -> None:
    async with mcp_front() as mcp, mcp.client() as client:
        mcp.house.put("documents", "d1", RECIPE)
        given = {"query": "bread", "doc_types": ["adr", "recipes"]}
        refused = await client.call_tool("query_rag", given, raise_on_error=False)
        found = await client.call_tool("query_rag", given | {"doc_types": ["adr", "recipe", "text"]})
    assert refused.is_error
    assert refused.meta is not None
    (error,) = refused.meta[META]["errors"]
    assert error["field"] == "doc_types[1]"
    assert {"adr", "markdown", "recipe"} <= set(error["problem"].partition("known are ")[2].split(", "))
    assert found.structured_content is not None
    assert found.structured_content["items"] == []
