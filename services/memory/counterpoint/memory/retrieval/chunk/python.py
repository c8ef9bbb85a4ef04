"""Python by function and class, as the standard library's `ast` sees them."""

import ast
import threading
import warnings
from collections.abc import Iterator
from dataclasses import dataclass

from counterpoint.memory.retrieval.chunk.pieces import Section, line_starts, short

PYTHON_LIMIT_CHARS = 256 * 1024
"""Python's own parser stops every thread while it works: half a second for the densest source of this length."""

_parsing = threading.Lock()


def parsed(source: str) -> ast.Module:
    """The syntax tree; raises `ValueError` with the reason where there is none."""
    if len(source) > PYTHON_LIMIT_CHARS:
        raise ValueError(f"longer than {PYTHON_LIMIT_CHARS} characters")
    try:
        # What is done with warnings is everybody's: two threads would put back each other's.
        with _parsing, warnings.catch_warnings():
            warnings.simplefilter("ignore")
            return ast.parse(source.removeprefix("\ufeff"))
    except SyntaxError as error:
        raise ValueError(f"line {error.lineno}: {error.msg}") from error
    except (RecursionError, MemoryError) as error:
        raise ValueError("nested too deeply") from error


_Definition = ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef


@dataclass(frozen=True)
class _PythonSource:
    """A source with the offset of each of its lines."""

    text: str
    starts: list[int]
    max_chars: int

    def block(self, body: list[ast.stmt], start: int, end: int, context: str) -> Iterator[Section]:
        """Sections of `text[start:end]`, whose statements are `body`: each definition one, what lies between them one.

        Comments and decorators belong to the definition below them.
        """
        begin, cursor, breaks = start, start, list[int]()
        for statement in body:
            finish = min(max(self._after(statement), cursor), end)
            if not isinstance(statement, _Definition):
                breaks += [cursor, *self._breaks(statement)]
                cursor = finish
                continue
            yield Section(begin, cursor, context, tuple(breaks))
            yield from self._definition(statement, cursor, finish, context)
            begin, cursor, breaks = finish, finish, []
        yield Section(begin, end, context, tuple(breaks))

    def _definition(self, node: _Definition, start: int, end: int, outer: str) -> Iterator[Section]:
        """One section; of a class too long for one chunk, its head and each of its members."""
        context = f"{outer} > {self._signature(node)}" if outer else self._signature(node)
        if isinstance(node, ast.ClassDef) and end - start > self.max_chars:
            yield from self.block(node.body, start, end, context)
        else:
            yield Section(start, end, context, tuple(self._breaks(node)))

    def _breaks(self, statement: ast.stmt) -> list[int]:
        """The beginnings of the lines on which the statements within this one begin."""
        nested = (child for child in ast.walk(statement) if isinstance(child, ast.stmt) and child is not statement)
        return sorted({self.starts[child.lineno - 1] for child in nested})

    def _after(self, statement: ast.stmt) -> int:
        return self.starts[statement.end_lineno or statement.lineno]

    def _signature(self, node: _Definition) -> str:
        """The line that defines it as it is written, on one line."""
        last = max(node.lineno, node.body[0].lineno - 1)
        return short(self.text[self.starts[node.lineno - 1] : self.starts[last]]).removesuffix(":")


def python(source: str, max_chars: int) -> list[Section]:
    """Each definition a section, and of a class that is too long each of its members. Raises `ValueError` with the
    reason where it does not parse."""
    module = parsed(source)
    return list(_PythonSource(source, line_starts(source), max_chars).block(module.body, 0, len(source), ""))
