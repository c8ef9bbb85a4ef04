"""Look-up of an entity by name in lineage, documents, code, attempts and the provider index (docs/incidents.md)."""

import re
from collections import defaultdict
from collections.abc import Iterable, Sequence
from typing import Any

from counterpoint.client import Memory, readable
from counterpoint.graph.lineage import lineage_of
from counterpoint.graph.names import Node, NodeKind
from counterpoint.graph.ownership import ownership_rows
from counterpoint.proto.attempts import Attempt
from counterpoint.proto.memory import Get, HybridSearch, Item, List
from counterpoint.proto.providers import Provider
from counterpoint.router.api.entity_models import (
    UNKNOWN,
    EntityProfile,
    EntityRelation,
    KnownFailure,
    KnownFix,
    NamedEntity,
)
from counterpoint.router.api.relations import (
    entity_of_node,
    entity_profile,
    failure_of_attempt,
    failure_of_run,
    fix_of,
    fixed_by_relation,
    host_of,
    matching_exceptions,
    provider_entity,
    raises_relation,
    relation_of_document,
    relation_of_edge,
    relation_of_model,
    relations_of_record,
    relations_of_row,
    same_name,
)

NODES = 5
"""Maximum number of jobs and data sets of one name."""
SCANNED = 1000
"""Maximum number of records to scan for a name that is not an id."""
CHUNKS, ATTEMPTS, RUNS, STATED = 30, 100, 20, 50
FAILED = 200
"""Maximum number of failed runs to scan for an exception, newest first."""
_HOPS, _NEAR, _AROUND = 1, 200, 3
_LINE_CHARS = 300


async def look_up(memory: Memory, name: str) -> EntityProfile:
    """Look a name up. Raises `Transient` or `Denied`."""
    name = name.strip()
    nodes, truncated = await _nodes(memory, name)
    things = [entity_of_node(node) for node in nodes]
    relations: list[EntityRelation] = []
    jobs: dict[str, Node] = {}
    for node in nodes:
        found = await lineage_of(memory, node, depth=_HOPS, limit=_NEAR)
        truncated = truncated or len(found.nodes) >= _NEAR
        nodes_near = [row.node for row in found.nodes]
        parts = {row.node for row in found.nodes if row.hops == 0}
        items = await memory.query(*(Get(store=f"{each.kind}s", id=each.id) for each in parts))
        for part, answer in zip(parts, items, strict=True):
            relations += [each for item in answer.items for each in relations_of_record(part, item)]
        relations += [relation for edge in found.edges if (relation := relation_of_edge(edge)) is not None]
        wrote = {edge.ends[0] for edge in found.edges if edge.ends[1] == node}
        breaks = parts | (wrote if node.kind is NodeKind.DATASET else set())
        jobs |= {each.ref: each for each in nodes_near if each in breaks and each.kind is NodeKind.JOB}
    things += await _mentions(memory, name)
    relations += await _ownerships(memory, name)
    providers = await _providers(memory, name)
    things += providers
    relations += await _documents(memory, name, things)
    failures, fixes = await _history(memory, name, jobs.values())
    things += matching_exceptions(name, failures)
    subject = things[0] if things else NamedEntity(kind=UNKNOWN, name=name)
    relations += [fixed_by_relation(fix, subject) for fix in fixes]
    relations += [each for failure in failures if (each := raises_relation(failure)) is not None]
    stated = await _model_relations(memory, name)
    return entity_profile(name, things, relations, failures, fixes, truncated=truncated).model_copy(
        update={"stated": stated}
    )


async def _nodes(memory: Memory, name: str) -> tuple[list[Node], bool]:
    """Find the jobs and data sets of a name: `NAMESPACE/NAME`, a name in any namespace, or its last part."""
    found: dict[str, Node] = {}
    partial = False
    for store in ("jobs", "datasets"):
        kind = NodeKind(store.removesuffix("s"))
        namespace, slash, last = name.rpartition("/")
        if slash and namespace and last:
            node = Node(kind=kind, namespace=namespace, name=last)
            if await memory.get(store, node.id) is not None:
                found[node.ref] = node
        (answer,) = await memory.query(List(store=store, where={"name": name}, limit=NODES))
        for item in answer.items:
            node = Node(kind=kind, namespace=item.body["namespace"], name=item.body["name"])
            found[node.ref] = node
    if not found:
        for store in ("jobs", "datasets"):
            (answer,) = await memory.query(List(store=store, limit=SCANNED))
            partial = partial or answer.next_cursor is not None
            for item in answer.items:
                node = Node(
                    kind=NodeKind(store.removesuffix("s")), namespace=item.body["namespace"], name=item.body["name"]
                )
                if same_name(node.name, name) or same_name(re.split(r"[./]", node.name)[-1], name):
                    found[node.ref] = node
    return list(found.values())[:NODES], partial or len(found) > NODES


async def _mentions(memory: Memory, name: str) -> list[NamedEntity]:
    """Find the mentioned entities of a name."""
    search = HybridSearch(store="entities", text=name, k=20, vector_weight=0)
    (answer,) = await memory.query(search)
    return [
        NamedEntity(kind=item.body["kind"], name=item.body["name"], properties=item.body.get("properties") or {})
        for item in answer.items
        if same_name(item.body["name"], name)
    ]


async def _ownerships(memory: Memory, name: str) -> list[EntityRelation]:
    """Find the jobs and data sets that a name owns, whose code it contains, or that run on it."""
    found = []
    for store in ("jobs", "datasets"):
        kind = NodeKind(store.removesuffix("s"))
        (answer,) = await memory.query(List(store=store, where={"owners": [name]}, limit=200))
        for item in answer.items:
            found += relations_of_record(
                Node(kind=kind, namespace=item.body["namespace"], name=item.body["name"]), item
            )
    for field in ("repo_url", "url", "path"):
        (answer,) = await memory.query(List(store="jobs", where={"code": {field: name}}, limit=200))
        for item in answer.items:
            found += relations_of_record(
                Node(kind=NodeKind.JOB, namespace=item.body["namespace"], name=item.body["name"]), item
            )
    if "." in name or not found:
        (answer,) = await memory.query(List(store="datasets", limit=SCANNED))
        for item in answer.items:
            host = host_of(item.body["namespace"])
            if host is not None and same_name(host, name):
                node = Node(kind=NodeKind.DATASET, namespace=item.body["namespace"], name=item.body["name"])
                found += relations_of_record(node, item)
    return found


async def _providers(memory: Memory, name: str) -> list[NamedEntity]:
    (answer,) = await memory.query(List(store="providers", limit=SCANNED))
    rows = [(provider, item) for item, provider in readable(answer.items, Provider)]
    return [
        provider_entity(row) for row, item in rows if any(same_name(each, name) for each in (row.name, *row.aliases))
    ]


async def _documents(memory: Memory, name: str, things: Sequence[NamedEntity]) -> list[EntityRelation]:
    """Find documents and programs that mention a name, and rows of ownership tables."""
    search = HybridSearch(store="chunks", text=name, k=CHUNKS, vector_weight=0, neighbours=_AROUND)
    (answer,) = await memory.query(search)
    subject = things[0] if things else NamedEntity(kind=UNKNOWN, name=name)
    pattern = _whole_word(name)
    found: list[EntityRelation] = []
    for items in _by_document(answer.items):
        text = _join(items)
        naming = next((item for item in items if pattern.search(item.body["text"])), None)
        if naming is None:
            continue
        found.append(relation_of_document(naming, subject, _line(naming.body["text"], pattern)))
        for row in ownership_rows(text):
            source = next((item for item in items if row.quote in item.body["text"]), naming)
            found += relations_of_row(row, name, things, source)
    return found


async def _model_relations(memory: Memory, name: str) -> tuple[EntityRelation, ...]:
    """Find the relations that a model extracted from documents, newest first."""
    where = {"properties": {"names": [name.casefold()]}}
    (answer,) = await memory.query(List(store="relationships", where=where, limit=STATED))
    return tuple(relation_of_model(item) for item in answer.items)


async def _history(memory: Memory, name: str, jobs: Iterable[Node]) -> tuple[list[KnownFailure], list[KnownFix]]:
    """Find failures and fixes: failed runs and attempts of the jobs, and records that contain the name."""
    failures: list[KnownFailure | None] = []
    items: dict[str, Item] = {}
    nodes, pattern = list(jobs), _whole_word(name)
    if not nodes:
        (answer,) = await memory.query(List(store="runs", where={"state": "FAIL"}, limit=FAILED))
        matching = (item for item in answer.items if pattern.search(str(item.body.get("error_message") or "")))
        failures += [failure_of_run(item) for item in matching]
    for node in nodes:
        runs, attempts = await memory.query(
            List(store="runs", where={"job": node.ref, "state": "FAIL"}, limit=RUNS),
            List(store="attempts", where={"job": {"namespace": node.namespace, "name": node.name}}, limit=ATTEMPTS),
        )
        failures += [failure_of_run(item) for item in runs.items]
        items |= {item.id: item for item in attempts.items}
    (answer,) = await memory.query(HybridSearch(store="attempts", text=name, k=ATTEMPTS, vector_weight=0))
    for item in answer.items:
        if pattern.search(
            "\n".join(str(item.body.get(each) or "") for each in ("error_message", "description", "job"))
        ):
            items[item.id] = item
    tried = readable(items.values(), Attempt)
    failures += [failure_of_attempt(item, attempt) for item, attempt in tried]
    fixes = [fix_of(item, attempt) for item, attempt in tried]
    return [each for each in failures if each is not None], [each for each in fixes if each is not None]


def _by_document(items: Sequence[Item]) -> list[list[Item]]:
    """Group chunks by document, in document order."""
    found: defaultdict[Any, dict[str, Item]] = defaultdict(dict)
    for item in items:
        found[item.body.get("document_id")][item.id] = item
    return [sorted(chunks.values(), key=lambda item: int(item.body.get("start", 0))) for chunks in found.values()]


def _join(items: Sequence[Item]) -> str:
    """Join chunks; a gap between them becomes an empty line."""
    text, end = "", None
    for item in items:
        start, chunk = int(item.body.get("start", 0)), str(item.body["text"])
        if end is not None:
            text += chunk[end - start :] if start < end else f"\n{chunk}" if start - end < 3 else f"\n\n{chunk}"
        else:
            text = chunk
        end = max(end or 0, start + len(chunk))
    return text


def _whole_word(name: str) -> re.Pattern[str]:
    return re.compile(rf"(?<![\w-]){re.escape(name)}(?![\w-])", re.IGNORECASE)


def _line(text: str, pattern: re.Pattern[str]) -> str | None:
    line = next((each for each in text.splitlines() if pattern.search(each)), None)
    return line.strip()[:_LINE_CHARS] if line is not None else None
