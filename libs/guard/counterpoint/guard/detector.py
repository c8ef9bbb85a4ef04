"""The detector: where secrets and payment cards are in a text, and the text without them.

A finding says kind and place, never the value. Text is normalised before it is searched (compatibility forms folded,
invisible format characters dropped, one level of base64 opened); places are those of the text as it was given.
"""

import binascii
import dataclasses
import hashlib
import operator
import re
import threading
import unicodedata
from collections import OrderedDict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Any

from counterpoint.guard.automata import compiled
from counterpoint.guard.cards import find_cards
from counterpoint.guard.connections import find_passwords, is_form
from counterpoint.guard.contacts import find_contacts
from counterpoint.guard.cues import is_counter, is_named
from counterpoint.guard.finance import find_accounts
from counterpoint.guard.identities import find_identities
from counterpoint.guard.keys import find_keys
from counterpoint.guard.kinds import Class, Span, class_of
from counterpoint.guard.network import find_addresses
from counterpoint.guard.patterns import PATTERNS, find_assignments, is_assigned
from counterpoint.proto.errors import Permanent, Problem

VERDICTS_MAX = 16_384
TEXT_LIMIT_CHARS = 8 * 1024 * 1024
_LOOKS_MAX = 8
_NAME_CHARS = 64


@dataclass(frozen=True, slots=True)
class Finding:
    """Something sensitive of kind `type` at `text[start:end]` of the text that was scanned.

    `named`: its form or a word near it says what it is. A number without one may be a counter, a password a form.
    """

    type: str
    start: int
    end: int
    named: bool = field(default=True, compare=False)

    @property
    def kind(self) -> Class:
        """What the policy judges it by."""
        return class_of(self.type)


@dataclass(frozen=True, slots=True)
class FieldFinding:
    """A finding in one leaf of a body: the keys and indexes that lead to it, and whether it is in the last key."""

    path: tuple[str | int, ...]
    in_key: bool
    finding: Finding


def scan(text: str) -> tuple[Finding, ...]:
    """What is sensitive in `text`, in order and apart from each other. Findings are remembered by the text's hash.

    Raises `Permanent` `too_large` for a text that is too long to be looked through.
    """
    if len(text) > TEXT_LIMIT_CHARS:
        problem = f"{len(text)} characters, more than {TEXT_LIMIT_CHARS} that can be looked through"
        raise Permanent("too_large", (Problem(field="text", problem=problem),))
    return _verdicts.of(text)


def redact(text: str, findings: Iterable[Finding]) -> str:
    """`text` with `[redacted:<type>]` in place of each finding of its scan."""
    parts: list[str] = []
    at = 0
    for finding in findings:
        parts += text[at : finding.start], _tag(finding)
        at = finding.end
    return "".join([*parts, text[at:]])


def _tag(finding: Finding) -> str:
    return f"[redacted:{finding.type}]"


def scan_fields(body: Mapping[str, Any], fields: Iterable[str]) -> tuple[FieldFinding, ...]:
    """The secrets in the declared free-text `fields` of `body`: in nested values, in keys, and told by a key's name."""
    return tuple(finding for field in fields if field in body for finding in _scan_value((field,), field, body[field]))


def redact_fields(body: Mapping[str, Any], findings: Iterable[FieldFinding]) -> dict[str, Any]:
    """A copy of `body` without what `scan_fields` found in it."""
    values: dict[tuple[str | int, ...], list[Finding]] = {}
    keys: dict[tuple[str | int, ...], list[Finding]] = {}
    for found in findings:
        (keys if found.in_key else values).setdefault(found.path, []).append(found.finding)
    return {name: _redact_value((name,), value, values, keys) for name, value in body.items()}


def _scan_value(path: tuple[str | int, ...], name: str, value: object) -> Iterator[FieldFinding]:
    match value:
        case dict() | Mapping():
            for key, item in value.items():
                inner = (*path, key)
                yield from (FieldFinding(inner, True, finding) for finding in scan(key))
                yield from _scan_value(inner, key, item)
        case list() | tuple():
            for index, item in enumerate(value):
                yield from _scan_value((*path, index), name, item)
        case str() | int() if not isinstance(value, bool):
            text = str(value)
            findings = _scan_named(name, text) if _is_telling(name) else scan(text)
            if is_assigned(name, text) or (findings and is_assigned(name, redact(text, findings))):
                findings = (Finding("assignment", 0, len(text)),)
            if is_counter(name):
                findings = tuple(_unnamed(finding, text) for finding in findings)
            yield from (FieldFinding(path, False, finding) for finding in findings)
        case _:
            return


def _unnamed(finding: Finding, text: str) -> Finding:
    """A finding that is the whole value of a counter; what stands in a text beside other words stays as it is.

    An account of a bank has letters and a checksum: no counter comes to one.
    """
    whole = finding.kind in _NUMBERS and finding.type != "iban" and finding.end - finding.start == len(text.strip())
    return dataclasses.replace(finding, named=False) if whole else finding


_TELLING = compiled(
    rb"(?i)phone|mobile|cell|fax|pager|ssn|social|itin|taxpayer|nhs|nif|dni|nie|aadhaar|pesel|tfn|card|(?:^|[^a-z])pan"
)


@lru_cache(maxsize=4096)
def _is_telling(name: str) -> bool:
    return len(name) <= _NAME_CHARS and _TELLING.search(name.encode("ascii", "replace")) is not None


def _scan_named(name: str, text: str) -> tuple[Finding, ...]:
    """What is sensitive in a text that stands under a name which says what it is."""
    before = f"{name.replace('_', ' ')}: "
    found = (Finding(f.type, f.start - len(before), f.end - len(before)) for f in scan(before + text))
    return tuple(dataclasses.replace(f, start=max(0, f.start)) for f in found if f.end > 0)


def _redact_value(
    path: tuple[str | int, ...],
    value: object,
    values: Mapping[tuple[str | int, ...], Sequence[Finding]],
    keys: Mapping[tuple[str | int, ...], Sequence[Finding]],
) -> object:
    match value:
        case dict() | Mapping():
            redacted: dict[str, object] = {}
            for key, item in value.items():
                inner = (*path, key)
                name = redact(key, keys.get(inner, ()))
                while name in redacted:
                    name += "'"
                redacted[name] = _redact_value(inner, item, values, keys)
            return redacted
        case list() | tuple():
            return [_redact_value((*path, index), item, values, keys) for index, item in enumerate(value)]
        case _:
            return (
                redact(str(value), sorted(values[path], key=operator.attrgetter("start"))) if path in values else value
            )


class _Verdicts:
    """What the detector said of the texts it saw last, at most `size` of them; the texts themselves are not kept."""

    def __init__(self, size: int) -> None:
        self._size = size
        self._lock = threading.Lock()
        self._known: OrderedDict[bytes, tuple[Finding, ...]] = OrderedDict()

    def of(self, text: str) -> tuple[Finding, ...]:
        key = hashlib.blake2b(text.encode("utf-8", "surrogatepass"), digest_size=20).digest()
        with self._lock:
            known = self._known.get(key)
            if known is not None:
                self._known.move_to_end(key)
                return known
        findings = _detect(text)
        with self._lock:
            self._known[key] = findings
            if len(self._known) > self._size:
                self._known.popitem(last=False)
        return findings


_verdicts = _Verdicts(VERDICTS_MAX)


def _detect(text: str) -> tuple[Finding, ...]:
    """All findings, also of a secret glued to another one, which shows only when that is gone."""
    findings = _look(text)
    for _ in range(_LOOKS_MAX):
        if not findings:
            return ()
        hidden = _look(redact(text, findings))
        if not hidden:
            return tuple(findings)
        findings = _apart([*findings, *_placed(hidden, _places_after_redaction(text, findings))])
    return (Finding(findings[0].type, 0, len(text)),)


def _look(text: str) -> list[Finding]:
    if _TAGGED in text:
        text = _FINGERPRINTED.sub(lambda tag: f"{tag[1]}_{'x' * len(tag[2])}]", text)
    normal, places = _normalised(text)
    found = (
        Finding(kind, start, end, _is_certain(kind, normal, start, end)) for kind, (start, end) in _find_all(normal)
    )
    return _apart(found if places is None else _placed(found, places))


def _is_certain(kind: str, text: str, start: int, end: int) -> bool:
    """Whether a number is named, and a word as a password no part of a form to fill in."""
    return not is_form(text, start, end) if kind == "uri_word" else is_named(kind, text, start, end)


def _placed(findings: Iterable[Finding], places: Sequence[Span]) -> Iterator[Finding]:
    for finding in findings:
        yield Finding(finding.type, places[finding.start][0], places[finding.end - 1][1], finding.named)


def _places_after_redaction(text: str, findings: Iterable[Finding]) -> list[Span]:
    places: list[Span] = []
    at = 0
    for finding in findings:
        places += ((index, index + 1) for index in range(at, finding.start))
        places += [(finding.start, finding.end)] * len(_tag(finding))
        at = finding.end
    places += ((index, index + 1) for index in range(at, len(text)))
    return places


def _apart(findings: Iterable[Finding]) -> list[Finding]:
    """In order, those that overlap joined under the name of the first in the list: the most certain kind."""
    apart: list[tuple[int, Finding]] = []
    for rank, finding in sorted(enumerate(findings), key=lambda ranked: (ranked[1].start, ranked[0])):
        if apart and finding.start < apart[-1][1].end:
            first_rank, first = apart[-1]
            kind = first.type if first_rank < rank else finding.type
            end = max(first.end, finding.end)
            apart[-1] = min(first_rank, rank), Finding(kind, first.start, end, first.named or finding.named)
        else:
            apart.append((rank, finding))
    return [finding for _, finding in apart]


def _find_all(text: str) -> Iterator[tuple[str, Span]]:
    yield from _find(text)
    for start, end in _long_words(text):
        decoded = _decoded(text[start:end])
        if decoded is not None:
            for kind, _ in _find(_normalised(decoded)[0]):
                yield kind, (start, end)


_TAGGED = "[redacted:"
_FINGERPRINTED = re.compile(r"(\[redacted:[a-z0-9_]+):([0-9a-f]{16})\]")
"""A fingerprint is random, and no secret: it is searched as one repeated letter in its place."""
_UUID = compiled(rb"(?i)\b[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}\b")


def _find(text: str) -> Iterator[tuple[str, Span]]:
    """What is found, but for numbers about people and accounts in the middle of a UUID: those are chance."""
    found = list(_find_any(text))
    chance = [each for each in found if class_of(each[0]) in _NUMBERS]
    uuids = [match.span() for match in _UUID.finditer(text.encode("ascii", "replace"))] if chance else []
    for kind, (start, end) in found:
        if class_of(kind) not in _NUMBERS or not any(first <= start and end <= last for first, last in uuids):
            yield kind, (start, end)


def _find_any(text: str) -> Iterator[tuple[str, Span]]:
    for pattern in PATTERNS:
        for span in pattern.find(text):
            yield pattern.kind, span
    yield from find_passwords(text)
    signs = text.encode("ascii", "replace")
    found = list(find_keys(signs))
    yield from (each for each in found if class_of(each[0]) == "secret")
    for span in find_cards(signs):
        yield "card", span
    yield from find_accounts(signs)
    for span in find_assignments(text):
        yield "assignment", span
    yield from (each for each in found if class_of(each[0]) != "secret")
    for find in (find_identities, find_contacts, find_addresses):
        yield from find(signs)


_NUMBERS = frozenset({"financial", "identity", "contact", "network"})
_BASE64_LETTERS = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/-_"
_WORD_SIGNS = bytes(b"x"[0] if c in _BASE64_LETTERS else b" "[0] for c in range(256))
_LONG_WORD = b"x" * 20
_STANDARD_BASE64 = bytes.maketrans(b"-_", b"+/")


def _long_words(text: str) -> Iterator[Span]:
    signs = text.encode("ascii", "replace").translate(_WORD_SIGNS) + b" "
    start = signs.find(_LONG_WORD)
    while start >= 0:
        end = signs.index(b" ", start)
        while text[end : end + 1] == "=":
            end += 1
        yield start, end
        start = signs.find(_LONG_WORD, end)


def _decoded(word: str) -> str | None:
    """The text that `word` is the base64 of, or None."""
    digits = word.rstrip("=").encode("ascii").translate(_STANDARD_BASE64)
    try:
        return binascii.a2b_base64(digits + b"=" * (-len(digits) % 4)).decode()
    except ValueError:
        return None


def normal(text: str) -> str:
    """`text` as it is searched: compatibility forms, digits, dashes and spaces folded, format characters dropped."""
    return _normalised(text)[0]


def _normalised(text: str) -> tuple[str, list[Span] | None]:
    """`text` folded and without format characters (Cf), and for each of its characters the place it comes from.

    The places are None where every character has kept its own.
    """
    if text.isascii():
        return text, None
    folded = {ord(char): _folded(char) for char in set(text) if not char.isascii()}
    normal = text.translate(folded)
    if all(len(char) == 1 for char in folded.values()):
        return normal, None
    places: list[Span] = []
    for index, char in enumerate(text):
        places += [(index, index + 1)] * len(folded.get(ord(char), char))
    return normal, places


@lru_cache(maxsize=4096)
def _folded(char: str) -> str:
    """NFKC, nothing for a format character, and the ASCII sign for a digit, dash or space of another script."""
    match unicodedata.category(char):
        case "Cf":
            return ""
        case "Nd":
            return str(unicodedata.decimal(char))
        case "Pd":
            return "-"
        case _:
            return unicodedata.normalize("NFKC", char)
