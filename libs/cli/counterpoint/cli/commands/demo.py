"""`counterpoint demo`: play an incident on a temporary stack."""

import asyncio
import shutil
import signal
import sys
import tempfile
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from functools import partial
from pathlib import Path
from time import monotonic
from typing import TYPE_CHECKING, Annotated

import typer

from counterpoint.cli.command import Panel, command
from counterpoint.cli.data_folder import quiet_logs
from counterpoint.cli.errors import CommandError, Exit, UsageError
from counterpoint.cli.session import CommandSession
from counterpoint.cli.shipped import shipped_root

if TYPE_CHECKING:
    from counterpoint.cli.demo.checks import DemoTranscript
    from counterpoint.cli.demo.incident import DemoIncident, LimitedQuestion
    from counterpoint.cli.demo.provider import SimulatedProvider
    from counterpoint.cli.demo.receiver import DemoReceiver
    from counterpoint.cli.demo.stage import DemoStage
    from counterpoint.local.endpoints import Endpoints


ORDERS = shipped_root() / "examples" / "incidents" / "orders.yaml"
PATIENCE_S = 120.0
"""Maximum duration of one wait of the story, in seconds."""


@command("demo", Panel.OPERATE, "counterpoint demo --incident examples/incidents/freeipa.yaml")
def demo(
    session: CommandSession,
    incident: Annotated[
        Path, typer.Option("--incident", help="The file of the incident to play.", show_default="orders")
    ] = ORDERS,
    keep: Annotated[bool, typer.Option("--keep", help="Keep the data folder.")] = False,
    console: Annotated[
        bool | None,
        typer.Option("--console/--no-console", help="Show the story in the console at the end, until Ctrl-C."),
    ] = None,
) -> Exit | None:
    """Start a temporary stack, play an incident, check the results, and stop it.

    On a terminal it shows the story in the console at the end.
    """
    from counterpoint.cli.demo.checks import DemoTranscript
    from counterpoint.cli.demo.incident import read_incident

    if not incident.is_file():
        raise UsageError(f"{incident} does not exist")
    story = read_incident(incident)
    quiet_logs()
    transcript = DemoTranscript(None if session.json else session.out, session.err)
    folder = Path(tempfile.mkdtemp(prefix="counterpoint-demo-"))
    began = monotonic()
    try:
        ready_s = asyncio.run(_run_stories(session, transcript, story, folder))
        ended = print_report(session, transcript, story.name, ready_s, monotonic() - began)
        if console or (console is None and sys.stdout.isatty() and not session.json):
            from counterpoint.cli.demo.console import show_console

            asyncio.run(show_console(session, folder / "stack", story.name))
    except asyncio.CancelledError:
        return Exit.FAILED
    finally:
        if keep:
            session.note(f"the data is kept: counterpoint up --data-dir {folder / 'stack'}")
        else:
            shutil.rmtree(folder)
    return ended


async def _run_stories(
    session: CommandSession, transcript: "DemoTranscript", incident: "DemoIncident", folder: Path
) -> float:
    """Play the stories of an incident; return the seconds until the first stack was ready."""
    from counterpoint.cli.demo.provider import simulated_provider, variables
    from counterpoint.cli.demo.receiver import demo_receiver

    with demo_receiver() as receiver, variables(receiver.environment()):
        play_all = partial(_play, transcript, incident, receiver)
        ready_s = await _run_stack(session, transcript, folder / "stack", play_all)
    if incident.limited and not transcript.failed:
        with simulated_provider(incident.limited.says) as provider, variables(provider.environment()):
            play = partial(_play_limit, transcript, incident, incident.limited, provider)
            await _run_stack(session, transcript, folder / "limited", play)
    return ready_s


async def _run_stack(
    session: CommandSession, transcript: "DemoTranscript", folder: Path, play: Callable[["Endpoints"], None]
) -> float:
    """Start a stack, play on it, and stop it; return the seconds until it was ready."""
    from counterpoint.local.stack import Stack

    transcript.stopped.clear()
    stack = Stack(folder, http_port=0, progress=lambda stage, seconds: session.note(f"{stage:<12} {seconds:5.1f} s"))
    current = asyncio.current_task()
    if current is None:
        raise RuntimeError("a coroutine runs in a task")
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, current.cancel)
    began = monotonic()
    playing: asyncio.Task[None] | None = None
    try:
        await stack.start()
        ready_s = monotonic() - began
        playing = asyncio.create_task(asyncio.to_thread(play, stack.endpoints))
        await _supervise(asyncio.create_task(stack.watch()), playing, transcript)
    finally:
        transcript.stopped.set()
        await stack.stop()
        if playing is not None:
            await asyncio.gather(playing, return_exceptions=True)
    return ready_s


async def _supervise(
    supervising: asyncio.Task[None], playing: asyncio.Task[None], transcript: "DemoTranscript"
) -> None:
    """Wait until the story ends, the stack fails or a wait takes too long."""
    try:
        while not playing.done():
            await asyncio.wait({supervising, playing}, timeout=1.0, return_when=asyncio.FIRST_COMPLETED)
            if supervising.done():
                supervising.result()
            if transcript.waited_s() > PATIENCE_S:
                transcript.check(
                    "every wait ended within its time limit",
                    False,
                    f"waited {PATIENCE_S:g} s for {transcript.waiting_for}",
                )
                return
        playing.result()
    except CommandError as error:
        transcript.check("the demo can continue", False, error.problem())
    finally:
        supervising.cancel()


def _play(
    transcript: "DemoTranscript", incident: "DemoIncident", receiver: "DemoReceiver", endpoints: "Endpoints"
) -> None:
    from counterpoint.cli.demo.burst import FailureBurst
    from counterpoint.cli.demo.story import IncidentStory

    with _stages(transcript, incident, endpoints) as stage:
        IncidentStory(incident, stage(incident.name), transcript).play()
        if incident.undocumented:
            FailureBurst(incident.undocumented, stage(f"{incident.name}-burst")).play()
        receiver.play(transcript, incident.name)


def _play_limit(
    transcript: "DemoTranscript",
    incident: "DemoIncident",
    limited: "LimitedQuestion",
    provider: "SimulatedProvider",
    endpoints: "Endpoints",
) -> None:
    from counterpoint.cli.demo.limit import LimitStory

    with _stages(transcript, incident, endpoints) as stage:
        LimitStory(limited, stage(incident.name), provider).play()


@contextmanager
def _stages(
    transcript: "DemoTranscript", incident: "DemoIncident", endpoints: "Endpoints"
) -> Iterator[Callable[[str], "DemoStage"]]:
    """Yield a function that returns the stage of a project, with principals of its own."""
    from counterpoint.cli.address import Address
    from counterpoint.cli.api import ApiClient
    from counterpoint.cli.demo.stage import DemoClients, DemoStage

    with ExitStack() as connections:

        def connected(url: str, token: str) -> ApiClient:
            return connections.enter_context(ApiClient(Address(url, token)))

        administrator = connected(endpoints.http, endpoints.token)

        def stage(project: str) -> DemoStage:
            def principal(name: str, kind: str, *roles: str) -> str:
                name += project.removeprefix(incident.name)
                body = {"name": name, "kind": kind, "roles": roles, "projects": [project]}
                return str(administrator.post("/v1/principals", body)["token"])

            agent = principal("calling_llm", "agent", "submit", "report", "read", "override")
            person = principal("on-call", "person", "submit", "report", "read", "ingest", "approve")
            airflow = principal("airflow", "system", "report", "submit", "read")
            cast = DemoClients(
                administrator=administrator,
                calling_llm=connected(endpoints.http, agent),
                person=connected(endpoints.http, person),
                airflow=connected(endpoints.lineage, airflow),
            )
            return DemoStage(project, cast, shipped_root(), transcript)

        yield stage


def print_report(
    session: CommandSession, transcript: "DemoTranscript", incident: str, ready_s: float, total_s: float
) -> Exit:
    """Print the report of a story and return the exit code. Raises CommandError if there was no check."""
    if not transcript.checks:
        raise CommandError("the demo did not complete")
    report = {
        "incident": incident,
        "ok": not transcript.failed,
        "checks": [{"part": c.part, "name": c.name, "ok": c.ok, "seen": c.observed} for c in transcript.checks],
        "cards": transcript.cards,
        "seconds": {"ready": round(ready_s, 1), "total": round(total_s, 1)},
    }
    failed = "".join(f"\n✘ {check.part}: {check.name}" for check in transcript.failed)
    session.show(
        report,
        lambda: (
            f"\n{len(transcript.checks) - len(transcript.failed)} of {len(transcript.checks)} checks passed{failed}\n"
            f"ready after {ready_s:.1f} s, {total_s:.1f} s in all"
        ),
    )
    return Exit.FAILED if transcript.failed else Exit.DONE
