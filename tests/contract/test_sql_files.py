"""Statements lie in SQL files under their names, and each is used."""

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import pytest
from contract.product import MEMORY_ROOMS, ROOT, sources

from counterpoint.memory.record.sql_files import load_statements, parse_statements

pytestmark = pytest.mark.xdist_group("source")  # the trees of its modules take seconds
MEMORY = ROOT / "services/memory/counterpoint/memory"
SQL = re.compile(r"\s*(?:--|\(?SELECT\b|WITH\b|INSERT\b|UPDATE\b|DELETE\b|CREATE\b)")


def rooms_with_statements() -> list[str]:
    return [room for room in MEMORY_ROOMS if (MEMORY / room / f"{room}.sql").exists()]


def memory_modules(room: str = "") -> Iterator[tuple[Path, ast.Module]]:
    """Modules of the memory service, or of one of its rooms."""
    return ((path, tree) for member, path, tree in sources() if member == "memory" and MEMORY / room in path.parents)


def strings(tree: ast.AST) -> Iterator[tuple[int, str]]:
    """Every string in a tree, with its line; a formatted one without its fields."""
    for node in ast.walk(tree):
        match node:
            case ast.Constant(value=str(text)):
                yield node.lineno, text
            case ast.JoinedStr(values=values):
                yield node.lineno, "".join(str(part.value) for part in values if isinstance(part, ast.Constant))


@pytest.mark.parametrize("room", rooms_with_statements())
def test_named_statements_are_used_and_used_ones_exist(room: str) -> None:
    named = set(load_statements(f"counterpoint.memory.{room}"))
    looked_up = {
        (path.name, str(node.slice.value))
        for path, tree in memory_modules(room)
        for node in ast.walk(tree)
        if isinstance(node, ast.Subscript)
        and isinstance(node.value, ast.Name)
        and node.value.id == "_SQL"
        and isinstance(node.slice, ast.Constant)
    }
    assert {name for _, name in looked_up} <= named, looked_up
    assert named <= {text for _, tree in memory_modules(room) for _, text in strings(tree)}


def test_sql_of_several_lines_lies_in_sql_files() -> None:
    assert not [
        f"{path.relative_to(ROOT)}:{line}"
        for path, tree in memory_modules()
        for line, text in strings(tree)
        if SQL.match(text) and "\n" in text.strip()
    ]


@pytest.mark.parametrize(
    "text",
    [
        "-- name: one\nSELECT 1\n-- name: one\nSELECT 2",
        "-- name: Not Legal\nSELECT 1",
        "-- name: empty\n-- nothing",
        "SELECT 1\n-- name: one\nSELECT 1",
    ],
)
def test_a_file_of_statements_with_a_fault_is_not_loaded(text: str) -> None:
    with pytest.raises(ValueError, match=r"one|Not Legal|empty|before"):
        parse_statements(text)


def test_a_statement_is_the_text_below_its_name() -> None:
    text = "-- A file.\n\n-- name: one\n-- A comment.\nSELECT 1\n\n-- name: two\nSELECT 2\n"
    assert parse_statements(text) == {"one": "-- A comment.\nSELECT 1", "two": "SELECT 2"}
