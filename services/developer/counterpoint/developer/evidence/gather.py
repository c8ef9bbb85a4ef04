"""Evidence about a delegated task, gathered from memory into one value."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from counterpoint.client import Memory, records
from counterpoint.developer.evidence.attempts import AttemptResults, EarlierAttempt, rank_attempts
from counterpoint.developer.evidence.calibration import Calibration
from counterpoint.developer.evidence.downstream import DownstreamLookup, look_up_downstream
from counterpoint.developer.evidence.failure import Failure, failure_of_task
from counterpoint.developer.evidence.lessons import Lesson, lessons
from counterpoint.developer.evidence.providers import ProviderLookup, look_up_providers
from counterpoint.developer.evidence.search_query import QUERY_CHARS, SearchQuery
from counterpoint.developer.excerpts.relevance import Hit, hits, ranked
from counterpoint.developer.language.german import english
from counterpoint.proto.errors import Transient
from counterpoint.proto.links import Link
from counterpoint.proto.memory import Get, HybridSearch, Item, List, MemoryQuery, QueryResult
from counterpoint.proto.providers import Provider
from counterpoint.proto.tasks import OverrideGiven, TaskDelegated

NOTHING_LOOKED_UP = DownstreamLookup()
CHUNKS = 20
NEIGHBOURS, NEIGHBOURS_OF = 2, 6
"""Chunks before and after one that was found, and how many of the best get them. A section is rarely longer, and every
chunk read is recorded with what rests on it. On three sets of questions the share of right answers is the same with
neighbours of all chunks."""
MOST_ALSO = 4
SIMILAR, OWN, SAME_ERROR, SAME_JOB, LINKS = 30, 20, 50, 30, 50
"""Limits of the queries for attempts, whose texts are long, and for links."""
PROVIDERS = 1000
_WHOLE = ("own", "providers")
"""Lists read to their end: the task's own attempts, so that none is repeated, and the index of providers, since a
system that is not in it stops a task."""


@dataclass(frozen=True)
class Instruction:
    """An override with the record it is quoted from, and the chunks found for its words."""

    given: OverrideGiven
    task: Item
    support: tuple[Hit, ...] = ()


@dataclass(frozen=True)
class Evidence:
    """The results of all queries about a task: chunks, earlier attempts and their lessons, providers, the override on
    record, and the downstream of the target.

    `found` and `answers` are the same chunks, ordered by topic and by the search; `neighbours` are those next to them
    in their documents. `searched_for` names the searches in words, so that an empty answer differs from no question.
    """

    failure: Failure
    found: tuple[Hit, ...]
    answers: tuple[Hit, ...]
    neighbours: tuple[Hit, ...]
    attempts: tuple[EarlierAttempt, ...]
    lessons: tuple[Lesson, ...]
    providers: ProviderLookup
    instruction: Instruction | None
    searched_for: tuple[str, ...]
    downstream: DownstreamLookup = NOTHING_LOOKED_UP

    @property
    def digest(self) -> str | None:
        """The digest of the error's signature."""
        return self.failure.digest


async def gather(memory: Memory, message: TaskDelegated, calibration: Calibration) -> Evidence:
    """Read all that a task is decided by. Raises `Transient` when an override is not on record yet."""
    evidence = evidence_of(message, await search(memory, message), calibration)
    return replace(evidence, downstream=await look_up_downstream(memory, message.task.target))


async def search(
    memory: Memory, message: TaskDelegated, query: SearchQuery | None = None, meaning_alone: bool = False
) -> dict[str, QueryResult]:
    """Return the results of `queries` by name. They share the size limit of one reply."""
    named = queries(message, query, meaning_alone)
    results = dict(zip(named, await memory.query(*named.values()), strict=True))
    for name in _WHOLE:
        listed = named.get(name)
        if isinstance(listed, List) and results[name].partial:
            items = [item async for page in memory.pages(listed, results[name]) for item in page.items]
            results[name] = results[name].model_copy(update={"items": tuple(items), "partial": False})
    return results


def queries(
    message: TaskDelegated, query: SearchQuery | None = None, meaning_alone: bool = False
) -> dict[str, MemoryQuery]:
    """Return the queries about a delegated task by name; `query` replaces its own text in the search for documents.

    Only what the lane decides by is read, since a result rests on everything read for it.
    """
    failure = failure_of_task(message.task)
    named: dict[str, MemoryQuery] = {
        "chunks": HybridSearch(
            store="chunks",
            text=query.text[:QUERY_CHARS] if query else failure.text,
            also=_also(message, query),
            k=CHUNKS,
            neighbours=NEIGHBOURS,
            neighbours_of=NEIGHBOURS_OF,
            vector_weight=1.0 if meaning_alone else None,
        ),
        "by_report": HybridSearch(store="attempts", text=failure.text, k=SIMILAR),
        "own": List(store="attempts", where={"task_id": message.task_id}, limit=OWN),
    }
    if failure.error:
        named["by_error"] = HybridSearch(store="attempts", text=failure.error, k=SIMILAR)
    if failure.digest:
        where = {"error_signature": failure.digest}
        named["same_error"] = List(store="attempts", where=where, limit=SAME_ERROR)
        named["links"] = List(store="links", where={"pair": [where]}, limit=LINKS)
    if message.lane == "investigate":
        named["own_links"] = List(store="links", where={"pair": [{"task_id": message.task_id}]}, limit=LINKS)
    if failure.job:
        job = failure.job.model_dump(mode="json", exclude_none=True)
        named["same_job"] = List(store="attempts", where={"job": job}, limit=SAME_JOB)
    if _by_providers(message):
        named["providers"] = List(store="providers", limit=PROVIDERS)
    if message.override:
        named["task"] = Get(store="tasks", id=message.task_id)
        named["support"] = HybridSearch(store="chunks", text=message.override.instruction[:QUERY_CHARS], k=CHUNKS)
    return named


def evidence_of(
    message: TaskDelegated,
    results: Mapping[str, QueryResult],
    calibration: Calibration,
    query: SearchQuery | None = None,
) -> Evidence:
    """Read the results of `queries` as evidence. Raises `Transient` when an override is not on record yet."""
    task, failure = message.task, failure_of_task(message.task)

    def items(*names: str) -> Sequence[Item]:
        return [item for name in names if name in results for item in results[name].items]

    attempts = rank_attempts(
        failure,
        message.task_id,
        AttemptResults(
            by_report=items("by_report"),
            by_error=items("by_error"),
            listed=items("own", "same_error", "same_job"),
            links=records(items("links", "own_links"), Link),
        ),
        calibration.likeness,
    )
    instruction = None
    if message.override:
        if not items("task"):
            raise Transient("the record of the task does not exist yet")
        support = hits(message.override.instruction, items("support"), calibration.topic)
        instruction = Instruction(message.override, items("task")[0], support)
    text = query.text if query else failure.text
    chunks = [item for item in items("chunks") if item.scores is not None]
    neighbours = [item for item in items("chunks") if item.scores is None]
    return Evidence(
        failure=failure,
        found=hits(failure.text, chunks, calibration.topic),
        answers=ranked(hits(text, chunks, calibration.answer)),
        neighbours=hits(text, neighbours, calibration.answer),
        attempts=attempts,
        lessons=lessons(attempts),
        providers=look_up_providers(task.systems, failure.text, records(items("providers"), Provider)),
        instruction=instruction,
        searched_for=tuple(_in_words(message, failure, text, any(result.partial for result in results.values()))),
    )


def _in_words(message: TaskDelegated, failure: Failure, text: str, partial: bool) -> list[str]:
    texts = [f"documents about: {text}", f"earlier attempts at: {failure.text}"]
    if failure.digest:
        texts.append(f"earlier attempts with the error signature {failure.digest}")
    if failure.job:
        texts.append(f"earlier attempts at {failure.job.namespace}/{failure.job.name}")
    if message.task.systems and _by_providers(message):
        texts.append(f"providers of: {', '.join(message.task.systems)}")
    if partial:
        texts.append("limited to what fits into one reply: the best and the newest")
    return texts


def _also(message: TaskDelegated, query: SearchQuery | None) -> tuple[str, ...]:
    """Other wordings to search for: those of the query, and a German text in English words."""
    translated = english(query.text if query else message.task.description)
    texts = (*(query.also if query else ()), *((translated,) if translated else ()))
    return tuple(text[:QUERY_CHARS] for text in dict.fromkeys(texts))[:MOST_ALSO]


def _by_providers(message: TaskDelegated) -> bool:
    """Whether the lane needs the index of providers: a question is gated by the grader alone."""
    return message.lane != "answer"
