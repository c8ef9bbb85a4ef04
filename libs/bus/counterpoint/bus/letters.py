"""A message that is refused for good, as a letter that memory can keep."""

from collections.abc import Mapping

from counterpoint.proto.errors import Permanent, Problem
from counterpoint.proto.memory import DeadLetter

BODY_LIMIT = 100_000
"""Characters. One may take six bytes in a request, which with all else fits into what the bus carries."""
_HEADER_LIMIT = 1_000
_KEPT = frozenset(
    [
        *("specversion", "id", "source", "type", "subject", "time", "datacontenttype", "dataschema"),
        *("correlationid", "causationid", "publication", "sequence", "taskversion"),
    ]
)
"""Attributes of a CloudEvent whose headers are kept: those of the standard, and our own but for the capability."""
_HEADERS = frozenset(["content-type", "traceparent", "nats-msg-id", *(f"ce-{name}" for name in _KEPT)])


def letter(subject: str, headers: Mapping[str, str], data: bytes, error: Permanent) -> DeadLetter:
    """The message as it came, with the headers of its envelope alone: in others credentials travel. What no text can
    hold is replaced, what is too long is cut."""
    body = data.decode(errors="replace")
    problems = [Problem(field=_plain(p.field), problem=_plain(p.problem)) for p in error.problems]
    if len(body) > BODY_LIMIT:
        problems.append(Problem(field="body", problem=f"only its first {BODY_LIMIT} characters are kept"))
    return DeadLetter(
        code=error.code,
        problems=tuple(problems),
        subject=_plain(subject),
        headers={
            name.lower(): _plain(value)[:_HEADER_LIMIT] for name, value in headers.items() if name.lower() in _HEADERS
        },
        body=body[:BODY_LIMIT],
    )


def _plain(text: str) -> str:
    return text.encode(errors="replace").decode().replace("\0", "\N{REPLACEMENT CHARACTER}")
