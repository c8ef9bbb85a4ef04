"""Lanes: the kind of work of a task. Pure."""

from dataclasses import dataclass
from typing import assert_never

from counterpoint.proto.tasks import Lane, SubmitTask


@dataclass(frozen=True, slots=True)
class Routing:
    """A lane and its reason. The reason contains nothing of the submission."""

    lane: Lane
    reason: str


def routing(task: SubmitTask) -> Routing:
    """Return the lane of a task, by its kind. The reason names the other facts."""
    match task.kind:
        case "question":
            return Routing("answer", f"a question is answered from memory: {_facts(task)}")
        case "troubleshoot":
            return Routing("investigate", f"a failure is investigated: {_facts(task)}")
        case "plan":
            return Routing("plan", f"a plan is written, without code: {_facts(task)}")
        case "develop":
            return Routing("build", f"code has to be changed: {_facts(task)}")
        case _:
            assert_never(task.kind)


def _facts(task: SubmitTask) -> str:
    target = task.target
    facts = [
        "an error" if task.error_message else "no error",
        f"{len(task.systems)} external system{'' if len(task.systems) == 1 else 's'}",
        "a job" if target and target.job else "no job",
        "a repository" if target and target.repo else "no repository",
    ]
    return f"{', '.join(facts)} given"
