"""Redaction of names: texts that identify something, such as a job, an owner, a run or an address.

A name cannot be refused and corrected as prose can, so secrets are redacted and the rest is kept. Credentials are
removed from URLs; elsewhere `[redacted:<type>:<fingerprint>]` replaces the secret, so that equal names stay equal.
"""

import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any, TypeVar

from pydantic import BaseModel

from counterpoint.guard.detector import ID, Finding, scan
from counterpoint.guard.judge import ReleasedFingerprints, nothing_released
from counterpoint.guard.kinds import Class
from counterpoint.guard.normalisation import normal
from counterpoint.guard.patterns import is_assigned
from counterpoint.guard.urls import without_credentials
from counterpoint.proto.subjects import PROJECT_PATTERN

T = TypeVar("T")

REDACTED_CLASSES: frozenset[Class] = frozenset({"secret", "uncertain", "financial", "identity"})
"""Classes redacted in names. Contact data and network addresses stay, since they may name owners and hosts."""
_PLAIN = re.compile(rf"[a-z_.]{{0,24}}|{ID}|\d{{4}}-\d\d-\d\dT[\d:.]{{5,15}}(?:Z|[+-]\d\d:?\d\d)")
"""Short words, ids and times, which never contain a finding and need no scan."""

_CLEAN_NAMES_MAX, _CLEAN_NAME_CHARS = 65_536, 500
_clean_names: set[str] = set()
"""A cache of names without secrets, since the same names recur with every event."""

Fingerprint = Callable[[str], str]


def redact_name(name: str, fingerprint: Fingerprint, released: ReleasedFingerprints = nothing_released) -> str:
    """Return a name with its secrets redacted.

    Raises `Permanent` `too_large` for a name above the scanning limit.
    """
    if name in _clean_names or _PLAIN.fullmatch(name) is not None:
        return name
    result = _redacted(name, fingerprint, released)
    if result == name and released is nothing_released:
        _mark_clean(name)
    return result


def _mark_clean(name: str) -> None:
    if len(name) <= _CLEAN_NAME_CHARS:
        if len(_clean_names) >= _CLEAN_NAMES_MAX:
            _clean_names.clear()
        _clean_names.add(name)


def _redacted(name: str, fingerprint: Fingerprint, released: ReleasedFingerprints) -> str:
    if "://" in name:
        spans = [(found.start, found.end) for found in _findings(name, released)]
        name = without_credentials(name, lambda start, end: any(s < end and e > start for s, e in spans))
    parts: list[str] = []
    at = 0
    for found in _findings(name, released):
        parts += name[at : found.start], _tag(found.type, name[found.start : found.end], fingerprint)
        at = found.end
    return "".join([*parts, name[at:]]) if parts else name


def has_secret(name: str) -> bool:
    """Whether a name contains a secret."""
    return redact_name(name, empty_fingerprint) != name


def is_project(name: str) -> bool:
    """Whether a project name is legal and has no secrets; it is part of subjects, so it cannot be redacted."""
    return PROJECT_PATTERN.fullmatch(name) is not None and not has_secret(name)


def empty_fingerprint(value: str) -> str:
    """Return an empty fingerprint, for processes without a key: tags then have the kind only."""
    return ""


def printable_paths(paths: Iterable[str]) -> tuple[str, ...]:
    """Return the paths of unknown fields whose names have no secrets, and the number of the others.

    Each name of a path is also judged by itself, since one before it may hide what it is, as in `budget.card 4111...`.
    """
    paths = tuple(paths)
    printable = tuple(path for path in paths if not any(map(has_secret, (path, *path.split(".")))))
    hidden = len(paths) - len(printable)
    return (*printable, f"({hidden} more, not named: what looks like a secret is in the name)") if hidden else printable


def redact_body_names(
    body: Mapping[str, Any],
    free_text: Iterable[str],
    fingerprint: Fingerprint,
    released: ReleasedFingerprints = nothing_released,
) -> tuple[dict[str, Any], tuple[tuple[str, ...], ...]]:
    """Return a copy of `body` with secrets redacted in every text and key, and the paths that changed.

    Fields in `free_text` are unchanged: they are judged elsewhere.
    """
    changed: list[tuple[str, ...]] = []

    def redacted(name: str, text: str, path: tuple[str, ...]) -> str:
        result = redact_name(text, fingerprint, released)
        if (
            result == text
            and is_assigned(name, text)
            and not (released is not nothing_released and released(normal(text)))
        ):
            result = _tag("assignment", text, fingerprint)
        if result != text:
            changed.append(path)
        return result

    def key(name: str, path: tuple[str, ...]) -> str:
        if name in _clean_names:
            return name
        result = redacted("", name, path)
        if result == name and released is nothing_released:
            _mark_clean(name)
        return result

    def redacted_value(name: str, value: Any, path: tuple[str, ...]) -> Any:
        match value:
            case str():
                return redacted(name, value, path)
            case dict():
                return {key(at, (*path, at)): redacted_value(at, inner, (*path, at)) for at, inner in value.items()}
            case list() | tuple():
                return [redacted_value(name, inner, path) for inner in value]
            case _:
                return value

    free_text_fields = frozenset(free_text)
    if all(name in free_text_fields or (name in _clean_names and _is_clean(name, body[name])) for name in body):
        return dict(body), ()
    copy = {
        name if name in free_text_fields else key(name, (name,)): value
        if name in free_text_fields
        else redacted_value(name, value, (name,))
        for name, value in body.items()
    }
    return (copy if changed else dict(body)), tuple(changed)


def _is_clean(name: str, value: Any) -> bool:
    """Whether a value under this name is known to be without secrets, with its keys. Most are, and need no copy."""
    match value:
        case str():
            return (value in _clean_names or _PLAIN.fullmatch(value) is not None) and not is_assigned(name, value)
        case dict():
            return all(key in _clean_names and _is_clean(key, inner) for key, inner in value.items())
        case list() | tuple():
            return all(_is_clean(name, inner) for inner in value)
        case _:
            return True


def texts_with_secrets(value: object) -> frozenset[str]:
    """Return the texts in a value, including keys, that contain a secret."""
    return frozenset(text for text in _texts(value) if has_secret(text))


def replace_texts(value: T, names: Mapping[str, str]) -> T:
    """Return a value with texts replaced; the same object if none occurs."""
    return _replaced(value, names) if names else value


def _tag(kind: str, value: str, fingerprint: Fingerprint) -> str:
    digits = fingerprint(normal(value))
    return f"[redacted:{kind}:{digits}]" if digits else f"[redacted:{kind}]"


def _findings(name: str, released: ReleasedFingerprints) -> list[Finding]:
    """Return the findings to redact in a name. A number that is not confirmed may be a counter, as in texts."""
    # A slash separates the words of a name.
    findings = scan(name) or (scan(name.replace("/", " ")) if "/" in name else ())
    return [
        found
        for found in findings
        if found.kind in REDACTED_CLASSES
        and found.confirmed
        and not (released is not nothing_released and released(normal(name[found.start : found.end])))
    ]


def _texts(value: object) -> Iterator[str]:
    match value:
        case str():
            yield value
        case BaseModel():
            for _, inner in value:
                yield from _texts(inner)
        case Mapping():
            for key, inner in value.items():
                yield from _texts(key)
                yield from _texts(inner)
        case list() | tuple():
            for inner in value:
                yield from _texts(inner)


def _replaced(value: Any, names: Mapping[str, str]) -> Any:
    match value:
        case str():
            return names.get(value, value)
        case BaseModel():
            changes = {key: new for key, inner in value if (new := _replaced(inner, names)) is not inner}
            return value.model_copy(update=changes) if changes else value
        case Mapping():
            pairs = [(_replaced(key, names), _replaced(inner, names)) for key, inner in value.items()]
            same = all(k is key and v is inner for (k, v), (key, inner) in zip(pairs, value.items(), strict=True))
            return value if same else dict(pairs)
        case list() | tuple():
            items = [_replaced(inner, names) for inner in value]
            same = all(new is inner for new, inner in zip(items, value, strict=True))
            return value if same else type(value)(items)
        case _:
            return value
