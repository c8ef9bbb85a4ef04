"""PDFs to text."""

from dataclasses import dataclass

from counterpoint.memory.ingest.readers.reader_process import read_in_worker
from counterpoint.proto.errors import ErrorCode, Permanent, Problem

_MAGIC = b"%PDF-"
_HEAD_BYTES = 1024


@dataclass(frozen=True, slots=True)
class Pages:
    """The text of a PDF with a form feed between pages, its title, and a problem if pages have no text."""

    text: str
    title: str | None
    problem: str | None


def is_pdf(content: bytes) -> bool:
    """Whether the content begins with the signature of a PDF."""
    return _MAGIC in content[:_HEAD_BYTES]


def pdf(content: bytes) -> Pages:
    """Return the text of a PDF. Raises `Permanent` with the reason if there is none."""
    try:
        result = read_in_worker("pdf", content)
    except ValueError as error:
        raise _refused(str(error)) from error
    pages = result.pages
    bare = [n for n, page in enumerate(pages, 1) if not page.strip()]
    if len(bare) == len(pages):
        raise _refused("is a PDF without a text layer: its pages are images")
    problem = f"{len(bare)} of {len(pages)} pages have no text: {_some(bare)}" if bare else None
    return Pages("\f".join(pages), result.title or None, problem)


def _some(pages: list[int]) -> str:
    return ", ".join(map(str, pages[:10])) + (" ..." if len(pages) > 10 else "")


def _refused(problem: str) -> Permanent:
    return Permanent(ErrorCode.UNREADABLE, (Problem(field="content", problem=problem),))
