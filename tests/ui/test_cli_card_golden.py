"""Golden cards: six kinds of failure, each for a terminal, as markdown and as plain text, short and verbose."""

import json
from pathlib import Path

import pytest

from counterpoint.card.content import card
from counterpoint.card.render import Format, render
from counterpoint.proto.tasks import Task
from counterpoint.proto.titles import TITLE_CHARS

FOLDER = Path(__file__).parent / "cards"
TASKS = sorted(path.stem for path in FOLDER.glob("*.json"))
ENDINGS = {Format.TERMINAL: "terminal.txt", Format.MARKDOWN: "md", Format.PLAIN: "txt"}


def task_of(name: str) -> Task:
    return Task.model_validate(json.loads((FOLDER / f"{name}.json").read_text()))


def test_there_is_a_card_of_each_kind() -> None:
    assert TASKS == ["airflow", "dbt", "flink", "kubernetes", "plain", "spark"]


@pytest.mark.parametrize("name", TASKS)
@pytest.mark.parametrize("form", Format)
def test_a_card_is_the_golden_one(name: str, form: Format, pytestconfig: pytest.Config) -> None:
    shown = render(card(task_of(name)), form) + "\n"
    golden = FOLDER / f"{name}.{ENDINGS[form]}"
    if pytestconfig.getoption("--update"):
        golden.write_text(shown)
    assert shown == golden.read_text()


@pytest.mark.parametrize("name", TASKS)
def test_a_verbose_card_is_the_golden_one(name: str, pytestconfig: pytest.Config) -> None:
    shown = render(card(task_of(name), verbose=True), Format.PLAIN) + "\n"
    golden = FOLDER / f"{name}.verbose.txt"
    if pytestconfig.getoption("--update"):
        golden.write_text(shown)
    assert shown == golden.read_text()


@pytest.mark.parametrize("name", TASKS)
def test_a_title_fits_a_line(name: str) -> None:
    assert 0 < len(card(task_of(name)).title) <= TITLE_CHARS
