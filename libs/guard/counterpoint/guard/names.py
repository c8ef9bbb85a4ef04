"""Names: what may be kept of a text that something is called by, such as a job, an owner, a run or an address.

A name is no prose that somebody could put right: what is secret in it is taken out and the rest stays. A credential is
cut out of a URL. Elsewhere `[redacted:<type>:<fingerprint>]` stands in its place, so that equal names stay equal.
"""

import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any, TypeVar

from pydantic import BaseModel

from counterpoint.guard.detector import Finding, normal, scan
from counterpoint.guard.judge import Released, nothing
from counterpoint.guard.kinds import Class
from counterpoint.guard.patterns import is_assigned
from counterpoint.guard.urls import without_credentials
from counterpoint.proto.subjects import PROJECT_PATTERN

T = TypeVar("T")

WITHHELD: frozenset[Class] = frozenset({"secret", "uncertain", "financial", "identity"})
"""What no name may hold. An owner may be called by an e-mail address, a host by its own: those stay."""
_PLAIN = re.compile(
    r"[a-z_.]{0,24}|[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}|[0-9a-f]{32}(?:[0-9a-f]{32})?"
    r"|\d{4}-\d\d-\d\dT[\d:.]{5,15}(?:Z|[+-]\d\d:?\d\d)"
)
"""Short words, UUIDs, hashes and times, which are most of what records hold: nothing in them is ever found."""

_REMEMBERED, _REMEMBERED_CHARS = 65_536, 500
_harmless: set[str] = set()
"""Names in which nothing is secret: the same come again with every event."""

Fingerprint = Callable[[str], str]


def kept(name: str, fingerprint: Fingerprint, released: Released = nothing) -> str:
    """What may be kept of a name; the name itself where nothing is secret in it.

    Raises `Permanent` `too_large` for what is too long to be looked through.
    """
    if name in _harmless or _PLAIN.fullmatch(name) is not None:
        return name
    result = _without(name, fingerprint, released)
    if result == name and released is nothing:
        _remember(name)
    return result


def _remember(name: str) -> None:
    if len(name) <= _REMEMBERED_CHARS:
        if len(_harmless) >= _REMEMBERED:
            _harmless.clear()
        _harmless.add(name)


def _without(name: str, fingerprint: Fingerprint, released: Released) -> str:
    if "://" in name:
        spans = [(found.start, found.end) for found in _withheld(name, released)]
        name = without_credentials(name, lambda start, end: any(s < end and e > start for s, e in spans))
    parts: list[str] = []
    at = 0
    for found in _withheld(name, released):
        parts += name[at : found.start], _tag(found.type, name[found.start : found.end], fingerprint)
        at = found.end
    return "".join([*parts, name[at:]]) if parts else name


def is_harmless(name: str) -> bool:
    """Whether all of a name may be kept."""
    return kept(name, unnamed) == name


def is_project(name: str) -> bool:
    """Whether a project may have this name: it stands in subjects, and nobody could take anything out of it."""
    return PROJECT_PATTERN.fullmatch(name) is not None and is_harmless(name)


def unnamed(value: str) -> str:
    """No fingerprint, where there is no key: what is taken out is told by its kind alone."""
    return ""


def kept_fields(paths: Iterable[str]) -> tuple[str, ...]:
    """The paths of fields that nobody knows: those whose names are harmless, and how many others there were."""
    paths = tuple(paths)
    harmless = tuple(path for path in paths if is_harmless(path))
    hidden = len(paths) - len(harmless)
    return (*harmless, f"({hidden} more, not named: what looks like a secret is in the name)") if hidden else harmless


def kept_body(
    body: Mapping[str, Any],
    but: Iterable[str],
    fingerprint: Fingerprint,
    released: Released = nothing,
) -> tuple[dict[str, Any], tuple[tuple[str, ...], ...]]:
    """A copy of `body` with what may be kept of every text and key in it, and the paths of those that changed.

    Fields in `but` stay as they are: they are texts, and judged elsewhere.
    """
    changed: list[tuple[str, ...]] = []

    def of(name: str, said: str, path: tuple[str, ...]) -> str:
        result = kept(said, fingerprint, released)
        if result == said and is_assigned(name, said) and not (released is not nothing and released(normal(said))):
            result = _tag("assignment", said, fingerprint)
        if result != said:
            changed.append(path)
        return result

    def key(name: str, path: tuple[str, ...]) -> str:
        if name in _harmless:
            return name
        result = of("", name, path)
        if result == name and released is nothing:
            _remember(name)
        return result

    def copied(name: str, value: Any, path: tuple[str, ...]) -> Any:
        match value:
            case str():
                return of(name, value, path)
            case dict():
                return {key(at, (*path, at)): copied(at, inner, (*path, at)) for at, inner in value.items()}
            case list() | tuple():
                return [copied(name, inner, path) for inner in value]
            case _:
                return value

    left = frozenset(but)
    copy = {
        name if name in left else key(name, (name,)): value if name in left else copied(name, value, (name,))
        for name, value in body.items()
    }
    return (copy if changed else dict(body)), tuple(changed)


def suspects(value: object) -> frozenset[str]:
    """The texts in a value, keys included, of which not all may be kept."""
    return frozenset(text for text in _texts(value) if not is_harmless(text))


def replaced(value: T, names: Mapping[str, str]) -> T:
    """A value with other texts in place of some; itself where it holds none of them."""
    return _replaced(value, names) if names else value


def _tag(kind: str, value: str, fingerprint: Fingerprint) -> str:
    digits = fingerprint(normal(value))
    return f"[redacted:{kind}:{digits}]" if digits else f"[redacted:{kind}]"


def _withheld(name: str, released: Released) -> list[Finding]:
    """What no name may hold. A number that nothing names may be a counter, as in texts."""
    # A slash parts the words of a name as a space does those of a text.
    findings = scan(name) or (scan(name.replace("/", " ")) if "/" in name else ())
    return [
        found
        for found in findings
        if found.kind in WITHHELD
        and found.named
        and not (released is not nothing and released(normal(name[found.start : found.end])))
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
