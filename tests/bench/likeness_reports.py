"""Features of reports: memory is asked about each case of a set as the developer asks about a task."""

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from bench.likeness_fit import Report

from counterpoint.developer.attempts import resemblance
from counterpoint.developer.evidence import queries
from counterpoint.developer.failure import failure_of_attempt, failure_of_task
from counterpoint.proto.attempts import Attempt
from counterpoint.proto.tasks import SubmitTask, TaskDelegated
from counterpoint.recall import Memory

if TYPE_CHECKING:
    from bench.recognition import Case


async def reports(memory: Memory, project: str, every: Sequence["Case"], made: Mapping[str, str]) -> list[Report]:
    """The features of the candidates of every case that is asked; `made`: the case of each attempt in the project."""
    right = {case.pair: case.id for case in every if case.role == "first"}
    fault = {case.id: case.pair or case.id for case in every}
    made_of = []
    for case in every:
        if case.learned:
            continue
        task = SubmitTask.model_validate(case.submission())
        message = TaskDelegated(
            task_id=case.id, project=project, session_id="-", attempt=1, task=task, lane="investigate"
        )
        wanted = {name: query for name, query in queries(message).items() if name in ("by_report", "by_error")}
        found = dict(zip(wanted, await memory.query(*wanted.values(), timeout_s=60), strict=True))
        now = failure_of_task(task)
        by_report = {item.id: item for item in found["by_report"].items}
        by_error = {item.id: item for item in found["by_error"].items} if "by_error" in found else {}
        of_case = {}
        for item in {**by_error, **by_report}.values():
            earlier = failure_of_attempt(Attempt.model_validate(item.body))
            scores = [(each.get(item.id).scores or {}) if item.id in each else {} for each in (by_report, by_error)]
            of_case.setdefault(made[item.id], []).append(resemblance(earlier, now, *scores))
        names = list(of_case)
        best = tuple(max(of_case[name], key=lambda each: (each.coverage, each.cosine)) for name in names)
        wanted_case = right.get(case.pair) if case.role == "second" else None
        group = fault.get(case.role.partition(":")[2], case.pair or case.id)
        made_of.append(
            Report(group, best, names.index(wanted_case) if wanted_case in names else None, case.role == "second")
        )
    return made_of
