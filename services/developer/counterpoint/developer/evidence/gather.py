"""Evidence: all query results about a delegated task as one value."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from types import MappingProxyType

from counterpoint.client import Memory, records
from counterpoint.developer.evidence.attempts import AttemptResults, EarlierAttempt, rank_attempts
from counterpoint.developer.evidence.calibration import Calibration
from counterpoint.developer.evidence.downstream import DownstreamLookup, downstream_of, target_gets
from counterpoint.developer.evidence.failure import Failure, failure_of_task
from counterpoint.developer.evidence.lessons import Lesson, lessons
from counterpoint.developer.evidence.providers import ProviderLookup, look_up_providers, text_with_names
from counterpoint.developer.evidence.search_query import QUERY_CHARS, SearchQuery
from counterpoint.developer.excerpts.relevance import Hit, hits, rank_hits
from counterpoint.developer.language.german import english
from counterpoint.proto.errors import Transient
from counterpoint.proto.links import Link
from counterpoint.proto.memory import Get, HybridSearch, Item, List, MemoryQuery, QueryResult
from counterpoint.proto.overrides import OverrideGiven
from counterpoint.proto.providers import Provider
from counterpoint.proto.tasks import TaskDelegated

NO_LOOKUP = DownstreamLookup()
CHUNKS = 20
NEIGHBOURS, NEIGHBOURS_OF = 3, 6
"""Neighbouring chunks before and after a hit, and the number of best hits that get them. A section is rarely longer,
and the remedy for a symptom seldom farther. Every chunk read is recorded in the read set. On three question sets the
share of right answers is the same with neighbours of all hits."""
MAX_ALSO = 4
SIMILAR, OWN, SAME_ERROR, SAME_JOB, LINKS = 30, 20, 50, 30, 50
"""Limits of the queries for attempts, whose texts are long, and for links."""
PROVIDERS = 1000
_READ_TO_END = ("own", "providers")
"""Lists that are read completely: the task's own attempts, so that none is repeated, and the provider index, since a
system without a provider stops a task."""


@dataclass(frozen=True)
class Instruction:
    """An override, the task record that is quoted, and the hits for its words."""

    override: OverrideGiven
    task: Item
    support: tuple[Hit, ...] = ()


@dataclass(frozen=True)
class Evidence:
    """All that is read about a task: hits, earlier attempts and their lessons, providers, the override, and the
    downstream of the target.

    `found` and `answers` are the same hits, scored by topic and as answers; `neighbours` are adjacent chunks; `owners`
    are owners in lineage, for a question that asks for one.
    `searched_for` describes the searches, so that an empty result differs from no search.
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
    downstream: DownstreamLookup = NO_LOOKUP
    owners: tuple[Hit, ...] = ()

    @property
    def digest(self) -> str | None:
        """The digest of the error signature."""
        return self.failure.digest


async def gather(memory: Memory, message: TaskDelegated, calibration: Calibration) -> Evidence:
    """Read the evidence of a task. Raises `Transient` if its override is not in its record yet."""
    target = message.task.target
    gets = {f"target {number}": get for number, get in enumerate(target_gets(target))}
    results = await search(memory, message, beside=gets)
    evidence = evidence_of(message, results, calibration)
    return replace(evidence, downstream=await downstream_of(memory, target, [results[name] for name in gets]))


async def search(
    memory: Memory,
    message: TaskDelegated,
    query: SearchQuery | None = None,
    meaning_alone: bool = False,
    beside: Mapping[str, MemoryQuery] = MappingProxyType({}),
) -> dict[str, QueryResult]:
    """Return the results of `queries` and of those `beside` them, by name. They share the size limit of one reply."""
    named_queries = {**queries(message, query, meaning_alone), **beside}
    results = dict(zip(named_queries, await memory.query(*named_queries.values()), strict=True))
    for name in _READ_TO_END:
        listed = named_queries.get(name)
        if isinstance(listed, List) and results[name].partial:
            items = [item async for page in memory.pages(listed, results[name]) for item in page.items]
            results[name] = results[name].model_copy(update={"items": tuple(items), "partial": False})
    return results


def queries(
    message: TaskDelegated, query: SearchQuery | None = None, meaning_alone: bool = False
) -> dict[str, MemoryQuery]:
    """Return the queries about a delegated task by name; `query` replaces its own text in the search for documents.

    Only the inputs of the lane are read, since everything read restricts the commit.
    """
    failure = failure_of_task(message.task)
    named_queries: dict[str, MemoryQuery] = {
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
        named_queries["by_error"] = HybridSearch(store="attempts", text=failure.error, k=SIMILAR)
    if failure.digest:
        where = {"error_signature": failure.digest}
        named_queries["same_error"] = List(store="attempts", where=where, limit=SAME_ERROR)
        named_queries["links"] = List(store="links", where={"pair": [where]}, limit=LINKS)
    if message.lane == "investigate":
        named_queries["own_links"] = List(store="links", where={"pair": [{"task_id": message.task_id}]}, limit=LINKS)
    if failure.job:
        job = failure.job.model_dump(mode="json", exclude_none=True)
        named_queries["same_job"] = List(store="attempts", where={"job": job}, limit=SAME_JOB)
    if _needs_providers(message):
        # A plan is judged by the whole index.
        named_in = text_with_names(message.task.systems, failure.text) if message.lane == "investigate" else None
        named_queries["providers"] = List(store="providers", named_in=named_in, limit=PROVIDERS)
    if message.override:
        named_queries["task"] = Get(store="tasks", id=message.task_id)
        named_queries["support"] = HybridSearch(
            store="chunks", text=message.override.instruction[:QUERY_CHARS], k=CHUNKS
        )
    return named_queries


def evidence_of(
    message: TaskDelegated,
    results: Mapping[str, QueryResult],
    calibration: Calibration,
    query: SearchQuery | None = None,
) -> Evidence:
    """Return the results of `queries` as evidence. Raises `Transient` if an override is not in its record yet."""
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
        answers=rank_hits(hits(text, chunks, calibration.answer)),
        neighbours=hits(text, neighbours, calibration.answer),
        attempts=attempts,
        lessons=lessons(attempts),
        providers=look_up_providers(task.systems, failure.text, records(items("providers"), Provider)),
        instruction=instruction,
        searched_for=tuple(_searched_for(message, failure, text, any(result.partial for result in results.values()))),
    )


def _searched_for(message: TaskDelegated, failure: Failure, text: str, partial: bool) -> list[str]:
    texts = [f"documents about: {' '.join(text.split())}", f"earlier attempts at: {' '.join(failure.text.split())}"]
    if failure.digest:
        texts.append(f"earlier attempts with the error signature {failure.digest}")
    if failure.job:
        texts.append(f"earlier attempts at {failure.job.namespace}/{failure.job.name}")
    if message.task.systems and _needs_providers(message):
        texts.append(f"providers of: {', '.join(message.task.systems)}")
    if partial:
        texts.append("limited to what fits into one reply: the best and the newest")
    return texts


def _also(message: TaskDelegated, query: SearchQuery | None) -> tuple[str, ...]:
    """Return further wordings to search for: those of the query and of objections, and the English words of a German
    text."""
    translated = english(query.text if query else message.task.description)
    objected = tuple(text for each in message.objections for text in each.search_for)
    texts = (*objected, *(query.also if query else ()), *((translated,) if translated else ()))
    return tuple(text[:QUERY_CHARS] for text in dict.fromkeys(texts))[:MAX_ALSO]


def _needs_providers(message: TaskDelegated) -> bool:
    """Whether the lane uses the provider index; questions do not."""
    return message.lane != "answer"
