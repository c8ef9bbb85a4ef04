"""The starter pack: runbooks of public knowledge, off by default, which nobody of a project vouches for until accepted.

A page is ingested as untrusted: it is found and cited, adds no confidence and is never proposed. A person who accepts
it ingests the same text under the own name.
"""

import sys
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

from counterpoint.cli.errors import UsageError
from counterpoint.cli.ingest.files import SourceFile
from counterpoint.cli.shipped import shipped_root

if TYPE_CHECKING:
    from counterpoint.cli.api import ApiClient

ROOT = "counterpoint-starter"
"""Root of the documents of the pack, by which they are found and removed."""


class PackState(StrEnum):
    """State of a page in a project."""

    OFF = "off"
    INSTALLED = "installed"
    ACCEPTED = "accepted"
    FOREIGN = "foreign"


@dataclass(frozen=True)
class StarterPage:
    """A page of the pack. `system` is its name."""

    system: str
    path: Path

    @property
    def source(self) -> str:
        """Return the source of its document."""
        return f"starter/{self.system}.md"

    @cached_property
    def text(self) -> str:
        """Return its text."""
        return self.path.read_text(encoding="utf-8")

    @property
    def sections(self) -> int:
        """Return its number of runbook sections."""
        return sum(line.startswith("## ") for line in self.text.splitlines())

    def document(self, *, gone: bool = False) -> SourceFile:
        """Return the page as a document, or its deletion."""
        text = "" if gone else self.text
        return SourceFile(self.path, self.source, text=text, root=ROOT, type="markdown", gone=gone)


def starter_pages(only: Sequence[str] = ()) -> tuple[StarterPage, ...]:
    """Return the pages of the pack, those in `only` if given. Raises `UsageError` for an unknown name."""
    folder = shipped_root() / "examples" / "starter" / "docs"
    pages = {path.stem: StarterPage(path.stem, path) for path in sorted(folder.glob("*.md"))}
    for name in only:
        if name not in pages:
            raise UsageError(f"the starter pack has {', '.join(pages)}, not {name}")
    return tuple(page for name, page in pages.items() if not only or name in only)


def states(api: "ApiClient", project: str | None, pages: Sequence[StarterPage]) -> dict[str, PackState]:
    """Return the state of each page in a project, by its system. Raises `ApiError`."""
    stored: dict[str, Mapping[str, Any]] = {}
    for page in pages:
        for each in api.pages("/v1/documents", sys.maxsize, source=page.source, project=project)["items"]:
            stored[page.system] = each
    return {page.system: _state(stored.get(page.system)) for page in pages}


def _state(stored: Mapping[str, Any] | None) -> PackState:
    if stored is None:
        return PackState.OFF
    if stored.get("root") != ROOT:
        return PackState.FOREIGN
    return PackState.INSTALLED if stored.get("untrusted") else PackState.ACCEPTED


def documents(pages: Sequence[StarterPage], *, gone: bool = False) -> Iterator[SourceFile]:
    """Yield the documents of pages."""
    return (page.document(gone=gone) for page in pages)
