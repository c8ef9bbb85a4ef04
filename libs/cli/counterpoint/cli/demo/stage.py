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
from counterpoint.proto.findings import Citation
from counterpoint.proto.line import Action
from counterpoint.proto.tasks import JobRef, Task
from counterpoint.proto.words import quantity

T = TypeVar("T")


@dataclass(frozen=True)
class DemoClients:
    """API clients of the demo, one for each principal. `airflow` connects to the lineage service."""

    administrator: ApiClient
    calling_llm: ApiClient
    person: ApiClient
    airflow: ApiClient


@dataclass
class DemoStage:
    """A project on a running stack, with the clients that act in it. Sources are file paths relative to `root`."""

    project: str
    cast: DemoClients
    root: Path
    transcript: DemoTranscript
    _last_event_id: str = field(default="0", init=False)

    def send(self, description: str, events_or_task: IncidentEvents) -> None:
        """Send a failure or a recovery: its events one by one, or its task."""
        if events_or_task.task:
            self.transcript.say(f"{description}, submitted: {events_or_task.task.description}")
            body = events_or_task.task.model_dump(mode="json", exclude_defaults=True) | {"project": self.project}
            self.cast.calling_llm.post("/v1/tasks", body)
            return
        events = list(events_or_task.lines())
        for event in events:
            self._post(event)
        name = events_or_task.events.name if events_or_task.events else ""
        self.transcript.say(f"{description}: {len(events)} OpenLineage events of {name} posted")

    def send_at_once(self, description: str, events_or_task: IncidentEvents) -> None:
        """Send all events of a flow concurrently, the last one first, as a backlog after an outage."""
        events = list(events_or_task.lines())
        with ThreadPoolExecutor(len(events)) as senders:
            for posted in [senders.submit(self._post, event) for event in reversed(events)]:
                posted.result()
        name = events_or_task.events.name if events_or_task.events else ""
        self.transcript.say(f"{description}: {len(events)} OpenLineage events of {name} posted at once")

    def _post(self, event: str) -> None:
        self.cast.airflow.post("/api/v1/lineage", event)

    def ingest(self, description: str, paths: Sequence[Path], project: str | None = None) -> None:
        """Ingest documents as the administrator."""
        documents = [result for result in walk(paths, self.root) if isinstance(result, SourceFile)]
        results = send_with_progress(
            self.transcript.progress, self.cast.administrator, documents, project or self.project
        )
        chunks = sum(result.get("chunks", 0) for result in results)
        self.transcript.say(
            f"ingested {description}: {quantity(len(results), 'document')}, {quantity(chunks, 'passage')}"
        )
        refused = [result for result in results if result["status"] == "refused"]
        self.transcript.check("all of them are stored", len(results) == len(documents) and not refused, refused)

    def submit(self, body: dict[str, Any]) -> Task:
        """Submit a task and wait until it has ended or waits for input."""
        body = body | {"project": self.project}
        task_id = self.cast.calling_llm.post("/v1/tasks", body)["task_id"]
        self.transcript.wait(f"task {task_id} to end or to wait for input")
        while True:
            result = self.cast.calling_llm.get(f"/v1/tasks/{task_id}", wait=WAIT_S, project=self.project)
            task = Task.model_validate(result)
            if task.state not in ("submitted", "working"):
                self.transcript.wait(None)
                return task

    def report(self, task: Task, attempt: int, outcome: dict[str, Any]) -> None:
        """Report the outcome of an attempt as the person."""
        self.cast.person.post(f"/v1/tasks/{task.task_id}/outcome", outcome | {"attempt": attempt}, project=self.project)

    def task(self, task: Task) -> Task:
        """Return the current state of a task."""
        return Task.model_validate(self.cast.person.get(f"/v1/tasks/{task.task_id}", project=self.project))

    def tasks(self) -> list[Task]:
        """Return all tasks of the project."""
        result = self.cast.person.pages("/v1/tasks", 1000, project=self.project)
        return [Task.model_validate(item) for item in result["items"]]

    def ids(self) -> set[str]:
        """Return the ids of all tasks of the project."""
        return {task.task_id for task in self.tasks()}

    def line(self, task: Task) -> list[Action]:
        """Return the line of a task."""
        result = self.cast.person.get(f"/v1/tasks/{task.task_id}/line", project=self.project)
        return [Action.model_validate(item) for item in result["items"]]

    def wait_for_new_task(self, known: set[str], description: str, condition: Callable[[Task], bool]) -> Task:
        """Wait for a task that is not in `known` and meets the condition, and check that it is the only new one."""

        def check() -> list[Task] | None:
            new = [task for task in self.tasks() if task.task_id not in known]
            return new if any(condition(task) for task in new) else None

        new = self._poll(description, check)
        self.transcript.check("it is exactly one task", len(new) == 1, [task.task_id for task in new])
        return next(task for task in new if condition(task))

    def wait_until(self, task: Task, description: str, condition: Callable[[Task], bool]) -> Task:
        """Return the task as soon as it meets the condition."""

        def check() -> Task | None:
            current = self.task(task)
            return current if condition(current) else None

        return self._poll(description, check)

    def wait_for_evaluation(self, task: Task, condition: Callable[[list[Action]], bool]) -> None:
        """Wait until the task was evaluated again: its line meets the condition."""
        self._poll("the task to be evaluated again", lambda: condition(self.line(task)) or None)

    def _poll(self, description: str, check: Callable[[], T | None]) -> T:
        """Call `check` now and after each decision until it returns a value."""
        self.transcript.wait(description)
        result = check()
        if result is None:
            for event in self.cast.person.stream(
                STREAM, last_id=self._last_event_id, stopped=self.transcript.stopped, project=self.project
            ):
                self._last_event_id = event.id or self._last_event_id
                if (result := check()) is not None:
                    break
        if result is None:
            raise NotReachable(f"the decision stream ended while waiting for {description}")
        self.transcript.wait(None)
        return result

    def last_run(self, job: JobRef) -> str | None:
        """Return the state of a job's latest run in lineage, as in the API of Marquez."""
        path = f"/api/v1/namespaces/{quote(job.namespace, safe='')}/jobs/{quote(job.name, safe='')}"
        run = self.cast.airflow.get(path)["latestRun"]
        return run and str(run["state"])

    def source(self, path: Path) -> str:
        """Return the source name of a file."""
        return path.relative_to(self.root).as_posix() if path.is_relative_to(self.root) else path.as_posix()

    def resolves(self, source: str, cited: Citation) -> bool:
        """Return whether the file of a source has the cited text at the cited place."""
        path = self.root / source
        return path.is_file() and path.read_text()[cited.start : cited.end] == cited.quote
