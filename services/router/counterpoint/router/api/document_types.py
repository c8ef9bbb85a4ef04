"""Types of documents as a search filters by them: the format, and the type in the metadata."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any, get_args

from counterpoint.proto.errors import ErrorCode, Permanent, Problem
from counterpoint.proto.ingest import ContentType
from counterpoint.proto.memory import List
from counterpoint.router.api.context import RequestContext

DOC_TYPE = "doc_type"
"""Name of a document's type in its metadata, such as `adr`, `provider_doc` or `dag`."""
FORMATS: frozenset[str] = frozenset(get_args(ContentType))
USUAL = frozenset({"adr", "provider_doc", "dag", "troubleshooting"})
"""Types that need no document of theirs to be known."""
_DOCUMENTS = 1000
"""Documents, last written first, whose types are named."""


def type_filter(doc_type: str) -> dict[str, Any]:
    """Return the filter of a search for chunks of documents of a type."""
    return {"type": doc_type} if doc_type in FORMATS else {"metadata": {DOC_TYPE: doc_type}}


@dataclass(frozen=True)
class NamedType:
    """A type named in a field of a request. `known` are those that need no document, `closed`: there are no others."""

    field: str
    name: str
    known: frozenset[str]
    closed: bool = False


def types_in_filter(where: Mapping[str, Any]) -> tuple[NamedType, ...]:
    """Return the types that a filter of chunks names."""
    metadata = where.get("metadata")
    doc_type = metadata.get(DOC_TYPE) if isinstance(metadata, Mapping) else None
    named = (
        NamedType("where.type", where.get("type", ""), FORMATS, closed=True),
        NamedType(f"where.metadata.{DOC_TYPE}", doc_type or "", USUAL),
    )
    return tuple(each for each in named if isinstance(each.name, str) and each.name)


async def reject_unknown_types(context: RequestContext, types: Iterable[NamedType]) -> None:
    """Raise `Permanent` `invalid` for types that no document has. Called for a search that found nothing."""
    asked = [each for each in types if each.name not in each.known]
    if not asked:
        return
    found = await context.fetch(List(store="documents", limit=_DOCUMENTS))
    stored = {str(item.body.get("metadata", {}).get(DOC_TYPE) or "") for item in found.items} - {""}
    problems = []
    for each in asked:
        if not each.closed and await _has_documents(context, each.name):
            continue
        known = each.known if each.closed else each.known | stored
        text = f"{each.name!r} is the type of no document; known are {', '.join(sorted(known))}"
        problems.append(Problem(field=each.field, problem=text))
    if problems:
        raise Permanent(ErrorCode.INVALID, tuple(problems))


async def _has_documents(context: RequestContext, doc_type: str) -> bool:
    found = await context.fetch(List(store="documents", where={"metadata": {DOC_TYPE: doc_type}}, limit=1))
    return bool(found.items)
