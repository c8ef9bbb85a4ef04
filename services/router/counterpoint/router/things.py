"""Known things: entities and the relations between them, made of records that say them for certain (row B1). Pure.

A relation is a projection of a record, and keeps no copy of it: it is gone when the record is.
"""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Literal
from urllib.parse import urlsplit

from pydantic import AwareDatetime

from counterpoint.proto.attempts import Attempt
from counterpoint.proto.memory import Item
from counterpoint.proto.messages import Shape
from counterpoint.proto.providers import Provider
from counterpoint.proto.relations import RelationKind
from counterpoint.proto.signature import headline
from counterpoint.recall.edges import Edge, EdgeKind
from counterpoint.recall.names import Node, NodeKind, node_of
from counterpoint.recall.ownership import OwnershipRow

ThingKind = Literal[
    "job", "dataset", "owner", "repository", "host", "service", "provider", "dag_file", "file", "exception", "document",
    "dag", "error", "system", "attempt",
]  # fmt: skip
_PROGRAMS = frozenset({"python", "javascript", "typescript", "notebook"})
_TALK = frozenset({"conversation"})
_LOCAL = frozenset({"", "file"})
UNKNOWN = "thing"
"""The kind of what only has a name."""


class Provenance(Shape):
    """The record that says something: `by` is the kind of it, `quote` its words where it has words.

    `model` is the one that found it in the words of a document, where nothing certain says so.
    """

    by: Literal["lineage", "document", "code", "attempt", "provider_index", "model"]
    store: str
    id: str
    version: int
    source: str | None = None
    quote: str | None = None
    model: str | None = None


class Thing(Shape):
    """An entity: its kind, its name, and what is known of it besides."""

    kind: ThingKind | str
    name: str
    properties: dict[str, Any] = {}


class Relation(Shape):
    """A relation between two things: `source` `kind` `target`, as a sentence reads."""

    kind: RelationKind
    source: Thing
    target: Thing
    properties: dict[str, Any] = {}
    provenance: Provenance


class Failure(Shape):
    """A failure of a thing: its exception where one is named, its message, and the records that tell of it."""

    exception: str | None
    message: str
    job: str | None
    at: AwareDatetime | None
    provenance: Provenance


class Fix(Shape):
    """Something that helped: the attempt, who said so, and for which failure."""

    tried: str
    outcome: str
    evidence: str
    by: str
    job: str | None
    failure: str | None
    at: AwareDatetime | None
    provenance: Provenance


class KnownThing(Shape):
    """All that is known of a name: the things it stands for, their relations, and the answers made of these.

    `feeds` are the names downstream of it, `fed_by` those upstream. `stated` are relations that a model found in
    documents; no answer is made of them. `truncated`: there is more.
    """

    name: str
    things: tuple[Thing, ...]
    relations: tuple[Relation, ...]
    owned_by: tuple[str, ...]
    owns: tuple[str, ...]
    fed_by: tuple[str, ...]
    feeds: tuple[str, ...]
    broken_by: tuple[Failure, ...]
    fixed_by: tuple[Fix, ...]
    documented_in: tuple[str, ...]
    stated: tuple[Relation, ...] = ()
    truncated: bool = False


def thing_of(node: Node) -> Thing:
    """A job or a data set as a thing."""
    return Thing(kind=node.kind.value, name=node.name, properties={"namespace": node.namespace})


def of_record(node: Node, item: Item) -> list[Relation]:
    """Relations in the record of a job or a data set: its owners, its repository and its file, where it runs."""
    thing, body, said = thing_of(node), item.body, _said("lineage", item)
    found = [
        Relation(kind="owns", source=Thing(kind="owner", name=owner), target=thing, provenance=said)
        for owner in body.get("owners") or ()
    ]
    code: Mapping[str, Any] = body.get("code") or {}
    if repository := code.get("repo_url") or code.get("url"):
        version = {name: code[name] for name in ("version", "branch") if code.get(name)}
        target = Thing(kind="repository", name=repository)
        found.append(Relation(kind="depends_on", source=thing, target=target, properties=version, provenance=said))
    if path := code.get("path"):
        found.append(
            Relation(kind="depends_on", source=thing, target=Thing(kind="dag_file", name=path), provenance=said)
        )
    if (host := host_of(node.namespace)) is not None:
        found.append(Relation(kind="runs_on", source=thing, target=Thing(kind="host", name=host), provenance=said))
    return found


def host_of(namespace: str) -> str | None:
    """The host that a namespace names as a URI does (`postgres://db.internal:5432`), None for others."""
    try:
        parts = urlsplit(namespace)
        return parts.hostname if parts.scheme not in _LOCAL and "://" in namespace else None
    except ValueError:
        return None


def of_edge(edge: Edge) -> Relation | None:
    """Relation of an edge of the lineage graph; a whole and its part are none."""
    source, target = edge.ends
    said = Provenance(by="lineage", store="edges", id=edge.id, version=1)
    match edge.kind:
        case EdgeKind.PARENT:
            return None
        case EdgeKind.CONTROL:
            return Relation(kind="depends_on", source=thing_of(target), target=thing_of(source), provenance=said)
        case EdgeKind.DATA if source.kind is NodeKind.JOB:
            return Relation(kind="produces", source=thing_of(source), target=thing_of(target), provenance=said)
        case _:
            return Relation(kind="consumes", source=thing_of(target), target=thing_of(source), provenance=said)


def of_row(row: OwnershipRow, named: str, things: Sequence[Thing], item: Item) -> list[Relation]:
    """Relation of a name in a row of an ownership table: its owner, or what it owns."""
    said = _said("document", item, row.quote)
    of = things[0] if things else Thing(kind=UNKNOWN, name=named)
    found = []
    for owner in row.owners:
        for thing in row.things:
            if same(thing, named):
                source, target = Thing(kind="owner", name=owner), of
            elif same(owner, named):
                source, target = Thing(kind="owner", name=owner), Thing(kind=UNKNOWN, name=thing)
            else:
                continue
            found.append(
                Relation(kind="owns", source=source, target=target, properties=dict(row.properties), provenance=said)
            )
    return found


def of_document(item: Item, thing: Thing, line: str | None) -> Relation:
    """A page that names a thing documents it; a program or a conversation mentions it."""
    sort = item.body.get("type")
    kind: RelationKind = "mentions" if sort in _PROGRAMS | _TALK else "documents"
    by: Literal["document", "code"] = "code" if sort in _PROGRAMS else "document"
    document = Thing(kind="file" if by == "code" else "document", name=str(item.body.get("source") or item.id))
    return Relation(kind=kind, source=document, target=thing, provenance=_said(by, item, line))


def of_model(item: Item) -> Relation:
    """Relation that a model found in a document, with the words that state it."""
    said = item.body["properties"]
    return Relation(
        kind=item.body["kind"],
        source=Thing(kind=UNKNOWN, name=said["subject"]),
        target=Thing(kind=UNKNOWN, name=said["object"]),
        provenance=Provenance(
            by="model",
            store=item.store,
            id=item.id,
            version=item.version,
            source=said["document"],
            quote=said["span"],
            model=said["model"],
        ),
    )


def of_provider(provider: Provider, item: Item) -> Thing:
    """A row of the provider index as a thing."""
    known = {"package": provider.package, "version": provider.package_version}
    return Thing(kind="provider", name=provider.name, properties={k: v for k, v in known.items() if v})


def failure_of_run(item: Item) -> Failure | None:
    """The failure that a run tells of, None when it told no error."""
    error = item.body.get("error_message")
    if not error:
        return None
    error_class, message = headline(error)
    at = item.body.get("ended_at")
    job = str(node_of(item.body["job"]))
    return Failure(exception=error_class, message=message, job=job, at=at, provenance=_said("lineage", item))


def failure_of_attempt(item: Item, attempt: Attempt) -> Failure | None:
    """The failure that an attempt was made for."""
    if not attempt.error_message:
        return None
    error_class, message = headline(attempt.error_message)
    return Failure(
        exception=error_class, message=message, job=_job(attempt), at=attempt.at, provenance=_said("attempt", item)
    )


def fix_of(item: Item, attempt: Attempt) -> Fix | None:
    """The fix that an attempt was, None when it was none."""
    if attempt.outcome != "succeeded" or not attempt.tried:
        return None
    error_class, message = headline(attempt.error_message) if attempt.error_message else (None, "")
    return Fix(
        tried=attempt.tried,
        outcome=attempt.outcome,
        evidence=attempt.evidence,
        by=attempt.override_by or attempt.by,
        job=_job(attempt),
        failure=f"{error_class}: {message}" if error_class else message or None,
        at=attempt.decided_at or attempt.at,
        provenance=_said("attempt", item),
    )


def fixing(fix: Fix, thing: Thing) -> Relation:
    """A thing, or what broke it, was fixed by an attempt."""
    target = Thing(kind="attempt", name=fix.tried, properties={"by": fix.by, "evidence": fix.evidence})
    properties = {"failure": fix.failure} if fix.failure else {}
    return Relation(kind="fixed_by", source=thing, target=target, properties=properties, provenance=fix.provenance)


def raising(failure: Failure) -> Relation | None:
    """A job, and the exception that it failed with; None where either is not known."""
    if failure.exception is None or failure.job is None:
        return None
    namespace, _, name = failure.job.rpartition("/")
    source = Thing(kind="job", name=name, properties={"namespace": namespace})
    target = Thing(kind="exception", name=failure.exception)
    return Relation(kind="mentions", source=source, target=target, provenance=failure.provenance)


def exceptions_named(name: str, failures: Iterable[Failure]) -> list[Thing]:
    """The exceptions of failures that have this name, or its last part."""
    found = dict.fromkeys(each.exception for each in failures if each.exception)
    return [
        Thing(kind="exception", name=exception)
        for exception in found
        if same(exception, name) or same(exception.rpartition(".")[2], name)
    ]


def same(one: str, other: str) -> bool:
    """Whether two names are the same, whatever their case."""
    return one.strip().casefold() == other.strip().casefold()


def known(
    name: str,
    things: Sequence[Thing],
    relations: Iterable[Relation],
    failures: Iterable[Failure],
    fixes: Iterable[Fix],
    *,
    truncated: bool,
) -> KnownThing:
    """Put together what is known of a name, each relation once and each failure by its newest record."""
    once = {(r.kind, r.source.kind, r.source.name, r.target.kind, r.target.name): r for r in reversed([*relations])}
    every = tuple(reversed(once.values()))
    keys = {(thing.kind, thing.name) for thing in things}

    def about(thing: Thing) -> bool:
        return (thing.kind, thing.name) in keys or same(thing.name, name)

    def names(kind: RelationKind, *, forward: bool) -> list[str]:
        if forward:
            return [r.target.name for r in every if r.kind == kind and about(r.source)]
        return [r.source.name for r in every if r.kind == kind and about(r.target)]

    flows = {"data": ("consumes", "produces"), "control": ("depends_on",)}
    jobs = [r.target.name for r in every if r.kind in flows["control"] and about(r.source) and r.target.kind == "job"]
    waiting = [
        r.source.name for r in every if r.kind in flows["control"] and about(r.target) and r.source.kind == "job"
    ]
    newest = sorted(failures, key=lambda each: each.at.isoformat() if each.at else "", reverse=True)
    by_message = {(each.exception, each.message): each for each in reversed(newest)}
    return KnownThing(
        name=name,
        things=tuple(things),
        relations=every,
        owned_by=_each(names("owns", forward=False)),
        owns=_each(names("owns", forward=True)),
        fed_by=_each([*names("consumes", forward=True), *names("produces", forward=False), *jobs]),
        feeds=_each([*names("produces", forward=True), *names("consumes", forward=False), *waiting]),
        broken_by=tuple(reversed(by_message.values())),
        fixed_by=tuple(sorted(fixes, key=lambda each: (each.evidence != "reported", -_when(each)))),
        documented_in=_each([r.source.name for r in every if r.kind == "documents"]),
        truncated=truncated,
    )


def _when(fix: Fix) -> float:
    return fix.at.timestamp() if fix.at else 0.0


def _each(names: Iterable[str]) -> tuple[str, ...]:
    return tuple(dict.fromkeys(names))


def _job(attempt: Attempt) -> str | None:
    return f"{attempt.job.namespace}/{attempt.job.name}" if attempt.job else None


def _said(
    by: Literal["lineage", "document", "code", "attempt", "provider_index"], item: Item, quote: str | None = None
) -> Provenance:
    source = item.body.get("source") if item.store in ("chunks", "documents", "attempts") else None
    return Provenance(by=by, store=item.store, id=item.id, version=item.version, source=source, quote=quote)
