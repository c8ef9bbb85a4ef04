"""JavaScript and TypeScript are cut by what they define; the comments above belong to it."""

import importlib
import textwrap
import threading
import time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from counterpoint.memory.ingest.chunk import ChunkedDocument, chunk
from counterpoint.memory.ingest.chunk.script import SCRIPT_LIMIT_CHARS

script_module = importlib.import_module("counterpoint.memory.ingest.chunk.script")

LONG = "  // " + "why " * 120 + "\n"

_parts = st.sampled_from(
    [
        "import a from 'é';",
        "// 🦊 about\n/** doc */",
        "export const f = (a) => {\n  return a;\n};",
        "class A {\n  #x = 1;\n  @dec\n  m(a) {\n" + LONG + "    return 1;\n  }\n  n() {" + LONG + "}\n}",
        "function g() {\n" + "  call('ü');\n" * 150 + "}",
        "module.exports = function () {};",
        "if (x) { y(); } else {",
        "const t = `${",
        "}",
        "<div/>",
        "a(); b(); function c() {}",
    ]
)


def assert_exact(source: str, chunked: ChunkedDocument, max_chars: int) -> None:
    at = 0
    for piece in chunked.chunks:
        assert source[piece.start : piece.end] == piece.text
        assert source[at : piece.start].strip() == ""
        assert piece.start >= at
        assert 0 < len(piece.text) <= max_chars
        at = piece.end
    assert source[at:].strip() == ""


@given(
    st.lists(_parts, max_size=10), st.sampled_from(["\n", "\r\n", "\n\n\n", " "]), st.booleans(), st.integers(1, 1000)
)
def test_any_program_is_covered_in_order_by_chunks_within_the_limit(
    parts: list[str], end: str, typed: bool, max_chars: int
) -> None:
    source = end.join(parts)
    assert_exact(source, chunk(source, "typescript" if typed else "javascript", max_chars), max_chars)


def test_functions_classes_and_constants_are_chunks_with_their_comments() -> None:
    source = textwrap.dedent("""\
        import { a } from 'b';
        const limit = 1; // a number

        /** Loads – twice. */
        export async function load(url, { retries = 2 } = {}) {
          return fetch(url);
        }

        // The pool.
        export default class Pool extends Base {
          size = 1;
        }
        export const close = async (pool) => { await pool.end(); };
        module.exports.open = function (name) { return name; };
        """)
    chunked = chunk(source, "javascript")
    assert_exact(source, chunked, 1000)
    assert [(piece.context, piece.text.splitlines()[0]) for piece in chunked.chunks] == [
        ("", "import { a } from 'b';"),
        ("export async function load(url, { retries = 2 } = {})", "/** Loads – twice. */"),
        ("export default class Pool extends Base", "// The pool."),
        ("export const close = async (pool) =>", "export const close = async (pool) => { await pool.end(); };"),
        ("module.exports.open = function (name)", "module.exports.open = function (name) { return name; };"),
    ]


def test_a_long_class_is_cut_at_its_methods_and_each_knows_its_class() -> None:
    methods = "".join(f"\n  /** About {n}. */\n  m{n}(x) {{\n{LONG}    return {n};\n  }}\n" for n in range(3))
    source = f"export class Loader<T> extends Base {{\n  private size = 1;\n{methods}}}\n"
    chunked = chunk(source, "typescript")
    assert_exact(source, chunked, 1000)
    assert [piece.context for piece in chunked.chunks] == [
        "export class Loader<T> extends Base",
        *(f"export class Loader<T> extends Base > m{n}(x)" for n in range(3)),
    ]
    assert all(piece.text.lstrip().startswith("/** About") for piece in chunked.chunks[1:])


def test_a_long_function_is_cut_between_statements() -> None:
    source = "function long() {\n" + "".join(f"  call(\n    {n},\n  );\n" for n in range(100)) + "}\n"
    first, *rest = chunk(source, "javascript").chunks
    assert first.context == rest[0].context == "function long()"
    assert all(piece.text.lstrip().startswith("call(") for piece in rest)


@pytest.mark.parametrize(
    ("source", "context"),
    [
        ("export interface Shape<T> { size: T }", "export interface Shape<T>"),
        ("export type Name = string | number;", "export type Name = string | number"),
        ("enum Color { Red }", "enum Color"),
        ("declare module 'x' { function f(): void }", "declare module 'x'"),
        ("abstract class Q<T> { abstract m(): void }", "abstract class Q<T>"),
        ("const View: React.FC = () => <div>{x}</div>;", "const View: React.FC = () => <div>{x}</div>"),
        ("const n = <number>value;", ""),
    ],
)
def test_typescript_syntax_is_parsed_with_and_without_jsx(source: str, context: str) -> None:
    (piece,) = chunk(source, "typescript").chunks
    assert piece.context == context


def test_a_program_that_is_too_long_is_cut_as_text_and_says_so() -> None:
    chunked = chunk("x(); y(); z();\n" * (SCRIPT_LIMIT_CHARS // 15 + 1), "javascript")
    assert chunked.type == "javascript"
    assert chunked.problem == "not read as JavaScript but as plain text: longer than 524288 characters"


def test_a_file_that_parses_too_long_is_cut_as_text_and_blocks_no_thread(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(script_module, "PARSE_LIMIT", 3_000)
    source, over = "[1:2] a: " * 4_000, threading.Event()
    turns: list[float] = []

    def waiting() -> None:
        while not over.wait(0.001):
            turns.append(time.monotonic())

    other = threading.Thread(target=waiting)
    other.start()
    chunked = chunk(source, "javascript")
    over.set()
    other.join()
    assert (chunked.type, chunked.problem) == (
        "javascript",
        "not read as JavaScript but as plain text: takes too long to parse",
    )
    assert_exact(source, chunked, 1000)
    assert len(turns) > 10


def test_a_program_of_the_greatest_length_is_parsed() -> None:
    source = ("{a:1}{a:1}\n" * SCRIPT_LIMIT_CHARS)[:SCRIPT_LIMIT_CHARS]
    assert chunk(source, "javascript").problem is None
