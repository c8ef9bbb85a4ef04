"""Evidence: what memory knows about a delegated task, asked for in one request where that holds it."""

from collections.abc import Sequence
from dataclasses import dataclass

from counterpoint.developer.attempts import Lesson, Tried, lessons, recall
from counterpoint.developer.german import english
from counterpoint.developer.proposals import Instruction
from counterpoint.developer.providers import Lookup, look_up
from counterpoint.developer.rag.run import QUERY_CHARS, Asked
from counterpoint.developer.relevance import Calibration, Hit, hits, ranked
from counterpoint.proto.errors import Transient
from counterpoint.proto.memory import Found, Get, HybridSearch, List, MemoryQuery
from counterpoint.proto.providers import Provider
from counterpoint.proto.signature import headline, signature
from counterpoint.proto.tasks import SubmitTask, TaskDelegated
from counterpoint.recall import Memory

CHUNKS = 20
NEIGHBOURS = 2
"""Chunks before and after one that was found: a section is mostly no longer."""
MOST_ALSO = 4
SIMILAR, OWN, SAME_ERROR = 20, 20, 50
"""Attempts: one may be found in each of three ways, and their texts are long."""
PROVIDERS = 1000


@dataclass(frozen=True)
class Evidence:
    """What was found: chunks, earlier attempts and their lessons, providers, and the override as it is on record.

    `found` and `answers` are the same chunks, as they are on the topic, and as the search ranks them, and `beside`
    those next to them in their documents;
    `searched_for` says in words what was looked for, so that an empty answer can be told from no question.
    """

    query: str
    digest: str | None
    found: tuple[Hit, ...]
    answers: tuple[Hit, ...]
    beside: tuple[Hit, ...]
    tried: tuple[Tried, ...]
    known: tuple[Lesson, ...]
    providers: Lookup
    instruction: Instruction | None
    searched_for: tuple[str, ...]


def query_of(task: SubmitTask) -> str:
    """The words to search with: the description, and the headline of the error."""
    words = [task.description]
    if task.error_message:
        error_class, message = headline(task.error_message)
        words.append(f"{error_class}: {message}" if error_class else message)
    return "\n".join(word[:QUERY_CHARS] for word in words)


def queries(
    message: TaskDelegated, asked_for: Asked | None = None, meaning_alone: bool = False
) -> tuple[MemoryQuery, ...]:
    """What to ask memory about a delegated task; `weigh` takes the answers in this order.

    Documents are looked for by `asked_for` where it is given.

    Only what the lane decides by: what is read is what the result rests on.
    """
    query, digest = query_of(message.task), _digest(message.task)
    asked: list[MemoryQuery] = [
        HybridSearch(
            store="chunks",
            text=asked_for.text[:QUERY_CHARS] if asked_for else query,
            also=_also(message.task, asked_for),
            k=CHUNKS,
            neighbours=NEIGHBOURS,
            vector_weight=1.0 if meaning_alone else None,
        ),
        HybridSearch(store="attempts", text=query, k=SIMILAR),
        List(store="attempts", where={"task_id": message.task_id}, limit=OWN),
    ]
    if _by_providers(message):
        asked.append(List(store="providers", limit=PROVIDERS))
    if digest:
        asked.append(List(store="attempts", where={"error_signature": digest}, limit=SAME_ERROR))
    if message.override:
        asked.append(Get(store="tasks", id=message.task_id))
        asked.append(HybridSearch(store="chunks", text=message.override.instruction[:QUERY_CHARS], k=CHUNKS))
    return tuple(asked)


async def look(
    memory: Memory, message: TaskDelegated, asked_for: Asked | None = None, meaning_alone: bool = False
) -> tuple[Found, ...]:
    """The answers to `queries`. They share what one reply holds; what may not be missing is then read to its end: the
    task's own attempts, so that none is made again, and the index, for what is not in it stops a task."""
    asked = queries(message, asked_for, meaning_alone)
    answers = list(await memory.query(*asked))
    for at, query in enumerate(asked):
        if isinstance(query, List) and answers[at].partial and "error_signature" not in query.where:
            items = [item async for page in memory.pages(query, answers[at]) for item in page.items]
            answers[at] = answers[at].model_copy(update={"items": tuple(items), "partial": False})
    return tuple(answers)


def weigh(
    message: TaskDelegated, answers: Sequence[Found], known: Calibration, asked_for: Asked | None = None
) -> Evidence:
    """The answers to `queries`, read as evidence. Raises `Transient` when an override is not on record yet."""
    task, query, digest = message.task, query_of(message.task), _digest(message.task)
    answered = (found.items for found in answers)
    seen, similar, here = next(answered), next(answered), next(answered)
    chunks = [item for item in seen if item.scores is not None]
    beside = [item for item in seen if item.scores is None]
    index = next(answered) if _by_providers(message) else ()
    same_error = next(answered) if digest else ()
    tried = recall(query, message.task_id, digest, similar, (*here, *same_error), known.topic)
    instruction = None
    if message.override:
        record = next(answered)
        if not record:
            raise Transient("the record of the task is not there yet")
        support = hits(message.override.instruction, next(answered), known.topic)
        instruction = Instruction(message.override, record[0], support)
    providers = look_up(task.systems, query, [Provider.model_validate(item.body) for item in index])
    sought = asked_for.text if asked_for else query
    asked = [f"documents about: {sought}", f"earlier attempts at: {query}"]
    if digest:
        asked.append(f"earlier attempts with the error signature {digest}")
    if task.systems and _by_providers(message):
        asked.append(f"providers of: {', '.join(task.systems)}")
    if any(found.partial for found in answers):
        asked.append("of all that only as much as one answer holds, the best and the newest")
    return Evidence(
        query=query,
        digest=digest,
        found=hits(query, chunks, known.topic),
        answers=ranked(hits(sought, chunks, known.answer)),
        beside=hits(sought, beside, known.answer),
        tried=tried,
        known=lessons(tried),
        providers=providers,
        instruction=instruction,
        searched_for=tuple(asked),
    )


def _also(task: SubmitTask, asked_for: Asked | None) -> tuple[str, ...]:
    """Other wordings to look for: those of a rewriting, and a German text in English words."""
    texts = asked_for.also if asked_for else ()
    said = english(asked_for.text if asked_for else task.description)
    return tuple(text[:QUERY_CHARS] for text in dict.fromkeys((*texts, *((said,) if said else ()))))[:MOST_ALSO]


def _by_providers(message: TaskDelegated) -> bool:
    """Questions are gated by the grader alone; everything else asks which systems have a provider (row A4)."""
    return message.lane != "answer"


def _digest(task: SubmitTask) -> str | None:
    return signature(task.error_message).digest if task.error_message else None
