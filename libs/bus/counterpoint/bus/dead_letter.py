"""The dead letter of a message that was refused permanently."""

from collections.abc import Mapping

from counterpoint.proto.errors import Permanent, Problem
from counterpoint.proto.memory import DeadLetter

BODY_LIMIT_CHARS = 100_000
"""A character may take six bytes of JSON, so that this many fit into one bus message."""
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
    if len(body) > BODY_LIMIT_CHARS:
        problems.append(Problem(field="body", problem=f"was cut to its first {BODY_LIMIT_CHARS} characters"))
    return DeadLetter(
        code=error.code,
        problems=tuple(problems),
        subject=_plain(subject),
        headers={
            name.lower(): _plain(value)[:_HEADER_LIMIT] for name, value in headers.items() if name.lower() in _HEADERS
        },
        body=body[:BODY_LIMIT_CHARS],
    )


def _plain(text: str) -> str:
    return text.encode(errors="replace").decode().replace("\0", "\N{REPLACEMENT CHARACTER}")
