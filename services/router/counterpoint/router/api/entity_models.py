"""Entity profiles: the models of the look-up of a name."""

from typing import Any, Literal

from pydantic import AwareDatetime

from counterpoint.proto.messages import Shape
from counterpoint.proto.relations import RelationKind

EntityKind = Literal[
    "job", "dataset", "owner", "repository", "host", "service", "provider", "dag_file", "file", "exception", "document",
    "dag", "error", "system", "attempt",
]  # fmt: skip
UNKNOWN = "thing"
"""The kind of an entity of which only the name is known."""


class RelationProvenance(Shape):
    """The record that states a fact: `by` is its kind, `quote` its words, if any.

    `model` is the one that found it in the words of a document, where nothing certain says so.
    """

    by: Literal["lineage", "document", "code", "attempt", "provider_index", "model"]
    store: str
    id: str
    version: int
    source: str | None = None
    quote: str | None = None
    model: str | None = None


class NamedEntity(Shape):
    """An entity: kind, name and properties."""

    kind: EntityKind | str
    name: str
    properties: dict[str, Any] = {}


class EntityRelation(Shape):
    """A relation between two entities: `source` `kind` `target`."""

    kind: RelationKind
    source: NamedEntity
    target: NamedEntity
    properties: dict[str, Any] = {}
    provenance: RelationProvenance


class KnownFailure(Shape):
    """A failure of an entity: the exception, if known, the message, and the source record."""

    exception: str | None
    message: str
    job: str | None
    at: AwareDatetime | None
    provenance: RelationProvenance


class KnownFix(Shape):
    """A successful attempt: its author, its evidence and the failure it fixed."""

    tried: str
    outcome: str
    evidence: str
    by: str
    job: str | None
    failure: str | None
    at: AwareDatetime | None
    provenance: RelationProvenance


class EntityProfile(Shape):
    """The profile of a name: its entities, their relations, and the answers derived from them.

    `feeds` are the names downstream of it, `fed_by` those upstream. `stated` are relations that a model found in
    documents; no answer is made of them. `truncated`: there is more.
    """

    name: str
    things: tuple[NamedEntity, ...]
    relations: tuple[EntityRelation, ...]
    owned_by: tuple[str, ...]
    owns: tuple[str, ...]
    fed_by: tuple[str, ...]
    feeds: tuple[str, ...]
    broken_by: tuple[KnownFailure, ...]
    fixed_by: tuple[KnownFix, ...]
    documented_in: tuple[str, ...]
    stated: tuple[EntityRelation, ...] = ()
    truncated: bool = False
