"""What a take-back prints."""

import pytest

from counterpoint.cli.take_back import report


@pytest.mark.parametrize(
    ("tasks", "said"),
    [
        (["a"], "1 task depends on it; its record is kept: a"),
        (["a", "b"], "2 tasks depend on it; their records are kept: a, b"),
    ],
)
def test_the_tasks_that_rest_on_it_are_counted_in_words(tasks: list[str], said: str) -> None:
    done = {"kind": "quarantine", "quarantine_id": "q", "out": {"chunks": 1}, "tasks_count": len(tasks), "tasks": tasks}
    assert report(done, lambda known: f"lift {known}").splitlines() == [
        "1 of chunks taken out",
        said,
        "undo it with `lift q`",
    ]


def test_a_take_back_prints_the_commands_that_undo_it_and_others_and_a_lift_none_of_its_own() -> None:
    done = {"quarantine_id": "q", "others": ["p"]}
    taken = report(
        done | {"kind": "rollback", "restored": {"chunks": 1, "documents": 1}}, lambda known: f"lift {known}"
    )
    assert taken.splitlines() == [
        "1 of chunks, 1 of documents restored",
        "undo it with `lift q`",
        "another take-back of the same item is still in effect; undo it with `lift p`",
    ]
    lifted = report(done | {"kind": "lift", "others": []}, lambda known: f"lift {known}")
    assert lifted == "nothing had to be restored"
