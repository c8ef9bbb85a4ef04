"""Reading of one document: its type and its text."""

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import PurePosixPath
from typing import TypeVar

from counterpoint.memory.ingest.chunk.detect import detect
from counterpoint.memory.ingest.readers.asciidoc import asciidoc, is_asciidoc
from counterpoint.memory.ingest.readers.encoding import decoded
from counterpoint.memory.ingest.readers.html import html
from counterpoint.memory.ingest.readers.notebook import notebook
from counterpoint.memory.ingest.readers.pdf import is_pdf, pdf
from counterpoint.memory.ingest.readers.table import is_table, table
from counterpoint.memory.ingest.readers.turns import turns_of, turns_of_json
from counterpoint.proto.conversation import transcript
from counterpoint.proto.errors import ErrorCode, Permanent, Problem
from counterpoint.proto.ingest import ContentType

T = TypeVar("T")

_JSON = frozenset({".json", ".jsonl", ".ndjson"})


@dataclass(frozen=True, slots=True)
class DocumentText:
    """The text of a document, and the type by which it is cut; `title` is its own title, if any. `problem` names a part
    that could not be read, or the reason why the document was not read as the requested type."""

    text: str
    type: ContentType
    title: str | None = None
    problem: str | None = None


class NeedsWorker(Exception):
    """The document is one that a process of its own has to read."""


def read(name: str, given: str | bytes, type: ContentType | None = None, *, apart: bool = True) -> DocumentText:
    """Return the text of a document; without a `type` it is detected by the name, then by the content. Raises
    `Permanent` with the reason if it cannot be read, and unless `apart` `NeedsWorker`."""
    if isinstance(given, bytes):
        if type == "pdf" or (type is None and is_pdf(given)):
            _needs_worker(apart)
            found = pdf(given)
            return DocumentText(found.text, "pdf", found.title, found.problem)
        given = decoded(given, html=type == "html" or (type is None and detect(name, "") == "html"))
    if type is None and is_table(name) and (as_markdown := table(given)):
        return DocumentText(as_markdown, "markdown")
    if type is None and is_asciidoc(name):
        return DocumentText(asciidoc(given), "markdown")
    kind = type or _kind(name, given)
    match kind:
        case "html":
            _needs_worker(apart)
            page = _or_refused(html, given)
            return DocumentText(page.text, "html", page.title)
        case "notebook":
            return DocumentText(_without_surrogates(_or_refused(notebook, given)), "notebook")
        case "conversation":
            try:
                turns = turns_of(given)
            except ValueError as error:
                return DocumentText(given, "text", problem=f"not read as a conversation but as plain text: {error}")
            return DocumentText(given if turns is None else _without_surrogates(transcript(turns)), "conversation")
        case _:
            return DocumentText(given, kind)


def _needs_worker(apart: bool) -> None:
    if not apart:
        raise NeedsWorker


def _kind(name: str, text: str) -> ContentType:
    """Return the type by name and content: JSON is a conversation if each entry has a speaker or a text."""
    if PurePosixPath(name).suffix.lower() in _JSON:
        try:
            return "conversation" if turns_of_json(text) else "text"
        except ValueError:
            return "text"
    return detect(name, text)


def _without_surrogates(text: str) -> str:
    """Return the text with unpaired surrogates replaced, which the escapes of JSON may produce."""
    return text.encode(errors="replace").decode()


def _or_refused(reader: Callable[[str], T], text: str) -> T:
    try:
        return reader(text)
    except ValueError as error:
        raise Permanent(ErrorCode.UNREADABLE, (Problem(field="text", problem=str(error)),)) from error
