"""Chunking loses nothing, keeps offsets exact and says where a chunk comes from."""

import textwrap
from typing import get_args

import pytest
from growth import LIMIT, growth
from hypothesis import given, settings
from hypothesis import strategies as st
from ingest.covered_text import assert_nothing_lost

from counterpoint.memory.ingest.chunk import (
    FREE_CHUNKS,
    LIMIT_LINES,
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
