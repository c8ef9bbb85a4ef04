"""Split secrets: cards, accounts and keys that are split over adjacent texts of a body. Pure functions.

The items of a list and the fields of a record are scanned separately, so that neither has a value that was split. The
end of a text and the start of the next are also scanned together where a word or number may continue. Across a text
that is a single word or number it may continue into a third.
"""

import re
from collections.abc import Iterable, Iterator, Mapping
from itertools import pairwise
from typing import Any, NamedTuple

from counterpoint.guard.cues import is_counter
from counterpoint.guard.detector import Finding, scan
from counterpoint.guard.field_detector import FieldFinding
from counterpoint.guard.kinds import class_of

Path = tuple[str | int, ...]

_CHARS, _TEXTS = 160, 8
"""Characters scanned on both sides of a boundary, and the maximum number of texts a value may span."""
_SHORTEST = 14
_UUID_CHARS = 36
_UUID = re.compile(r"(?i)[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}")
_PART = re.compile(r"[\w+/=-]+|[\d -]+")
_STOP = re.compile(r"[^\w+/=-]")
_DIGIT = re.compile(r"\d")
_BY_FORM = frozenset({"card", "iban"})
_BY_SURROUNDINGS = frozenset(
    {"assignment", "uri_password", "basic_auth", "bearer", "curl_auth_user", "curl_auth_header"}
)
"""Kinds recognised by the text before them, which unrelated adjacent texts may match by chance."""


class _Text(NamedTuple):
    path: Path
    name: str
    text: str


class _Piece(NamedTuple):
    """One text's part of a joined text: at offset `at`, `length` characters, from offset `start` of the text."""

    source: _Text
    at: int
    start: int
    length: int


def find_across_fields(
    body: Mapping[str, Any], fields: Iterable[str], known: Iterable[FieldFinding]
) -> tuple[FieldFinding, ...]:
    """Return findings that span adjacent texts of the `fields`, one per text; none that overlaps one in `known`."""
    texts = [text for name in fields if name in body for text in _texts((name,), name, body[name])]
    findings_by_path: dict[Path, list[Finding]] = {}
    for known_finding in known:
        findings_by_path.setdefault(known_finding.path, []).append(known_finding.finding)
    parts = []
    for part in (part for run in _runs(texts) for part in _findings_of(run)):
        others, finding = findings_by_path.setdefault(part.path, []), part.finding
        if not any(finding.start < other.end and other.start < finding.end for other in others):
            others.append(finding)
            parts.append(part)
    return tuple(parts)


def _texts(path: Path, name: str, value: object) -> Iterator[_Text]:
    match value:
        case str() if value:
            yield _Text(path, name, value)
        case Mapping():
            for key, item in value.items():
                yield from _texts((*path, key), key, item)
        case list() | tuple():
            for index, item in enumerate(value):
                yield from _texts((*path, index), name, item)
        case _:
            return


def _runs(texts: list[_Text]) -> Iterator[list[_Text]]:
    """Yield runs of adjacent texts across whose boundaries a value may continue."""
    run: list[_Text] = []
    for text in texts:
        if run and not (_may_continue(run[-1].text, text.text) and len(run) < _TEXTS):
            if len(run) > 1:
                yield run
            run = run[-1:] if len(run) == _TEXTS else []
        elif len(run) > 1 and _PART.fullmatch(run[-1].text.strip()) is None:
            yield run
            run = run[-1:]
        run.append(text)
    if len(run) > 1:
        yield run


def _may_continue(before: str, after: str) -> bool:
    """Whether a number or word may continue from one text into the next: with a digit, and not a UUID."""
    before, after = before[-_CHARS:].rstrip(), after[:_CHARS].lstrip()
    if not before or not after or _STOP.match(before[-1]) or _STOP.match(after[0]):
        return False
    if _UUID.search(before[-_UUID_CHARS:]) or _UUID.match(after):
        return False
    return _DIGIT.search(before) is not None or _DIGIT.search(after) is not None


def _findings_of(run: list[_Text]) -> Iterator[FieldFinding]:
    numbers = all(a.text.rstrip()[-1:].isdigit() and b.text.lstrip()[:1].isdigit() for a, b in pairwise(run))
    for between in ("", " ", "-") if numbers else ("",):
        joined, pieces = _joined(run, between)
        if len(joined) < _SHORTEST:
            continue
        for finding in scan(joined):
            if finding.type in _BY_SURROUNDINGS or class_of(finding.type) not in ("secret", "financial"):
                continue
            found = [piece for piece in pieces if finding.start < piece.at + piece.length and piece.at < finding.end]
            if len(found) < 2 or any(finding.type in _BY_FORM and is_counter(piece.source.name) for piece in found):
                continue
            for piece in found:
                start, end = max(finding.start, piece.at), min(finding.end, piece.at + piece.length)
                offset = piece.start - piece.at
                part = Finding(finding.type, start + offset, end + offset, finding.confirmed)
                yield FieldFinding(piece.source.path, False, part)


def _joined(run: list[_Text], between: str) -> tuple[str, list[_Piece]]:
    """Join the end of the first text, the middle ones, and the start of the last."""
    text, pieces = "", list[_Piece]()
    for number, source in enumerate(run):
        start = len(source.text) - len(source.text.lstrip()) if number else 0
        end = len(source.text.rstrip()) if number < len(run) - 1 else len(source.text)
        if number == 0:
            start = max(start, end - _CHARS)
        else:
            text += between
            end = min(end, start + _CHARS)
        pieces.append(_Piece(source, len(text), start, end - start))
        text += source.text[start:end]
    return text, pieces
