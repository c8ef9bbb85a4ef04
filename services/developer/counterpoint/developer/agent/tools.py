"""Tools of an investigation: read-only queries of memory, which pass the diode as all queries do."""

import re
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass

from counterpoint.client import Memory, readable
from counterpoint.developer.agent.context import earlier_attempt
from counterpoint.developer.agent.readings import Reading, attempt_reading, document_reading, record_reading
from counterpoint.developer.evidence.attempts import NO_OUTCOME, EarlierAttempt
from counterpoint.developer.evidence.calibration import Calibration
from counterpoint.developer.evidence.search_query import QUERY_CHARS
from counterpoint.developer.excerpts.relevance import hits
from counterpoint.developer.language.words import content_words
from counterpoint.graph.lineage import lineage_of
from counterpoint.graph.names import Node, NodeKind, job
from counterpoint.proto.attempts import Attempt
from counterpoint.proto.memory import HybridSearch, Item, List
from counterpoint.proto.providers import Provider, provider_of
from counterpoint.proto.tasks import TaskDelegated

PASSAGES, ATTEMPTS, RUNS = 6, 6, 8
"""Maximum numbers of results of one call."""
_CAPITAL = re.compile(r"(?<=[a-z0-9])(?=[A-Z])")
HOPS, NODES = 3, 60
"""Maximum hops and nodes of a lineage graph in each direction."""
ERROR_CHARS = 300


@dataclass(frozen=True)
class Surroundings:
    """The delivery that a tool is called for."""

    memory: Memory
    message: TaskDelegated
    calibration: Calibration
    attempts: Sequence[EarlierAttempt]


Run = Callable[[Surroundings, Mapping[str, str]], Awaitable[tuple[Reading, ...]]]


@dataclass(frozen=True)
class Tool:
    """A tool: its purpose in words for a model, its arguments with their meaning, and those that must be given."""

    purpose: str
    arguments: Mapping[str, str]
    required: tuple[str, ...]
    run: Run


async def _search(around: Surroundings, arguments: Mapping[str, str]) -> tuple[Reading, ...]:
    text = arguments["text"][:QUERY_CHARS]
    (found,) = await around.memory.query(HybridSearch(store="chunks", text=text, k=PASSAGES))
    return tuple(document_reading(hit) for hit in hits(text, found.items, around.calibration.topic))


async def _attempts(around: Surroundings, arguments: Mapping[str, str]) -> tuple[Reading, ...]:
    text = arguments["text"][:QUERY_CHARS]
    (found,) = await around.memory.query(HybridSearch(store="attempts", text=text, k=ATTEMPTS))
    return tuple(
        attempt_reading(earlier_attempt(item, attempt, around.attempts, around.message.task_id))
        for item, attempt in readable(found.items, Attempt)
        if attempt.outcome not in NO_OUTCOME and not attempt.shadow
    )


async def _lineage(around: Surroundings, arguments: Mapping[str, str]) -> tuple[Reading, ...]:
    node = _node(around.message, arguments)
    item = await around.memory.get(f"{node.kind}s", node.id) if node else None
    if node is None or item is None:
        return ()
    graph = await lineage_of(around.memory, node, depth=HOPS, limit=NODES)
    rows = [
        f"{'upstream' if row.hops < 0 else 'downstream'} {abs(row.hops)}: {row.node.kind} {row.node}"
        + (f", owner {row.owner}" if row.owner else "")
        for row in graph.nodes
        if row.hops
    ]
    return (record_reading("lineage", item, "\n".join([f"{node.kind} {node}", *rows])),)


async def _providers(around: Surroundings, arguments: Mapping[str, str]) -> tuple[Reading, ...]:
    items: list[Item] = []
    async for page in around.memory.pages(List(store="providers", limit=1000)):
        items += page.items
    system = arguments["system"]
    about = f"{system} {around.message.task.description}"
    return provider_readings(items, lambda index: [provider_of(system, index)], about)


def provider_readings(
    items: Sequence[Item], chosen: Callable[[Sequence[Provider]], Sequence[Provider | None]], about: str
) -> tuple[Reading, ...]:
    """Return rows of the provider index, each with the names most like a text."""
    index = readable(items, Provider)
    rows = {each.package for each in chosen([provider for _, provider in index]) if each is not None}
    words = content_words(about)

    def names(of: Sequence[str], limit: int) -> str:
        likest = sorted(of, key=lambda name: -len(words & content_words(_CAPITAL.sub(" ", name))))
        return ", ".join(likest[:limit]) or "none"

    return tuple(
        record_reading(
            "provider",
            item,
            f"{each.name}: {each.package}; operators {names(each.operators, 20)}; sensors {names(each.sensors, 10)}; "
            f"hooks {names(each.hooks, 10)}; connections {names(each.connection_types, 10)}",
        )
        for item, each in index
        if each.package in rows
    )


async def _runs(around: Surroundings, arguments: Mapping[str, str]) -> tuple[Reading, ...]:
    node = _node(around.message, arguments)
    if node is None:
        return ()
    (found,) = await around.memory.query(List(store="runs", where={"job": node.ref}, limit=RUNS))
    return tuple(record_reading("run", item, _run_text(item)) for item in found.items)


def _run_text(item: Item) -> str:
    body = item.body
    error = f": {body['error_message'][:ERROR_CHARS]}" if body.get("error_message") else ""
    facts = [f"{name}={value}" for name, value in sorted(body.get("facts", {}).items())]
    tried = f", try {body['try_number']}" if body.get("try_number") else ""
    return (
        f"{body.get('state', 'unknown')} at {body.get('ended_at') or body.get('started_at')}{tried}{error}\n"
        + ("; ".join(facts)[: 2 * ERROR_CHARS])
    )


def _node(message: TaskDelegated, arguments: Mapping[str, str]) -> Node | None:
    """Return the job or dataset that a call names, else the target of the task."""
    if arguments.get("namespace") and arguments.get("name"):
        kind = NodeKind.DATASET if arguments.get("kind") == "dataset" else NodeKind.JOB
        return Node(kind=kind, namespace=arguments["namespace"], name=arguments["name"])
    target = message.task.target
    return job(target.job.namespace, target.job.name) if target and target.job else None


_JOB = {"namespace": "namespace of the job", "name": "name of the job; without both, the job of the task"}

TOOLS: Mapping[str, Tool] = {
    "search": Tool("passages of documents", {"text": "the words to search for"}, ("text",), _search),
    "attempts": Tool(
        "earlier attempts at failures, with their outcomes", {"text": "a failure in words"}, ("text",), _attempts
    ),
    "lineage": Tool(
        "jobs and datasets upstream and downstream, with owners", {**_JOB, "kind": "job or dataset"}, (), _lineage
    ),
    "runs": Tool("the latest runs of a job, with their errors and settings", _JOB, (), _runs),
    "providers": Tool("the official provider package of a system", {"system": "its name"}, ("system",), _providers),
}
