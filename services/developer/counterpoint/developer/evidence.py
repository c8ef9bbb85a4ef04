"""Evidence: what memory knows about a delegated task, asked for in one request where that holds it."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from counterpoint.client import Memory, records
from counterpoint.developer.attempts import Remembered, Tried, recall
from counterpoint.developer.failure import Failure, failure_of_task
from counterpoint.developer.german import english
from counterpoint.developer.lessons import Lesson, lessons
from counterpoint.developer.proposals import Instruction
from counterpoint.developer.providers import Lookup, look_up
from counterpoint.developer.rag.run import QUERY_CHARS, Asked
from counterpoint.developer.relevance import Calibration, Hit, hits, ranked
from counterpoint.proto.errors import Transient
from counterpoint.proto.links import Link
from counterpoint.proto.memory import Get, HybridSearch, Item, List, MemoryQuery, QueryResult
from counterpoint.proto.providers import Provider
from counterpoint.proto.tasks import TaskDelegated

CHUNKS = 20
NEIGHBOURS, NEIGHBOURS_OF = 2, 6
"""Chunks before and after one that was found, a section is mostly no longer; and of how many of the best. What is read
is kept with what rests on it. Three sets of questions have the same share of right answers as with those of all."""
MOST_ALSO = 4
SIMILAR, OWN, SAME_ERROR, SAME_JOB, LINKS = 30, 20, 50, 30, 50
"""Attempts by each of the searches and lists that find them, whose texts are long, and links."""
PROVIDERS = 1000
_WHOLE = ("own", "providers")
"""Lists that are read to their end: the task's own attempts, so that none is made again, and the index of providers,
since a system that is not in it stops a task."""


@dataclass(frozen=True)
class Evidence:
    """The findings of all queries: chunks, earlier attempts and their lessons, providers, and the override on record.

    `found` and `answers` are the same chunks, as they are on the topic, and as the search ranks them, and `beside`
    those next to them in their documents; `searched_for` says in words what was looked for, so that an empty answer
    can be told from no question.
    """

    failure: Failure
    found: tuple[Hit, ...]
    answers: tuple[Hit, ...]
    beside: tuple[Hit, ...]
    tried: tuple[Tried, ...]
    known: tuple[Lesson, ...]
    providers: Lookup
    instruction: Instruction | None
    searched_for: tuple[str, ...]

    @property
    def digest(self) -> str | None:
        """The digest of the error's signature."""
        return self.failure.digest


def queries(
    message: TaskDelegated, asked_for: Asked | None = None, meaning_alone: bool = False
) -> dict[str, MemoryQuery]:
    """The queries about a delegated task by name; documents are looked for by `asked_for` where it is given.

    Only what the lane decides by: what is read is what the result rests on.
    """
    now = failure_of_task(message.task)
    asked: dict[str, MemoryQuery] = {
        "chunks": HybridSearch(
            store="chunks",
            text=asked_for.text[:QUERY_CHARS] if asked_for else now.text,
            also=_also(message, asked_for),
            k=CHUNKS,
            neighbours=NEIGHBOURS,
            neighbours_of=NEIGHBOURS_OF,
            vector_weight=1.0 if meaning_alone else None,
        ),
        "by_report": HybridSearch(store="attempts", text=now.text, k=SIMILAR),
        "own": List(store="attempts", where={"task_id": message.task_id}, limit=OWN),
    }
    if now.error:
        asked["by_error"] = HybridSearch(store="attempts", text=now.error, k=SIMILAR)
    if now.digest:
        where = {"error_signature": now.digest}
        asked["same_error"] = List(store="attempts", where=where, limit=SAME_ERROR)
        asked["links"] = List(store="links", where={"pair": [where]}, limit=LINKS)
    if message.lane == "investigate":
        asked["own_links"] = List(store="links", where={"pair": [{"task_id": message.task_id}]}, limit=LINKS)
    if now.job:
        job = now.job.model_dump(mode="json", exclude_none=True)
        asked["same_job"] = List(store="attempts", where={"job": job}, limit=SAME_JOB)
    if _by_providers(message):
        asked["providers"] = List(store="providers", limit=PROVIDERS)
    if message.override:
        asked["task"] = Get(store="tasks", id=message.task_id)
        asked["support"] = HybridSearch(store="chunks", text=message.override.instruction[:QUERY_CHARS], k=CHUNKS)
    return asked


async def look(
    memory: Memory, message: TaskDelegated, asked_for: Asked | None = None, meaning_alone: bool = False
) -> dict[str, QueryResult]:
    """The answers to `queries`, which share the room of one reply."""
    asked = queries(message, asked_for, meaning_alone)
    answers = dict(zip(asked, await memory.query(*asked.values()), strict=True))
    for name in _WHOLE:
        query = asked.get(name)
        if isinstance(query, List) and answers[name].partial:
            items = [item async for page in memory.pages(query, answers[name]) for item in page.items]
            answers[name] = answers[name].model_copy(update={"items": tuple(items), "partial": False})
    return answers


def weigh(
    message: TaskDelegated, answers: Mapping[str, QueryResult], known: Calibration, asked_for: Asked | None = None
) -> Evidence:
    """The answers to `queries`, read as evidence. Raises `Transient` when an override is not on record yet."""
    task, now = message.task, failure_of_task(message.task)

    def items(*names: str) -> Sequence[Item]:
        return [item for name in names if name in answers for item in answers[name].items]

    remembered = Remembered(
        by_report=items("by_report"),
        by_error=items("by_error"),
        listed=items("own", "same_error", "same_job"),
        links=records(items("links", "own_links"), Link),
    )
    tried = recall(now, message.task_id, remembered, known.likeness)
    instruction = None
    if message.override:
        if not items("task"):
            raise Transient("the record of the task is not there yet")
        support = hits(message.override.instruction, items("support"), known.topic)
        instruction = Instruction(message.override, items("task")[0], support)
    sought = asked_for.text if asked_for else now.text
    chunks = [item for item in items("chunks") if item.scores is not None]
    return Evidence(
        failure=now,
        found=hits(now.text, chunks, known.topic),
        answers=ranked(hits(sought, chunks, known.answer)),
        beside=hits(sought, [item for item in items("chunks") if item.scores is None], known.answer),
        tried=tried,
        known=lessons(tried),
        providers=look_up(task.systems, now.text, records(items("providers"), Provider)),
        instruction=instruction,
        searched_for=tuple(_in_words(message, now, sought, any(found.partial for found in answers.values()))),
    )


def _in_words(message: TaskDelegated, now: Failure, sought: str, partial: bool) -> list[str]:
    asked = [f"documents about: {sought}", f"earlier attempts at: {now.text}"]
    if now.digest:
        asked.append(f"earlier attempts with the error signature {now.digest}")
    if now.job:
        asked.append(f"earlier attempts at {now.job.namespace}/{now.job.name}")
    if message.task.systems and _by_providers(message):
        asked.append(f"providers of: {', '.join(message.task.systems)}")
    if partial:
        asked.append("of all that only as much as one answer holds, the best and the newest")
    return asked


def _also(message: TaskDelegated, asked_for: Asked | None) -> tuple[str, ...]:
    """Other wordings to look for: those of a rewriting, and a German text in English words."""
    texts = asked_for.also if asked_for else ()
    said = english(asked_for.text if asked_for else message.task.description)
    return tuple(text[:QUERY_CHARS] for text in dict.fromkeys((*texts, *((said,) if said else ()))))[:MOST_ALSO]


def _by_providers(message: TaskDelegated) -> bool:
    """Questions are gated by the grader alone; everything else asks which systems have a provider."""
    return message.lane != "answer"
