"""The command that runs the write filter over JSON lines, without a stack."""

import json
import sys
from collections.abc import Iterator
from contextlib import nullcontext
from pathlib import Path
from typing import IO, TYPE_CHECKING, Annotated, Any

import typer

from counterpoint.cli.command import Panel, command
from counterpoint.cli.errors import Exit, Misused
from counterpoint.cli.session import Session

if TYPE_CHECKING:
    from counterpoint.guard.policy import Policy

app = typer.Typer()

LINE_LIMIT_BYTES = 32 * 1024 * 1024
"""A longer line is an error: nothing is passed unseen."""
_LABEL = "public"
_STDIN = Path("-")
_BARE = "text"
"""The field of a value that is no object, and of an object the one whose findings need no path."""


@command(app, "scan", Panel.OPERATE, "counterpoint scan --label internal < messages.jsonl")
def scan(
    session: Session,
    file: Annotated[Path, typer.Argument(metavar="FILE", help="JSON lines; - is standard input.")] = _STDIN,
    label: Annotated[str, typer.Option("--label", help="Where the texts would go.")] = _LABEL,
) -> Exit:
    """Say what the write filter makes of each line of JSON: allow, redact, quarantine or block.

    A line is {"id", "text"} or any other JSON; without an id it goes by its number. A line that is none is named, and
    the exit code is 1 at the end.
    """
    from counterpoint.guard.policy import policy

    rules = policy()
    if label not in rules.labels:
        raise Misused(f"a label is one of {', '.join(rules.labels)}, not {label}")
    failed = False
    with nullcontext(sys.stdin.buffer) if file == _STDIN else file.open("rb") as lines:
        for number, row in _rows(lines):
            found = row if isinstance(row, str) else _judged(rules, row[0], rules.level(label), number)
            if isinstance(found, str):
                failed = True
                _say(session, {"line": number, "error": found}, f"line {number}: {found}")
            else:
                _say(session, found, _told(found))
    return Exit.FAILED if failed else Exit.DONE


def _rows(lines: IO[bytes]) -> Iterator[tuple[int, str | tuple[Any]]]:
    """Each line that is not blank, by number: its value in a tuple, or what is wrong with it."""
    number = 0
    while line := lines.readline(LINE_LIMIT_BYTES + 1):
        number += 1
        if len(line) > LINE_LIMIT_BYTES:
            while not line.endswith(b"\n") and (line := lines.readline(LINE_LIMIT_BYTES)):
                pass
            yield number, f"longer than {LINE_LIMIT_BYTES} bytes"
        elif line.strip():
            yield number, _value(line)


def _value(line: bytes) -> str | tuple[Any]:
    try:
        return (json.loads(line.decode()),)
    except UnicodeDecodeError:
        return "not UTF-8"
    except json.JSONDecodeError as error:
        return f"not JSON: {error.msg} at column {error.colno}"
    except (ValueError, RecursionError):
        return "not JSON that can be read: nested too deeply, or a number too long"


def _judged(rules: "Policy", value: Any, label: int, number: int) -> dict[str, Any] | str:
    from counterpoint.guard.judge import judge, place
    from counterpoint.proto.errors import Permanent

    body = value if isinstance(value, dict) else {_BARE: value}
    named = isinstance(value, dict) and isinstance(value.get("id"), str | int)
    try:
        judged = judge(rules, body, (field for field in body if not (named and field == "id")), label)
    except Permanent as error:
        return "; ".join(problem.problem for problem in error.problems)
    except RecursionError:
        return "nested too deeply to be looked through"
    findings = []
    for found in judged.findings:
        finding: dict[str, Any] = {
            "type": found.finding.type,
            "start": found.finding.start,
            "end": found.finding.end,
        }
        if found.path != (_BARE,):
            finding |= {"path": place(found)} | ({"in": "key"} if found.in_key else {})
        findings.append(finding)
    return {"id": value["id"] if named else number, "verdict": judged.verdict, "findings": findings}


def _told(found: dict[str, Any]) -> str:
    places = (
        f"{one['type']} at {one['path'] + ' ' if 'path' in one else ''}{one['start']}-{one['end']}"
        for one in found["findings"]
    )
    return f"{found['id']}: {found['verdict']}" + "".join(f"  {place}" for place in places)


def _say(session: Session, value: dict[str, Any], told: str) -> None:
    """One line of output at once, in signs that every terminal and reader takes."""
    text = json.dumps(value) if session.json else told.encode(errors="replace").decode()
    print(text, file=sys.stderr if "error" in value and not session.json else sys.stdout, flush=True)
