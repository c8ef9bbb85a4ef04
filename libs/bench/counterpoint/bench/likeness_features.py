"""Features of reports: each case of a set is looked up in memory as the developer looks up a task."""

from collections.abc import Mapping, Sequence

from counterpoint.bench.likeness_fit import IncidentCandidates
from counterpoint.bench.recognition_cases import RecognitionCase
from counterpoint.client import Memory
from counterpoint.developer.evidence.attempts import resemblance
from counterpoint.developer.evidence.failure import failure_of_attempt, failure_of_task
from counterpoint.developer.evidence.gather import queries
from counterpoint.developer.evidence.likeness import Resemblance
from counterpoint.proto.attempts import Attempt
from counterpoint.proto.tasks import SubmitTask, TaskDelegated


async def candidates_of(
    memory: Memory, project: str, cases: Sequence[RecognitionCase], case_of_attempt: Mapping[str, str]
) -> list[IncidentCandidates]:
    """Return the candidates of every case that is not learned. `case_of_attempt`: cases by the ids of their
    attempts."""
    first_of_pair = {case.pair: case.id for case in cases if case.role == "first"}
    fault = {case.id: case.pair or case.id for case in cases}
    result = []
    for case in cases:
        if case.learned:
            continue
        resemblances = await _resemblances(memory, project, case, case_of_attempt)
        names = list(resemblances)
        best = tuple(max(resemblances[name], key=lambda each: (each.coverage, each.cosine)) for name in names)
        second = case.role == "second"
        correct = first_of_pair.get(case.pair) if second else None
        group = fault.get(case.role.partition(":")[2], case.pair or case.id)
        result.append(IncidentCandidates(group, best, names.index(correct) if correct in names else None, second))
    return result


async def _resemblances(
    memory: Memory, project: str, case: RecognitionCase, case_of_attempt: Mapping[str, str]
) -> dict[str, list[Resemblance]]:
    """Return the resemblances of the attempts found for a case, by the case of each."""
    task = SubmitTask.model_validate(case.submission())
    message = TaskDelegated(task_id=case.id, project=project, session_id="-", attempt=1, task=task, lane="investigate")
    searches = {name: query for name, query in queries(message).items() if name in ("by_report", "by_error")}
    answers = dict(zip(searches, await memory.query(*searches.values(), timeout_s=60), strict=True))
    failure = failure_of_task(task)
    by_report = {item.id: item for item in answers["by_report"].items}
    by_error = {item.id: item for item in answers["by_error"].items} if "by_error" in answers else {}
    result: dict[str, list[Resemblance]] = {}
    for item in {**by_error, **by_report}.values():
        earlier = failure_of_attempt(Attempt.model_validate(item.body))
        scores = [(each[item.id].scores or {}) if item.id in each else {} for each in (by_report, by_error)]
        result.setdefault(case_of_attempt[item.id], []).append(resemblance(earlier, failure, *scores))
    return result
