"""A message that is refused for good, as a letter that memory can keep."""

from collections.abc import Mapping

from counterpoint.proto.errors import Permanent, Problem
from counterpoint.proto.memory import DeadLetter

BODY_LIMIT = 100_000
"""Characters. One may take six bytes in a request, which with all else fits into what the bus carries."""
_HEADERS, _HEADER_LIMIT = 50, 1_000


def letter(subject: str, headers: Mapping[str, str], data: bytes, error: Permanent) -> DeadLetter:
    """The message as it came, without its capability; what no text can hold is replaced, what is too long is cut."""
    body = data.decode(errors="replace")
    problems = [Problem(field=_plain(p.field), problem=_plain(p.problem)) for p in error.problems]
    if len(body) > BODY_LIMIT:
        problems.append(Problem(field="body", problem=f"only its first {BODY_LIMIT} characters are kept"))
    kept = [(name, value) for name, value in headers.items() if name.lower() != "ce-capability"][:_HEADERS]
    return DeadLetter(
        code=error.code,
        problems=tuple(problems),
        subject=_plain(subject),
        headers={_plain(name)[:_HEADER_LIMIT]: _plain(value)[:_HEADER_LIMIT] for name, value in kept},
        body=body[:BODY_LIMIT],
    )


def _plain(text: str) -> str:
    return text.encode(errors="replace").decode().replace("\0", "\N{REPLACEMENT CHARACTER}")
