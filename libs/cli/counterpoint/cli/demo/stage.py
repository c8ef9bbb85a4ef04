"""HTTP actions of the demo, independent of the story."""

from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeVar
from urllib.parse import quote

from counterpoint.cli.api import WAIT_S, ApiClient
from counterpoint.cli.decisions import STREAM
from counterpoint.cli.demo.checks import DemoTranscript
from counterpoint.cli.demo.incident import IncidentEvents
from counterpoint.cli.errors import NotReachable
from counterpoint.cli.ingest.files import SourceFile, walk
from counterpoint.cli.ingest.upload import send_with_progress
from counterpoint.cli.render.words import counted
from counterpoint.proto.findings import Citation
from counterpoint.proto.line import Action
from counterpoint.proto.tasks import JobRef, Task

Seen = TypeVar("Seen")


@dataclass(frozen=True)
class DemoClients:
    """API clients of the demo, one for each principal. `airflow` connects to the lineage service."""

    administrator: ApiClient
    calling_llm: ApiClient
    person: ApiClient
    airflow: ApiClient


@dataclass
class DemoStage:
    """A project on a running stack, and who plays there. Files are named as sources from `root`."""

    project: str
    cast: DemoClients
    root: Path
    transcript: DemoTranscript
    _heard: str = field(default="0", init=False)

    def arrive(self, what: str, arrival: IncidentEvents) -> None:
        """Have a failure, or its end, arrive as it does: by its events one after the other, or as a task."""
        if arrival.task:
            self.transcript.say(f"{what}, submitted: {arrival.task.description}")
            body = arrival.task.model_dump(mode="json", exclude_defaults=True) | {"project": self.project}
            self.cast.calling_llm.post("/v1/tasks", body)
            return
        events = list(arrival.lines())
        for event in events:
            self._post(event)
        name = arrival.events.name if arrival.events else ""
        self.transcript.say(f"{what}: {len(events)} OpenLineage events of {name} posted")

    def burst(self, what: str, arrival: IncidentEvents) -> None:
        """Have all events of a flow arrive at once, as a backlog does after an outage; the last is sent first."""
        events = list(arrival.lines())
        with ThreadPoolExecutor(len(events)) as senders:
            for posted in [senders.submit(self._post, event) for event in reversed(events)]:
                posted.result()
        name = arrival.events.name if arrival.events else ""
        self.transcript.say(f"{what}: {len(events)} OpenLineage events of {name} posted at once")

    def _post(self, event: str) -> None:
        self.cast.airflow.post("/api/v1/lineage", event)

    def ingest(self, what: str, paths: Sequence[Path], project: str | None = None) -> None:
        """Hand documents over as the administrator."""
        documents = [found for found in walk(paths, self.root) if isinstance(found, SourceFile)]
        results = send_with_progress(
            self.transcript.progress, self.cast.administrator, documents, project or self.project
        )
        chunks = sum(result.get("chunks", 0) for result in results)
        self.transcript.say(f"ingested {what}: {counted(len(results), 'document')}, {counted(chunks, 'passage')}")
        refused = [result for result in results if result["status"] == "refused"]
        self.transcript.check("all of them are stored", len(results) == len(documents) and not refused, refused)

    def submit(self, body: dict[str, Any]) -> Task:
        """Hand a task in and wait until it has ended or waits for input."""
        body = body | {"project": self.project}
        task_id = self.cast.calling_llm.post("/v1/tasks", body)["task_id"]
        self.transcript.wait(f"task {task_id} to end or to wait for input")
        while True:
            found = self.cast.calling_llm.get(f"/v1/tasks/{task_id}", wait=WAIT_S, project=self.project)
            task = Task.model_validate(found)
            if task.state not in ("submitted", "working"):
                self.transcript.wait(None)
                return task

    def report(self, task: Task, attempt: int, outcome: dict[str, Any]) -> None:
        """Say as the person how an attempt went."""
        self.cast.person.post(f"/v1/tasks/{task.task_id}/outcome", outcome | {"attempt": attempt}, project=self.project)

    def task(self, task: Task) -> Task:
        """The task as it is now."""
        return Task.model_validate(self.cast.person.get(f"/v1/tasks/{task.task_id}", project=self.project))

    def tasks(self) -> list[Task]:
        """All tasks of the project."""
        found = self.cast.person.pages("/v1/tasks", 1000, project=self.project)
        return [Task.model_validate(one) for one in found["items"]]

    def ids(self) -> set[str]:
        """The ids of all tasks of the project."""
        return {task.task_id for task in self.tasks()}

    def line(self, task: Task) -> list[Action]:
        """The line of a task."""
        found = self.cast.person.get(f"/v1/tasks/{task.task_id}/line", project=self.project)
        return [Action.model_validate(one) for one in found["items"]]

    def only_new(self, known: set[str], what: str, wanted: Callable[[Task], bool]) -> Task:
        """The one task that is not among the known ones, when it is as wanted."""

        def look() -> list[Task] | None:
            new = [task for task in self.tasks() if task.task_id not in known]
            return new if any(wanted(task) for task in new) else None

        new = self._hear(what, look)
        self.transcript.check("it is exactly one task", len(new) == 1, [task.task_id for task in new])
        return next(task for task in new if wanted(task))

    def until(self, task: Task, what: str, wanted: Callable[[Task], bool]) -> Task:
        """The task as soon as it is as wanted."""

        def look() -> Task | None:
            now = self.task(task)
            return now if wanted(now) else None

        return self._hear(what, look)

    def until_line(self, task: Task, what: str, wanted: Callable[[list[Action]], bool]) -> None:
        """Wait until the line of a task is as wanted."""
        self._hear(what, lambda: wanted(self.line(task)) or None)

    def _hear(self, what: str, look: Callable[[], Seen | None]) -> Seen:
        """Look, and again after each decision that is made, until there is something to see."""
        self.transcript.wait(what)
        found = look()
        if found is None:
            for event in self.cast.person.stream(
                STREAM, last_id=self._heard, stopped=self.transcript.stopped, project=self.project
            ):
                self._heard = event.id or self._heard
                if (found := look()) is not None:
                    break
        if found is None:
            raise NotReachable(f"the decision stream ended while waiting for {what}")
        self.transcript.wait(None)
        return found

    def last_run(self, job: JobRef) -> str | None:
        """The state of a job's latest run in lineage, as Marquez spells it."""
        path = f"/api/v1/namespaces/{quote(job.namespace, safe='')}/jobs/{quote(job.name, safe='')}"
        run = self.cast.airflow.get(path)["latestRun"]
        return run and str(run["state"])

    def source(self, path: Path) -> str:
        """The name of a file as a source."""
        return path.relative_to(self.root).as_posix() if path.is_relative_to(self.root) else path.as_posix()

    def resolves(self, source: str, cited: Citation) -> bool:
        """Whether what is cited stands in the file of that source, in that place."""
        path = self.root / source
        return path.is_file() and path.read_text()[cited.start : cited.end] == cited.quote
