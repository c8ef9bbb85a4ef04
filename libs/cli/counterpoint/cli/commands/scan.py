"""`counterpoint scan`: run the write filter over JSON lines."""

import json
import sys
from collections.abc import Iterator
from contextlib import nullcontext
from pathlib import Path
from typing import IO, TYPE_CHECKING, Annotated, Any

import typer

from counterpoint.cli.command import Panel, command
from counterpoint.cli.errors import Exit, UsageError
from counterpoint.cli.session import CommandSession

if TYPE_CHECKING:
    from counterpoint.guard.policy import Policy


LINE_LIMIT_BYTES = 32 * 1024 * 1024
"""Maximum length of a line; a longer one is an error."""
_LABEL = "public"
_STDIN = Path("-")
_BARE = "text"
"""Field of a value that is not an object; findings in it have no path."""


@command("scan", Panel.OPERATE, "counterpoint scan --label internal < messages.jsonl")
def scan(
    session: CommandSession,
    file: Annotated[Path, typer.Argument(metavar="FILE", help="JSON lines; - is standard input.")] = _STDIN,
    label: Annotated[str, typer.Option("--label", help="The label of the destination.")] = _LABEL,
) -> Exit:
    """Show the verdict of the write filter on each line of JSON: allow, redact, quarantine or block.

    A line is {"id", "text"} or any other JSON; without an id its number is printed. Invalid lines are reported, and
    the exit code is 1.
    """
    from counterpoint.guard.policy import policy

    rules = policy()
    if label not in rules.labels:
        raise UsageError(f"a label is one of {', '.join(rules.labels)}, not {label}")
    failed = False
    with nullcontext(sys.stdin.buffer) if file == _STDIN else file.open("rb") as lines:
        for number, row in _rows(lines):
            found = row if isinstance(row, str) else _verdict(rules, row[0], rules.level(label), number)
            if isinstance(found, str):
                failed = True
                _print(session, {"line": number, "error": found}, f"line {number}: {found}")
            else:
                _print(session, found, _text(found))
    return Exit.FAILED if failed else Exit.DONE


def _rows(lines: IO[bytes]) -> Iterator[tuple[int, str | tuple[Any]]]:
    """Yield number and value (in a tuple) of each line that is not blank, or its problem."""
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
        return f"not valid JSON: {error.msg} at column {error.colno}"
    except (ValueError, RecursionError):
        return "not supported JSON: nested too deeply, or a number is too long"


def _verdict(rules: "Policy", value: Any, label: int, number: int) -> dict[str, Any] | str:
    from counterpoint.guard.judge import judge, location
    from counterpoint.proto.errors import Permanent

    body = value if isinstance(value, dict) else {_BARE: value}
    has_id = isinstance(value, dict) and isinstance(value.get("id"), str | int)
    try:
        judgement = judge(rules, body, (field for field in body if not (has_id and field == "id")), label)
    except Permanent as error:
        return "; ".join(problem.problem for problem in error.problems)
    except RecursionError:
        return "nested too deeply to be scanned"
    findings = []
    for found in judgement.findings:
        finding: dict[str, Any] = {
            "type": found.finding.type,
            "start": found.finding.start,
            "end": found.finding.end,
        }
        if found.path != (_BARE,):
            finding |= {"path": location(found)} | ({"in": "key"} if found.in_key else {})
        findings.append(finding)
    return {"id": value["id"] if has_id else number, "verdict": judgement.verdict, "findings": findings}


def _text(found: dict[str, Any]) -> str:
    places = (
        f"{one['type']} at {one['path'] + ' ' if 'path' in one else ''}{one['start']}-{one['end']}"
        for one in found["findings"]
    )
    return f"{found['id']}: {found['verdict']}" + "".join(f"  {location}" for location in places)


def _print(session: CommandSession, value: dict[str, Any], text: str) -> None:
    """Print a line immediately, in characters that every terminal can print."""
    text = json.dumps(value) if session.json else text.encode(errors="replace").decode()
    print(text, file=sys.stderr if "error" in value and not session.json else sys.stdout, flush=True)
