"""Read-only Cypher: the checks before and by the engine, and the conversion of rows.

There are three checks. Words: only reading clauses may occur outside strings and quoted names, so that nothing reaches
the engine that would access a file while it is bound. Plan: no operator that writes, and no function that reads
elsewhere. Transaction: it is read-only, so that the engine itself refuses to write.
"""

import json
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from counterpoint.proto.errors import ErrorCode, Permanent, Problem

REPLY_BYTES = 700_000
"""Size limit of the rows of an answer, in bytes: it must fit into a message."""

_TOKEN = re.compile(
    r"""(?P<space>\s+)
    | (?P<comment>//[^\n]*|/\*.*?\*/)
    | (?P<string>'(?:[^'\\]|\\.)*'|"(?:[^"\\]|\\.)*")
    | (?P<name>`[^`]*`)
    | (?P<word>[^\W\d]\w*)
    | (?P<number>\d[\w.]*)
    | (?P<open>(?:/\*|['"`]).*)
    | (?P<sign>.)""",
    re.VERBOSE | re.DOTALL,
)
_FIRST = frozenset({"match", "optional", "unwind", "with", "return"})
_REFUSED = frozenset(
    re.findall(
        r"\w+",
        """
        alter analyze attach begin call checkpoint comment commit copy create cypher delete detach drop explain
        export extension force glob graph import insert install load macro merge nextval profile project_graph
        remove rename rollback sequence set table transaction type uninstall update use vacuum
        """,
    )
)
_OPERATOR = re.compile(r"\b([A-Z][A-Z_]+)\[\d+\]")
_FUNCTION = re.compile(r"Function: (\w+)")
_DOING = re.compile(
    "MERGE|SET_.*|.*(?:ALTER|ATTACH|COPY|CREATE|DATABASE|DELETE|DROP|EXPORT|EXTENSION|IMPORT|INSERT|STANDALONE|TRANSACT).*"
)
"""Parts of names of operators that write. Reading operators are many, and new ones are added."""
_READING_FUNCTIONS = frozenset({"READ_FTABLE"})


@dataclass(frozen=True, slots=True)
class CypherResult:
    """Rows of an answer. `cut`: there are more than the limit, or than fit into a message."""

    columns: tuple[str, ...]
    rows: tuple[tuple[Any, ...], ...]
    cut: bool


def check_words(query: str) -> None:
    """Raise `Permanent` `cypher` for a query that is not one reading statement."""
    words = [word.lower() for word in _words(query)]
    if not words or words[0] not in _FIRST:
        raise refused("must start with MATCH, OPTIONAL MATCH, UNWIND, WITH or RETURN, because it is read-only")
    wrong = next((word for word in words if word in _REFUSED), None)
    if wrong is not None:
        raise refused(
            f"{wrong.upper()} is not allowed in a read-only query. Put backquotes around a name spelled like this"
        )


def check_plan(plan: str) -> None:
    """Raise `Permanent` `cypher` for a plan with an operator or a function that does more than read the graph."""
    wrong = {operator for operator in _OPERATOR.findall(plan) if _DOING.fullmatch(operator)}
    wrong |= set(_FUNCTION.findall(plan)) - _READING_FUNCTIONS
    if wrong:
        raise refused(f"{min(wrong)} is not allowed in a read-only query")


def cut(columns: Sequence[str], rows: Iterator[Sequence[Any]], limit: int) -> CypherResult:
    """Return the first rows as JSON values."""
    kept: list[tuple[Any, ...]] = []
    size = 0
    for row in rows:
        plain = tuple(_plain(value) for value in row)
        size += len(json.dumps(plain))
        if len(kept) == limit or size > REPLY_BYTES:
            return CypherResult(tuple(columns), tuple(kept), True)
        kept.append(plain)
    return CypherResult(tuple(columns), tuple(kept), False)


def refused(problem: str) -> Permanent:
    """Return the error of a query that is refused."""
    return Permanent(ErrorCode.CYPHER, (Problem(field="query", problem=problem),))


def _words(query: str) -> Iterator[str]:
    """Return the words outside strings, comments and quoted names. Raises `Permanent`."""
    for token in _TOKEN.finditer(query):
        match token.lastgroup:
            case "word":
                yield token.group()
            case "open":
                raise refused("contains an unterminated string, quoted name or comment")
            case "sign" if token.group() == ";" and query[token.end() :].strip():
                raise refused("must be one statement")
            case _:
                pass


def _plain(value: Any) -> Any:
    """Return nodes and edges without the engine's own ids, which change at a rebuild."""
    match value:
        case None | bool() | int() | float() | str():
            return value
        case Mapping():
            return {str(name): _plain(inner) for name, inner in value.items() if name not in ("_ID", "_SRC", "_DST")}
        case list() | tuple():
            return [_plain(inner) for inner in value]
        case _:
            return str(value)
