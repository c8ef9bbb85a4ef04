"""Every chunk of Python parses, but for what no cut of at most 1,000 characters can help."""

import ast
import sysconfig
import textwrap
import warnings
from pathlib import Path

import pytest

from counterpoint.memory.ingest.chunk import MAX_CHARS, chunk

STDLIB = Path(sysconfig.get_paths()["stdlib"])
BRANCHES = ("else", "elif", "except", "finally", "case", "try", "match")


def parses(text: str) -> bool:
    """Dedented, or below a head where a string in it reaches further left."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for source in (textwrap.dedent(text), "if 1:\n" + text):
            try:
                ast.parse(source)
            except SyntaxError:
                continue
            return True
    return False


def first_within(node: ast.stmt) -> ast.stmt:
    """The statement that a head has to stay with, whatever heads are between them."""
    while True:
        match node:
            case ast.Match():
                node = node.cases[0].body[0]
            case ast.stmt(body=[ast.stmt() as first, *_]):
                node = first
            case _:
                return node


def too_long(source: str) -> list[tuple[int, int]]:
    """The lines of what cannot be cut and is longer than a chunk: statements, and heads with what is first in them."""
    # A form feed ends no line of Python.
    lines = [f"{line}\n" for line in source.split("\n")]
    spans = (
        (node.lineno, first_within(node).end_lineno or 0)
        for node in ast.walk(ast.parse(source))
        if isinstance(node, ast.stmt)
    )
    return [(begin, end) for begin, end in spans if len("".join(lines[begin - 1 : end])) > MAX_CHARS]


@pytest.mark.parametrize(
    ("folder", "step"),
    [
        *((folder, 1) for folder in ("json", "asyncio", "email", "http", "importlib", "unittest")),
        (".", 5),
        pytest.param(".", 1, marks=pytest.mark.slow),
    ],
)
def test_chunks_of_the_standard_library_parse(folder: str, step: int) -> None:
    """Every file of a folder, or every `step`th."""
    of_one_statement = of_a_branch = whole = 0
    for path in sorted((STDLIB / folder).glob("*.py"))[::step]:
        source = path.read_text(encoding="utf-8", errors="ignore")
        chunked = chunk(source, "python")
        if chunked.problem:
            continue
        assert "".join("".join(piece.text.split()) for piece in chunked.chunks) == "".join(source.split())
        inseparable = too_long(source)
        for piece in chunked.chunks:
            first = source.count("\n", 0, piece.start) + 1
            last = first + piece.text.count("\n")
            if parses(piece.text):
                whole += 1
            elif any(begin <= last and first <= end for begin, end in inseparable):
                of_one_statement += 1
            else:
                of_a_branch += 1
                code = [line.split() for line in piece.text.splitlines() if line.strip() and line.strip()[0] != "#"]
                assert any(words[0].rstrip(":") in BRANCHES for words in code), (path, piece.text)
    assert whole > 10
    assert of_a_branch <= 0.04 * (whole + of_a_branch)


@pytest.mark.parametrize(
    "source",
    [
        "class A(Base):\n    @dec\n    def m(self):\n" + "        call('some value')\n" * 80,
        "class A:\n" + "".join(f"\n    def m{n}(self):\n        return '{'x' * 400}'\n" for n in range(4)),
        "def f():\n    for x in y:\n        if x:\n" + "            call('some value')\n" * 80 + "    return x\n",
        "def f():\n    if a:\n        one()\n    elif b:\n        two()\n    else:\n" + "        three(value)\n" * 80,
        "# " + "comment\n# " * 200 + "\n" + "x = 1\n" * 100,
        "async def f():\n    async with a as b:\n        await c\n" + "        call('''a\nb''')\n" * 80,
    ],
)
def test_a_long_block_of_statements_is_cut_into_chunks_that_parse(source: str) -> None:
    chunks = chunk(source, "python").chunks
    assert len(chunks) > 1
    assert all(parses(piece.text) for piece in chunks), [piece.text for piece in chunks if not parses(piece.text)]
