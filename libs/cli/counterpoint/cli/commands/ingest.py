"""`counterpoint ingest`: ingest documents."""

from collections import Counter
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import Annotated, Any

import typer

from counterpoint.cli.command import Panel, command
from counterpoint.cli.errors import Exit, UsageError
from counterpoint.cli.ingest.files import SkippedPath
from counterpoint.cli.ingest.phases import PHASES, PhaseOptions
from counterpoint.cli.ingest.sources import DocumentSources, SourceSelection, open_sources
from counterpoint.cli.ingest.upload import Upload, delete_removed
from counterpoint.cli.ingest.url_list import read_urls
from counterpoint.cli.session import CommandSession

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
"""The type of files with past incidents, one a row."""
_BOOTSTRAP = "With --bootstrap"
_NOT_FOUND = ("refused", "quarantined")

Names = Annotated[
    list[str] | None,
    typer.Argument(metavar="PATH|URL|-...", help="Files, folders, git repositories, pages; - is standard input."),
]
Type = Annotated[
    str | None,
    typer.Option("--type", metavar="|".join((*TYPES, INCIDENTS)), help="Their type. Default: by name and content."),
]
Urls = Annotated[Path | None, typer.Option("--urls", metavar="FILE", help="A file with one URL per line.", exists=True)]
Name = Annotated[
    str | None, typer.Option("--name", help="The source name of the only PATH; required for standard input.")
]
Exclude = Annotated[
    list[str] | None, typer.Option("--exclude", metavar="GLOB", help="Names to leave out, such as *.min.js.")
]
Untrusted = Annotated[
    bool,
    typer.Option(
        "--untrusted", help="Mark the content as untrusted: it is found and cited, but does not raise confidence."
    ),
]
Bootstrap = Annotated[
    bool,
    typer.Option(
        "--bootstrap",
        help="Ingest the DAGs, provider packages and documents that already exist; see the options below.",
    ),
]
Phase = Annotated[
    list[str] | None,
    typer.Option("--phase", metavar="|".join(PHASES), help="Only this phase.", rich_help_panel=_BOOTSTRAP),
]
Dags = Annotated[
    list[Path] | None, typer.Option("--dags", help="A folder of DAGs.", exists=True, rich_help_panel=_BOOTSTRAP)
]
Docs = Annotated[
    list[Path] | None,
    typer.Option("--docs", help="Documents of the project.", exists=True, rich_help_panel=_BOOTSTRAP),
]
ProviderPackages = Annotated[
    list[str] | None,
    typer.Option("--providers", help="An installed provider package, by name.", rich_help_panel=_BOOTSTRAP),
]
ProviderFolders = Annotated[
    list[Path] | None,
    typer.Option(
        "--providers-dir", help="A folder of wheels or of installed packages.", exists=True, rich_help_panel=_BOOTSTRAP
    ),
]


@command("ingest", Panel.WORK, "counterpoint ingest docs/ runbooks/dns.md --project orders")
def ingest(
    session: CommandSession,
    names: Names = None,
    type_: Type = None,
    urls: Urls = None,
    name: Name = None,
    exclude: Exclude = None,
    untrusted: Untrusted = False,
    bootstrap: Bootstrap = False,
    phase: Phase = None,
    dags: Dags = None,
    docs: Docs = None,
    providers: ProviderPackages = None,
    providers_dir: ProviderFolders = None,
) -> Exit | None:
    """Ingest documents. A second run replaces what changed, deletes what was removed, and keeps the rest."""
    if type_ is not None and type_ not in (*TYPES, INCIDENTS):
        raise UsageError(f"a type is one of {', '.join((*TYPES, INCIDENTS))}, not {type_}")
    given = PhaseOptions(tuple(dags or ()), tuple(docs or ()), tuple(providers or ()), tuple(providers_dir or ()))
    if bootstrap:
        from counterpoint.cli.ingest import bootstrap as phases

        if names or urls or type_ or untrusted:
            raise UsageError("--bootstrap takes its paths from --dags, --docs, --providers and --providers-dir")
        return phases.run(session, given, tuple(phase or ()))
    if phase or given != PhaseOptions():
        raise UsageError("--phase, --dags, --docs, --providers and --providers-dir need --bootstrap")
    names_and_urls = (*(names or ()), *(read_urls(urls) if urls is not None else ()))
    if not names_and_urls:
        raise UsageError("give a PATH, a URL or -, or --bootstrap")
    if type_ == INCIDENTS and untrusted:
        raise UsageError("--untrusted cannot be used with past incidents")
    if type_ == INCIDENTS:
        from counterpoint.cli.ingest.incident_import import import_files

        return import_files(session, _files(names_and_urls))
    if name is not None and len(names_and_urls) > 1:
        raise UsageError("--name needs exactly one PATH, URL or -")
    sources = open_sources(SourceSelection(names_and_urls, name, type_, tuple(exclude or ())))
    return _upload(session, sources, Upload(session.err, session.project, type_, untrusted))


def _upload(session: CommandSession, sources: DocumentSources, upload: Upload) -> Exit:
    """Send the documents found, and print a report."""
    note = partial(_note, session)
    estimate = sources.estimate()
    with session.connect() as api:
        try:
            upload.send(api, sources.documents(note), estimate)
            deleted, unknown = delete_removed(session, api, sources, upload, note)
        except KeyboardInterrupt:
            from counterpoint.proto.words import quantity

            progress = f"{len(upload.results)} of {quantity(estimate, 'document')}"
            session.note(f"interrupted after {progress}; run the same command to continue")
            deleted, unknown, upload.interrupted = 0, [], True
    for result in upload.results:
        if result["status"] in _NOT_FOUND or result.get("problem"):
            session.note(f"{result['status']} {result['source']}: {result.get('problem')}")
    report = {
        "job": upload.job,
        "documents": upload.results,
        "skipped": [{"path": str(one.path), "reason": one.reason, "failed": one.failed} for one in sources.skipped],
        "empty": sum(one.empty for one in sources.skipped),
        **({"interrupted": True} if upload.interrupted else {}),
        **({"not_looked_at": unknown} if unknown else {}),
    }
    session.show(report, lambda: _summary(upload.results, sources.skipped, deleted))
    refused = any(result["status"] in _NOT_FOUND for result in upload.results)
    failed = refused or any(one.failed for one in sources.skipped)
    return Exit.FAILED if failed or upload.interrupted else Exit.DONE


def _note(session: CommandSession, skipped: SkippedPath) -> None:
    """Print why a path is left out. Empty files are only counted: a package may have hundreds."""
    if skipped.empty and not skipped.failed:
        return
    session.note(f"{'cannot read' if skipped.failed else 'skipped'} {skipped.path}: {skipped.reason}")


def _files(names: Sequence[str]) -> list[Path]:
    """Return the paths of files. Raises UsageError for a missing one."""
    paths = [Path(name) for name in names]
    for path in paths:
        if not path.exists():
            raise UsageError(f"{path} does not exist: --type troubleshooting reads files and folders")
    return paths


def _summary(results: Sequence[dict[str, Any]], skipped: Sequence[SkippedPath], deleted: int) -> str:
    from counterpoint.proto.words import quantity

    counts = Counter(result["status"] for result in results)
    chunks = sum(result.get("chunks", 0) for result in results)
    statuses = ", ".join(f"{count} {status}" for status, count in counts.items()) or "none"
    empty = sum(one.empty for one in skipped)
    left_out = f"; {quantity(len(skipped), 'path')} skipped" if skipped else ""
    left_out += f", {empty} of them empty" if empty else ""
    if skipped and empty == len(skipped):
        left_out = f"; {quantity(empty, 'empty path')} skipped"
    gone = f" ({deleted} removed from the source)" if deleted else ""
    return f"{quantity(len(results), 'document')}: {statuses}{gone}; {quantity(chunks, 'passage')}{left_out}"
