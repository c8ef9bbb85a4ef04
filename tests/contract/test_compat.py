"""Breaking changes are found and named before a release; additions pass."""

import json
import subprocess
from copy import deepcopy
from pathlib import Path
from typing import Any

import pytest

from counterpoint.proto import compat, generate

TYPE = "counterpoint.trial.sent.v1"

BASE: dict[str, Any] = {
    "x-sent-by": "other-systems",
    "type": "object",
    "properties": {
        "kind": {"type": "string", "enum": ["a", "b"]},
        "text": {"type": "string", "minLength": 1, "maxLength": 10, "pattern": "^x"},
        "count": {"anyOf": [{"type": "number", "minimum": 0, "maximum": 9}, {"type": "null"}]},
        "names": {"type": "array", "items": {"type": "string"}, "maxItems": 5},
        "free": {"type": "object", "additionalProperties": True},
        "inner": {"$ref": "#/$defs/Inner"},
    },
    "required": ["kind", "text"],
    "$defs": {
        "Inner": {
            "type": "object",
            "properties": {
                "deep": {"type": "integer"},
                "again": {"anyOf": [{"$ref": "#/$defs/Inner"}, {"type": "null"}]},
            },
            "required": ["deep"],
        }
    },
}
EMITTED = BASE | {"x-sent-by": "counterpoint"}
OPEN = {"anyOf": [{"type": "string", "enum": ["a", "b"]}, {"type": "string"}]}


def changed(path: str, value: Any, base: dict[str, Any] = BASE) -> dict[str, Any]:
    """The schema with the value at a path of keys; None takes the key away."""
    schema = deepcopy(base)
    *way, last = path.split("/")
    here = schema
    for key in way:
        here = here[int(key)] if isinstance(here, list) else here[key]
    if value is None:
        del here[last]
    else:
        here[last] = value
    return schema


def breaks_of(old: dict[str, Any], new: dict[str, Any]) -> list[str]:
    """The breaks, without the type's name."""
    return [str(one).removeprefix(f"{TYPE}: ") for one in compat.breaks({TYPE: old}, {TYPE: new})]


BREAKS = {
    "properties/names": (None, "names: the field was removed"),
    "required": (["kind", "text", "count"], "count: the field became required"),
    "properties/kind/enum": (["a"], "kind: the value b was removed"),
    "properties/kind": ({"type": "string", "const": "a"}, "kind: the value b was removed"),
    "properties/text/minLength": (2, "text: minLength was raised from 1 to 2"),
    "properties/text/maxLength": (9, "text: maxLength was lowered from 10 to 9"),
    "properties/text/pattern": ("^xy", "text: pattern was changed to ^xy"),
    "properties/text/format": ("uri", "text: format was changed to uri"),
    "properties/text/enum": (["x"], "text: only x is accepted now"),
    "properties/text/type": ("integer", "text: the type was narrowed: string is no longer accepted"),
    "properties/count/anyOf": (
        [{"type": "number", "minimum": 0, "maximum": 9}],
        "count: the type was narrowed: null is no longer accepted",
    ),
    "properties/count/anyOf/0/type": ("integer", "count: the type was narrowed: fraction is no longer accepted"),
    "properties/count/anyOf/0/minimum": (1, "count: minimum was raised from 0 to 1"),
    "properties/count/anyOf/0/maximum": (8, "count: maximum was lowered from 9 to 8"),
    "properties/count/anyOf/0/exclusiveMinimum": (0, "count: exclusiveMinimum was raised from none to 0"),
    "properties/names/maxItems": (4, "names: maxItems was lowered from 5 to 4"),
    "properties/names/minItems": (1, "names: minItems was raised from none to 1"),
    "properties/names/items": ({"type": "string", "maxLength": 3}, "names[]: maxLength was lowered from none to 3"),
    "properties/free/additionalProperties": (False, "free.*: is no longer accepted"),
    "additionalProperties": (False, ".*: is no longer accepted"),
    "$defs/Inner/properties/deep": (None, "inner.deep: the field was removed"),
    "$defs/Inner/properties/deep/type": ("null", "inner.deep: the type was narrowed: integer is no longer accepted"),
}


@pytest.mark.parametrize("path", BREAKS)
def test_each_kind_of_break_is_named(path: str) -> None:
    value, expected = BREAKS[path]
    assert breaks_of(BASE, changed(path, value)) == [expected]


def test_a_new_required_field_and_a_removed_type_are_breaks() -> None:
    new = changed("required", ["kind", "text", "who"])
    new["properties"]["who"] = {"type": "string"}
    assert breaks_of(BASE, new) == ["who: a new field is required"]
    assert [str(one) for one in compat.breaks({TYPE: BASE}, {})] == [f"{TYPE}: the type was removed"]


def test_free_form_that_gets_a_shape_is_a_break() -> None:
    new = changed("properties/free/additionalProperties", {"type": "string"})
    assert breaks_of(BASE, new) == [
        "free.*: the type was narrowed: array, boolean, fraction, integer, null, object is no longer accepted"
    ]


ADDITIONS = {
    "properties/later": {"type": "string"},
    "required": ["kind"],
    "properties/kind/enum": ["a", "b", "c"],
    "properties/kind": {"type": "string"},
    "properties/text": {"type": "string"},
    "properties/text/maxLength": 11,
    "properties/text/pattern": None,
    "properties/text/description": "Words.",
    "properties/count/anyOf": [{"type": "number"}, {"type": "null"}, {"type": "string"}],
    "properties/names/maxItems": None,
    "$defs/Inner/properties/deep/type": "number",
    "properties/inner": BASE["$defs"]["Inner"],
}


@pytest.mark.parametrize("path", ADDITIONS)
def test_accepting_more_input_is_compatible(path: str) -> None:
    assert breaks_of(BASE, changed(path, ADDITIONS[path])) == []


def test_a_new_type_passes() -> None:
    assert compat.breaks({}, {TYPE: BASE}) == ()


def test_loosening_an_emitted_field_is_a_break() -> None:
    assert breaks_of(EMITTED, changed("required", ["kind"], EMITTED)) == ["text: the field may now be absent"]
    wider = changed("properties/names", {"anyOf": [BASE["properties"]["names"], {"type": "string"}]}, EMITTED)
    assert breaks_of(EMITTED, wider) == ["names: readers may now receive string"]


def test_an_open_set_may_lose_and_gain_values() -> None:
    old = changed("properties/kind", OPEN, EMITTED)
    assert breaks_of(old, changed("properties/kind/anyOf/0/enum", ["b", "c"], old)) == []


def test_the_command_names_each_break_and_fails(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    old, new = tmp_path / "old", tmp_path / "new"
    for folder, schema in ((old, BASE), (new, changed("properties/text", None))):
        folder.mkdir()
        (folder / f"{TYPE}.json").write_text(json.dumps(schema))
    assert compat.main([str(old), str(old)]) == 0
    assert compat.main([str(old), str(new)]) == 1
    assert capsys.readouterr().out == f"{TYPE}: text: the field was removed\n"


def test_a_work_tree_is_compared_with_the_last_commit(tmp_path: Path) -> None:
    folder = tmp_path / "schemas"
    folder.mkdir()
    _git(tmp_path, "init", "--quiet")
    assert compat.committed(folder) is None
    (folder / f"{TYPE}.json").write_text(json.dumps(BASE))
    _git(tmp_path, "add", ".")
    _git(tmp_path, "-c", "user.name=t", "-c", "user.email=t@example.net", "commit", "--quiet", "-m", "first")
    (folder / f"{TYPE}.json").write_text(json.dumps(changed("properties/text", None)))
    committed = compat.committed(folder)
    assert committed == {TYPE: BASE}
    assert [one.field for one in compat.breaks(committed, compat.read(folder))] == ["text"]


def test_unreadable_schemas_are_an_error(tmp_path: Path) -> None:
    with pytest.raises(subprocess.CalledProcessError):
        compat.committed(tmp_path)
    with pytest.raises(FileNotFoundError):
        compat.read(tmp_path / "missing")


def test_schemas_are_compatible_with_the_last_commit() -> None:
    folder = generate.FOLDER / "schemas"
    if not (generate.FOLDER.parent / ".git").exists():
        pytest.skip("no git repository")
    old = compat.committed(folder)
    if old is not None:
        assert [str(one) for one in compat.breaks(old, compat.read(folder))] == []


def _git(folder: Path, *arguments: str) -> None:
    subprocess.run(["git", "-C", str(folder), *arguments], check=True)
