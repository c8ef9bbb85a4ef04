"""Documents over HTTP: what memory is to know."""

from collections.abc import Iterable, Iterator
from typing import Annotated, Any

from fastapi import APIRouter, Query, Request, Response
from pydantic import Field

from counterpoint.proto.errors import Permanent, Problem
from counterpoint.proto.ingest import Document, Ingested, Job, JobProgress
from counterpoint.proto.memory import List
from counterpoint.proto.messages import Id, ProjectName, Shape
from counterpoint.router.bodies import PLAIN, Page, ignored, page, read_json, reply, value_of
from counterpoint.router.desk import Asking
from counterpoint.router.openapi import takes
from counterpoint.router.tasks import Cursor, Limit

router = APIRouter(prefix="/v1", tags=["memory"])


class NewDocument(Document):
    """What to remember: a `text`, or the bytes of a file in `content` (base64), which memory reads.

    `source` is its path or address and its identity within the project. Without a `type` it is told by the name and
    then by the content.
    """

    blob: None = None
    project: ProjectName | None = None


class Documents(Shape):
    """Documents to ingest. A body that is one document stands for itself."""

    documents: tuple[NewDocument, ...] = Field(min_length=1, max_length=1000)
    job: Job | None = None
    project: ProjectName | None = None


class IngestedDocuments(Shape):
    """What became of each document, and what of the body nobody reads."""

    documents: tuple[Ingested, ...]
    ignored: tuple[str, ...] = ()


@router.post(
    "/documents", responses={200: {"model": IngestedDocuments}}, response_model=None, openapi_extra=takes(Documents)
)
async def ingest(request: Request, asked: Asking) -> Response:
    """Ingest documents: a new source is added, a known one replaced. Answers when all of them can be found."""
    settings = asked.desk.settings
    body = await read_json(request, settings.documents_limit_bytes)
    asked = asked.within(body)
    asked.needs("ingest")
    if isinstance(body, dict) and "documents" not in body:
        unread, body = ignored(NewDocument, body), {"documents": [body]}
    else:
        unread = ignored(Documents, body)
    given = value_of(Documents, body)
    became: list[Ingested] = []
    for batch in batches(_of_project(given.documents, asked.project), settings.ingest_request_bytes):
        job = given.job and given.job.model_copy(update={"done": given.job.done + len(became)})
        became += await asked.memory().ingest(batch, job=job)
    return reply(IngestedDocuments(documents=tuple(became), ignored=unread))


class KeptDocument(Shape):
    """A document as memory keeps it. `root` is the folder or repository it was found in. `integrity`: 2 said by a
    person or an operated system, 1 by an agent, 0 by nobody, as of one that was handed in as `untrusted`."""

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
    """How far a run of ingesting has come."""

    job_id: Id


@router.get("/documents", responses={200: {"model": Page[KeptDocument]}}, response_model=None)
async def kept(
    asked: Asking,
    limit: Limit = 50,
    cursor: Cursor = None,
    root: Annotated[str | None, Query(max_length=2000, pattern=PLAIN, description="Only what was found there.")] = None,
    source: Annotated[
        str | None, Query(max_length=2000, pattern=PLAIN, description="Only the one of this name.")
    ] = None,
) -> Response:
    """The documents of the project and the shared ones, the last written first."""
    asked.needs("read")
    where = {name: value for name, value in (("root", root), ("source", source)) if value is not None}
    found = await asked.look(List(store="documents", where=where, limit=limit, cursor=int(cursor) if cursor else None))
    known = (KeptDocument.model_validate(item.body | {"integrity": item.integrity}) for item in found.items)
    return page((one.model_dump() for one in known), found.next_cursor)


@router.get("/ingests/{job_id}", responses={200: {"model": IngestJob}}, response_model=None)
async def progress(asked: Asking, job_id: Id) -> Response:
    """How far a run of ingesting has come. A job that has ingested nothing yet is 404."""
    asked.needs("read")
    found = await asked.memory().get("ingests", job_id)
    if found is None:
        raise Permanent("not_found", (Problem(field="job_id", problem="is no job of this project"),))
    return reply(IngestJob.model_validate({"job_id": job_id, **found.body}))


def _of_project(given: Iterable[NewDocument], project: str) -> list[Document]:
    """The documents as memory knows them.

    Raises `Permanent` for those that name another project, and those that say nothing or two things.
    """
    problems = tuple(
        Problem(field=f"documents[{place}].{field}", problem=problem)
        for place, document in enumerate(given)
        for field, problem in _faults(document, project)
    )
    if problems:
        raise Permanent("invalid", problems)
    return [Document(**document.model_dump(exclude={"project"})) for document in given]


def _faults(document: NewDocument, project: str) -> Iterator[tuple[str, str]]:
    if document.project not in (None, project):
        yield "project", f"is not the project it was sent to, {project}"
    if document.content is None and not document.gone and "text" not in document.model_fields_set:
        yield "text", "is missing, and so is content"
    if document.text and document.content is not None:
        yield "content", "is given besides a text: only one of them is read"


def batches(documents: Iterable[Document], limit_bytes: int) -> Iterator[tuple[Document, ...]]:
    """The documents in order, as many together as fit; one that is larger goes alone, and ahead in parts."""
    batch: list[Document] = []
    size = 0
    for document in documents:
        more = _bytes(document)
        if batch and size + more > limit_bytes:
            yield tuple(batch)
            batch, size = [], 0
        batch.append(document)
        size += more
    if batch:
        yield tuple(batch)


def _bytes(document: Document) -> int:
    return len(document.model_dump_json().encode())
