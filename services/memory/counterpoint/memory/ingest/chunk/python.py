"""Python by function and class, parsed by the standard library's `ast`."""

import ast
import threading
import warnings
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import zip_longest

from counterpoint.memory.ingest.chunk.pieces import SourceSection, line_starts, short

PYTHON_LIMIT_CHARS = 256 * 1024
"""Length limit, in characters. Python's parser stops every thread while it works: half a second for the densest source
of this length."""

_parsing = threading.Lock()


def parsed(source: str) -> ast.Module:
    """Return the syntax tree. Raises `ValueError` with the reason if there is none."""
    if len(source) > PYTHON_LIMIT_CHARS:
        raise ValueError(f"longer than {PYTHON_LIMIT_CHARS} characters")
    try:
        # The warning filters are global: two threads would restore each other's.
        with _parsing, warnings.catch_warnings():
            warnings.simplefilter("ignore")
            return ast.parse(source.removeprefix("\ufeff"))
    except SyntaxError as error:
        raise ValueError(f"line {error.lineno}: {error.msg}") from error
    except (RecursionError, MemoryError) as error:
        raise ValueError("nested too deeply") from error


_Definition = ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef


@dataclass(frozen=True)
class _Unit:
    """Statements that share lines, usually one, with the comments before them."""

    start: int
    end: int
    statements: tuple[ast.stmt, ...]

    @property
    def definition(self) -> _Definition | None:
        """Return the name that a statement defines, None if it is not a definition."""
        first = self.statements[0]
        return first if isinstance(first, _Definition) else None


@dataclass(frozen=True)
class _PythonSource:
    """A source with the offset of each of its lines."""

    text: str
    starts: list[int]
    max_chars: int

    def suite(
        self, body: Sequence[ast.stmt], start: int, end: int, context: str, *, defines: bool
    ) -> Iterator[SourceSection]:
        """Return sections of `text[start:end]`, whose statements are `body`, below their head if there is one.

        Each contains as many whole statements as fit, and stays within one suite, so that it parses when it is
        dedented. A head stays with the first statement below it. If a suite `defines`, as a module and a class do, each
        definition has a section of its own.
        """
        begin = filled = start
        for unit in self._units(body, start):
            defined = defines and unit.definition is not None
            if filled > begin and (defined or unit.end - begin > self.max_chars):
                yield SourceSection(begin, filled, context)
                begin = filled
            if defined or unit.end - begin > self.max_chars:
                yield from self._group(unit, context, defines=defines)
                begin = unit.end
            filled = unit.end
        yield SourceSection(begin, end, context)

    def _group(self, unit: _Unit, outer: str, *, defines: bool) -> Iterator[SourceSection]:
        """Return sections of a statement: the statement, or its parts if it is too long."""
        node, definition, start = unit.statements[0], unit.definition, unit.start
        context = outer
        if definition is not None:
            context = f"{outer} > {self._signature(definition)}" if outer else self._signature(definition)
            defines = isinstance(definition, ast.ClassDef)
        own = self.starts[_first_line(node) - 1]
        if unit.end - start > self.max_chars and _only_comments(self.text[start:own]):
            yield SourceSection(start, own, context)
            start = own
        if unit.end - start > self.max_chars and len(unit.statements) == 1:
            yield from self._clauses(_suites(node), start, unit.end, context, defines=defines)
        else:
            yield SourceSection(start, unit.end, context)

    def _clauses(
        self, suites: Iterable[Sequence[ast.stmt]], start: int, end: int, context: str, *, defines: bool
    ) -> Iterator[SourceSection]:
        """Return sections of a statement of several suites: one that does not fit is cut, with the part before it that
        fits."""
        begin = filled = start
        for body in suites:
            finish = self._after(body[-1])
            if finish - begin > self.max_chars:
                if filled > begin and next(self._units(body, filled)).end - begin > self.max_chars:
                    yield SourceSection(begin, filled, context)
                    begin = filled
                yield from self.suite(body, begin, finish, context, defines=defines)
                begin = finish
            filled = finish
        yield SourceSection(begin, end, context)

    def _units(self, body: Sequence[ast.stmt], start: int) -> Iterator[_Unit]:
        together = list[ast.stmt]()
        for statement, following in zip_longest(body, body[1:]):
            together.append(statement)
            end = self._after(statement)
            if following is None or self.starts[_first_line(following) - 1] >= end:
                yield _Unit(start, end, tuple(together))
                start, together = end, []

    def _after(self, statement: ast.stmt) -> int:
        return self.starts[statement.end_lineno or statement.lineno]

    def _signature(self, node: _Definition) -> str:
        """Return the signature of a definition in one line, as written."""
        last = max(node.lineno, node.body[0].lineno - 1)
        return short(self.text[self.starts[node.lineno - 1] : self.starts[last]]).removesuffix(":")


def _first_line(statement: ast.stmt) -> int:
    decorators = statement.decorator_list if isinstance(statement, _Definition) else []
    return min([statement.lineno, *(decorator.lineno for decorator in decorators)])


def _only_comments(text: str) -> bool:
    return all(not line.strip() or line.lstrip().startswith("#") for line in text.splitlines())


def _suites(node: ast.stmt) -> Iterator[Sequence[ast.stmt]]:
    """Return the suites of a statement in their order; each `elif` of an `if` is one of them."""
    match node:
        case ast.If():
            yield node.body
            while len(node.orelse) == 1 and isinstance(inner := node.orelse[0], ast.If) and _is_elif(node, inner):
                yield inner.body
                node = inner
            yield from filter(None, [node.orelse])
        case ast.For() | ast.AsyncFor() | ast.While():
            yield from filter(None, (node.body, node.orelse))
        case ast.Try() | ast.TryStar():
            handlers = (handler.body for handler in node.handlers)
            yield from filter(None, (node.body, *handlers, node.orelse, node.finalbody))
        case ast.Match():
            yield from (case.body for case in node.cases)
        case ast.With() | ast.AsyncWith() | ast.FunctionDef() | ast.AsyncFunctionDef() | ast.ClassDef():
            yield node.body


def _is_elif(node: ast.If, inner: ast.If) -> bool:
    return inner.col_offset == node.col_offset


def python(source: str, max_chars: int) -> list[SourceSection]:
    """Return each definition as a section; of a class that is too long each of its members. Raises `ValueError` with
    the reason if the source does not parse."""
    module = parsed(source)
    cut = _PythonSource(source, line_starts(source), max_chars)
    return list(cut.suite(module.body, 0, len(source), "", defines=True))
