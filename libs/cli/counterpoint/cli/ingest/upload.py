"""Upload of documents to the API, in batches with progress and retries."""

import sys
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar
from uuid import uuid4

from counterpoint.cli.errors import ApiError, NotReachable
from counterpoint.cli.ingest.files import KEPT_NOTE, SkippedPath, SourceFile, batches
from counterpoint.cli.ingest.sources import DocumentSources

if TYPE_CHECKING:
    from rich.console import Console

    from counterpoint.cli.api import ApiClient
    from counterpoint.cli.session import CommandSession

T = TypeVar("T")

BATCH_BYTES = 256 * 1024
TRIES = 10
"""Attempts to send a batch that takes longer than a request. Memory continues where it stopped."""
RETRY_S = 0.5
TIMEOUT_S = 10.0
"""A request without a reply is repeated when it took longer; a faster failure means that nothing listens."""
_TOO_LARGE = 413
_INVALID = (400, _TOO_LARGE, 422)
_TRANSIENT = frozenset({502, 503, 504})


@dataclass
class Upload:
    """One run of the command and its results so far. `job` is the id of its progress record."""

    console: "Console"
    project: str | None
    type: str | None = None
    untrusted: bool = False
    job: str = field(default_factory=lambda: uuid4().hex)
    results: list[dict[str, Any]] = field(default_factory=list)
    interrupted: bool = False

    def send(self, api: "ApiClient", documents: Iterable[SourceFile], estimate: int) -> None:
        """Send documents in batches, with a progress bar on a terminal.

        The documents of a refused batch are sent one by one. `estimate` is the expected number of documents.
        """
        from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

        columns = (TextColumn("ingesting"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn())
        before = len(self.results)
        bar = Progress(*columns, console=self.console, disable=not self.console.is_terminal, transient=True)
        with bar as progress:
            row = progress.add_task("ingesting", total=estimate)
            for batch, more in _with_successor(batches(documents, BATCH_BYTES)):
                done = len(self.results) + len(batch)
                self._send(api, batch, max(before + estimate, done + 1) if more else done)
                progress.advance(row, len(batch))

    def _send(self, api: "ApiClient", batch: Sequence[SourceFile], total: int) -> None:
        try:
            self.results += self._post(api, batch, total)
        except ApiError as error:
            if error.status not in _INVALID:
                raise
            if len(batch) > 1:
                for document in batch:
                    self._send(api, [document], total)
            else:
                self.results.append({"source": batch[0].source, "status": "refused", "problem": _problem(error)})

    def _post(self, api: "ApiClient", batch: Sequence[SourceFile], total: int) -> list[dict[str, Any]]:
        body = {
            "documents": [one.body(self.type) | ({"untrusted": True} if self.untrusted else {}) for one in batch],
            "job": {"job_id": self.job, "documents": total, "done": len(self.results)},
        }
        for left in reversed(range(TRIES)):
            began = time.monotonic()
            try:
                sources: list[dict[str, Any]] = api.post("/v1/documents", body, project=self.project)["documents"]
            except (NotReachable, ApiError) as error:
                timed_out = time.monotonic() - began > TIMEOUT_S
                transient = error.status in _TRANSIENT if isinstance(error, ApiError) else timed_out
                if not transient or not left:
                    raise
                time.sleep(RETRY_S)
            else:
                break
        return sources


def send_with_progress(
    console: "Console", api: "ApiClient", documents: Sequence[SourceFile], project: str | None
) -> list[dict[str, Any]]:
    """Send documents and return the result of each."""
    upload = Upload(console, project)
    upload.send(api, documents, len(documents))
    return upload.results


def delete_removed(
    session: "CommandSession",
    api: "ApiClient",
    sources: DocumentSources,
    upload: Upload,
    on_skip: Callable[[SkippedPath], None],
) -> tuple[int, list[str]]:
    """Delete the documents of earlier runs whose files were removed from the same folders.

    Returns the number of deletions, and the folders that could not be compared. Documents of an empty folder stay: it
    is probably not mounted.
    """
    deleted, unknown = 0, []
    for root in (*sources.roots, *sources.empty):
        try:
            stored = api.pages("/v1/documents", sys.maxsize, root=root, project=session.project)["items"]
        except ApiError as error:
            session.note(f"cannot determine what was removed from {root}: {error.problem()['title']}")
            unknown.append(root)
            continue
        if root in sources.empty:
            if stored:
                reason = f"the folder is empty: its {len(stored)} documents were kept; is it mounted?"
                sources.skipped.append(SkippedPath(Path(root), reason, failed=True))
                on_skip(sources.skipped[-1])
            continue
        _report_emptied(sources, {one["source"] for one in stored}, on_skip)
        removed = [one["source"] for one in stored if not sources.contains(one["source"])]
        deleted += len(removed)
        upload.send(api, [SourceFile(Path(source), source, root=root, gone=True) for source in removed], len(removed))
    return deleted, unknown


def _report_emptied(sources: DocumentSources, stored: set[str], on_skip: Callable[[SkippedPath], None]) -> None:
    """Report files as failed that are empty now and had text before: they are probably truncated."""
    for place, one in enumerate(sources.skipped):
        if one.empty and not one.failed and one.source in stored:
            sources.skipped[place] = replace(one, reason=f"now empty; {KEPT_NOTE}", failed=True)
            on_skip(sources.skipped[place])


def _with_successor(groups: Iterator[T]) -> Iterator[tuple[T, bool]]:
    """Yield each group, and whether another follows."""
    last = next(groups, None)
    while last is not None:
        following = next(groups, None)
        yield last, following is not None
        last = following


def _problem(error: ApiError) -> str:
    """Return the reason for which a document was refused, and a remedy."""
    faults = [f"{each.get('field')} {each.get('problem')}" for each in error.body.get("errors", ())]
    reason = "; ".join(faults) or str(error.body.get("detail") or error)
    return f"{reason}; split it into smaller files" if error.status == _TOO_LARGE else reason
