"""Secrets to plant, each found again by a needle of its own, and the places to plant them in, out of the schemas."""

import base64
import json
import random
import re
import string
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

from counterpoint.guard.detector import scan
from counterpoint.guard.kinds import class_of

Path = tuple[str | int, ...]
"""Keys and indexes that lead to a place; the last one may be `KEY`."""
KEY = "\0the name of a field"
_WORD = string.ascii_letters + string.digits
_SAMPLES = ("x1", "default", "/x1", "0" * 16, "0" * 64, "1", "*", "chunks/x1", "2026-11-20T12:00:00Z")


@dataclass(frozen=True)
class Secret:
    """A planted text, and the part of it that must be found nowhere."""

    text: str
    needle: str


class Mint:
    """Makes secrets that the detector knows, each another one, of one kind after the other."""

    def __init__(self, seed: int) -> None:
        self._random = random.Random(seed)
        self._kinds: tuple[Callable[[], Secret], ...] = (
            lambda: self._plain("AKIA", 16, string.ascii_uppercase + "234567"),
            lambda: self._plain("ghp_", 36),
            lambda: self._plain("sk_live_", 24),
            lambda: self._plain("xoxb-", 32),
            lambda: self._plain("sk-", 32, string.ascii_lowercase + string.digits),
            self._jwt,
            self._private_key,
            lambda: self._around("postgresql://etl:{}@db.internal:5432/orders"),
            lambda: self._around("https://ci.internal/log?token={}&try=2"),
            lambda: self._around("https://robot:{}@git.internal/etl/orders.git"),
            lambda: self._around("Bearer {}", 40),
            lambda: self._around("password={}"),
            self._card,
            self._iban,
        )
        self._made = 0

    def secret(self, fits: Callable[[str], bool] = lambda text: True) -> Secret:
        """The next secret that fits a place; where none does, the next."""
        order = [(self._made + turn) % len(self._kinds) for turn in range(len(self._kinds))]
        self._made += 1
        for kind in (*order, order[0]):
            made = self._certain(self._kinds[kind])
            if fits(made.text):
                return made
        return made

    def _certain(self, make: Callable[[], Secret]) -> Secret:
        """One that the detector finds: its recall is measured elsewhere."""
        while True:
            made = make()
            found = [f for f in scan(made.text) if class_of(f.type) in ("secret", "financial")]
            if any(made.needle in made.text[f.start : f.end] for f in found):
                return made

    def _drawn(self, length: int, letters: str = _WORD) -> str:
        return "".join(self._random.choices(letters, k=length))

    def _plain(self, prefix: str, length: int, letters: str = _WORD) -> Secret:
        drawn = self._drawn(length, letters)
        return Secret(prefix + drawn, prefix + drawn)

    def _around(self, form: str, length: int = 20) -> Secret:
        drawn = self._drawn(length)
        return Secret(form.format(drawn), drawn)

    def _jwt(self) -> Secret:
        parts = ({"alg": "HS256", "typ": "JWT"}, {"sub": self._drawn(12)})
        head, body = (base64.urlsafe_b64encode(json.dumps(part).encode()).decode().rstrip("=") for part in parts)
        signature = self._drawn(43)
        return Secret(f"{head}.{body}.{signature}", signature)

    def _private_key(self) -> Secret:
        line = self._drawn(64)
        return Secret(f"-----BEGIN PRIVATE KEY-----\n{line}\n{self._drawn(40)}\n-----END PRIVATE KEY-----", line)

    def _card(self) -> Secret:
        digits = "4" + self._drawn(14, string.digits)
        doubled = [int(d) * (2 if place % 2 == 0 else 1) for place, d in enumerate(digits)]
        number = digits + str(-sum(d - 9 if d > 9 else d for d in doubled) % 10)
        return Secret(f"card {number}", number)

    def _iban(self) -> Secret:
        account = self._drawn(18, string.digits)
        number = f"DE{98 - int(f'{account}131400') % 97:02}{account}"
        return Secret(number, number)


@dataclass(frozen=True)
class Schema:
    """A JSON Schema inside a document that its references point into."""

    document: dict[str, Any]
    value: dict[str, Any]

    @property
    def arms(self) -> tuple["Schema", ...]:
        """The schemas that a value may have, but for null."""
        value = self.value
        while "$ref" in value:
            here: Any = self.document
            for part in value["$ref"].removeprefix("#/").split("/"):
                here = here[part]
            value = here
        arms = [arm for each in ("anyOf", "oneOf", "allOf") for arm in value.get(each, ()) if arm.get("type") != "null"]
        if not arms:
            return (Schema(self.document, value),)
        return tuple(inner for arm in arms for inner in Schema(self.document, arm).arms)

    def under(self, part: str | int) -> "Schema":
        """The schema of a property, or of the items."""
        value = self.value["items"] if isinstance(part, int) else self.value["properties"][part]
        return Schema(self.document, value)

    def sample(self) -> Any:
        """A smallest value."""
        value = self.arms[0].value
        if "const" in value:
            return value["const"]
        if "enum" in value:
            return value["enum"][0]
        match value.get("type"):
            case "object":
                return {name: self.arms[0].under(name).sample() for name in value.get("required", ())}
            case "array":
                return [self.arms[0].under(0).sample()] if value.get("minItems") else []
            case "integer" | "number":
                return value.get("minimum", 1)
            case "boolean":
                return False
            case "string" if value.get("format") == "date-time":
                return "2026-11-20T12:00:00Z"
            case "string":
                return next((text for text in _SAMPLES if self.fits(text)), "x1")
            case _:
                return {}

    def fits(self, text: str) -> bool:
        """Whether some arm takes this text."""
        return any(
            arm.value.get("type") == "string"
            and arm.value.get("format") != "date-time"
            and text in arm.value.get("enum", (text,))
            and text == arm.value.get("const", text)
            and len(text) <= arm.value.get("maxLength", len(text))
            and re.search(arm.value.get("pattern", ""), text) is not None
            for arm in self.arms
        )

    def places(self) -> Iterator[Path]:
        """Every field, the name of an unknown one at each level, and what an open object holds."""
        yield from dict.fromkeys(place for arm in self.arms for place in arm._places())

    def _places(self) -> Iterator[Path]:
        match self.value.get("type"):
            case "object" if "properties" in self.value:
                yield (KEY,)
                yield ("unknown",)
                for name in self.value["properties"]:
                    yield from ((name, *place) for place in self.under(name).places())
            case "object":
                yield from ((KEY,), ("inner",), ("inner", KEY), ("inner", 0, "deep"))
            case "array":
                yield from ((0, *place) for place in self.under(0).places())
            case _:
                yield ()

    def planted(self, place: Path, text: str) -> Any:
        """A sample with `text` at a place."""
        if not place:
            return text
        part, *rest = place
        arms = [arm for arm in self.arms if arm.value.get("type") == ("array" if isinstance(part, int) else "object")]
        if not arms:
            return _open(place, text)
        arm = next((arm for arm in arms if part in arm.value.get("properties", ())), arms[0])
        if isinstance(part, int):
            return [arm.under(0).planted(tuple(rest), text)]
        body = arm.sample()
        if part in arm.value.get("properties", ()):
            return {**body, part: arm.under(part).planted(tuple(rest), text)}
        return {**body, **_open(place, text)}

    def at(self, place: Path) -> "Schema | None":
        """The schema of a place; None where nothing is known of it."""
        here = self
        for part in place:
            known = [a for a in here.arms if isinstance(part, int) or part in a.value.get("properties", ())]
            if not known or (isinstance(part, int) and "items" not in known[0].value):
                return None
            here = known[0].under(part)
        return here


def _open(place: Path, text: str) -> Any:
    if not place:
        return text
    part, *rest = place
    if isinstance(part, int):
        return [_open(tuple(rest), text)]
    return {text: "x"} if part == KEY else {part: _open(tuple(rest), text)}


def leaves(value: Any, path: Path = ()) -> Iterator[Path]:
    """Every text, number and truth value of a JSON value."""
    if isinstance(value, dict):
        for name, inner in value.items():
            yield from leaves(inner, (*path, name))
    elif isinstance(value, list):
        for index, inner in enumerate(value):
            yield from leaves(inner, (*path, index))
    else:
        yield path


def replaced(value: Any, path: Path, by: Any) -> Any:
    """A copy of a JSON value with another at a path."""
    if not path:
        return by
    part, *rest = path
    if isinstance(value, dict):
        return {**value, part: replaced(value.get(str(part)), tuple(rest), by)}
    return [replaced(each, tuple(rest), by) if index == part else each for index, each in enumerate(value)]


def spelled(place: Path) -> str:
    """A place for people: `target.job.name`, `context.<name>`."""
    return ".".join("<name>" if part == KEY else str(part) for part in place)
