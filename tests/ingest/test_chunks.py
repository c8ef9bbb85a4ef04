"""Chunking loses nothing, keeps offsets exact and says where a chunk comes from."""

import argparse
import ast
import textwrap
from pathlib import Path
from typing import get_args

import pytest
from growth import LIMIT, growth
from hypothesis import given, settings
from hypothesis import strategies as st

from counterpoint.memory.ingest.chunk import (
    FREE_CHUNKS,
    LIMIT_LINES,
    PYTHON_LIMIT_CHARS,
    ChunkedDocument,
    ContentType,
    chunk,
    detect,
)

BY_SPAN: list[ContentType] = [each for each in get_args(ContentType) if each != "conversation"]
"""A conversation leaves more out than white space: `test_conversation.py`."""

_words = st.text(st.characters(codec="utf-8"), max_size=60)
_markdown_lines = ["# One", "## Two", "###### Six", "Title\n=====", "Sub\n---", "```", "~~~py", "- item", "> # quoted"]
_odd_lines = [
    "| a | b |\n|---|---|\n| 1 | 2 |",
    "---",
    "title: x",
    "",
    "\t",
    "\r",
    "\x0c",
    "\u2028",
    "\ufeff",
    "x" * 300,
]
_python_lines = [
    "def f(a,\n      b):",
    "    return 1",
    "class A(B):",
    "    @property",
    "    async def g(self):",
    "@dec",
]
_python_parts = [
    "        pass",
    "x = '''",
    "'''",
    "if x:",
    "# comment",
    "import os; import sys",
    "y = \\",
    "    indented",
]
_script_lines = [
    "export class A {",
    "}",
    "  m(x) {",
    "/** doc */",
    "const f = () => `${x",
    "é = 1; y = '🦊'",
    "\x0c",
    "====",
]
_lines = st.sampled_from([*_markdown_lines, *_odd_lines, *_python_lines, *_python_parts, *_script_lines])
documents = st.lists(_lines | _words, max_size=40).flatmap(
    lambda lines: st.sampled_from(["\n", "\r\n", "\r", "\n\n", " "]).map(lambda end: end.join(lines))
)


@st.composite
def programs(draw: st.DrawFn, depth: int = 0) -> str:
    """Valid Python of functions, classes, comments and statements, nested."""
    members = []
    for n in range(draw(st.integers(1, 4))):
        match draw(
            st.sampled_from(["def", "class", "decorated", "statement", "comment"] if depth < 3 else ["statement"])
        ):
            case "def":
                members.append(f"async def f{n}(a, b=1):\n" + textwrap.indent(draw(programs(depth + 1)), "    "))
            case "class":
                members.append(f"class C{n}(Base):\n" + textwrap.indent(draw(programs(depth + 1)), "    "))
            case "decorated":
                members.append(f"@register(\n    {n}\n)\ndef g{n}(): return {n}\n")
            case "statement":
                members.append(f"x{n} = {draw(st.integers())}; y{n} = '''a\n\nb'''\n" * draw(st.integers(1, 30)))
            case "comment":
                members.append(f"# about {n}\n\npass\n")
    return draw(st.sampled_from(["", "\n", "\n\n\n"])).join(members)


def assert_nothing_lost(source: str, chunked: ChunkedDocument, max_chars: int) -> None:
    at = 0
    for piece in chunked.chunks:
        assert source[piece.start : piece.end] == piece.text
        assert piece.start >= at
        assert source[at : piece.start].strip() == ""
        assert 0 < len(piece.text) <= max_chars
        assert piece.text.strip()
        at = piece.end
    assert source[at:].strip() == ""


@given(source=documents, kind=st.sampled_from(BY_SPAN), max_chars=st.integers(1, 200))
def test_any_document_is_covered_in_order_by_chunks_within_the_limit(
    source: str, kind: ContentType, max_chars: int
) -> None:
    assert_nothing_lost(source, chunk(source, kind, max_chars), max_chars)


@settings(deadline=None)
@given(source=programs(), max_chars=st.integers(1, 400))
def test_any_program_is_covered_in_order_by_chunks_within_the_limit(source: str, max_chars: int) -> None:
    chunked = chunk(source, "python", max_chars)
    assert chunked.type == "python"
    assert chunked.problem is None
    assert_nothing_lost(source, chunked, max_chars)


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


def test_markdown_is_cut_by_heading_and_carries_the_path_of_titles() -> None:
    source = textwrap.dedent("""\
        ---
        title: orders
        ---
        Preamble.

        # Runbook

        ## DNS

        Check the resolver.

        ```sh
        # not a heading
        dig host
        ```

        ### Firewall `389`
        Open it.

        Owners
        ------
        > # quoted, not a heading
        """)
    chunks = chunk(source, "markdown").chunks
    assert [(piece.context, piece.text.splitlines()[0]) for piece in chunks] == [
        ("", "---"),
        ("Runbook > DNS", "# Runbook"),
        ("Runbook > DNS > Firewall `389`", "### Firewall `389`"),
        ("Runbook > Owners", "Owners"),
    ]


def test_a_long_section_is_cut_between_its_paragraphs() -> None:
    source = "# T\n\n" + "\n\n".join(f"Paragraph {n}. " + "word " * 60 for n in range(12))
    chunks = chunk(source, "markdown").chunks
    assert len(chunks) > 3
    assert all(piece.text.startswith(("# T", "Paragraph")) for piece in chunks)


def test_plain_text_is_cut_between_paragraphs_then_lines_then_sentences_then_words() -> None:
    sentence = "One two three four five. "
    assert all(piece.text.endswith(".") for piece in chunk(sentence * 100, "text").chunks)
    assert all(piece.text.endswith("five") for piece in chunk("five " * 1000, "text").chunks)
    assert [len(piece.text) for piece in chunk("x" * 2500, "text").chunks] == [1000, 1000, 500]


@pytest.mark.parametrize(
    ("name", "source", "expected"),
    [
        ("runbook.md", "plain", "markdown"),
        ("dag.py", "(", "python"),
        ("notes.txt", "# not a heading", "text"),
        ("setup.cfg", "# a comment", "text"),
        ("-", "# Heading\n\ntext", "markdown"),
        ("-", "import os\n\ndef f():\n    pass\n", "python"),
        ("-", "#!/usr/bin/env python3\nprint(1)\n", "python"),
        ("-", "import duty is high\nfrom x import y is what he said\n", "text"),
        ("", "", "text"),
        ("guide.rst", "", "restructuredtext"),
        ("app.mjs", "", "javascript"),
        ("view.tsx", "", "typescript"),
        ("page.HTML", "", "html"),
        ("-", "<!-- saved --> <!DOCTYPE html><html>", "html"),
        ("manual.pdf", "", "pdf"),
        ("lab.ipynb", "{}", "notebook"),
    ],
)
def test_the_type_is_known_by_name_then_by_content(name: str, source: str, expected: ContentType) -> None:
    assert detect(name, source) == expected


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


def test_a_bold_question_of_an_faq_is_a_heading_and_a_bold_warning_is_none() -> None:
    source = textwrap.dedent("""\
        # FAQ

        **Which versions are there?**

        3.11 and 3.12.

        **Do not install into the base environment.**

        **How do I install a kernel?**

        1. Load the module.

        ## Rest

        **Really?** Yes.
        """)
    chunks = chunk(source, "markdown").chunks
    assert [(piece.context, piece.text.splitlines()[-1]) for piece in chunks] == [
        ("FAQ > Which versions are there?", "**Do not install into the base environment.**"),
        ("FAQ > How do I install a kernel?", "1. Load the module."),
        ("FAQ > Rest", "**Really?** Yes."),
    ]


def test_a_question_that_is_a_term_of_a_definition_list_is_a_heading() -> None:
    source = textwrap.dedent("""\
        Operation
        =========

        How do I rotate the key?
            1. Stage it.

            Nothing has to be done on the cluster.

        May I skip versions?
            No.

        Why not? Because the format changes.

        What is kept?

            A block.

        Rest
        ====
        All.
        """)
    chunks = chunk(source, "restructuredtext").chunks
    assert [(piece.context, piece.text.splitlines()[-1].strip()) for piece in chunks] == [
        ("Operation > How do I rotate the key?", "Nothing has to be done on the cluster."),
        ("Operation > May I skip versions?", "A block."),
        ("Rest", "All."),
    ]


def test_restructured_text_is_cut_by_heading_whose_level_is_told_by_the_order_of_adornments() -> None:
    source = textwrap.dedent("""\
        ========
        Provider
        ========

        Install
        -------
        It is a package::

            Not a title
            -----------

        ======  =====
        Table   Value
        ======  =====

        Options
        ~~~~~~~
        Some.

        Changes
        -------
        None.
        """)
    chunks = chunk(source, "restructuredtext").chunks
    assert [(piece.context, piece.text.splitlines()[0]) for piece in chunks] == [
        ("Provider > Install", "========"),
        ("Provider > Install > Options", "Options"),
        ("Provider > Changes", "Changes"),
    ]


def test_pages_are_cut_at_form_feeds_and_know_their_title_and_number() -> None:
    chunks = chunk("First.\f\fThird." + " More." * 300, "pdf", title="Pump  manual").chunks
    assert [piece.context for piece in chunks] == ["Pump manual > page 1", *["Pump manual > page 3"] * 2]
    assert chunk("First.", "pdf").chunks[0].context == "page 1"


def test_comments_that_lead_to_no_page_are_text_at_once() -> None:
    assert detect("notes", "<!-- a --> " * 300 + "<html>") == "html"
    assert detect("notes", "<!---->" * 300 + "text") == "text"


def test_a_rule_at_the_top_of_a_text_with_crlf_is_no_front_matter() -> None:
    text = "---\r\nNote: this\r\n" + "and that.\r\n" * 300
    assert chunk(text, "markdown").chunks[0].text.startswith("---\r\nNote")
    assert chunk(text + "---\r\n# Title\r\n\r\nText.\r\n", "markdown").chunks[-1].context == "Title"


@pytest.mark.parametrize("type", sorted({*get_args(ContentType)} - {"text"}))
def test_a_document_of_very_many_lines_is_cut_as_text(type: ContentType) -> None:
    document = chunk("- a\n" * (LIMIT_LINES + 1), type)
    assert (document.type, document.problem is not None) == (type, True)
    assert "lines" in (document.problem or "")
    assert len(document.chunks) <= 4 * LIMIT_LINES // 500 + 1


@pytest.mark.parametrize(("type", "section"), [("markdown", "# a\n"), ("conversation", "User: a\n"), ("pdf", "a\f")])
def test_a_document_of_very_many_short_sections_is_cut_as_text(type: ContentType, section: str) -> None:
    few, many = chunk(section * FREE_CHUNKS, type), chunk(section * 2 * FREE_CHUNKS, type)
    assert (len(few.chunks), few.problem) == (FREE_CHUNKS, None)
    assert "sections" in (many.problem or "")
    assert (many.type, len(many.chunks) < 50) == (type, True)


@pytest.mark.parametrize("unit", ["x", "[", "The valve is closed. ", "a,", "`", "# ", "|"], ids=repr)
@pytest.mark.parametrize("type", ["markdown", "text"])
def test_a_document_of_one_line_is_cut_in_linear_time(type: ContentType, unit: str) -> None:
    assert growth(lambda size: chunk(unit * (size // len(unit)), type), 256 * 1024) < LIMIT
