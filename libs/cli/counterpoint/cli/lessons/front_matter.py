"""The front matter of a page: YAML with the line of each value, every scalar as text. Pure."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import yaml

from counterpoint.cli.lessons.page import FORM

_FENCE = "---"
_DEPTH = 6

Path = tuple[str | int, ...]


class PageError(Exception):
    """A page cannot be read: the line, the field, and the problem."""

    def __init__(self, line: int, field: str, problem: str) -> None:
        self.line, self.field, self.problem = line, field, problem
        super().__init__(f"line {line}: {field} {problem}".replace("  ", " "))


@dataclass(frozen=True)
class FrontMatter:
    """The values of the front matter, the line of each by its path, and the number of lines with the fences."""

    values: Mapping[str, Any]
    lines: Mapping[Path, int]
    length: int

    def line(self, path: Path) -> int:
        """Return the line of a field, or of the nearest one around it."""
        while path and path not in self.lines:
            path = path[:-1]
        return self.lines.get(path, 1)


def read_front_matter(lines: list[str]) -> FrontMatter | None:
    """Return the front matter of a page, None for a file that is no page of a lesson. Raises `PageError`."""
    if not lines or lines[0].rstrip() != _FENCE:
        return None
    end = next((number for number, line in enumerate(lines[1:], 1) if line.rstrip() == _FENCE), None)
    text = "\n".join(lines[1:end]) + "\n"
    if not any(line.startswith((f"{FORM}:", f"'{FORM}'", f'"{FORM}"')) for line in lines[1:end]):
        return None
    if end is None:
        raise PageError(1, "front matter", "is not ended by a line with ---")
    try:
        if any(isinstance(event, yaml.AliasEvent) for event in yaml.parse(text, Loader=yaml.SafeLoader)):
            raise PageError(1, "front matter", "must not use aliases")
        node = yaml.compose(text, Loader=yaml.SafeLoader)
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark
        raise PageError(2 + (mark.line if mark else 0), "front matter", f"is not YAML: {error.problem}") from error
    except yaml.YAMLError as error:
        raise PageError(1, "front matter", f"is not YAML: {error}") from error
    if not isinstance(node, yaml.MappingNode):
        raise PageError(2, "front matter", "must be a list of names and values")
    places: dict[Path, int] = {}
    return FrontMatter(_value(node, (), places), places, end + 1)


def field_name(path: Path) -> str:
    """Return the name of a field in messages, such as `attempts.2.by` for the second attempt."""
    return ".".join(str(each + 1) if isinstance(each, int) else each for each in path) or "front matter"


def _value(node: yaml.Node, path: Path, places: dict[Path, int]) -> Any:
    places.setdefault(path, node.start_mark.line + 2)
    if len(path) > _DEPTH:
        raise PageError(places[path], field_name(path), "is nested too deeply")
    if isinstance(node, yaml.ScalarNode):
        return None if node.tag == "tag:yaml.org,2002:null" else node.value
    if isinstance(node, yaml.SequenceNode):
        return [_value(each, (*path, place), places) for place, each in enumerate(node.value)]
    values: dict[str, Any] = {}
    for key, each in node.value:
        line = key.start_mark.line + 2
        if not isinstance(key, yaml.ScalarNode):
            raise PageError(line, field_name(path), "has a name that is not text")
        inner = (*path, key.value)
        if key.value in values:
            raise PageError(line, field_name(inner), "is given twice")
        places[inner] = line
        values[key.value] = _value(each, inner, places)
    return {name: value for name, value in values.items() if value is not None}
