"""What the line's graph writes costs no more for there being more of it."""

from pathlib import Path

import ladybug
import pytest

from counterpoint.memory.projection.line_graph import LINKS, SCHEMA


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
