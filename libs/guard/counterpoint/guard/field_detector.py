"""Detection and redaction of sensitive data in the free-text fields of a body."""

import dataclasses
import operator
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

from counterpoint.guard.automata import compiled
from counterpoint.guard.cues import is_counter
from counterpoint.guard.detector import Finding, redact, scan
from counterpoint.guard.kinds import NUMBERS
from counterpoint.guard.patterns import is_assigned

_NAME_CHARS = 64


@dataclass(frozen=True, slots=True)
class FieldFinding:
    """A finding in one leaf of a body: the path of keys and indexes, and whether it is in the last key itself."""

    path: tuple[str | int, ...]
    in_key: bool
    finding: Finding


def scan_fields(body: Mapping[str, Any], fields: Iterable[str]) -> tuple[FieldFinding, ...]:
    """Return the findings in the free-text `fields` of `body`: in nested values, in keys, and by a key's name."""
    return tuple(finding for field in fields if field in body for finding in _scan_value((field,), field, body[field]))


def redact_fields(body: Mapping[str, Any], findings: Iterable[FieldFinding]) -> dict[str, Any]:
    """Return a copy of `body` with the findings of `scan_fields` redacted."""
    values: dict[tuple[str | int, ...], list[Finding]] = {}
    keys: dict[tuple[str | int, ...], list[Finding]] = {}
    for found in findings:
        (keys if found.in_key else values).setdefault(found.path, []).append(found.finding)
    return {name: _redact_value((name,), value, values, keys) for name, value in body.items()}


def _scan_value(path: tuple[str | int, ...], name: str, value: object) -> Iterator[FieldFinding]:
    match value:
        case str() | int() if not isinstance(value, bool):
            text = str(value)
            findings = _scan_labelled(name, text) if _names_kind(name) else scan(text)
            if is_assigned(name, text) or (findings and is_assigned(name, redact(text, findings))):
                findings = (Finding("assignment", 0, len(text)),)
            if is_counter(name):
                findings = tuple(_unconfirmed(finding, text) for finding in findings)
            yield from (FieldFinding(path, False, finding) for finding in findings)
        case dict() | Mapping():
            for key, item in value.items():
                inner = (*path, key)
                yield from (FieldFinding(inner, True, finding) for finding in scan(key))
                yield from _scan_value(inner, key, item)
        case list() | tuple():
            for index, item in enumerate(value):
                yield from _scan_value((*path, index), name, item)
        case _:
            return


def _unconfirmed(finding: Finding, text: str) -> Finding:
    """Return a finding that is the whole value of a counter as unconfirmed; others unchanged.

    An IBAN has letters and a checksum, so that no counter matches one.
    """
    is_whole_number = (
        finding.kind in NUMBERS and finding.type != "iban" and finding.end - finding.start == len(text.strip())
    )
    return dataclasses.replace(finding, confirmed=False) if is_whole_number else finding


_KIND_NAMES = compiled(
    rb"(?i)phone|mobile|cell|fax|pager|ssn|social|itin|taxpayer|nhs|nif|dni|nie|aadhaar|pesel|tfn|card|(?:^|[^a-z])pan"
)


@lru_cache(maxsize=4096)
def _names_kind(name: str) -> bool:
    return len(name) <= _NAME_CHARS and _KIND_NAMES.search(name.encode("ascii", "replace")) is not None


def _scan_labelled(name: str, text: str) -> tuple[Finding, ...]:
    """Return the findings in a text whose key names its kind."""
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
