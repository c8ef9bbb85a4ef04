"""The source of the product: its members and the syntax tree of each module."""

import ast
import gc
from functools import cache
from pathlib import Path

ROOT = Path(__file__).parents[2]
LIBS = sorted(path.name for path in (ROOT / "libs").iterdir() if (path / "pyproject.toml").exists())
SERVICES = sorted(path.name for path in (ROOT / "services").iterdir() if (path / "pyproject.toml").exists())
MEMBERS = {
    "proto": "proto",
    **{name: f"libs/{name}" for name in LIBS},
    **{name: f"services/{name}" for name in SERVICES},
}
"""Each member and its folder."""
MEMORY_ROOMS = (
    "rpc", "operations", "query", "ingest", "maintenance", "projection", "commit", "search", "embedding", "access",
    "provenance", "audit", "cache", "record", "sandbox",
)  # fmt: skip
"""Rooms of the memory service from the top down."""
DEVELOPER_ROOMS = ("agent", "rag", "policies", "evidence", "excerpts", "language")
"""Rooms of the developer from the top down."""


@cache
def sources() -> tuple[tuple[str, Path, ast.Module], ...]:
    """Member, path and tree of every module of the product."""
    found = [
        (member, path, ast.parse(path.read_text(), str(path)))
        for member, folder in MEMBERS.items()
        for path in sorted((ROOT / folder / "counterpoint").rglob("*.py"))
    ]
    gc.freeze()
    return tuple(found)


@cache
def all_modules() -> tuple[tuple[Path, ast.Module], ...]:
    """Path and tree of every module of the product, the tests and the examples."""
    others = (path for folder in ("tests", "examples") for path in sorted((ROOT / folder).rglob("*.py")))
    return (
        *((path, tree) for _, path, tree in sources()),
        *((path, ast.parse(path.read_text(), str(path))) for path in others),
    )


@cache
def walked(tree: ast.AST) -> tuple[ast.AST, ...]:
    """Every node of a tree."""
    return tuple(ast.walk(tree))
