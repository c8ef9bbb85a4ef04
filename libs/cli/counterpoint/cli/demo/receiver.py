"""A receiver of notifications that keeps what it is told, and the part of the demo that prints it."""

import json
import threading
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler
from typing import Any

from counterpoint.cli.demo.checks import DemoTranscript
from counterpoint.cli.demo.loopback import loopback_server
from counterpoint.proto.tasks import TaskCompleted, TaskProposed

_PATIENCE_S = 30.0


@dataclass
class DemoReceiver:
    """The address of a receiver, and the events that it was told, in order."""

    url: str = ""
    events: list[dict[str, Any]] = field(default_factory=list)
    changed: threading.Condition = field(default_factory=threading.Condition)

    def environment(self) -> dict[str, str]:
        """Return the variables with which the router tells this receiver."""
        return {"COUNTERPOINT_NOTIFY_URL": self.url, "COUNTERPOINT_NOTIFY_PRIVATE": "true"}

    def play(self, transcript: DemoTranscript, project: str) -> None:
        """Print what the receiver was told of a project, and check that it is the course of an incident."""
        transcript.begin("What a receiver outside was told")
        wanted = {TaskProposed.TYPE, TaskCompleted.TYPE}
        with self.changed:
            self.changed.wait_for(lambda: wanted <= {event["type"] for event in self._of(project)}, _PATIENCE_S)
            events = self._of(project)
        for event in events:
            name = event["type"].removeprefix("counterpoint.").removesuffix(".v1")
            transcript.show(f"  {event['time'][11:19]}  {name:<18} {event['subject']}")
        transcript.check(
            "it was told of proposals and of the end", wanted <= {event["type"] for event in events}, events[-3:]
        )
        ids = Counter(event["id"] for event in events)
        transcript.check("it was told each event once", max(ids.values(), default=0) == 1, ids.most_common(3))

    def _of(self, project: str) -> list[dict[str, Any]]:
        return [event for event in self.events if event["project"] == project]


@contextmanager
def demo_receiver() -> Iterator[DemoReceiver]:
    """Run a receiver on the loopback interface."""
    receiver = DemoReceiver()

    class EventHandler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            event = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
            with receiver.changed:
                receiver.events.append(event)
                receiver.changed.notify_all()
            self.send_response(204)
            self.end_headers()

        def log_message(self, format: str, *args: Any) -> None:
            pass

    with loopback_server(EventHandler) as url:
        receiver.url = f"{url}/"
        yield receiver
