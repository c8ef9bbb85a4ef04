"""`counterpoint verify`: check the audit log and export proofs."""

import asyncio
import json
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from counterpoint.cli.command import Panel, command
from counterpoint.cli.data_folder import quiet_logs
from counterpoint.cli.errors import Exit, UsageError
from counterpoint.cli.options import check_id
from counterpoint.cli.session import CommandSession
from counterpoint.proto.words import quantity

if TYPE_CHECKING:
    from counterpoint.cli.api import ApiClient


LAST_NOTES_BYTES = 200_000
"""Size of the compared end of a checkpoint file, so that it fits into one request."""
_PAGE = 1000


@command("verify", Panel.OPERATE, "counterpoint verify --task TASK")
def verify(
    session: CommandSession,
    task: Annotated[str | None, typer.Option("--task", help="Export the proofs of a task.", callback=check_id)] = None,
    checkpoints: Annotated[
        Path | None, typer.Option("--checkpoints", help="Compare with the checkpoints in a file.")
    ] = None,
    export: Annotated[
        Path | None, typer.Option("--export", help="Write all leaves to a file for an independent check.")
    ] = None,
    backup: Annotated[
        Path | None,
        typer.Option("--backup", help="Check a backup instead: its file and its audit log."),
    ] = None,
) -> Exit | None:
    """Verify that no leaf of the audit log and no record was changed, added or removed."""
    if backup is not None:
        if task or checkpoints or export:
            raise UsageError("--backup cannot be combined with --task, --checkpoints or --export")
        return _verify_backup(session, backup)
    if task and (checkpoints or export):
        raise UsageError("--task cannot be combined with --checkpoints or --export, which cover the whole log")
    with session.connect() as api:
        if checkpoints is not None:
            body = {"checkpoints": _end_of(checkpoints)}
            report = api.post("/v1/audit/verify", body, project=session.project)
        else:
            report = api.get("/v1/audit/verify", task_id=task, project=session.project)
        proofs = _proofs(api, session, task) if task else None
        leaves = _export(api, session, export) if export else None
    if proofs is not None:
        report |= {"proofs": proofs}
    if leaves is not None:
        report |= {"exported": leaves}
    session.show(report, lambda: _summary(report))
    return Exit.DONE if report["ok"] else Exit.FAILED


def _verify_backup(session: CommandSession, path: Path) -> Exit:
    """Check the file of a backup, restore it to a temporary server, and verify the audit log of each project."""
    from counterpoint.cli.passphrase import known_passphrase
    from counterpoint.cli.version import release
    from counterpoint.local.backup.opened import open_backup
    from counterpoint.local.backup.verify import verify as verify_backup

    quiet_logs()
    opened = open_backup(path, known_passphrase(), release())
    projects = asyncio.run(verify_backup(opened))
    broken = [report["project"] for report in projects if not report["ok"]]
    report = {
        "ok": not broken,
        "installation": opened.manifest.installation,
        "made_at": opened.manifest.created_at,
        "version": opened.manifest.version,
        "database_bytes": opened.database_bytes,
        "projects": projects,
    }
    commits = quantity(sum(one["commits"] for one in projects), "commit")
    counts = f"{commits} of {quantity(len(projects), 'project')}"
    verdict = f"THE AUDIT LOG IS BROKEN in {', '.join(broken)}" if broken else "complete, and its audit log is intact"
    session.show(report, lambda: f"{path}, made {opened.manifest.created_at}: {verdict}; {counts}")
    return Exit.FAILED if broken else Exit.DONE


def _end_of(path: Path) -> str:
    with path.open("rb") as file:
        file.seek(max(0, path.stat().st_size - LAST_NOTES_BYTES))
        return file.read().decode(errors="replace")


def _proofs(api: "ApiClient", session: CommandSession, task: str) -> dict[str, Any]:
    """Return all proofs of a task against one checkpoint. Starts again when a newer one appears."""
    while True:
        proofs: dict[str, Any] = api.get(f"/v1/audit/proofs/{task}", project=session.project)
        following = proofs.pop("next", None)
        while following is not None:
            page = api.get(f"/v1/audit/proofs/{task}", after=following, project=session.project)
            if page["checkpoint"] != proofs["checkpoint"]:
                break
            proofs["leaves"] += page["leaves"]
            following = page.get("next")
        else:
            return proofs


def _export(api: "ApiClient", session: CommandSession, path: Path) -> int:
    """Write a line of JSON for each leaf, and return their number."""
    count, following = 0, 0
    with path.open("w") as file:
        while True:
            page = api.get("/v1/audit/leaves", after=following, limit=_PAGE, project=session.project)
            for leaf in page["items"]:
                file.write(json.dumps(leaf, ensure_ascii=False) + "\n")
            count += len(page["items"])
            if page["next"] is None:
                return count
            following = page["next"]


def _description(leaf: dict[str, Any]) -> str:
    if leaf["body"] is None:
        return "erased"
    body = json.loads(leaf["body"])
    return f"refusal of {body['refused']}" if "refused" in body else f"commit {body['commit']}"


def _summary(report: dict[str, Any]) -> str:
    counted = (("commits", "commit"), ("refusals", "refusal"), ("records", "record version"))
    counts = ", ".join(quantity(report[name], noun) for name, noun in counted)
    if report.get("erased"):
        counts += f", {report['erased']} leaves erased"
    lines = [f"the audit log is intact: {counts}"]
    if not report["ok"]:
        lines = [f"THE AUDIT LOG IS BROKEN in {report['broken_count']} places: {counts}", *report["broken"]]
    lines.append(f"head: leaf {report['head']['position']}, root {report['head']['root']}")
    if report.get("checkpoint"):
        lines.append(f"last checkpoint: {report['checkpoint']['size']} leaves, {report['checkpoints']} compared")
    window = report["window"]
    unsigned = window["to"] - window["from"] + window["waiting"]
    lines.append(
        f"window: the last {unsigned} leaves are not covered by a checkpoint yet"
        if unsigned
        else "window: none, the last checkpoint covers every leaf"
    )
    lines += [f"not compared: the copy on {name} did not respond" for name in report.get("unread", ())]
    if "proofs" in report:
        proofs = report["proofs"]
        lines.append(f"proofs by the checkpoint of {proofs['size']} leaves (all of them with --json):")
        lines += [
            f"  leaf {leaf['index'] + 1}: {_description(leaf)}, {len(leaf['path'])} hashes" for leaf in proofs["leaves"]
        ]
    if "exported" in report:
        lines.append(f"{report['exported']} leaves written")
    lines.append(f"key: {report['key']}")
    return "\n".join(lines)
