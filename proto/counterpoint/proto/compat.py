"""Breaking changes between two versions of the schemas: `python -m counterpoint.proto.compat [OLD NEW]`.

Without folders, the schemas of the last commit are compared with the working tree. Messages are kept and replayed, so a
new reader must accept what an old writer wrote; and an old reader must find the fields it relies on in what
Counterpoint sends. The exit code is 1 when there is a break.
"""

import argparse
import json
import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from pydantic import BaseModel, ConfigDict

from counterpoint.proto.generate import FOLDER

Schema = Mapping[str, Any]
Above = frozenset[tuple[int, int]]
"""The pairs of schemas above the present one; ends the comparison of recursive schemas."""

_LOWER_BOUNDS = ("minimum", "exclusiveMinimum", "minLength", "minItems", "minProperties")
_UPPER_BOUNDS = ("maximum", "exclusiveMaximum", "maxLength", "maxItems", "maxProperties")
_EXACT = ("pattern", "format", "multipleOf", "uniqueItems")


class Break(BaseModel):
    """One breaking change: message type, dotted path of the field, and the change."""

    model_config = ConfigDict(frozen=True)

    type: str
    field: str
    what: str

    def __str__(self) -> str:
        return f"{self.type}: {self.field}: {self.what}" if self.field else f"{self.type}: {self.what}"


def breaks(old: Mapping[str, Schema], new: Mapping[str, Schema]) -> tuple[Break, ...]:
    """Return the breaks between two sets of schemas by message type. An added type is not a break."""
    found: list[Break] = []
    for name, before in sorted(old.items()):
        after = new.get(name)
        if after is None:
            found.append(Break(type=name, field="", what="the type was removed"))
            continue
        found += (Break(type=name, field=field, what=what) for field, what in _Comparison(before, after).breaks())
    return tuple(found)


def read(folder: Path) -> dict[str, Schema]:
    """Return the schemas of a folder by message type. Raises `FileNotFoundError`."""
    if not folder.is_dir():
        raise FileNotFoundError(f"{folder} is not a folder")
    return {path.stem: json.loads(path.read_text(encoding="utf-8")) for path in sorted(folder.glob("*.json"))}


def committed(folder: Path) -> dict[str, Schema] | None:
    """Return the schemas of a folder at the last commit, or None before the first one.

    Raises `CalledProcessError` when git fails.
    """
    known = _git(folder, "rev-parse", "--verify", "--quiet", "HEAD^{commit}")
    if known.returncode == 1:
        return None
    known.check_returncode()
    listed = _git(folder, "ls-tree", "--name-only", "HEAD", "./")
    listed.check_returncode()
    found = {}
    for name in listed.stdout.splitlines():
        if name.endswith(".json"):
            shown = _git(folder, "show", f"HEAD:./{name}")
            shown.check_returncode()
            found[Path(name).stem] = json.loads(shown.stdout)
    return found


def main(arguments: list[str]) -> int:
    """Run the command and return its exit code: 0 compatible, 1 broken, 2 nothing to compare."""
    parser = argparse.ArgumentParser(prog="python -m counterpoint.proto.compat", description=__doc__)
    parser.add_argument("folders", type=Path, nargs="*", metavar="FOLDER", help="the old schemas and the new ones")
    folders = parser.parse_args(arguments).folders
    match folders:
        case []:
            new = read(FOLDER / "schemas")
            old = committed(FOLDER / "schemas")
        case [before, after]:
            old, new = read(before), read(after)
        case _:
            parser.error("give two folders or none")
    if old is None:
        print("no commit to compare with", file=sys.stderr)
        return 2
    found = breaks(old, new)
    for one in found:
        print(one)
    return 1 if found else 0


class _Comparison:
    """A comparison of two versions of one schema, each with its own definitions."""

    def __init__(self, old: Schema, new: Schema) -> None:
        self._old, self._new = old, new
        self._emitted = new.get("x-sent-by", old.get("x-sent-by")) == "counterpoint"

    def breaks(self) -> Iterator[tuple[str, str]]:
        return self._compare(self._old, self._new, "", frozenset())

    def _compare(self, old: Schema, new: Schema, path: str, above: Above) -> Iterator[tuple[str, str]]:
        before, after = _arms(self._old, old), _arms(self._new, new)
        for arm in before:
            yield from min((list(self._arm(arm, other, path, above)) for other in after), key=len)
        if self._emitted and (more := _all_types(after) - _all_types(before)):
            yield path, f"readers may now receive {', '.join(sorted(more))}"

    def _arm(self, old: Schema, new: Schema, path: str, above: Above) -> Iterator[tuple[str, str]]:
        if (id(old), id(new)) in above:
            return
        above = above | {(id(old), id(new))}
        if missing := _types(old) - _types(new):
            yield path, f"the type was narrowed: {', '.join(sorted(missing))} is no longer accepted"
            return
        yield from _values(old, new, path)
        yield from _bounds(old, new, path)
        yield from self._fields(old, new, path, above)
        for keyword, suffix in (("items", "[]"), ("additionalProperties", ".*")):
            before, after = old.get(keyword, True), new.get(keyword, True)
            if after is False and before is not False:
                yield path + suffix, "is no longer accepted"
            elif isinstance(after, Mapping) and before is not False:
                yield from self._compare(before if isinstance(before, Mapping) else {}, after, path + suffix, above)

    def _fields(self, old: Schema, new: Schema, path: str, above: Above) -> Iterator[tuple[str, str]]:
        before, after = old.get("properties", {}), new.get("properties", {})
        was, needed = set(old.get("required", ())), set(new.get("required", ()))
        for name, inner in before.items():
            here = f"{path}.{name}" if path else name
            if name not in after:
                yield here, "the field was removed"
                continue
            yield from self._compare(inner, after[name], here, above)
            if self._emitted and name in was - needed:
                yield here, "the field may now be absent"
        for name in sorted(needed - was):
            here = f"{path}.{name}" if path else name
            yield here, "the field became required" if name in before else "a new field is required"


def _arms(root: Schema, schema: Schema) -> list[Schema]:
    """Return the alternatives of a schema, with references resolved."""
    if "$ref" in schema:
        return _arms(root, root["$defs"][schema["$ref"].removeprefix("#/$defs/")])
    for keyword in ("anyOf", "oneOf"):
        if keyword in schema:
            return [arm for inner in schema[keyword] for arm in _arms(root, inner)]
    return [schema]


_ALL_TYPES = frozenset({"null", "boolean", "string", "integer", "fraction", "object", "array"})


def _types(schema: Schema) -> frozenset[str]:
    """Return the JSON types a schema accepts; `number` includes integers."""
    named = schema.get("type")
    if named is None:
        return _ALL_TYPES if "enum" not in schema and "const" not in schema else _types_of(_known_values(schema) or [])
    found = frozenset([named] if isinstance(named, str) else named)
    return found - {"number"} | {"integer", "fraction"} if "number" in found else found


def _types_of(values: Sequence[Any]) -> frozenset[str]:
    names = {type(None): "null", bool: "boolean", str: "string", int: "integer", float: "fraction"}
    return frozenset(names[type(value)] for value in values)


def _known_values(schema: Schema) -> list[Any] | None:
    return [schema["const"]] if "const" in schema else schema.get("enum")


def _all_types(schemas: Sequence[Schema]) -> frozenset[str]:
    return frozenset[str]().union(*map(_types, schemas))


def _values(old: Schema, new: Schema, path: str) -> Iterator[tuple[str, str]]:
    before, after = _known_values(old), _known_values(new)
    if after is None:
        return
    if before is None:
        yield path, f"only {', '.join(map(str, after))} is accepted now"
    elif removed := [value for value in before if value not in after]:
        yield path, f"the value {', '.join(map(str, removed))} was removed"


def _bounds(old: Schema, new: Schema, path: str) -> Iterator[tuple[str, str]]:
    for keyword in _LOWER_BOUNDS:
        if keyword in new and new[keyword] > old.get(keyword, float("-inf")):
            yield path, f"{keyword} was raised from {old.get(keyword, 'none')} to {new[keyword]}"
    for keyword in _UPPER_BOUNDS:
        if keyword in new and new[keyword] < old.get(keyword, float("inf")):
            yield path, f"{keyword} was lowered from {old.get(keyword, 'none')} to {new[keyword]}"
    for keyword in _EXACT:
        if keyword in new and new[keyword] != old.get(keyword):
            yield path, f"{keyword} was changed to {new[keyword]}"


def _git(folder: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(["git", "-C", str(folder), *arguments], capture_output=True, text=True, check=False)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
