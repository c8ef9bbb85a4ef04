"""Texts of others on a card are shown as texts, within the width of the page."""

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st
from ui.card_texts import card_text
from ui.cli_data import answered, escalated, incident

from counterpoint.card.content import card
from counterpoint.card.render import Format, markdown, normalised, render, text
from counterpoint.proto.tasks import Task
from counterpoint.proto.titles import TITLE_CHARS


def test_no_line_is_wider_than_the_page_unless_one_word_or_a_command_is() -> None:
    for task in (incident(), escalated(), answered()):
        assert all(len(line) <= 100 for line in card_text(task).splitlines() if "counterpoint " not in line)


printable = st.text(st.characters(exclude_categories=["C", "Z"], include_characters=" \n"), max_size=400)


@given(printable, st.text(max_size=400))
def test_any_text_makes_a_card_of_every_format(error: str, proposal: str) -> None:
    task = Task.model_validate(incident(error_message=error, proposal=proposal))
    made = card(task, verbose=True)
    for word in error.split():
        assert word in text(made)
    for form in Format:
        assert render(made, form)
    assert len(made.title) <= TITLE_CHARS


@given(st.text(max_size=300), st.text(max_size=300))
def test_control_characters_are_removed_from_a_card(error: str, title: str) -> None:
    escape = "\x1b[2J\x07"
    task = Task.model_validate(incident(error_message=error + escape, title=escape + title, reason=escape))
    for form in Format:
        assert not re.search(r"[\x00-\x08\x0b-\x1f\x7f-\x9f]", render(card(task, verbose=True), form))


def test_bidirectional_controls_are_shown_as_text() -> None:
    task = Task.model_validate(incident(error_message="rm \u202e/tmp\u2066", title="\u202dx" * 200))
    for form in Format:
        shown = render(card(task, verbose=True), form)
        assert not re.search("[\u202a-\u202e\u2066-\u2069]", shown)
        assert "u202e/tmp" in shown
    assert len(card(task).title) <= TITLE_CHARS


@pytest.mark.parametrize("said", ["**bold** _word_ [x](javascript:a)", "<script>alert(1)</script>", "# head", "1 | 2"])
def test_markdown_shows_the_texts_of_others_verbatim(said: str) -> None:
    shown = markdown(card(Task.model_validate(incident(reason=said))))
    line = next(line for line in shown.splitlines() if line.startswith("**reason**"))
    assert re.sub(r"\\(.)", r"\1", line.removeprefix("**reason** ")) == said
    assert not re.search(r"(?<!\\)[*\[<|]|(?<!\\)_word", line.removeprefix("**reason** "))


def test_cards_of_two_runs_are_equal_but_for_ids_and_times() -> None:
    other = incident(
        task_id="incident-ffffffffffffffffffffffff",
        context=incident()["context"] | {"failed_at": "2026-11-18T06:11:59.123456+00:00"},
    )
    assert card_text(incident()) != card_text(other)
    assert normalised(card_text(incident())) == normalised(card_text(other))
    assert normalised(card_text(incident())) != normalised(card_text(incident(attempt=2)))
