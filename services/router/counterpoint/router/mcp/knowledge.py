"""Tools about what is known: documents, earlier attempts and providers."""

import hashlib
from difflib import get_close_matches
from typing import Annotated, Any

from pydantic import Field

from counterpoint.client import record, records
from counterpoint.proto.errors import ErrorCode, Permanent, Problem
from counterpoint.proto.incidents import PastIncident
from counterpoint.proto.ingest import DocumentResult, RecordResult
from counterpoint.proto.memory import HybridSearch, List
from counterpoint.proto.messages import Id, Shape, Time
from counterpoint.proto.providers import Provider, plain_name, provider_of
from counterpoint.proto.sessions import SessionRecord
from counterpoint.router.api.body import validate
from counterpoint.router.api.context import RequestContext
from counterpoint.router.api.document_types import (
    DOC_TYPE,
    FORMATS,
    USUAL,
    NamedType,
    reject_unknown_types,
    type_filter,
)
from counterpoint.router.api.documents import Documents, ingest_documents
from counterpoint.router.api.search import find_attempts, hit_json
from counterpoint.router.mcp.caller import Project, caller

_PROVIDERS = 1000
_ALTERNATIVES = 5


class PassageHit(Shape):
    """A passage of a document. `integrity`: 2 from a person or an operated system, 1 from an agent, 0 untrusted."""

    id: str
    version: int
    source: str
    text: str
    score: float | None = None
    integrity: int
    type: str | None = None
    title: str | None = None


class PassageHits(Shape):
    """The passages that match best, best first."""

    project: str
    items: tuple[PassageHit, ...]


class TriedBefore(Shape):
    """An earlier attempt. `score` is its similarity to the error asked about; 1 is the same error."""

    attempt_id: str
    task_id: str
    attempt: int
    description: str
    error_message: str | None = None
    tried: str
    outcome: str
    note: str | None = None
    evidence: str
    by: str
    override_by: str | None = None
    confidence: float | None = None
    at: Time
    score: float | None = None


class TroubleshootingHistory(Shape):
    """Earlier attempts and their outcomes."""

    project: str
    items: tuple[TriedBefore, ...]


class ProviderAnswer(Shape):
    """A lookup in the provider index. Without a provider, `alternatives` are systems with a similar name."""

    system_name: str
    status: str
    package: str | None = None
    package_version: str | None = None
    operators: tuple[str, ...] = ()
    sensors: tuple[str, ...] = ()
    hooks: tuple[str, ...] = ()
    connection_types: tuple[str, ...] = ()
    alternatives: tuple[str, ...] = ()
    advice: str | None = None


async def query_rag(
    query: Annotated[str, Field(min_length=1, max_length=16_000, description="A question or an error, in words.")],
    doc_types: Annotated[
        tuple[str, ...],
        Field(max_length=10, description="Only these types, such as adr, provider_doc, dag, or a format: markdown."),
    ] = (),
    limit: Annotated[int, Field(ge=1, le=50, description="Maximum number of passages.")] = 5,
    project: Project = None,
) -> PassageHits:
    """Search the documents of a project by words and by meaning.

    Example: {"query": "who may write to the stock tables", "doc_types": ["adr"], "limit": 3}
    """
    context = caller(project)
    context.require("read")
    filters: list[dict[str, Any]] = [type_filter(each) for each in doc_types] or [{}]
    searches = [HybridSearch(store="chunks", text=query, where=where, k=limit) for where in filters]
    results = await context.memory().query(*searches)
    without = [number for number, (_, result) in enumerate(zip(doc_types, results, strict=False)) if not result.items]
    named = (NamedType(f"doc_types[{number}]", doc_types[number], FORMATS | USUAL) for number in without)
    await reject_unknown_types(context, named)
    items = {item.id: item for result in results for item in result.items}
    best = sorted(items.values(), key=lambda item: item.score or 0.0, reverse=True)[:limit]
    return PassageHits(project=context.project, items=tuple(PassageHit.model_validate(hit_json(item)) for item in best))


async def get_troubleshooting_history(
    error_pattern: Annotated[str | None, Field(max_length=16_000, description="An error as it was.")] = None,
    session_id: Annotated[Id | None, Field(description="Only attempts of this session's tasks.")] = None,
    limit: Annotated[int, Field(ge=1, le=100, description="Maximum number of attempts.")] = 10,
    project: Project = None,
) -> TroubleshootingHistory:
    """Return what was tried before and how it ended: for the same error first, then for similar ones.

    Read it before you propose anything: what failed for this error is not to be repeated without a reason.
    Example: {"error_pattern": "permission denied for table stock", "limit": 5}
    """
    context = caller(project)
    context.require("read")
    task_ids: tuple[str | None, ...] = (None,)
    if session_id is not None:
        item = await context.memory().get("sessions", session_id)
        if item is None:
            raise Permanent(ErrorCode.NOT_FOUND, (Problem(field="session_id", problem="is not a known session"),))
        task_ids = record(item, SessionRecord).task_ids
    pages = [await find_attempts(context, error=error_pattern, task_id=each, limit=limit) for each in task_ids]
    found = [TriedBefore.model_validate(each) for items, _ in pages for each in items]
    if len(pages) > 1:
        found.sort(key=lambda each: (each.score or 0.0, each.at), reverse=True)
    return TroubleshootingHistory(project=context.project, items=tuple(found[:limit]))


async def ingest_to_rag(
    content: Annotated[str, Field(min_length=1, description="The document's text.")],
    doc_type: Annotated[
        str, Field(min_length=1, max_length=50, description="adr, provider_doc, dag, troubleshooting, or a format.")
    ],
    source: Annotated[
        str | None, Field(max_length=2_000, description="Its path or address; the same source is replaced.")
    ] = None,
    metadata: Annotated[
        dict[str, Any] | None, Field(description="Facts about it, which a search can filter by.")
    ] = None,
    title: Annotated[str | None, Field(max_length=500)] = None,
    untrusted: Annotated[
        bool, Field(description="You do not vouch for it, such as a page of the web: it never raises confidence.")
    ] = False,
    project: Project = None,
) -> DocumentResult:
    """Add a document to the project's memory. Tasks that wait for it continue by themselves.

    Example: {"content": "# Resolver\\n\\nOpen 53/udp first.", "doc_type": "adr", "source": "docs/adr/7.md"}
    """
    context = caller(project)
    context.require("ingest")
    document = {
        "source": source or f"mcp:{hashlib.sha256(content.encode()).hexdigest()[:32]}",
        "text": content,
        "type": doc_type if doc_type in FORMATS else None,
        "metadata": {**(metadata or {}), DOC_TYPE: doc_type},
        "title": title,
        "untrusted": untrusted,
    }
    documents = validate(
        Documents, {"documents": [{name: each for name, each in document.items() if each is not None}]}
    )
    (result,) = (await ingest_documents(context, documents)).documents
    return result


async def check_provider_exists(
    system_name: Annotated[str, Field(min_length=1, max_length=200, description="An external system: snowflake.")],
    project: Project = None,
) -> ProviderAnswer:
    """Look up the official Airflow provider of an external system. NOT_FOUND names systems with a similar name.

    Example: {"system_name": "snowflake"}
    """
    context = caller(project)
    context.require("read")
    found = await context.fetch(List(store="providers", limit=_PROVIDERS))
    index = records(found.items, Provider)
    provider = provider_of(system_name, index)
    if provider is None:
        names = {plain_name(name): name for each in index for name in (each.name, *each.aliases)}
        close = get_close_matches(plain_name(system_name), names, n=_ALTERNATIVES, cutoff=0.5)
        return ProviderAnswer(
            system_name=system_name,
            status="NOT_FOUND",
            alternatives=tuple(names[each] for each in close),
            advice="Write a provider plan. Do not replace a provider by a Bash or Python operator, or invent one.",
        )
    fields = provider.model_dump(include=set(ProviderAnswer.model_fields))
    return ProviderAnswer(system_name=system_name, status="FOUND", **fields)


async def import_attempt(context: RequestContext, incident: dict[str, Any]) -> RecordResult:
    """Record an attempt that belongs to no task. Raises `Permanent` `invalid`."""
    context.require("ingest")
    value = validate(PastIncident, incident)
    (recorded,) = (await context.memory().bulk_import(incidents=(value,))).incidents
    if recorded.status == "refused":
        raise Permanent(ErrorCode.REFUSED, (Problem(field="tried", problem=recorded.problem or "was refused"),))
    return recorded
