"""Questions that ask for a value, such as a default, a frequency, a number or a person, and those of a young memory."""

from typing import Any

import pytest
from agents.section_pages import CURVE, hits_of

from counterpoint.developer.excerpts.answers import QuestionHits
from counterpoint.developer.excerpts.selection import LACKING_MAX
from counterpoint.developer.language.kinds import kind_of
from counterpoint.developer.language.question_terms import question_terms


@pytest.mark.parametrize(
    ("page", "given"),
    [("`slot.keep_gb` sets how much a slot keeps.\n\n`slot.idle_h` is 72 by default.", False),
     ("`slot.keep_gb` (default 40) sets how much a slot keeps.", True),
     ("Keep slots small:\n\n`slot.keep_gb: 40`", True),
     ("| Setting | Default |\n| --- | --- |\n| slot.keep_gb | 40 |", True)],
)  # fmt: skip
def test_default_of_a_setting_is_answered_by_a_sentence_that_gives_it(page: str, given: bool) -> None:
    for name in ("slot.keep_gb", "slotKeep"):
        text = page.replace("slot.keep_gb", name)
        question = f"What is the default of {name}?"
        made = QuestionHits(question, hits_of(question, ("slots.md", f"# Slots\n\n{text}\n"))).grade(CURVE)
        assert (made.probability > LACKING_MAX) == given


@pytest.mark.parametrize("text", ["It can be run once per minute.", "Der Lauf startet einmal pro Stunde."])
def test_question_how_often_asks_for_a_frequency(text: str) -> None:
    kind = kind_of("how often can it be started")
    assert kind is not None
    assert kind.answers.search(text)


@pytest.mark.parametrize(
    ("said", "given"),
    [("The filter of the pump is changed every spring.", True),
     ("The filter of the pump has to be wet for 20 minutes.", False)],
)  # fmt: skip
def test_question_how_often_is_not_answered_without_a_frequency(said: str, given: bool) -> None:
    for question in ("How often is the filter of the pump changed?", "How often is the filter of the pump wet?"):
        asked = QuestionHits(question, hits_of(question, ("pump.md", f"# Pump\n\n{said}\n")))
        assert (asked.grade(CURVE).probability > LACKING_MAX) is given


@pytest.mark.parametrize(
    ("said", "given"),
    [("Nobody counts the keepers of the tower at night, but the horn does.", False),
     ("At night 3 keepers of the tower count the horns.", True)],
)  # fmt: skip
def test_question_how_many_is_not_answered_without_a_number(said: str, given: bool) -> None:
    question = "How many keepers does the tower have at night?"
    asked = QuestionHits(question, hits_of(question, ("tower.md", f"# Tower\n\n{said}\n")))
    assert (asked.grade(CURVE).probability > LACKING_MAX) is given


@pytest.mark.parametrize(("heading", "given"), [("How often do I oil the horn?", True), ("The horn", False)])
def test_answer_to_a_question_of_a_page_needs_no_word_of_it(heading: str, given: bool) -> None:
    page = f"# Tower\n\n## {heading}\n\nEvery ninety days, and never at night.\n"
    question = "How often is the horn oiled?"
    asked = QuestionHits(question, hits_of(question, ("tower.md", page)))
    assert (asked.grade(CURVE).probability > LACKING_MAX) is given


@pytest.mark.parametrize(
    ("question", "said"),
    [
        ("How many guests may enter the hall?", "with one exception guests enter the hall"),
        ("Who decides on the colour of the hall?", "it is painted"),
    ],
)
def test_value_is_not_in_any_text(question: str, said: str) -> None:
    kind = kind_of(question)
    assert kind is not None
    assert not kind.answers.search(said)


@pytest.mark.parametrize(
    ("question", "said"),
    [
        ("Whom do I call about the pump?", "Pump: site office, bleep 77"),
        ("Who may open the hall?", "only Mrs Bell"),
        ("Wer gibt die Halle frei?", "nur die Prüfstelle"),
        ("Who may open the hall?", "The purchasing department"),
    ],
)
def test_person_may_be_a_title_a_role_or_a_way_to_reach_one(question: str, said: str) -> None:
    kind = kind_of(question)
    assert kind is not None
    assert kind.answers.search(said)


def test_answer_to_a_question_of_a_page_is_quoted_with_its_first_paragraph() -> None:
    rows = "\n".join(f"| blue pump {n} | a blue pump in the hall of the blue pumps |" for n in range(40))
    answer = "No. It was sold in spring, and the basin is empty.\n\nThe list of last year is kept here for the insurer."
    page = f"# Pumps\n\n## Is it in the hall?\n\n{answer}\n\n| Name | Place |\n| --- | --- |\n{rows}\n"
    question = "Which hall is the blue pump in?"
    asked = QuestionHits(question, hits_of(question, ("pumps.md", page)))
    assert "It was sold in spring" in asked.quoted(CURVE.threshold).text


ORDERS = """# Orders

## How orders travel

`fetch_orders` reads the orders of the day before and never those of today. Its account is kept in the directory,
where a lookup takes at most 5 seconds.

## Harbour

Slips of the harbour are {}.
"""


@pytest.mark.parametrize(("kept", "given"), [("kept for 40 days", True), ("kept in a box", False)])
def test_question_how_long_is_answered_by_the_sentence_that_says_it_or_not_at_all(kept: str, given: bool) -> None:
    question = "How long are slips of the harbour kept?"
    asked = QuestionHits(question, hits_of(question, ("orders.md", ORDERS.format(kept))))
    assert asked.grade(CURVE).sufficient is given
    if given:
        assert kept in asked.quoted(CURVE.threshold).text
    other = "How long are orders kept?"
    assert not QuestionHits(other, hits_of(other, ("orders.md", ORDERS.format(kept)))).grade(CURVE).sufficient


DELETION = """# Deletion of log entries

Log entries of the store can be deleted. Entries in a time window that match a filter are deleted.

## Retention of log entries

Deleted log entries are kept in the store until the next compaction, and a delete request can be cancelled.

## Disk of the store

Corrupted or deleted files of the log are skipped by the store.
"""


@pytest.mark.parametrize(
    ("question", "given"),
    [
        ("Are deleted log entries kept in the store until the next compaction?", True),
        ("Can the ruler delete log entries automatically?", False),
        ("Which role can delete log entries of the store?", False),
        ("How long until log entries are deleted by the ruler?", False),
    ],
)
def test_page_of_the_right_system_that_says_nothing_of_the_thing_asked_is_no_answer(question: str, given: bool) -> None:
    grade = QuestionHits(question, hits_of(question, ("log-deletion.md", DELETION))).grade(CURVE)
    assert (grade.probability > 0.5) is given
    assert grade.sufficient is given


def test_everyday_words_tell_nothing_and_names_that_resemble_them_do() -> None:
    question = "How do I get the resolver of the orders loader to start again?"
    assert question_terms(question, ()).telling == {"resolv", "order", "loader"}
    assert "tabell" in question_terms("Wie lösche ich die Tabelle?", ()).telling
    assert "losch" not in question_terms("Wie lösche ich die Tabelle?", ()).telling


BACKUPS = ("backups.md", "# Backups\n\nBackups are kept for 30 days in the vault.\n")


DISK = ("disk.md", "# Disk of orders\n\nThe disk of orders is 20 GB. It is extended by the storage team.\n")


COFFEE = ("coffee.md", "# Coffee\n\nThe machine is descaled on Mondays.\n")


FULL = "The disk of orders was full."


@pytest.mark.parametrize(
    ("question", "pages"),
    [
        (
            "Was the disk of orders full?",
            (("0.md", FULL), ("1.md", "The network of billing was down."), ("2.md", FULL)),
        ),
        ("How long are backups kept?", (BACKUPS,)),
        ("How large is the disk of orders?", (DISK,)),
        ("How often is the machine descaled?", (COFFEE, BACKUPS)),
    ],
)
def test_a_question_is_answered_from_the_first_pages_of_a_memory(question: str, pages: Any) -> None:
    assert QuestionHits(question, hits_of(question, *pages)).grade(CURVE).sufficient


@pytest.mark.parametrize("question", ["How large is the disk of billing?", "In which region is the disk of orders?"])
def test_the_only_page_of_a_memory_does_not_answer_every_question(question: str) -> None:
    assert not QuestionHits(question, hits_of(question, DISK)).grade(CURVE).sufficient
