"""Python is cut at its definitions, and each chunk knows what it belongs to; what cannot be parsed is text."""

import argparse
import ast
import textwrap
from pathlib import Path

import pytest
from ingest.covered_text import assert_nothing_lost

from counterpoint.memory.ingest.chunk import (
    PYTHON_LIMIT_CHARS,
    chunk,
    detect,
)


def test_each_definition_of_a_real_module_is_in_chunks_that_carry_its_signature() -> None:
    source = Path(argparse.__file__).read_text()
    chunked = chunk(source, "python")
    assert_nothing_lost(source, chunked, 1000)
    lines = source.splitlines(keepends=True)
    for node in ast.parse(source).body:
        if isinstance(node, ast.ClassDef):
            members = [node, *(member for member in node.body if isinstance(member, ast.FunctionDef))]
        else:
            members = [node] if isinstance(node, ast.FunctionDef) else []
        for member in members:
            start = sum(map(len, lines[: member.lineno - 1]))
            assert any(
                piece.start <= start < piece.end and f"{node.name}" in piece.context for piece in chunked.chunks
            ), member.name


def test_a_function_that_fits_is_one_chunk_with_its_comment_and_decorators() -> None:
    source = (
        "import os\n\n\n# Why it is so.\n@cached\ndef first(a: int) -> str:\n    return a\n\n\ndef second():\n    pass"
    )
    chunks = chunk(source, "python").chunks
    assert [piece.context for piece in chunks] == ["", "def first(a: int) -> str", "def second()"]
    assert chunks[1].text == "# Why it is so.\n@cached\ndef first(a: int) -> str:\n    return a"


def test_a_long_class_is_cut_at_its_methods_and_each_knows_its_class() -> None:
    methods = "".join(f"\n    def m{n}(self):\n        return '{'x' * 400}'\n" for n in range(3))
    chunks = chunk(f"class Loader(Base):\n    '''Loads.'''\n{methods}", "python").chunks
    assert [piece.context for piece in chunks] == [
        "class Loader(Base)",
        *(f"class Loader(Base) > def m{n}(self)" for n in range(3)),
    ]
    for piece in chunks[1:]:
        ast.parse(textwrap.dedent(piece.text))


def test_a_long_function_is_cut_between_statements() -> None:
    source = "def long():\n" + "".join(f"    value_{n} = compute(\n        {n},\n    )\n" for n in range(60))
    chunks = chunk(source, "python").chunks
    assert len(chunks) > 1
    for piece in chunks[1:]:
        ast.parse(textwrap.dedent(piece.text))


@pytest.mark.parametrize(
    ("source", "reason"),
    [
        ("def broken(:\n    pass\n", "line 1"),
        ("x = 'a\x00b'", "null bytes"),
        ("(" * 5000, "line 1"),
        ("x = " + "-" * 100_000 + "1", "nested too deeply"),
        ("s = '\ud800'", "surrogates"),
    ],
)
def test_broken_python_is_read_as_text_and_says_so(source: str, reason: str) -> None:
    chunked = chunk(source, "python")
    assert chunked.type == "python", "which it is for all that: who looks for programs finds it"
    assert chunked.problem is not None
    assert reason in chunked.problem
    assert_nothing_lost(source, chunked, 1000)


def test_a_python_file_with_a_byte_order_mark_and_bad_escapes_is_still_python() -> None:
    source = "\ufeffpattern = '\\d'\r\ndef f():\r\n    return 1 is 1\r\n"
    chunked = chunk(source, "python")
    assert chunked.type == "python"
    assert chunked.chunks[-1].context == "def f()"
    assert_nothing_lost(source, chunked, 1000)


def test_python_that_would_stop_every_thread_is_cut_as_text(monkeypatch: pytest.MonkeyPatch) -> None:
    parsed: list[int] = []
    parse = ast.parse

    def counted(source: str) -> ast.Module:
        parsed.append(len(source))
        return parse(source)

    monkeypatch.setattr(ast, "parse", counted)
    largest = "x = 1\n" * (PYTHON_LIMIT_CHARS // 6)
    assert chunk(largest, "python").type == "python"
    cut = chunk(largest + "y = 2\n" * 6, "python")
    assert (cut.type, cut.problem) == ("python", "not read as Python but as plain text: longer than 262144 characters")
    assert detect("start", "import os\nimport sys\n" + largest) == "text"
    assert parsed == [len(largest)]
