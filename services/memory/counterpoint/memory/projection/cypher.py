"""Read-only Cypher: the words that a query may contain, and the process that runs it.

There are three checks. Words: only reading clauses may occur outside strings and quoted names, so that nothing reaches
the engine that would access a file while it is bound. Plan: no operator that writes, and no function that reads
elsewhere. Process: it has opened the database read-only, and can write no file. It also bounds what a query costs: the
engine builds values outside of its buffer pool, and does not look at its timeout meanwhile.
"""

import json
import re
import signal
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from counterpoint.memory.projection.cypher_worker import MEMORY_LIMIT_BYTES
from counterpoint.memory.sandbox.worker_process import run_worker
from counterpoint.proto.errors import Away, CounterpointError, ErrorCode, Permanent, Problem

START_LIMIT_S = 5.0
"""Time for the process to start and to open the database, in seconds: .15 s, but much more on a busy machine. With the
longest query it is within the timeout of a request."""
_WORKER = Path(__file__).with_name("cypher_worker.py")
_RESULT_LIMIT_BYTES = 4 * 1024 * 1024
_MEMORY = f"exceeds the memory limit of a query, {MEMORY_LIMIT_BYTES // 2**20} MB"
_ASKER = re.compile(
    r"(Parser|Binder|Catalog|Connection|Conversion|Overflow|Runtime|Function|Parameter|Copy|"
    r"Not implemented|Can ?not)\b",
    re.I,
)
"""Beginnings of the engine's messages about an invalid query."""
_PARAMETERS = re.compile(r"Unable to cast Python instance|invalid literal for ")
"""Beginning of its message about a parameter value without a type."""

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


def run(path: Path, query: str, parameters: Mapping[str, Any], limit: int, timeout_ms: int) -> CypherResult:
    """Run a query in a process of its own on a database that nobody writes to meanwhile. Raises `Away`, and `Permanent`
    `cypher`."""
    asked = {"path": str(path), "query": query, "parameters": parameters, "limit": limit, "timeout_ms": timeout_ms}
    end = run_worker(
        _WORKER,
        content=json.dumps(asked).encode(),
        limit_s=START_LIMIT_S + timeout_ms / 1000,
        result_limit_bytes=_RESULT_LIMIT_BYTES,
    )
    match -end.code:
        case signal.SIGALRM:
            raise refused(f"took longer than {timeout_ms} ms")
        case signal.SIGABRT | signal.SIGSEGV | signal.SIGBUS:
            raise refused(_MEMORY)
    if end.is_late:
        raise Away(f"the graph engine was not open within {START_LIMIT_S:g} s")
    try:
        result = json.loads(end.written)
    except ValueError:
        raise Away(f"the graph engine does not respond (exit code {end.code})") from None
    if "refused" in result:
        raise refused(result["refused"])
    if "error" in result:
        raise _error_of(result["error"])
    return CypherResult(tuple(result["columns"]), tuple(tuple(row) for row in result["rows"]), result["cut"])


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


def _error_of(reason: str) -> CounterpointError:
    """Return the error for an exception of the engine."""
    if (
        "buffer pool" in reason.lower()
        or "allocate memory" in reason
        or "bad_alloc" in reason
        or "MemoryError" in reason
    ):
        return refused(_MEMORY)
    if _PARAMETERS.match(reason):
        problem = "must be texts, numbers, or lists of one of these types, within the range of the engine"
        return Permanent(ErrorCode.CYPHER, (Problem(field="parameters", problem=problem),))
    if _ASKER.match(reason):
        return refused(" ".join(reason.split())[:300])
    return Away(f"the graph engine does not respond: {reason}"[:300])
