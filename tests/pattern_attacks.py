"""Attacks on regular expressions: texts on which a pattern backtracks most, built from its own syntax tree."""

import ast
import importlib
import re
import re._constants as op
import re._parser as parser
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from contract.product import sources, walked

_METHODS = frozenset({"search", "match", "fullmatch", "findall", "finditer", "sub", "subn", "split"})
_ENDS = ("", "\x00", "!", "\n")
_FIXED = ("a", "A", "1", "_", ".", "-", " ", "\n", "a.", "a-", "a_", "1.", "a1", "aA", "a ", ". ", "\n\n", "[", "(",
          "<", '"', "'", "`", "|", "a/", ":", "aä", "\t", "\r", "\u00a0", "{", "\\'")  # fmt: skip
_CLASSES = {
    op.CATEGORY_DIGIT: "1", op.CATEGORY_SPACE: " \n", op.CATEGORY_WORD: "a_1", op.CATEGORY_NOT_DIGIT: "a ",
    op.CATEGORY_NOT_SPACE: "a.", op.CATEGORY_NOT_WORD: " .",
}  # fmt: skip
_MANY = 200
"""Repetitions from which a bound does not count as one."""

Attack = tuple[str, str, str]
"""A beginning, what is repeated, and an end."""


@dataclass
class Target:
    """A pattern, where it is defined, and the methods by which it is used."""

    name: str
    pattern: re.Pattern[Any]
    methods: set[str] = field(default_factory=set)

    def run(self, attack: Attack, size: int) -> None:
        """Apply the pattern to an attack of about `size` characters, as the code does."""
        first, pump, end = attack
        text: Any = first + pump * (size // len(pump)) + end
        if isinstance(self.pattern.pattern, bytes):
            text = text.encode("latin1", "replace")
        for method in self.methods & {"search", "match", "fullmatch"}:
            getattr(self.pattern, method)(text)
        if self.methods & {"findall", "finditer", "sub", "subn", "split"}:
            for _ in self.pattern.finditer(text):
                pass


def targets() -> list[Target]:
    """Return the compiled patterns of all modules of the product, and those in calls of `re`."""
    uses: dict[tuple[str, str], set[str]] = {}
    found: dict[tuple[Any, int], Target] = {}
    for _, file, tree in sources():
        _read(file, tree, uses, found)
    for _, file, _ in sources():
        name = _module(file)
        try:
            module = importlib.import_module(name)
        except ModuleNotFoundError:
            continue  # an extra that is not installed
        for key, value in list(vars(module).items()):
            for pattern in _patterns(value):
                _add(found, f"{name}.{key}", pattern, uses.get((_scope(name, key), key), {"search"}))
    return list(found.values())


def attacks(pattern: re.Pattern[Any]) -> set[Attack]:
    """Return the attacks on a pattern: its repeated parts, alone and after what precedes them, with several ends."""
    text = pattern.pattern if isinstance(pattern.pattern, str) else pattern.pattern.decode("latin1")
    parts: set[tuple[str, str]] = set()
    _pumps(parser.parse(text, pattern.flags & ~re.UNICODE), "", parts)
    pumps = list(dict.fromkeys(pump for _, pump in sorted(parts)))[:8]
    found = {(first, pump, end) for first, pump in parts for end in _ENDS}
    found |= {("", pump, end) for _, pump in parts for end in _ENDS}
    found |= {("", first, end) for first, _ in parts if first for end in _ENDS}
    found |= {("", first + pump, "\x00") for first, pump in parts}
    found |= {("", pump + other, "\x00") for pump in pumps for other in pumps if pump != other}
    return found | {("", pump, "\x00") for pump in _FIXED}


def nests(pattern: re.Pattern[Any]) -> bool:
    """Return whether a pattern repeats what has an unbounded repetition: only then may it take exponential time."""
    text = pattern.pattern if isinstance(pattern.pattern, str) else pattern.pattern.decode("latin1")
    return _nests(parser.parse(text, pattern.flags & ~re.UNICODE), False)


def _nests(tree: Iterable[Any], inside: bool) -> bool:
    for kind, value in tree:
        repeats = kind in (op.MAX_REPEAT, op.MIN_REPEAT, op.POSSESSIVE_REPEAT) and value[1] > 1
        if repeats and inside:
            return True
        for inner in value if isinstance(value, tuple) else (value,):
            branches = inner if isinstance(inner, list) else [inner]
            if any(_nests(each, inside or repeats) for each in branches if isinstance(each, parser.SubPattern)):
                return True
    return False


def _read(
    file: Path, tree: ast.Module, uses: dict[tuple[str, str], set[str]], found: dict[tuple[Any, int], Target]
) -> None:
    """Note the methods by which a file uses patterns, and the patterns that it names in calls of `re`."""
    for node in walked(tree):
        match node:
            case ast.Attribute(value=ast.Name(id=key) | ast.Attribute(attr=key), attr=method) if method in _METHODS:
                uses.setdefault((_scope(_module(file), key), key), set()).add(method)
            case ast.Call(
                func=ast.Attribute(value=ast.Name(id="re"), attr=method), args=[ast.Constant(value=text), *_]
            ) if method in _METHODS:
                _add(found, f"{file}:{node.lineno}", re.compile(text), {method})


def _add(found: dict[tuple[Any, int], Target], name: str, pattern: re.Pattern[Any], methods: set[str]) -> None:
    found.setdefault((pattern.pattern, pattern.flags), Target(name, pattern)).methods.update(methods)


def _module(file: Path) -> str:
    parts = file.with_suffix("").parts
    return ".".join(parts[parts.index("counterpoint") :]).removesuffix(".__init__")


def _scope(module: str, key: str) -> str:
    return module if key.startswith("_") else ""


def _patterns(value: object, depth: int = 0) -> Iterator[re.Pattern[Any]]:
    """Yield the patterns in a value: itself, or those in its items and fields."""
    if isinstance(value, re.Pattern):
        yield value
        return
    inner: Iterable[object] = ()
    if isinstance(value, list | tuple | set | frozenset):
        inner = value
    elif isinstance(value, dict):
        inner = value.values()
    elif hasattr(value, "__dataclass_fields__") and not isinstance(value, type):
        inner = [getattr(value, name, None) for name in value.__dataclass_fields__]
    for each in inner if depth < 4 else ():
        yield from _patterns(each, depth + 1)


def _pumps(tree: Iterable[Any], first: str, found: set[tuple[str, str]]) -> None:
    """Add the unbounded parts of a syntax tree, each with a text that precedes it."""
    for kind, value in tree:
        if kind in (op.MAX_REPEAT, op.MIN_REPEAT, op.POSSESSIVE_REPEAT):
            _, most, inner = value
            if most is op.MAXREPEAT or most > _MANY:
                found |= {(first, pump) for pump in _samples(inner)[:8] if pump}
            _pumps(inner, first, found)
        elif kind is op.SUBPATTERN:
            _pumps(value[3], first, found)
        elif kind is op.ATOMIC_GROUP:
            _pumps(value, first, found)
        elif kind is op.BRANCH:
            for branch in value[1]:
                _pumps(branch, first, found)
        elif kind in (op.ASSERT, op.ASSERT_NOT):
            _pumps(value[1], first, found)
        first = (first + (_matching(kind, value) or [""])[0])[-60:]


def _samples(tree: Iterable[Any]) -> list[str]:
    """Return texts that a syntax tree may match."""
    texts = [""]
    for kind, value in tree:
        texts = [text + more for text in texts for more in _matching(kind, value)][:9]
    return texts


def _matching(kind: Any, value: Any) -> list[str]:
    match kind:
        case op.LITERAL:
            return [chr(value)]
        case op.NOT_LITERAL | op.ANY:
            return [char for char in "a " if kind is op.ANY or ord(char) != value]
        case op.IN:
            return _characters(value)[:4] or ["a"]
        case op.BRANCH:
            return [text for branch in value[1] for text in _samples(branch)[:1]][:12]
        case op.SUBPATTERN:
            return _samples(value[3])
        case op.ATOMIC_GROUP:
            return _samples(value)
        case op.MAX_REPEAT | op.MIN_REPEAT | op.POSSESSIVE_REPEAT:
            return [text * max(value[0], 1) for text in _samples(value[2])]
        case _:
            return [""]


def _characters(items: Iterable[Any]) -> list[str]:
    """Return a few characters of a class."""
    chars: list[str] = []
    negated = False
    for kind, value in items:
        if kind is op.NEGATE:
            negated = True
        elif kind is op.LITERAL:
            chars.append(chr(value))
        elif kind is op.RANGE:
            chars += [chr(value[0]), chr(value[1])]
        else:
            chars += _CLASSES.get(value, "")
    return [char for char in 'a1 ._-A\n(</"#\t' if char not in chars] if negated else chars
