"""Output of a take-back."""

import pytest
from typer.testing import CliRunner
from ui.cli_server import ScriptedApi

from counterpoint.cli.main import app
from counterpoint.cli.take_back import report

AWAITED = {
    "approval_id": "a-1",
    "project": "orders",
    "requested_by": "ben",
    "category": "take_back",
    "summary": "1400 records",
    "artifact": "quarantine documents/d-1 from version 1 on",
    "artifact_sha256": "0" * 64,
    "state": "pending",
}


@pytest.mark.parametrize(
    ("tasks", "said"),
    [
        (["a"], "1 task depends on it; its record is kept, and its card warns: a"),
        (["a", "b"], "2 tasks depend on it; their records are kept, and their cards warn: a, b"),
        (
            list("abcdefg"),
            "7 tasks depend on it; their records are kept, and their cards warn: a, b, c, d, e and 2 more",
        ),
    ],
)
def test_the_tasks_that_rest_on_it_are_counted_in_words(tasks: list[str], said: str) -> None:
    done = {"kind": "quarantine", "quarantine_id": "q", "out": {"chunks": 1}, "tasks_count": len(tasks), "tasks": tasks}
    assert report(done, lambda known: f"lift {known}").splitlines() == [
        "records taken out: 1 of chunks",
        said,
        "undo it with `lift q`",
    ]


def test_a_take_back_prints_the_commands_that_undo_it_and_others_and_a_lift_none_of_its_own() -> None:
    done = {"quarantine_id": "q", "others": ["p"]}
    taken = report(
        done | {"kind": "rollback", "restored": {"chunks": 1, "documents": 1}}, lambda known: f"lift {known}"
    )
    assert taken.splitlines() == [
        "records restored: 1 of chunks, 1 of documents",
        "undo it with `lift q`",
        "another take-back of the same item is still in effect; undo it with `lift p`",
    ]
    lifted = report(done | {"kind": "lift", "others": []}, lambda known: f"lift {known}")
    assert lifted == "nothing had to be restored"


@pytest.mark.parametrize(
    ("words", "path", "again"),
    [
        (
            ("quarantine", "a b.md"),
            "/v1/quarantines",
            "counterpoint quarantine 'a b.md' --reason wrong --project orders",
        ),
        (("rollback", "a.md"), "/v1/quarantines", "counterpoint rollback a.md --reason wrong --project orders"),
        (
            ("erase", "--task", "t-1", "--shown", "--yes"),
            "/v1/erasures",
            "counterpoint erase --task t-1 --reason wrong --shown --yes --project orders",
        ),
    ],
)
def test_a_large_act_prints_who_decides_and_the_next_command(
    api: ScriptedApi, words: tuple[str, ...], path: str, again: str
) -> None:
    api.on(f"POST {path}", (202, AWAITED))
    done = CliRunner().invoke(app, [*words, "--reason", "wrong", "--project", "orders", *api.options()])
    assert done.exit_code == 4, done.output
    lines = [line.strip() for line in done.output.splitlines()]
    assert lines[0] == "a-1  take_back, pending, asked for by ben"
    assert any(line.startswith("counterpoint approve a-1 --project orders") for line in lines)
    assert any(line.startswith(again) for line in lines), lines
