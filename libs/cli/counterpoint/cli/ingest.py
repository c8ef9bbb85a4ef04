"""The command that hands documents to memory."""

import sys
import time
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, TypeVar
from uuid import uuid4

import typer

from counterpoint.cli.addresses import addresses
from counterpoint.cli.command import Panel, command
from counterpoint.cli.errors import Exit, Misused, NotReachable, Refused
from counterpoint.cli.files import STAYS, Readable, Skipped, batches
from counterpoint.cli.phases import PHASES, Given
from counterpoint.cli.session import Session
from counterpoint.cli.sources import Gathered, Wanted, gathered

if TYPE_CHECKING:
    from rich.console import Console

    from counterpoint.cli.api import Api

T = TypeVar("T")

app = typer.Typer()

TYPES = (
    "markdown",
    "restructuredtext",
    "python",
    "javascript",
    "typescript",
    "text",
    "pdf",
    "html",
    "notebook",
    "conversation",
)
INCIDENTS = "troubleshooting"
"""The type of files that hold past incidents, a row each, and no text to read."""
BOOTSTRAP = "With --bootstrap"
_NOT_FOUND = ("refused", "quarantined")
BATCH_BYTES = 256 * 1024
TOO_LARGE = 413
_TRANSIENT = frozenset({502, 503, 504})
TRIES = 10
"""How often a batch is handed in that takes longer than a request may: each time memory goes on where it was."""
RETRY_S = 0.5
AWAY_S = 10.0
"""What fails sooner without an answer is not there, and is not asked again."""


@command(app, "ingest", Panel.WORK, "counterpoint ingest docs/ runbooks/dns.md --project orders")
def ingest(
    session: Session,
    names: Annotated[
        list[str] | None,
        typer.Argument(metavar="PATH|URL|-...", help="Files, folders, git repositories, pages; - is standard input."),
    ] = None,
    type_: Annotated[
        str | None,
        typer.Option("--type", metavar="|".join((*TYPES, INCIDENTS)), help="What they are, else by name and content."),
    ] = None,
    urls: Annotated[
        Path | None, typer.Option("--urls", metavar="FILE", help="A file of addresses, one a line.", exists=True)
    ] = None,
    name: Annotated[
        str | None, typer.Option("--name", help="What the one PATH is called; needed for standard input.")
    ] = None,
    exclude: Annotated[
        list[str] | None, typer.Option("--exclude", metavar="GLOB", help="Names to leave out, such as *.min.js.")
    ] = None,
    untrusted: Annotated[
        bool, typer.Option("--untrusted", help="Have them found, but vouch for nothing in them.")
    ] = False,
    bootstrap: Annotated[
        bool, typer.Option("--bootstrap", help="Begin with what is there: see the options below.")
    ] = False,
    phase: Annotated[
        list[str] | None,
        typer.Option("--phase", metavar="|".join(PHASES), help="Only this phase.", rich_help_panel=BOOTSTRAP),
    ] = None,
    dags: Annotated[
        list[Path] | None, typer.Option("--dags", help="A folder of DAGs.", exists=True, rich_help_panel=BOOTSTRAP)
    ] = None,
    docs: Annotated[
        list[Path] | None,
        typer.Option("--docs", help="Documents of the project.", exists=True, rich_help_panel=BOOTSTRAP),
    ] = None,
    providers: Annotated[
        list[str] | None,
        typer.Option("--providers", help="An installed provider package, by name.", rich_help_panel=BOOTSTRAP),
    ] = None,
    providers_dir: Annotated[
        list[Path] | None,
        typer.Option(
            "--providers-dir",
            help="A folder of wheels or of installed packages.",
            exists=True,
            rich_help_panel=BOOTSTRAP,
        ),
    ] = None,
) -> Exit | None:
    """Have documents remembered. Ingesting again replaces what has changed, deletes what is gone, leaves the rest."""
    if type_ is not None and type_ not in (*TYPES, INCIDENTS):
        raise Misused(f"a type is one of {', '.join((*TYPES, INCIDENTS))}, not {type_}")
    given = Given(tuple(dags or ()), tuple(docs or ()), tuple(providers or ()), tuple(providers_dir or ()))
    if bootstrap:
        from counterpoint.cli import bootstrap as beginning

        if names or urls or type_ or untrusted:
            raise Misused("--bootstrap takes its paths from --dags, --docs, --providers and --providers-dir")
        return beginning.run(session, given, tuple(phase or ()))
    if phase or given != Given():
        raise Misused("--phase, --dags, --docs, --providers and --providers-dir go with --bootstrap")
    wanted = (*(names or ()), *(addresses(urls) if urls is not None else ()))
    if not wanted:
        raise Misused("give a PATH, a URL or -, or --bootstrap")
    if type_ == INCIDENTS and untrusted:
        raise Misused("--untrusted is for documents; past incidents are somebody's report")
    if type_ == INCIDENTS:
        from counterpoint.cli.past import remember

        return remember(session, _files(wanted))
    if name is not None and len(wanted) > 1:
        raise Misused("--name is for one PATH, URL or -")
    found = gathered(Wanted(wanted, name, type_, tuple(exclude or ())))
    about = found.about()
    run = Run(session.err, session.project, type_, untrusted)
    with session.connect() as api:
        try:
            run.send(api, found.documents(partial(_note, session)), about)
            gone, unknown = _follow(session, api, found, run)
        except KeyboardInterrupt:
            from counterpoint.cli.words import counted

            done = f"{len(run.results)} of {counted(about, 'document')}"
            session.note(f"interrupted after {done}; the same command goes on where it was")
            gone, unknown, run.interrupted = 0, [], True
    for result in run.results:
        if result["status"] in _NOT_FOUND or result.get("problem"):
            session.note(f"{result['status']} {result['source']}: {result.get('problem')}")
    report = {
        "job": run.job,
        "documents": run.results,
        "skipped": [{"path": str(one.path), "reason": one.reason, "failed": one.failed} for one in found.skipped],
        "empty": sum(one.empty for one in found.skipped),
        **({"interrupted": True} if run.interrupted else {}),
        **({"not_looked_at": unknown} if unknown else {}),
    }
    session.show(report, lambda: _summary(run.results, found.skipped, gone))
    failed = any(result["status"] in _NOT_FOUND for result in run.results) or any(one.failed for one in found.skipped)
    return Exit.FAILED if failed or run.interrupted else Exit.DONE


def _note(session: Session, left_out: Skipped) -> None:
    """Say what is left out; empty files are only counted, a package may have hundreds."""
    if left_out.empty and not left_out.failed:
        return
    session.note(f"{'cannot read' if left_out.failed else 'skipped'} {left_out.path}: {left_out.reason}")


def _files(names: Sequence[str]) -> list[Path]:
    """Raises `Misused` for what is no file."""
    paths = [Path(name) for name in names]
    for path in paths:
        if not path.exists():
            raise Misused(f"{path} does not exist: past incidents come from files")
    return paths


def _follow(session: Session, api: "Api", found: Gathered, run: "Run") -> tuple[int, list[str]]:
    """Delete what an earlier ingest of the same folders found there and is gone.

    How many, and of which folders that is not known. From a folder with nothing in it nothing is gone: more likely than
    not it is not mounted.
    """
    gone, unknown = 0, []
    for root in (*found.roots, *found.empty):
        try:
            known = api.pages("/v1/documents", sys.maxsize, root=root, project=session.project)["items"]
        except Refused as refused:
            session.note(f"what is gone from {root} is not known: {refused.problem()['title']}")
            unknown.append(root)
            continue
        if root in found.empty:
            if known:
                reason = f"nothing is there: what was found before stays, {len(known)} of them; is it mounted?"
                found.skipped.append(Skipped(Path(root), reason, failed=True))
                _note(session, found.skipped[-1])
            continue
        _emptied(session, found, {one["source"] for one in known})
        sources = [one["source"] for one in known if not found.is_there(one["source"])]
        gone += len(sources)
        run.send(api, [Readable(Path(source), source, root=root, gone=True) for source in sources], len(sources))
    return gone, unknown


def _emptied(session: Session, found: Gathered, known: set[str]) -> None:
    """Report as failed the empty files that had a text when they were ingested before: more likely than not cut off."""
    for place, one in enumerate(found.skipped):
        if one.empty and not one.failed and one.source in known:
            found.skipped[place] = replace(one, reason=f"empty now; {STAYS}", failed=True)
            _note(session, found.skipped[place])


@dataclass
class Run:
    """One run of the command: what became of the documents so far. `job` is what its progress is known by."""

    console: "Console"
    project: str | None
    type: str | None = None
    untrusted: bool = False
    job: str = field(default_factory=lambda: uuid4().hex)
    results: list[dict[str, Any]] = field(default_factory=list)
    interrupted: bool = False

    def send(self, api: "Api", documents: Iterable[Readable], about: int) -> None:
        """Hand documents over in batches, with a progress bar where `console` is a terminal.

        A batch that is refused is sent one by one. `about` how many there are is said until the last batch.
        """
        from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

        columns = (TextColumn("ingesting"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn())
        before = len(self.results)
        shown = Progress(*columns, console=self.console, disable=not self.console.is_terminal, transient=True)
        with shown as progress:
            bar = progress.add_task("ingesting", total=about)
            for batch, more in _followed(batches(documents, BATCH_BYTES)):
                done = len(self.results) + len(batch)
                self._send(api, batch, max(before + about, done + 1) if more else done)
                progress.advance(bar, len(batch))

    def _send(self, api: "Api", batch: Sequence[Readable], total: int) -> None:
        try:
            self.results += self._post(api, batch, total)
        except Refused as refused:
            if refused.status not in (400, TOO_LARGE, 422):
                raise
            if len(batch) > 1:
                for document in batch:
                    self._send(api, [document], total)
            else:
                self.results.append({"source": batch[0].source, "status": "refused", "problem": _problem(refused)})

    def _post(self, api: "Api", batch: Sequence[Readable], total: int) -> list[dict[str, Any]]:
        body = {
            "documents": [one.body(self.type) | ({"untrusted": True} if self.untrusted else {}) for one in batch],
            "job": {"job_id": self.job, "documents": total, "done": len(self.results)},
        }
        for left in reversed(range(TRIES)):
            began = time.monotonic()
            try:
                found: list[dict[str, Any]] = api.post("/v1/documents", body, project=self.project)["documents"]
            except (NotReachable, Refused) as error:
                took_long = time.monotonic() - began > AWAY_S
                passing = error.status in _TRANSIENT if isinstance(error, Refused) else took_long
                if not passing or not left:
                    raise
                time.sleep(RETRY_S)
            else:
                break
        return found


def _followed(groups: Iterator[T]) -> Iterator[tuple[T, bool]]:
    """Each, and whether there is one after it."""
    last = next(groups, None)
    while last is not None:
        following = next(groups, None)
        yield last, following is not None
        last = following


def _problem(refused: Refused) -> str:
    """Why one document was refused, and what helps."""
    faults = [f"{each.get('field')} {each.get('problem')}" for each in refused.body.get("errors", ())]
    said = "; ".join(faults) or str(refused.body.get("detail") or refused)
    return f"{said}; split it into smaller files" if refused.status == TOO_LARGE else said


def send_with_progress(
    console: "Console", api: "Api", documents: Sequence[Readable], project: str | None
) -> list[dict[str, Any]]:
    """Hand documents over; what became of each."""
    run = Run(console, project)
    run.send(api, documents, len(documents))
    return run.results


def _summary(results: Sequence[dict[str, Any]], skipped: Sequence[Skipped], gone: int) -> str:
    from counterpoint.cli.words import counted

    counts = Counter(result["status"] for result in results)
    chunks = sum(result.get("chunks", 0) for result in results)
    said = ", ".join(f"{count} {status}" for status, count in counts.items()) or "none"
    empty = sum(one.empty for one in skipped)
    left = f"; {counted(len(skipped), 'path')} left out" if skipped else ""
    left += f", {empty} of them empty" if empty else ""
    went = f" ({gone} gone from where they were)" if gone else ""
    return f"{counted(len(results), 'document')}: {said}{went}; {counted(chunks, 'passage')}{left}"
