"""The watcher: each warning of a cluster is reported once, also over restarts and outages of either side."""

from collections import OrderedDict
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from counterpoint.cli.errors import ApiError, NotReachable
from counterpoint.cli.kubernetes.cluster import Cluster, VersionGone
from counterpoint.cli.kubernetes.warnings import cloud_event

if TYPE_CHECKING:
    from counterpoint.cli.api import ApiClient

PATH = "/hooks/cloudevents"
DELAYS_S = (1.0, 2.0, 5.0, 15.0, 30.0)
"""Delays between tries of one side; the last one repeats."""
_REPORTED = 10_000
_REFUSED_EVENT = frozenset({400, 409, 413, 422})
"""Answers that concern one event alone; with any other one the report is tried again, or ends the watcher."""

Show = Callable[[dict[str, Any]], None]
Wait = Callable[[float], None]


class EventWatcher:
    """Reports the warnings of a cluster to the API of a house.

    `show` is called with the outcome of each report, `note` with what goes wrong, `wait` for a delay in seconds.
    """

    def __init__(
        self,
        cluster: Cluster,
        api: "ApiClient",
        *,
        project: str | None,
        name: str,
        count: int,
        show: Show,
        note: Callable[[str], None],
        wait: Wait,
    ) -> None:
        self._cluster = cluster
        self._api = api
        self._project = project
        self._name = name
        self._count = count
        self._show = show
        self._note = note
        self._wait = wait
        self._reported: OrderedDict[str, None] = OrderedDict()

    def report_all(self) -> str:
        """Report all events that the cluster has now, and return the version of their list."""
        events, version = self._cluster.events()
        for event in events:
            self.report(event)
        return version

    def follow(self) -> None:
        """Report what is there and what comes, for ever. After an outage nothing is lost that the cluster has kept."""
        version, failures = "", 0
        while True:
            try:
                version = version or self.report_all()
                for event, seen in self._cluster.changes(version):
                    if event is not None:
                        self.report(event)
                    version, failures = seen, 0
                self._wait(DELAYS_S[0])
            except VersionGone:
                version = ""
                self._wait(DELAYS_S[0])
            except NotReachable as error:
                self._note(str(error))
                self._wait(DELAYS_S[min(failures, len(DELAYS_S) - 1)])
                failures += 1

    def report(self, event: Any) -> None:
        """Report a warning, once the API takes it. Raises `ApiError` if the token has not the right."""
        sent = cloud_event(event, cluster=self._name, count=self._count)
        if sent is None or sent["id"] in self._reported:
            return
        failures = 0
        while True:
            try:
                reply = self._api.post(PATH, sent, project=self._project)
                break
            except NotReachable as error:
                problem = str(error)
            except ApiError as error:
                if error.status in _REFUSED_EVENT:
                    reply = {"ignored": [str(error)]}
                    break
                if error.status < 500 and error.status not in (408, 429):
                    raise
                problem = str(error)
            self._note(problem)
            self._wait(DELAYS_S[min(failures, len(DELAYS_S) - 1)])
            failures += 1
        self._reported[sent["id"]] = None
        while len(self._reported) > _REPORTED:
            self._reported.popitem(last=False)
        self._show({"event": sent["id"], "title": sent["data"]["title"], **reply})
