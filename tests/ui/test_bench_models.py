"""`bench models` judges a model with this memory, the same with plain search, and the rules by one measure."""

from pathlib import Path

import pytest

from counterpoint.bench.models import Row, every, first_text, format_rows, judged_answer, judged_report, run, with_texts
from counterpoint.bench.replays import share_of_equal
from counterpoint.bench.triage import TriageCase
from counterpoint.cli.replay.task import TaskReport

QUESTION = {"id": "q", "text": "How large?", "kind": "question"}
WANTED = TriageCase.model_validate(QUESTION | {"expect": {"must": ["20 GB"], "must_not": ["30 GB"]}})
UNKNOWN = TriageCase.model_validate(QUESTION | {"expect": "refuse"})


@pytest.mark.parametrize(
    ("case", "text", "judged"),
    [
        (WANTED, "It is 20 GB.", "right"),
        (WANTED, "It is 30 GB, once 20 GB.", "wrong"),
        (WANTED, None, "missed"),
        (UNKNOWN, None, "right"),
        (UNKNOWN, "It is 20 GB.", "wrong"),
    ],
)
def test_a_refusal_is_right_where_nothing_is_known(case: TriageCase, text: str | None, judged: str) -> None:
    assert judged_answer(case, text) == judged


@pytest.mark.parametrize(
    ("right", "claimed", "judged"),
    [
        ({"a"}, "a", "right"),
        ({"a"}, "b", "wrong"),
        ({"a"}, None, "missed"),
        (set(), None, "right"),
        (set(), "a", "wrong"),
    ],
)
def test_a_report_is_claimed_for_its_own_fault_or_for_none(right: set[str], claimed: str | None, judged: str) -> None:
    assert judged_report(frozenset(right), claimed) == judged


def test_a_limit_takes_cases_from_the_whole_set() -> None:
    assert every(range(10), 4) == [0, 2, 5, 7]
    assert every(range(3), 0) == every(range(3), 9) == [0, 1, 2]


def test_the_scripted_model_repeats_the_first_text_of_its_prompt() -> None:
    assert first_text(with_texts("Answer.", "How large?", ["It is 20 GB.\n\nAs said.", "It is 30 GB."])).startswith(
        "It is 20"
    )
    assert first_text("nothing") == "NONE"


def test_the_table_counts_each_judgement() -> None:
    row = Row("rules alone", ["right", "right", "wrong", "missed"], 120, 1.25, 3, 1)
    lines = format_rows([row]).splitlines()
    assert lines[0].split() == ["cases", "right", "partly", "wrong", "missed", "calls", "failed", "tokens", "seconds"]
    assert lines[1].split() == ["rules", "alone", "4", "2", "0", "1", "1", "3", "1", "120", "1.2"]


@pytest.mark.parametrize(
    ("verdict", "contexts", "equal"), [("same", 2, True), ("same", 0, False), ("different", 2, False)]
)
def test_a_replay_without_a_context_is_no_equal_one(verdict: str, contexts: int, equal: bool) -> None:
    report = TaskReport.model_validate(
        {"task_id": "t", "project": "p", "verdict": verdict, "contexts": contexts, "steps": []}
    )
    assert share_of_equal(report) is equal


@pytest.mark.slow
@pytest.mark.timeout(240)
async def test_a_set_is_answered_in_three_ways() -> None:
    rows = await run(Path("examples/triage"), 6, "scripted")
    assert [row.name for row in rows] == ["rules alone", "model with this memory", "model with plain search"]
    assert [len(row.judged) for row in rows] == [6, 6, 6]
    assert rows[0].tokens == 0
    assert min(row.tokens for row in rows[1:]) > 0
