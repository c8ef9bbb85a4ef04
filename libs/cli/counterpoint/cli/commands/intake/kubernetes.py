"""`counterpoint intake kubernetes`: report the warnings of a cluster as tasks."""

import os
import time
from contextlib import closing, suppress
from pathlib import Path
from typing import Annotated, Any

import typer

from counterpoint.cli.command import Panel, command
from counterpoint.cli.session import CommandSession


@command("kubernetes", Panel.OPERATE, "counterpoint intake kubernetes --cluster prod")
def kubernetes(
    session: CommandSession,
    cluster: Annotated[str, typer.Option("--cluster", help="The name of the cluster in tasks.")] = "default",
    namespace: Annotated[str | None, typer.Option("--namespace", help="Only the events of one namespace.")] = None,
    count: Annotated[int, typer.Option("--count", min=1, help="Occurrences before a warning is reported.")] = 3,
    once: Annotated[bool, typer.Option("--once", help="Report what is there now, and end.")] = False,
    api: Annotated[str | None, typer.Option("--api", help="The API of the cluster, outside of its pods.")] = None,
    token_file: Annotated[Path | None, typer.Option("--token-file", help="The token for it.")] = None,
    ca_file: Annotated[Path | None, typer.Option("--ca-file", help="The certificate of its authority.")] = None,
) -> None:
    """Watch the events of a Kubernetes cluster, and submit a task for each warning, until Ctrl-C."""
    from counterpoint.cli.kubernetes.cluster import Cluster, address_of
    from counterpoint.cli.kubernetes.watcher import EventWatcher

    address = address_of(api, token_file, ca_file, os.environ)
    with session.connect() as house, closing(Cluster(address, namespace)) as watched, suppress(KeyboardInterrupt):
        watcher = EventWatcher(
            watched,
            house,
            project=session.project,
            name=cluster,
            count=count,
            show=lambda report: session.line(report, lambda: _line(report)),
            note=session.note,
            wait=time.sleep,
        )
        if once:
            watcher.report_all()
        else:
            watcher.follow()


def _line(report: dict[str, Any]) -> str:
    arrived = [f"{each['effect']} {each['task_id']}" for each in report.get("arrived", ())]
    ignored = [f"ignored: {reason}" for reason in report.get("ignored", ())]
    return f"{', '.join(arrived + ignored) or 'no effect'}: {report['title']}"
