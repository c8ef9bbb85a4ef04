"""Cited sources of a task that were changed or taken back since they were quoted."""

from counterpoint.client import Memory
from counterpoint.proto.findings import OUTDATED_SOURCES, Citation
from counterpoint.proto.memory import Get, Item
from counterpoint.proto.tasks import Task

_STORES = ("chunks", "attempts")


async def with_outdated_sources(memory: Memory, task: Task) -> Task:
    """Return a task with a proposal or result, with the sources in its context that no longer hold what it quotes.

    Raises `Transient` or `Denied`.
    """
    context = {name: value for name, value in (task.context or {}).items() if name != OUTDATED_SOURCES}
    citations = task.findings.citations if task.findings and (task.proposal or task.result) else ()
    used = [each for each in citations if each.role != "candidate" and each.store in _STORES]
    found = await memory.query(*(Get(store=each.store, id=each.id) for each in used)) if used else ()
    outdated = [
        each.source_path.partition("#")[0]
        for each, answer in zip(used, found, strict=True)
        if not any(_holds(item, each) for item in answer.items)
    ]
    if outdated:
        context[OUTDATED_SOURCES] = list(dict.fromkeys(outdated))
    return task.model_copy(update={"context": context or None})


def _holds(item: Item, citation: Citation) -> bool:
    if item.version == citation.version:
        return True
    return any(citation.quote in value for value in item.body.values() if isinstance(value, str))
