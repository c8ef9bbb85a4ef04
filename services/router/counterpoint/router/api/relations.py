"""Entity profiles: relations, failures and fixes derived from records (docs/incidents.md). Pure.

A relation is a projection of a record, and keeps no copy of it: it is gone when the record is.
"""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Literal
from urllib.parse import urlsplit

from counterpoint.graph.edges import EdgeKind, LineageEdge
from counterpoint.graph.names import Node, NodeKind, node_of
from counterpoint.graph.ownership import OwnershipRow
from counterpoint.proto.attempts import Attempt
from counterpoint.proto.memory import Item
from counterpoint.proto.providers import Provider
from counterpoint.proto.relations import RelationKind
from counterpoint.proto.signature import headline
from counterpoint.router.api.entity_models import (
    UNKNOWN,
    EntityProfile,
    EntityRelation,
    KnownFailure,
    KnownFix,
    NamedEntity,
    RelationProvenance,
)

_PROGRAMS = frozenset({"python", "javascript", "typescript", "notebook"})
_TALK = frozenset({"conversation"})
_LOCAL = frozenset({"", "file"})


def entity_of_node(node: Node) -> NamedEntity:
    """Return a job or a data set as an entity."""
    return NamedEntity(kind=node.kind.value, name=node.name, properties={"namespace": node.namespace})


def relations_of_record(node: Node, item: Item) -> list[EntityRelation]:
    """Return the relations in a job's or data set's record: owners, repository, file and host."""
    entity, body, provenance = entity_of_node(node), item.body, _provenance("lineage", item)
    found = [
        EntityRelation(kind="owns", source=NamedEntity(kind="owner", name=owner), target=entity, provenance=provenance)
        for owner in body.get("owners") or ()
    ]
    code: Mapping[str, Any] = body.get("code") or {}
    if repository := code.get("repo_url") or code.get("url"):
        version = {name: code[name] for name in ("version", "branch") if code.get(name)}
        target = NamedEntity(kind="repository", name=repository)
        found.append(
            EntityRelation(kind="depends_on", source=entity, target=target, properties=version, provenance=provenance)
        )
    if path := code.get("path"):
        found.append(
            EntityRelation(
                kind="depends_on", source=entity, target=NamedEntity(kind="dag_file", name=path), provenance=provenance
            )
        )
    if (host := host_of(node.namespace)) is not None:
        found.append(
            EntityRelation(
                kind="runs_on", source=entity, target=NamedEntity(kind="host", name=host), provenance=provenance
            )
        )
    return found


def host_of(namespace: str) -> str | None:
    """Return the host of a namespace that is a URI (`postgres://db.internal:5432`), else None."""
    try:
        parts = urlsplit(namespace)
        return parts.hostname if parts.scheme not in _LOCAL and "://" in namespace else None
    except ValueError:
        return None


def relation_of_edge(edge: LineageEdge) -> EntityRelation | None:
    """Return the relation of a lineage edge, None for a parent edge."""
    source, target = edge.ends
    provenance = RelationProvenance(by="lineage", store="edges", id=edge.id, version=1)
    match edge.kind:
        case EdgeKind.PARENT:
            return None
        case EdgeKind.CONTROL:
            return EntityRelation(
                kind="depends_on", source=entity_of_node(target), target=entity_of_node(source), provenance=provenance
            )
        case EdgeKind.DATA if source.kind is NodeKind.JOB:
            return EntityRelation(
                kind="produces", source=entity_of_node(source), target=entity_of_node(target), provenance=provenance
            )
        case _:
            return EntityRelation(
                kind="consumes", source=entity_of_node(target), target=entity_of_node(source), provenance=provenance
            )


def relations_of_row(row: OwnershipRow, name: str, things: Sequence[NamedEntity], item: Item) -> list[EntityRelation]:
    """Return the relations of a name in a row of an ownership table."""
    provenance = _provenance("document", item, row.quote)
    target_entity = things[0] if things else NamedEntity(kind=UNKNOWN, name=name)
    found = []
    for owner in row.owners:
        for entity in row.subjects:
            if same_name(entity, name):
                source, target = NamedEntity(kind="owner", name=owner), target_entity
            elif same_name(owner, name):
                source, target = NamedEntity(kind="owner", name=owner), NamedEntity(kind=UNKNOWN, name=entity)
            else:
                continue
            found.append(
                EntityRelation(
                    kind="owns", source=source, target=target, properties=dict(row.properties), provenance=provenance
                )
            )
    return found


def relation_of_document(item: Item, entity: NamedEntity, line: str | None) -> EntityRelation:
    """Return the relation of a document: pages document an entity, programs and conversations mention it."""
    document_type = item.body.get("type")
    kind: RelationKind = "mentions" if document_type in _PROGRAMS | _TALK else "documents"
    by: Literal["document", "code"] = "code" if document_type in _PROGRAMS else "document"
    document = NamedEntity(kind="file" if by == "code" else "document", name=str(item.body.get("source") or item.id))
    return EntityRelation(kind=kind, source=document, target=entity, provenance=_provenance(by, item, line))


def relation_of_model(item: Item) -> EntityRelation:
    """Return the relation that a model extracted from a document, with its quote."""
    provenance = item.body["properties"]
    return EntityRelation(
        kind=item.body["kind"],
        source=NamedEntity(kind=UNKNOWN, name=provenance["subject"]),
        target=NamedEntity(kind=UNKNOWN, name=provenance["object"]),
        provenance=RelationProvenance(
            by="model",
            store=item.store,
            id=item.id,
            version=item.version,
            source=provenance["document"],
            quote=provenance["span"],
            model=provenance["model"],
        ),
    )


def provider_entity(provider: Provider) -> NamedEntity:
    """Return a row of the provider index as an entity."""
    entity_profile = {"package": provider.package, "version": provider.package_version}
    return NamedEntity(kind="provider", name=provider.name, properties={k: v for k, v in entity_profile.items() if v})


def failure_of_run(item: Item) -> KnownFailure | None:
    """Return the failure of a run, None for a run without an error."""
    error = item.body.get("error_message")
    if not error:
        return None
    error_class, message = headline(error)
    at = item.body.get("ended_at")
    job = str(node_of(item.body["job"]))
    return KnownFailure(exception=error_class, message=message, job=job, at=at, provenance=_provenance("lineage", item))


def failure_of_attempt(item: Item, attempt: Attempt) -> KnownFailure | None:
    """Return the failure that an attempt is about, if it is known."""
    if not attempt.error_message:
        return None
    error_class, message = headline(attempt.error_message)
    return KnownFailure(
        exception=error_class,
        message=message,
        job=_job(attempt),
        at=attempt.at,
        provenance=_provenance("attempt", item),
    )


def fix_of(item: Item, attempt: Attempt) -> KnownFix | None:
    """Return a successful attempt as a fix, else None."""
    if attempt.outcome != "succeeded" or not attempt.tried:
        return None
    error_class, message = headline(attempt.error_message) if attempt.error_message else (None, "")
    return KnownFix(
        tried=attempt.tried,
        outcome=attempt.outcome,
        evidence=attempt.evidence,
        by=attempt.override_by or attempt.by,
        job=_job(attempt),
        failure=f"{error_class}: {message}" if error_class else message or None,
        at=attempt.decided_at or attempt.at,
        provenance=_provenance("attempt", item),
    )


def fixed_by_relation(fix: KnownFix, entity: NamedEntity) -> EntityRelation:
    """Return the relation between an entity and the attempt that fixed it."""
    target = NamedEntity(kind="attempt", name=fix.tried, properties={"by": fix.by, "evidence": fix.evidence})
    properties = {"failure": fix.failure} if fix.failure else {}
    return EntityRelation(
        kind="fixed_by", source=entity, target=target, properties=properties, provenance=fix.provenance
    )


def raises_relation(failure: KnownFailure) -> EntityRelation | None:
    """Return the relation between a job and its exception, None where either is unknown."""
    if failure.exception is None or failure.job is None:
        return None
    namespace, _, name = failure.job.rpartition("/")
    source = NamedEntity(kind="job", name=name, properties={"namespace": namespace})
    target = NamedEntity(kind="exception", name=failure.exception)
    return EntityRelation(kind="mentions", source=source, target=target, provenance=failure.provenance)


def matching_exceptions(name: str, failures: Iterable[KnownFailure]) -> list[NamedEntity]:
    """Return the exceptions with this name, or with this last part of their name."""
    found = dict.fromkeys(each.exception for each in failures if each.exception)
    return [
        NamedEntity(kind="exception", name=exception)
        for exception in found
        if same_name(exception, name) or same_name(exception.rpartition(".")[2], name)
    ]


def same_name(first: str, second: str) -> bool:
    """Return whether two names are equal, ignoring case."""
    return first.strip().casefold() == second.strip().casefold()


def entity_profile(
    name: str,
    things: Sequence[NamedEntity],
    relations: Iterable[EntityRelation],
    failures: Iterable[KnownFailure],
    fixes: Iterable[KnownFix],
    *,
    truncated: bool,
) -> EntityProfile:
    """Build the profile of a name, with each relation once and each failure by its newest record."""
    by_key = {(r.kind, r.source.kind, r.source.name, r.target.kind, r.target.name): r for r in reversed([*relations])}
    unique = tuple(reversed(by_key.values()))
    keys = {(entity.kind, entity.name) for entity in things}

    def is_about(entity: NamedEntity) -> bool:
        return (entity.kind, entity.name) in keys or same_name(entity.name, name)

    def names(kind: RelationKind, *, forward: bool) -> list[str]:
        if forward:
            return [r.target.name for r in unique if r.kind == kind and is_about(r.source)]
        return [r.source.name for r in unique if r.kind == kind and is_about(r.target)]

    flows = {"data": ("consumes", "produces"), "control": ("depends_on",)}
    jobs = [
        r.target.name for r in unique if r.kind in flows["control"] and is_about(r.source) and r.target.kind == "job"
    ]
    dependents = [
        r.source.name for r in unique if r.kind in flows["control"] and is_about(r.target) and r.source.kind == "job"
    ]
    newest = sorted(failures, key=lambda each: each.at.isoformat() if each.at else "", reverse=True)
    by_message = {(each.exception, each.message): each for each in reversed(newest)}
    return EntityProfile(
        name=name,
        things=tuple(things),
        relations=unique,
        owned_by=_distinct(names("owns", forward=False)),
        owns=_distinct(names("owns", forward=True)),
        fed_by=_distinct([*names("consumes", forward=True), *names("produces", forward=False), *jobs]),
        feeds=_distinct([*names("produces", forward=True), *names("consumes", forward=False), *dependents]),
        broken_by=tuple(reversed(by_message.values())),
        fixed_by=tuple(sorted(fixes, key=lambda each: (each.evidence != "reported", -_when(each)))),
        documented_in=_distinct([r.source.name for r in unique if r.kind == "documents"]),
        truncated=truncated,
    )


def _when(fix: KnownFix) -> float:
    return fix.at.timestamp() if fix.at else 0.0


def _distinct(names: Iterable[str]) -> tuple[str, ...]:
    return tuple(dict.fromkeys(names))


def _job(attempt: Attempt) -> str | None:
    return f"{attempt.job.namespace}/{attempt.job.name}" if attempt.job else None


def _provenance(
    by: Literal["lineage", "document", "code", "attempt", "provider_index"], item: Item, quote: str | None = None
) -> RelationProvenance:
    source = item.body.get("source") if item.store in ("chunks", "documents", "attempts") else None
    return RelationProvenance(by=by, store=item.store, id=item.id, version=item.version, source=source, quote=quote)
