"""Named SQL statements: each room keeps its own in one file, `<room>/<room>.sql`.

A line `-- name: tasks_of_project` begins a statement, the next such line or the end of the file ends it. A statement
with `{fields}` is a template; its module fills in fragments of SQL, never values.
"""

import re
from collections.abc import Mapping
from functools import cache
from importlib.resources import files
from types import MappingProxyType

_NAME = re.compile(r"^-- name:(.*)$", re.MULTILINE)
_LEGAL = re.compile(r"[a-z][a-z0-9_]*")


@cache
def load_statements(package: str) -> Mapping[str, str]:
    """Return the statements of a room by name; `package` is the `__package__` of a module in it.

    Raises `ValueError` as `parse_statements` does.
    """
    return parse_statements(files(package).joinpath(f"{package.rpartition('.')[2]}.sql").read_text(encoding="utf-8"))


def parse_statements(text: str) -> Mapping[str, str]:
    """Return the statements of a file by name. Raises `ValueError` for an illegal name, a name that occurs twice, a
    statement without text, and text without a name."""
    head, *parts = _NAME.split(text)
    if _without_comments(head):
        raise ValueError(f"SQL before the first name: {_without_comments(head)[:60]}")
    statements: dict[str, str] = {}
    for name, statement in zip(map(str.strip, parts[::2]), parts[1::2], strict=True):
        if not _LEGAL.fullmatch(name):
            raise ValueError(f"{name!r} is not a legal name of a statement")
        if name in statements:
            raise ValueError(f"two statements are named {name}")
        if not _without_comments(statement):
            raise ValueError(f"the statement {name} has no text")
        statements[name] = statement.strip()
    return MappingProxyType(statements)


def _without_comments(text: str) -> str:
    return re.sub(r"^\s*--.*$", "", text, flags=re.MULTILINE).strip()
