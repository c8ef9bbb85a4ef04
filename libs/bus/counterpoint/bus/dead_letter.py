"""The dead letter of a message that was refused permanently."""

import json
from collections.abc import Iterable, Mapping

from counterpoint.proto.errors import Permanent, Problem
from counterpoint.proto.memory import DeadLetter

BODY_LIMIT_BYTES = 320_000
"""Size of the JSON of a body that is stored whole: that of a message of 256 KiB, unless much of it is escaped."""
BODY_LIMIT_CHARS = 100_000
"""Characters of a larger body that are stored. Each may take six bytes of JSON, and all fit into one bus message."""
_CUT = f"was cut to its first {BODY_LIMIT_CHARS} characters"
_HEADER_LIMIT = 1_000
_KEPT = frozenset(
    [
        *("specversion", "id", "source", "type", "subject", "time", "datacontenttype", "dataschema"),
        *("correlationid", "causationid", "publication", "sequence", "taskversion"),
    ]
)
"""CloudEvents attributes whose headers are kept: those of the standard, and our own except the capability."""
_HEADERS = frozenset(["content-type", "traceparent", "nats-msg-id", *(f"ce-{name}" for name in _KEPT)])


def dead_letter(subject: str, headers: Mapping[str, str], data: bytes, error: Permanent) -> DeadLetter:
    """Return the message as received, with its envelope headers only, since others may carry credentials.

    Undecodable bytes are replaced, and long values are cut.
    """
    body = data.decode(errors="replace")
    problems = [Problem(field=_plain(p.field), problem=_plain(p.problem)) for p in error.problems]
    if len(body) > BODY_LIMIT_CHARS and len(json.dumps(body, ensure_ascii=False).encode()) > BODY_LIMIT_BYTES:
        body = body[:BODY_LIMIT_CHARS]
        problems.append(Problem(field="body", problem=_CUT))
    return DeadLetter(
        code=error.code,
        problems=tuple(problems),
        subject=_plain(subject),
        headers={
            name.lower(): _plain(value)[:_HEADER_LIMIT] for name, value in headers.items() if name.lower() in _HEADERS
        },
        body=body,
    )


def is_cut(problems: Iterable[Mapping[str, str]]) -> bool:
    """Whether the problems of a stored dead letter say that its body was cut."""
    return any(each.get("field") == "body" and each.get("problem") == _CUT for each in problems)


def _plain(text: str) -> str:
    return text.encode(errors="replace").decode().replace("\0", "\N{REPLACEMENT CHARACTER}")
