"""Writes to the line's graph cost no more as the graph grows."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import ladybug
import pytest

from counterpoint.memory.projection.line_graph import LINKS, SCHEMA, write
from counterpoint.memory.projection.tier import RecordChange, TierPosition


@pytest.mark.parametrize("kind", LINKS)
def test_nodes_are_linked_by_their_keys(tmp_path: Path, kind: str) -> None:
    with ladybug.Database(tmp_path / "line.lbug") as database, ladybug.Connection(database) as connection:
        for statement in filter(str.strip, SCHEMA.split(";")):
            connection.execute(statement)
        links = {"links": [{"one": "a", "other": "b"}]}
        with connection.execute(f"EXPLAIN UNWIND $links AS l {LINKS[kind]} RETURN l.one", links) as answer:
            plan = "\n".join(str(row) for row in answer)
    assert plan.count("PRIMARY_KEY_LOOKUP") == 2
    assert "CROSS_PRODUCT" not in plan


def test_new_nodes_are_not_merged_with_the_others() -> None:
    statements = list[str]()

    def run(query: str, parameters: Mapping[str, Any]) -> list[list[Any]]:
        statements.append(query)
        return []

    action = RecordChange("p", "actions", "a1", 1, 1, "router", 1, "t1", body={"agent": "router", "task_id": "t1"})
    task = RecordChange("p", "tasks", "t1", 1, 2, "manager", 1, "t1", body={"state": "planned"})
    write(run, [action, task], TierPosition("life", 2), 1)
    assert sum("CREATE (:Action " in each or "CREATE (:Task " in each for each in statements) == 2
    assert not any("MERGE (n:" in each for each in statements)
