"""Quotes of the developer: passages keep their place, answers and proposals hold spans only."""

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from counterpoint.developer.evidence.calibration import load_calibration
from counterpoint.developer.excerpts.answers import QuestionHits
from counterpoint.developer.excerpts.citations import attributed_text, cite, quotes_text
from counterpoint.developer.excerpts.passages import Passage, is_same_text, passages, sentences
from counterpoint.developer.excerpts.relevance import Hit, grade, hits
from counterpoint.developer.policies.findings import candidates
from counterpoint.proto.memory import Item
from counterpoint.proto.messages import utc_now

KNOWN = load_calibration()
RUNBOOK = """# Printers

The spooler runs on the host `print-1`. It keeps jobs for a day. Jobs older than that are gone.

## The spooler is full

1. List the jobs with `lpstat -o`.
   Look for one that is larger than the rest.
2. Cancel it:
   ```
   cancel JOB
   ```
3. Restart the spooler.

| printer | room |
|---|---|
| big | 12 |
| small | 14 |

- paper is in the cupboard
- toner is ordered by the reception
"""


def hit_of(
    text: str,
    cosine: float,
    start: int = 0,
    source: str = "printers.md",
    query: str = "spooler",
    above: float = 0.0,
    id_: str | None = None,
) -> Hit:
    """A hit whose scores are so many deviations above those of all that was searched."""
    item = Item(
        store="chunks",
        id=id_ or source,
        project="shop",
        version=3,
        body={"document_id": source, "source": source, "text": text, "start": start, "type": "markdown"},
        author="memory",
        label=1,
        integrity=2,
        seq=1,
        at=utc_now(),
        scores={"cosine": cosine, "cosine_z": above, "lexical_z": above, "coverage": min(above, 1)},
    )
    return hits(query, [item], KNOWN.answer)[0]


def test_markdown_falls_into_steps_items_rows_and_paragraphs() -> None:
    found = passages(RUNBOOK)
    assert [passage.kind for passage in found] == ["paragraph", "step", "step", "step", "row", "row", "item", "item"]
    assert found[1].text == "1. List the jobs with `lpstat -o`.\n   Look for one that is larger than the rest."
    assert found[2].text.endswith("```")
    assert found[4].text == "| big | 12 |"


def test_only_line_ends_divide_lines() -> None:
    found = passages("A form\x0cfeed and a\u2028separator.\r\n\r\n1. One\r2. Two\n")
    assert [passage.text for passage in found] == ["A form\x0cfeed and a\u2028separator.", "1. One", "2. Two"]


def test_a_paragraph_falls_into_its_sentences_and_a_step_does_not() -> None:
    found = passages(RUNBOOK)
    assert [sentence.text for sentence in sentences(found[0])] == [
        "The spooler runs on the host `print-1`.",
        "It keeps jobs for a day.",
        "Jobs older than that are gone.",
    ]
    assert sentences(found[1]) == (found[1],)


_lines = st.sampled_from(
    [*RUNBOOK.splitlines(), "", "> quoted. And more.", "    code", "1) one", "* star", "\u2028", "```", "<b>", "---"]
)


@given(st.lists(_lines, max_size=25).map("\n".join), st.booleans())
def test_every_passage_and_sentence_is_the_text_at_its_place(text: str, markdown: bool) -> None:
    for passage in passages(text, markdown):
        assert text[passage.start : passage.end] == passage.text
        for sentence in sentences(passage):
            assert text[sentence.start : sentence.end] == sentence.text


@given(st.text(max_size=300))
def test_any_text_has_passages_at_their_place(text: str) -> None:
    for passage in (*passages(text), *passages(text, markdown=False)):
        assert text[passage.start : passage.end] == passage.text


@pytest.mark.parametrize(
    ("left", "right", "expected"),
    [
        ("Restart the spooler.", "restart  the spooler.", True),
        ("Restart the spooler.", "Do nothing.", False),
        ("Restart the spooler.", "3. Restart the spooler.", True),
        ("one two three four five six seven eight nine ten", "One two three four five six seven eight nine 10", True),
        ("one two three four five six seven eight nine ten", "ten nine eight seven six five four three two one", False),
        ("", "Restart", False),
        ("Retry.", "Whatever you do, do not retry.", False),
    ],
)  # fmt: skip
def test_same_sees_through_small_edits(left: str, right: str, expected: bool) -> None:
    assert is_same_text(left, right) is expected
    assert is_same_text(right, left) is expected


def test_a_citation_counts_from_the_start_of_the_document() -> None:
    start = RUNBOOK.index("## The spooler")
    hit = hit_of(RUNBOOK[start:], 0.7, start)
    for passage in passages(hit.text):
        citation = cite(hit, passage)
        assert RUNBOOK[citation.start : citation.end] == citation.quote
        assert (citation.id, citation.version, citation.source_path) == ("printers.md", 3, "printers.md")


QUESTIONS = ["How long does the spooler keep jobs?", "Which room is the big printer in?", "Who orders toner?"]


@pytest.mark.parametrize("question", QUESTIONS)
def test_an_answer_is_quotes_and_their_references_alone(question: str) -> None:
    made = QuestionHits(question, [hit_of(RUNBOOK, 0.7, query=question)]).quoted(KNOWN.answer.threshold)
    left = made.text
    for number, citation in enumerate(made.citations, 1):
        place = f"{citation.source_path}, characters {citation.start}" if number == 1 else f"{citation.start}"
        assert f"[{number}] {place} to {citation.end}" in left
        left = left.replace(citation.quote, "")
    left = re.sub(r"(; )?\[\d+\]( (printers\.md, characters )?\d+ to \d+)?", "", left)
    assert left.strip() == ""


def test_an_answer_takes_the_sentence_that_holds_the_words() -> None:
    made = QuestionHits(QUESTIONS[0], [hit_of(RUNBOOK, 0.7, query=QUESTIONS[0])]).quoted(KNOWN.answer.threshold)
    assert "It keeps jobs for a day." in made.citations[0].quote
    made = QuestionHits(QUESTIONS[1], [hit_of(RUNBOOK, 0.7, query=QUESTIONS[1])]).quoted(KNOWN.answer.threshold)
    assert "| printer | room |" in made.text
    assert "| big | 12 |" in made.text


def test_an_answer_that_is_a_step_brings_its_list() -> None:
    question = "How do I list the jobs of a full spooler?"
    made = QuestionHits(question, [hit_of(RUNBOOK, 0.7, query=question)]).quoted(KNOWN.answer.threshold)
    assert [made.text.index(step) for step in ("1. List", "2. Cancel", "3. Restart")] == sorted(
        made.text.index(step) for step in ("1. List", "2. Cancel", "3. Restart")
    )


def test_the_grader_wants_words_and_meaning() -> None:
    question = "Which room is the big printer in?"
    assert grade([hit_of(RUNBOOK, 0.5, query=question, above=3)], KNOWN.answer).sufficient
    assert not grade([hit_of(RUNBOOK, 0.5, query=question)], KNOWN.answer).sufficient
    assert not grade([hit_of(RUNBOOK, 0.0, query=question, above=1)], KNOWN.answer).sufficient
    assert not grade([hit_of("Rooms are cleaned daily.", 0.5, query=question, above=1)], KNOWN.answer).sufficient
    assert not grade([], KNOWN.answer).sufficient


def test_rows_of_a_table_are_quoted_under_its_header_with_all_their_numbers() -> None:
    hit = hit_of(RUNBOOK, 0.5)
    spans = ("| printer | room |\n|---|---|", "| small | 14 |", "- paper is in the cupboard")
    places = [Passage("row", RUNBOOK.index(text), RUNBOOK.index(text) + len(text), text) for text in spans]
    cited = [cite(hit, place) for place in places]
    table = "| printer | room |\n|---|---|\n| small | 14 |"
    assert quotes_text(cited).startswith(f"{table} [1][2]\n\n- paper is in the cupboard [3]")
    assert attributed_text(cited).startswith(f"From {hit.source} [1][2]:\n\n" + "> " + table.replace("\n", "\n> "))


@pytest.mark.parametrize("space", ["\n", "\n\n", "\n   "])
def test_a_procedure_stored_as_two_passages_is_one_quote(space: str) -> None:
    text = f"4. Cause all clients to reconnect, by waiting until the{space}pooler times them out.\n5. Start it again."
    first, second = text[: text.index(space)], text[text.index("pooler") :]
    cited = [
        cite(hit_of(part, 0.5, start=start, id_=id_), Passage("step", 0, len(part), part))
        for id_, part, start in (("p-1", first, 7), ("p-2", second, 7 + text.index("pooler")))
    ]
    assert quotes_text(cited).startswith(f"{text} [1][2]\n\n[1] printers.md, characters 7 to ")
    assert attributed_text(cited).count(">") == len(text.splitlines())


def test_passages_with_other_text_between_them_are_separate_quotes() -> None:
    cited = [
        cite(hit_of(part, 0.5, start=start, id_=id_), Passage("paragraph", 0, len(part), part))
        for id_, part, start in (("p-1", "One.", 0), ("p-2", "Two.", 12))
    ]
    assert quotes_text(cited).startswith("One. [1]\n\nTwo. [2]")


def test_a_candidate_is_the_block_that_has_most_words_of_the_question_and_no_heading() -> None:
    page = "Availability\n------------\n\nSpoolers are watched.\n\nRestart the spooler of the big printer.\n"
    (cited,) = candidates([hit_of(page, 0.5)], "How is the big spooler restarted?")
    assert (cited.quote, cited.role) == ("Restart the spooler of the big printer.", "candidate")
    (cited,) = candidates([hit_of(RUNBOOK, 0.5)], "Where is the small printer?")
    assert cited.quote == "| small | 14 |"
    assert candidates([hit_of("# Only a heading", 0.5)], "heading") == ()
