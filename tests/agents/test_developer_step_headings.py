"""A procedure whose steps are headings is quoted whole, in order, with its warnings, as far as it fits."""

import pytest
from agents.section_pages import CURVE, hits_of

from counterpoint.developer.excerpts.answers import QuestionHits
from counterpoint.developer.excerpts.sections import sections
from counterpoint.developer.excerpts.selection import LIMIT
from counterpoint.developer.policies.procedures import procedures

FAILOVER = """# Ledger

## Fail over to the standby

Never do this while the standby replays.

### {0}1{1}Stop the writer

Run `ledgerctl stop writer` on the primary.

Warning: a writer that is killed leaves its lock behind.

### {0}2{1}Promote the standby

Run `ledgerctl promote standby-b`.

### {0}3{1}Point the clients at it

Change the alias `ledger.internal`, then start the writer.

## Sizes

A ledger has at most 64 segments.
"""
PLACES = ("Never do this", "Stop the writer", "ledgerctl stop", "Warning: a writer", "Promote", "standby-b", "alias")


@pytest.mark.parametrize("around", [("", ". "), ("", ") "), ("Step ", ": "), ("Schritt ", " - ")])
def test_steps_that_are_headings_come_whole_in_order_with_their_warnings(around: tuple[str, str]) -> None:
    page = ("ledger.md", FAILOVER.format(*around))
    question = "How do I promote the standby of the ledger?"
    answer = QuestionHits(question, hits_of(question, page)).quoted(CURVE.threshold).text
    failure = "the primary of the ledger is gone and the standby has to be promoted"
    best, *_ = procedures(failure, hits_of(failure, page))
    for text in (answer, best.text):
        places = [text.index(each) for each in PLACES]
        assert places == sorted(places)
    assert len(answer) <= LIMIT
    assert len(best.numbered) == 3
    assert (best.summary or "").startswith("Fail over to the standby: Stop the writer; Promote the standby")


def test_steps_that_are_too_long_for_an_answer_keep_their_headings_in_order() -> None:
    long = FAILOVER.format("", ". ").replace("on the primary.", "on the primary. " + "It flushes what it holds. " * 40)
    question = "How do I promote the standby of the ledger?"
    text = QuestionHits(question, hits_of(question, ("ledger.md", long))).quoted(CURVE.threshold).text
    places = [text.index(each) for each in ("1. Stop the writer", "2. Promote the standby", "3. Point the clients")]
    assert places == sorted(places)
    assert "ledgerctl promote standby-b" in text
    assert len(text) <= LIMIT


def test_numbered_chapters_and_headings_out_of_order_stay_sections_of_their_own() -> None:
    filler = "The clerk looks at the list of open entries and closes one. " * 20
    chapters = "".join(f"## {n}. Chapter\n\n1. {filler}\n2. {filler}\n\n" for n in (1, 2))
    apart = "# Ledger\n\n## 1. Stop\n\nStop it.\n\n## 3. Start\n\nStart it.\n"
    for page in (f"# Ledger\n\n{chapters}", apart):
        made = sections(hits_of("the clerk stops", ("ledger.md", page)))
        assert not any(each.has_step_headings for each in made)
