"""Removal of credentials from URLs; scheme, host, path and other parameters stay."""

import re
from collections.abc import Callable, Iterator
from urllib.parse import unquote

from counterpoint.guard.kinds import Span
from counterpoint.guard.randomness import has_random_run

_AUTHORITY = re.compile(r"://(?:([^\s/?#\"'<>]*)@)?[^\s/?#\"'<>]*[^\s?#\"'<>]*")
_QUERY = re.compile(r"([?#])([^\s?#\"'<>]*)")
_PARAMETER = re.compile(r"[^&;]+")
_SIGNED = frozenset(
    ["sig", "signature", "x-amz-signature", "x-amz-security-token", "x-goog-signature", "code", "ticket", "st"]
)
"""Parameters that grant access: of signed URLs, OAuth and CAS."""
_SIGNED_CHARS_MIN = 16


def without_credentials(text: str, is_secret: Callable[[int, int], bool]) -> str:
    """Return `text` with user information and secret parameters removed from its URLs.

    `is_secret` decides about a span of `text`.
    """
    parts: list[str] = []
    at = 0
    for start, end in _credentials(text, is_secret):
        parts.append(text[at:start])
        at = end
    return "".join([*parts, text[at:]]) if parts else text


def _credentials(text: str, is_secret: Callable[[int, int], bool]) -> Iterator[Span]:
    at = text.find("://")
    while at >= 0:
        authority = _AUTHORITY.match(text, at)
        assert authority is not None
        if authority[1] is not None and is_secret(*authority.span(1)):
            yield authority.start(1), authority.end(1) + 1
        end = authority.end()
        while query := _QUERY.match(text, end):
            yield from _parameters(text, query, is_secret)
            end = query.end()
        at = text.find("://", max(end, at + 1))


def _parameters(text: str, query: re.Match[str], is_secret: Callable[[int, int], bool]) -> Iterator[Span]:
    """Yield the spans of the parameters to remove, each with one separator, so that a valid query remains."""
    found = list(_PARAMETER.finditer(text, *query.span(2)))
    gone = [is_secret(*each.span()) or _grants(each[0]) for each in found]
    if found and all(gone):
        yield query.span()
        return
    for place, (each, goes) in enumerate(zip(found, gone, strict=True)):
        if goes and not all(gone[:place]):
            yield each.start() - 1, each.end()
        elif goes:
            yield each.start(), found[place + 1].start()


def _grants(parameter: str) -> bool:
    name, _, value = parameter.partition("=")
    return name.lower() in _SIGNED and len(value) >= _SIGNED_CHARS_MIN and has_random_run(unquote(value))
