"""Warnings of a Kubernetes cluster become tasks: each once, over restarts of the API, the house and the watcher."""

import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any
from urllib.parse import parse_qsl, urlsplit

import pytest
import yaml
from typer.testing import CliRunner
from ui.cli_server import ScriptedApi
from ui.http_front import RunningFront

from counterpoint.cli.address import Address
from counterpoint.cli.api import ApiClient
from counterpoint.cli.errors import ApiError, UsageError
from counterpoint.cli.kubernetes.cluster import Cluster, ClusterAddress, ClusterRefused, address_of
from counterpoint.cli.kubernetes.warnings import cloud_event, occurrences, workload
from counterpoint.cli.kubernetes.watcher import PATH, EventWatcher
from counterpoint.cli.main import app
from counterpoint.proto.tasks import TaskRouted

ROOT = Path(__file__).parents[2]
HOOK = f"POST {PATH}"
ACCEPTED = (202, {"arrived": [{"task_id": "hook-1", "effect": "submitted", "project": "orders"}]})


def event(uid: str = "e-1", **fields: Any) -> dict[str, Any]:
    return {
        "metadata": {"uid": uid, "namespace": "shop", "resourceVersion": "1"},
        "involvedObject": {"kind": "Pod", "namespace": "shop", "name": "orders-7d9f8b6c5d-x2x4z", "uid": "p-1"},
        "type": "Warning",
        "reason": "BackOff",
        "message": "Back-off restarting failed container",
        "count": 5,
        "source": {"component": "kubelet", "host": "node-3"},
        **fields,
    }


@dataclass
class ScriptedCluster:
    """The API of a cluster: `listed` are its events, `watches` what each watch sends, by turns."""

    url: str = ""
    listed: list[Any] = field(default_factory=list)
    watches: list[list[Any] | int] = field(default_factory=list)
    lists: list[int] = field(default_factory=list)
    asked: list[tuple[str, dict[str, str], str]] = field(default_factory=list)
    page: int = 2


@contextmanager
def scripted_cluster() -> Iterator[ScriptedCluster]:
    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            parts = urlsplit(self.path)
            query = dict(parse_qsl(parts.query))
            cluster.asked.append((parts.path, query, self.headers.get("Authorization", "")))
            if query.get("watch"):
                sent = cluster.watches.pop(0) if cluster.watches else 500
                status, lines = (sent, []) if isinstance(sent, int) else (200, sent)
                self.reply(status, b"".join(json.dumps(line).encode() + b"\n" for line in lines))
                return
            status = cluster.lists.pop(0) if cluster.lists else 200
            start = int(query.get("continue", 0))
            more = start + cluster.page < len(cluster.listed)
            metadata = {"resourceVersion": "100", **({"continue": str(start + cluster.page)} if more else {})}
            body = {"metadata": metadata, "items": cluster.listed[start : start + cluster.page]}
            self.reply(status, json.dumps(body).encode())

        def reply(self, status: int, content: bytes) -> None:
            self.send_response(status)
            self.send_header("Content-Length", str(len(content)))
            self.end_headers()
            self.wfile.write(content)

        def log_message(self, *words: object) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    cluster = ScriptedCluster(f"http://127.0.0.1:{server.server_port}")
    thread = threading.Thread(target=server.serve_forever, args=(0.01,))
    thread.start()
    try:
        yield cluster
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


@pytest.fixture
def cluster() -> Iterator[ScriptedCluster]:
    with scripted_cluster() as started:
        yield started


class EnoughSeen(Exception):
    """The test has seen enough."""


@contextmanager
def watching(cluster: ScriptedCluster, house: ScriptedApi) -> Iterator[tuple[EventWatcher, list[dict[str, Any]]]]:
    """A watcher that ends at its third delay, and the reports that it shows."""
    shown, waits = list[dict[str, Any]](), list[float]()

    def enough(delay_s: float) -> None:
        waits.append(delay_s)
        if len(waits) == 3:
            raise EnoughSeen

    watched = Cluster(ClusterAddress(cluster.url, None, None), None)
    with ApiClient(Address(house.url, "a-token")) as api:
        yield EventWatcher(
            watched, api, project="orders", name="prod", count=3, show=shown.append, note=lambda text: None,
            wait=enough,
        ), shown  # fmt: skip
    watched.close()


def change(kind: str, item: Any, version: int) -> dict[str, Any]:
    return {"type": kind, "object": {**item, "metadata": {**item["metadata"], "resourceVersion": str(version)}}}


def sent_ids(house: ScriptedApi) -> list[str]:
    return [asked.body["id"] for asked in house.asked]


# the mapping


def test_a_warning_is_a_task_about_its_workload() -> None:
    sent = cloud_event(event(), cluster="prod", count=3)
    assert sent is not None
    assert (sent["id"], sent["source"], sent["type"]) == ("e-1", "kubernetes/prod", "counterpoint.task.submit.v1")
    task = sent["data"]
    assert task["title"] == "BackOff: Pod shop/orders-7d9f8b6c5d-x2x4z"
    assert task["error_message"] == "BackOff: Back-off restarting failed container"
    assert task["target"]["job"] == {"namespace": "kubernetes/prod", "name": "shop/orders"}
    assert task["context"]["node"] == "node-3"


@pytest.mark.parametrize(
    ("kind", "name", "found"),
    [
        ("Pod", "orders-7d9f8b6c5d-x2x4z", "orders"),
        ("Pod", "nightly-28123456-b4d5f", "nightly"),
        ("Pod", "agent-x2x4z", "agent"),
        ("Pod", "postgres-0", "postgres"),
        ("Pod", "my-app", "my-app"),
        ("Pod", "log-store-abcde", "log-store-abcde"),
        ("ReplicaSet", "orders-7d9f8b6c5d", "orders"),
        ("Job", "nightly-28123456", "nightly"),
        ("Node", "node-3", "node-3"),
    ],
)
def test_a_workload_is_the_name_without_generated_suffixes(kind: str, name: str, found: str) -> None:
    assert workload(kind, name) == found


@pytest.mark.parametrize(
    ("fields", "reported"),
    [
        ({"type": "Normal"}, False),
        ({"count": 2}, False),
        ({"count": None}, False),
        ({"count": None, "series": {"count": 7}}, True),
        ({"count": 1, "reason": "OOMKilling"}, True),
        ({"reason": ""}, False),
        ({"involvedObject": None}, False),
        ({"message": None}, True),
        ({"metadata": {}}, False),
    ],
)
def test_only_warnings_that_last_are_reported(fields: dict[str, Any], reported: bool) -> None:
    assert (cloud_event(event(**fields), cluster="c", count=3) is not None) == reported


@pytest.mark.parametrize("strange", [None, [], "x", {"type": "Warning"}, {"metadata": [], "involvedObject": 3}])
def test_an_object_that_is_no_event_gives_none(strange: Any) -> None:
    assert cloud_event(strange, cluster="c", count=1) is None
    assert occurrences(strange) == 1


async def test_a_house_takes_a_report_once(front: RunningFront) -> None:
    sent = cloud_event(event(), cluster="prod", count=3)
    replies = [(await front.me.post(PATH, json=sent)).json() for _ in range(2)]
    assert [reply["arrived"][0]["effect"] for reply in replies] == ["submitted", "duplicate"]
    (routed,) = front.house.of_type(TaskRouted)
    assert routed.task.target.job.name == "shop/orders"


# the watch


def test_existing_and_new_events_are_reported_once(cluster: ScriptedCluster, api: ScriptedApi) -> None:
    api.on(HOOK, ACCEPTED)
    cluster.listed = [event(f"e-{number}") for number in range(5)]
    bookmark = {"type": "BOOKMARK", "object": {"metadata": {"resourceVersion": "300"}}}
    cluster.watches = [
        [change("MODIFIED", event("e-1", count=9), 101), change("ADDED", event("new"), 102), bookmark],
        [change("DELETED", event("gone"), 301)],
    ]
    with watching(cluster, api) as (watcher, shown), pytest.raises(EnoughSeen):
        watcher.follow()
    assert sent_ids(api) == ["e-0", "e-1", "e-2", "e-3", "e-4", "new"]
    assert [each["arrived"][0]["effect"] for each in shown] == ["submitted"] * 6
    versions = [query["resourceVersion"] for _, query, _ in cluster.asked if query.get("watch")]
    assert versions[:3] == ["100", "300", "300"], "a watch goes on where the last one ended"
    assert api.asked[0].params["project"] == "orders"


@pytest.mark.parametrize("gone", [410, [{"type": "ERROR", "object": {"code": 410}}]])
def test_a_version_that_is_too_old_begins_anew(cluster: ScriptedCluster, api: ScriptedApi, gone: Any) -> None:
    api.on(HOOK, ACCEPTED)
    cluster.listed = [event("e-1")]
    cluster.watches = [gone]
    with watching(cluster, api) as (watcher, _), pytest.raises(EnoughSeen):
        watcher.follow()
    lists = [query for _, query, _ in cluster.asked if not query.get("watch")]
    assert len(lists) == 2
    assert sent_ids(api) == ["e-1"]


def test_a_house_that_is_away_gets_each_event_when_it_is_back(cluster: ScriptedCluster, api: ScriptedApi) -> None:
    away = (503, {"title": "away", "status": 503})
    api.on(HOOK, away, (429, {"title": "slow", "status": 429}), ACCEPTED)
    cluster.listed = [event("e-1"), event("e-2")]
    with watching(cluster, api) as (watcher, shown):
        watcher.report_all()
    assert sent_ids(api) == ["e-1", "e-1", "e-1", "e-2"]
    assert [each["event"] for each in shown] == ["e-1", "e-2"]


def test_an_event_that_is_refused_stops_no_other_and_a_wrong_token_ends_it(
    cluster: ScriptedCluster, api: ScriptedApi
) -> None:
    refused = (422, {"title": "title: is too long", "status": 422})
    api.on(HOOK, refused, ACCEPTED, (403, {"title": "role", "status": 403}))
    cluster.listed = [event("e-1"), event("e-2"), event("e-3")]
    with watching(cluster, api) as (watcher, shown), pytest.raises(ApiError):
        watcher.report_all()
    assert shown[0]["ignored"] == ["title: is too long"]
    assert shown[1]["arrived"]


def test_a_cluster_that_is_away_is_asked_again(cluster: ScriptedCluster, api: ScriptedApi) -> None:
    api.on(HOOK, ACCEPTED)
    cluster.listed, cluster.lists = [event("e-1")], [500, 502]
    with watching(cluster, api) as (watcher, _), pytest.raises(EnoughSeen):
        watcher.follow()
    assert sent_ids(api) == ["e-1"]


def test_a_service_account_without_the_right_is_named(cluster: ScriptedCluster, api: ScriptedApi) -> None:
    cluster.lists = [403]
    with watching(cluster, api) as (watcher, _), pytest.raises(ClusterRefused, match="get, list and watch"):
        watcher.follow()


# the command and the manifest


def test_the_command_reports_the_present_state_with_the_current_token(
    cluster: ScriptedCluster, api: ScriptedApi, tmp_path: Path
) -> None:
    api.on(HOOK, ACCEPTED)
    cluster.listed = [event("e-1")]
    token = tmp_path / "token"
    token.write_text("of-today\n")
    words = ["intake", "kubernetes", "--once", "--api", cluster.url, "--token-file", str(token), "--namespace", "shop"]
    ended = CliRunner().invoke(app, [*words, *api.options(), "--json", "--project", "orders"])
    assert ended.exit_code == 0, ended.output
    assert json.loads(ended.stdout)["arrived"][0]["task_id"] == "hook-1"
    assert cluster.asked == [("/api/v1/namespaces/shop/events", {"limit": "500"}, "Bearer of-today")]


def test_outside_of_a_cluster_its_api_must_be_given(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="--api"):
        address_of(None, None, None, {})
    with pytest.raises(UsageError, match="cannot be read"):
        address_of(None, None, None, {"KUBERNETES_SERVICE_HOST": "10.0.0.1"})
    with pytest.raises(UsageError, match="cannot be read"):
        address_of("https://k", tmp_path / "none", None, {})
    assert address_of("https://k/", None, None, {}).url == "https://k"
    token = tmp_path / "token"
    token.touch()
    inside = address_of(None, token, token, {"KUBERNETES_SERVICE_HOST": "fd00::1", "KUBERNETES_SERVICE_PORT": "6443"})
    assert inside.url == "https://[fd00::1]:6443"


def test_the_manifest_grants_the_rights_of_the_watcher_and_runs_the_command() -> None:
    parts = list(yaml.safe_load_all((ROOT / "deploy" / "event-watcher.yaml").read_text()))
    kinds = {part["kind"]: part for part in parts}
    assert kinds["ClusterRole"]["rules"] == [
        {"apiGroups": [""], "resources": ["events"], "verbs": ["get", "list", "watch"]}
    ]
    pod = kinds["Deployment"]["spec"]["template"]["spec"]
    assert pod["serviceAccountName"] == kinds["ServiceAccount"]["metadata"]["name"]
    (container,) = pod["containers"]
    shown = CliRunner().invoke(app, [*container["command"][1:], "--help"])
    assert shown.exit_code == 0, shown.output
    assert {each["name"] for each in container["env"]} == {"COUNTERPOINT_URL", "COUNTERPOINT_TOKEN"}
