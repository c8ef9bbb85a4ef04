"""Documents over HTTP: ingest, list, progress."""

from collections.abc import Iterable, Iterator
from typing import Annotated, Any

from fastapi import APIRouter, Depends, Query, Response
from pydantic import Field

from counterpoint.proto.errors import ErrorCode, Permanent, Problem
from counterpoint.proto.ingest import Document, DocumentResult, Job, JobProgress
from counterpoint.proto.memory import List
from counterpoint.proto.messages import Id, ProjectName, Shape
from counterpoint.router.api.body import NO_NUL_PATTERN, BodyReader, RequestBody, batches, ignored_fields, reply
from counterpoint.router.api.context import Context, RequestContext
from counterpoint.router.api.openapi import request_body
from counterpoint.router.paging import Cursor, Limit, ListPage, page

router = APIRouter(prefix="/v1", tags=["memory"])


class NewDocument(Document):
    """A document to ingest: its `text`, or the bytes of a file in `content` (base64).

    `source` is its path or address, and its identity within the project. Without a `type` memory determines it by
    name and content.
    """

    blob: None = None
    project: ProjectName | None = None


class Documents(Shape):
    """Documents to ingest. The body may also be a single document."""

    documents: tuple[NewDocument, ...] = Field(min_length=1, max_length=1000)
    job: Job | None = None
    project: ProjectName | None = None


class IngestResult(Shape):
    """The result of each document, and the unknown fields of the body."""

    documents: tuple[DocumentResult, ...]
    ignored: tuple[str, ...] = ()


class _DocumentsReader(BodyReader[Documents]):
    """Reads a list of documents; a body that is one document is a list of one."""

    def _value(self, content: Any, path: dict[str, Any]) -> Documents:
        return super()._value({"documents": [content]} if _is_document(content) else content, path)

    def _ignored(self, content: Any) -> tuple[str, ...]:
        return ignored_fields(NewDocument if _is_document(content) else Documents, content)


def _is_document(content: Any) -> bool:
    return isinstance(content, dict) and "documents" not in content


@router.post(
    "/documents", responses={200: {"model": IngestResult}}, response_model=None, openapi_extra=request_body(Documents)
)
async def ingest(
    body: Annotated[RequestBody[Documents], Depends(_DocumentsReader(Documents, ("ingest",), large=True))],
) -> Response:
    """Ingest documents. A known source is replaced. The reply comes when the documents are searchable."""
    return reply(await ingest_documents(body.context, body.value, body.ignored))


async def ingest_documents(
    context: RequestContext, documents: Documents, ignored: tuple[str, ...] = ()
) -> IngestResult:
    """Ingest documents and return what became of each. Raises `Permanent` `invalid`, naming each field."""
    settings = context.resources.settings
    became: list[DocumentResult] = []
    for batch in batches(_memory_documents(documents.documents, context.project), settings.ingest_request_bytes):
        job = documents.job and documents.job.model_copy(update={"done": documents.job.done + len(became)})
        became += await context.memory().ingest(batch, job=job)
    return IngestResult(documents=tuple(became), ignored=ignored)


class StoredDocument(Shape):
    """A stored document. `root` is its folder or repository.

    `integrity`: 2 from a person or an operated system, 1 from an agent, 0 untrusted."""

    source: str
    title: str
    type: str
    chars: int
    chunks: int
    ingested_by: str
    integrity: int
    root: str | None = None
    quarantined: bool = False
    untrusted: bool = False
    metadata: dict[str, Any] = {}


class IngestJob(JobProgress):
    """Progress of an ingest job."""

    job_id: Id


@router.get("/documents", responses={200: {"model": ListPage[StoredDocument]}}, response_model=None)
async def kept(
    context: Context,
    cursor: Cursor,
    limit: Limit = 50,
    root: Annotated[
        str | None,
        Query(max_length=2000, pattern=NO_NUL_PATTERN, description="Only documents of this folder or repository."),
    ] = None,
    source: Annotated[
        str | None, Query(max_length=2000, pattern=NO_NUL_PATTERN, description="Only the document of this source.")
    ] = None,
) -> Response:
    """List the documents of the project and the shared ones, last written first."""
    context.require("read")
    where = {name: value for name, value in (("root", root), ("source", source)) if value is not None}
    result = await context.fetch(List(store="documents", where=where, limit=limit, cursor=cursor))
    stored = (StoredDocument.model_validate(item.body | {"integrity": item.integrity}) for item in result.items)
    return page((one.model_dump() for one in stored), result.next_cursor)


@router.get("/ingests/{job_id}", responses={200: {"model": IngestJob}}, response_model=None)
async def progress(context: Context, job_id: Id) -> Response:
    """Return the progress of an ingest job. A job without a document yet is 404."""
    context.require("read")
    result = await context.memory().get("ingests", job_id)
    if result is None:
        raise Permanent(ErrorCode.NOT_FOUND, (Problem(field="job_id", problem="is not an ingest job of this project"),))
    return reply(IngestJob.model_validate({"job_id": job_id, **result.body}))


def _memory_documents(documents: Iterable[NewDocument], project: str) -> list[Document]:
    """Return the documents in memory's form. Raises `Permanent` `invalid`, naming each field."""
    problems = tuple(
        Problem(field=f"documents[{index}].{field}", problem=problem)
        for index, document in enumerate(documents)
        for field, problem in _faults(document, project)
    )
    if problems:
        raise Permanent(ErrorCode.INVALID, problems)
    return [Document(**document.model_dump(exclude={"project"})) for document in documents]


def _faults(document: NewDocument, project: str) -> Iterator[tuple[str, str]]:
    if document.project not in (None, project):
        yield "project", f"differs from the project of the request, {project}"
    if document.content is None and not document.gone and "text" not in document.model_fields_set:
        yield "text", "is missing; give text or content"
    if document.text and document.content is not None:
        yield "content", "cannot be given together with text"
