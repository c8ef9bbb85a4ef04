"""The command that hands documents to memory."""

from collections import Counter
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, get_args

import typer

from counterpoint.cli.command import Panel, command
from counterpoint.cli.errors import Exit, Misused, Refused
from counterpoint.cli.files import Readable, Skipped, batches, walk
from counterpoint.cli.phases import PHASES, Given
from counterpoint.cli.session import Session
from counterpoint.proto.ingest import ContentType

if TYPE_CHECKING:
    from rich.console import Console

    from counterpoint.cli.api import Api

app = typer.Typer()

TYPES = get_args(ContentType)
INCIDENTS = "troubleshooting"
"""The type of files that hold past incidents, a row each, and no text to read."""
BOOTSTRAP = "With --bootstrap"
_NOT_FOUND = ("refused", "quarantined")
BATCH_BYTES = 256 * 1024
TOO_LARGE = 413


@command(app, "ingest", Panel.WORK, "counterpoint ingest docs/ runbooks/dns.md --project orders")
def ingest(
    session: Session,
    paths: Annotated[
        list[Path] | None, typer.Argument(metavar="PATH...", help="Files and folders.", exists=True)
    ] = None,
    type_: Annotated[
        str | None,
        typer.Option("--type", metavar="|".join((*TYPES, INCIDENTS)), help="What they are, else by their names."),
    ] = None,
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
    """Have documents remembered. Ingesting again replaces what has changed and leaves the rest."""
    if type_ is not None and type_ not in (*TYPES, INCIDENTS):
        raise Misused(f"a type is one of {', '.join((*TYPES, INCIDENTS))}, not {type_}")
    given = Given(tuple(dags or ()), tuple(docs or ()), tuple(providers or ()), tuple(providers_dir or ()))
    if bootstrap:
        from counterpoint.cli.bootstrap import run

        if paths or type_:
            raise Misused("--bootstrap takes its paths from --dags, --docs, --providers and --providers-dir")
        return run(session, given, tuple(phase or ()))
    if phase or given != Given():
        raise Misused("--phase, --dags, --docs, --providers and --providers-dir go with --bootstrap")
    if not paths:
        raise Misused("name files or folders, or --bootstrap")
    if type_ == INCIDENTS:
        from counterpoint.cli.past import remember

        return remember(session, paths)
    found = list(walk(paths, Path.cwd()))
    documents = [one for one in found if isinstance(one, Readable)]
    skipped = [one for one in found if isinstance(one, Skipped)]
    for one in skipped:
        session.note(f"{'cannot read' if one.failed else 'skipped'} {one.path}: {one.reason}")
    with session.connect() as api:
        results = send_with_progress(session.err, api, documents, session.project, type_)
    for result in results:
        if result["status"] in _NOT_FOUND:
            session.note(f"{result['status']} {result['source']}: {result.get('problem')}")
    report = {
        "documents": results,
        "skipped": [{"path": str(one.path), "reason": one.reason, "failed": one.failed} for one in skipped],
    }
    session.show(report, lambda: _summary(results, skipped))
    failed = any(result["status"] in _NOT_FOUND for result in results) or any(one.failed for one in skipped)
    return Exit.FAILED if failed else Exit.DONE


def send(
    api: "Api",
    documents: Sequence[Readable],
    project: str | None,
    type_: str | None = None,
    sent: Callable[[Readable], None] = lambda document: None,
) -> list[dict[str, Any]]:
    """Hand documents over in batches; returns what became of each. A batch that is refused is sent one by one."""
    results: list[dict[str, Any]] = []
    for batch in batches(documents, BATCH_BYTES):
        try:
            results += _post(api, batch, project, type_)
        except Refused as refused:
            if refused.status not in (400, TOO_LARGE, 422):
                raise
            if len(batch) > 1:
                results += [one for document in batch for one in send(api, [document], project, type_)]
            else:
                results.append({"source": batch[0].source, "status": "refused", "problem": _problem(refused)})
        for document in batch:
            sent(document)
    return results


def _problem(refused: Refused) -> str:
    """Why one document was refused, and what helps."""
    faults = [f"{each.get('field')} {each.get('problem')}" for each in refused.body.get("errors", ())]
    said = "; ".join(faults) or str(refused.body.get("detail") or refused)
    return f"{said}; split it into smaller files" if refused.status == TOO_LARGE else said


def _post(api: "Api", batch: Sequence[Readable], project: str | None, type_: str | None) -> list[dict[str, Any]]:
    documents = [
        {"source": one.source, "text": one.text} | ({"type": type_} if type_ is not None else {}) for one in batch
    ]
    found: list[dict[str, Any]] = api.post("/v1/documents", {"documents": documents}, project=project)["documents"]
    return found


def send_with_progress(
    console: "Console", api: "Api", documents: Sequence[Readable], project: str | None, type_: str | None = None
) -> list[dict[str, Any]]:
    """The same with a progress bar, where `console` is a terminal."""
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

    columns = (TextColumn("ingesting"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn())
    with Progress(*columns, console=console, disable=not console.is_terminal, transient=True) as progress:
        bar = progress.add_task("ingesting", total=len(documents))
        return send(api, documents, project, type_, lambda document: progress.advance(bar))


def _summary(results: Sequence[dict[str, Any]], skipped: Sequence[Skipped]) -> str:
    from counterpoint.cli.card import counted

    counts = Counter(result["status"] for result in results)
    chunks = sum(result.get("chunks", 0) for result in results)
    said = ", ".join(f"{count} {status}" for status, count in counts.items()) or "none"
    left = f"; {counted(len(skipped), 'path')} left out" if skipped else ""
    return f"{counted(len(results), 'document')}: {said}; {counted(chunks, 'passage')}{left}"
