"""Lanes: which kind of work a task is, and why. Pure."""

from dataclasses import dataclass
from typing import assert_never

from counterpoint.proto.tasks import Lane, SubmitTask


@dataclass(frozen=True, slots=True)
class Routing:
    """The lane of a task and the reason in words; the reason quotes nothing of what was sent."""

    lane: Lane
    reason: str


def routing(task: SubmitTask) -> Routing:
    """The lane of a task. What was asked for decides; the rest is told as the basis."""
    match task.kind:
        case "question":
            return Routing("answer", f"a question is answered out of memory: {_given(task)}")
        case "troubleshoot":
            return Routing("investigate", f"a failure is investigated: {_given(task)}")
        case "plan":
            return Routing("plan", f"a plan is written and no code: {_given(task)}")
        case "develop":
            return Routing("build", f"code is to be changed: {_given(task)}")
        case _:
            assert_never(task.kind)


def _given(task: SubmitTask) -> str:
    target = task.target
    facts = [
        "an error" if task.error_message else "no error",
        f"{len(task.systems)} external system{'' if len(task.systems) == 1 else 's'}",
        "a job" if target and target.job else "no job",
        "a repository" if target and target.repo else "no repository",
    ]
    return f"{', '.join(facts)} given"
