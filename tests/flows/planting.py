"""Plants a secret in every field and header of every door of a running house, each in a request of its own."""

import asyncio
import copy
import json
import os
import sys
import uuid
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from itertools import count
from pathlib import Path
from typing import Any

import httpx
import nats
from agents.lineage_data import spec_facets
from flows.planted_secrets import KEY, Mint, Schema, Secret, leaves, replaced, spelled
from flows.planting_lessons import lessons, pages
from flows.planting_senders import chats, hooks, mcp
from flows.valid_bodies import ASIDE, prepare, valid

from counterpoint.local.stack import Stack
from counterpoint.proto import schemas
from counterpoint.proto.attempts import ReportOutcome
from counterpoint.proto.tasks import SubmitTask

PROJECT = "plant"
_NEEDED: tuple[tuple[str, ...], ...] = (("eventType",), ("eventTime",))
_TURNS = 12
"""Events that the places of a whole event are dealt out to, so that one place does not hide another."""
_OPENAPI = json.loads((Path(__file__).parents[2] / "proto" / "openapi.json").read_text())
_HEADERS = ("Cookie", "X-Api-Key", "X-Forwarded-For", "Referer", "User-Agent", "Traceparent")
_ATTRIBUTES = (
    "id",
    "source",
    "type",
    "subject",
    "time",
    "dataschema",
    "datacontenttype",
    "correlationid",
    "capability",
)
_EXTRA_HEADERS = ("Cookie", "X-Api-Key", "traceparent", "tracestate", "Nats-Msg-Id")


@dataclass
class PlantedSecrets:
    """The `door: place` of each planted needle, and the statuses with which the doors answered over HTTP."""

    places: dict[str, str] = field(default_factory=dict)
    statuses: list[tuple[str, int]] = field(default_factory=list)
    mint: Mint = field(default_factory=lambda: Mint(20261120))

    def take(self, door: str, place: str, fits: Any = lambda text: True) -> Secret:
        """A secret for a place."""
        secret = self.mint.secret(fits)
        self.places[secret.needle] = f"{door}: {place}"
        return secret


async def plant(stack: Stack) -> PlantedSecrets:
    """Plant in all doors, and return when the doors have taken or refused it all."""
    planted = PlantedSecrets()
    token = {"Authorization": f"Bearer {stack.endpoints.token}"}
    async with (
        httpx.AsyncClient(base_url=stack.endpoints.http, headers=token, timeout=60) as api,
        httpx.AsyncClient(base_url=stack.endpoints.lineage, headers=token, timeout=60) as lineage,
    ):
        first = {"kind": "question", "description": "How long are orders kept?", "task_id": "x1", "project": PROJECT}
        (await api.post("/v1/tasks", json=first, headers={"Prefer": "wait=30"})).raise_for_status()
        failed = {
            **first,
            "kind": "troubleshoot",
            "task_id": "x2",
            "error_message": first["description"],
            "target": {"job": {"namespace": "etl", "name": "daily.sum"}},
        }
        (await api.post("/v1/tasks", json=failed)).raise_for_status()
        await prepare(api, PROJECT)
        await _all(planted, _http(planted, api))
        await _all(planted, _lineage(planted, lineage))
        await _all(planted, hooks(planted, api, PROJECT))
        await _all(planted, chats(planted, api, PROJECT))
        await lessons(planted, api, PROJECT)
        await mcp(planted, stack.endpoints.http, stack.endpoints.token, PROJECT)
        await _command_line(planted, stack)
    await _intake(planted, stack)
    return planted


async def _all(planted: PlantedSecrets, requests: Iterable[tuple[str, Any]]) -> None:
    turn = asyncio.Semaphore(8)

    async def one(name: str, request: Any) -> None:
        async with turn, request as response:
            planted.statuses.append((name, response.status_code))

    await asyncio.gather(*(one(name, request) for name, request in requests))


def _http(planted: PlantedSecrets, api: httpx.AsyncClient) -> Iterator[tuple[str, Any]]:
    # First what takes the longer the more there is.
    paths = sorted(_OPENAPI["paths"].items(), key=lambda each: not each[0].startswith(("/v1/audit", "/v1/cypher")))
    for path, operations in paths:
        for method, operation in operations.items():
            name = f"{method.upper()} {path}"
            door = f"http {name}"
            turns = count()
            given = operation.get("parameters", [])
            body = operation.get("requestBody")
            schema = Schema(_OPENAPI, body["content"]["application/json"]["schema"]) if body else None
            samples = {
                each["name"]: Schema(_OPENAPI, each["schema"]).sample() for each in given if each["in"] == "path"
            }
            project = {"project": ASIDE if path in ("/v1/erasures", "/v1/reembed") else PROJECT}

            def ask(
                parts: Mapping[str, Any] = samples,
                query: Mapping[str, Any] = project,
                headers: Mapping[str, str] | None = None,
                value: Any = None,
                method: str = method,
                path: str = path,
                schema: Schema | None = schema,
                turns: Iterator[int] = turns,
            ) -> Any:
                url = path.format(
                    **{key: httpx.QueryParams({"": str(said)}).__str__()[1:] for key, said in parts.items()}
                )
                content = None
                if schema is not None:
                    smallest = schema.sample()
                    body = smallest if value is None else value
                    content = json.dumps(valid(f"{method.upper()} {path}", next(turns), body, smallest))
                return api.stream(method.upper(), url, params=query, headers=headers, content=content)

            for each in given:
                place, known = f"{each['in']} {each['name']}", Schema(_OPENAPI, each["schema"])
                secret = planted.take(door, place, known.fits)
                match each["in"]:
                    case "path":
                        yield name, ask(parts={**samples, each["name"]: secret.text})
                    case "query":
                        yield name, ask(query={**project, each["name"]: secret.text})
                    case "header":
                        plain = planted.take(door, place, lambda text: text.isprintable() and text.isascii())
                        yield name, ask(headers={each["name"]: plain.text})
            secret = planted.take(door, "an unknown query parameter")
            yield name, ask(query={**project, "unknown": secret.text})
            if schema is None:
                continue
            for at in schema.places():
                known_place = schema.at(at)
                secret = planted.take(door, spelled(at), known_place.fits if known_place else lambda text: True)
                query = {} if at[-1:] == ("project",) else project
                yield name, ask(query=query, value=schema.planted(at, secret.text))
    task = {"kind": "question", "description": "How long?", "project": PROJECT}
    headers = _headers(planted, "http")
    yield "headers", api.stream("POST", "/v1/tasks", json=task, headers=headers)
    denied = {"Authorization": headers["X-Api-Key"]}
    yield "Authorization", api.stream("POST", "/v1/tasks", json=task, headers=denied)


def _headers(planted: PlantedSecrets, door: str) -> dict[str, str]:
    headers = {name: planted.take(door, f"header {name}", str.isprintable).text for name in _HEADERS}
    return {**headers, planted.take(door, "name of a header", str.isalnum).text: "x"}


def full_event(run_id: str, kind: str = "FAIL") -> dict[str, Any]:
    """An OpenLineage event with every facet of the specification, and Airflow's own."""
    facets: dict[str, dict[str, Any]] = {"Run": {}, "Job": {}, "Dataset": {}, "InputDataset": {}, "OutputDataset": {}}
    for name, facet in spec_facets().items():
        part = name.partition("/")[0].removesuffix("Facet")
        for owner in sorted(facets, key=len, reverse=True):
            if part.endswith(owner):
                facets[owner] |= facet
                break
    task = {"dag_id": "daily", "task_id": "load", "owner": "etl", "retries": 1}
    task |= {"upstream_task_ids": "['extract']", "downstream_task_ids": "['publish']"}
    url = "http://airflow.internal:8080/dags/daily/log?task_id=load"
    airflow = {
        "dag": {"dag_id": "daily", "owner": "etl", "tags": "['orders']"},
        "dagRun": {"run_id": "scheduled__2026-11-20", "dag_id": "daily"},
        "task": task,
        "taskInstance": {"try_number": 1, "log_url": url, "map_index": 0},
    }
    parent = {"run": {"runId": "parent-run"}, "job": {"namespace": "etl", "name": "daily"}}
    parent["root"] = copy.deepcopy(parent)
    run = {
        "parent": parent,
        "airflow": airflow,
        "jobDependencies": {"upstream": [{"job": {"namespace": "etl", "name": "a"}}]},
    }
    run |= {"spark_properties": {"properties": {"spark.app.name": "orders"}}}
    owners = {"ownership": {"owners": [{"name": "team:orders", "type": "OWNER"}]}}
    assertions = {"assertions": [{"assertion": "not_null", "success": False, "column": "id"}]}
    dataset = {"namespace": "postgres://db.internal:5432", "name": "orders.public.lines"}
    return {
        "eventType": kind,
        "eventTime": "2026-11-20T12:00:00Z",
        "producer": "https://example.internal/producer",
        "schemaURL": "https://openlineage.io/spec/2-0-2/OpenLineage.json",
        "run": {"runId": run_id, "facets": {**facets["Run"], **run}},
        "job": {"namespace": "etl", "name": "daily.load", "facets": {**facets["Job"], **owners}},
        "inputs": [
            {
                **dataset,
                "facets": {**facets["Dataset"], **owners},
                "inputFacets": {**facets["InputDataset"], "dataQualityAssertions": assertions},
            }
        ],
        "outputs": [
            {
                **dataset,
                "name": "orders.public.sums",
                "facets": facets["Dataset"],
                "outputFacets": facets["OutputDataset"],
            }
        ],
    }


def _events(planted: PlantedSecrets, door: str) -> Iterator[dict[str, Any]]:
    """Events with a secret in many places each: in what an event is refused without alone, elsewhere together."""
    whole = full_event("x")
    places = [at for at in leaves(whole) if at not in _NEEDED]
    for at in (*_NEEDED, ("run", "runId"), ("job", "name"), ("job", "namespace")):
        secret = planted.take(door, spelled(at))
        yield replaced(full_event(str(uuid.uuid4())), at, secret.text)
    for turn in range(_TURNS):
        event = full_event(str(uuid.uuid4()), "OTHER")
        for at in places[turn::_TURNS]:
            event = replaced(event, at, planted.take(door, spelled(at)).text)
        yield event
    for names in ((), ("run",), ("run", "facets"), ("job", "facets"), ("inputs", 0, "facets")):
        event = full_event(str(uuid.uuid4()), "OTHER")
        inner: Any = event
        for part in names:
            inner = inner[part]
        inner[planted.take(door, spelled((*names, KEY))).text] = {"config": {"inner": "x"}}
        yield event
    for kind in ("FAIL", "FAIL", "COMPLETE"):
        event = full_event("x", kind)
        for at in places:
            plain = planted.take(door, f"{spelled(at)} of an event that ends with {kind}", str.isprintable)
            event = replaced(event, at, plain.text)
        yield event


def _lineage(planted: PlantedSecrets, lineage: httpx.AsyncClient) -> Iterator[tuple[str, Any]]:
    door, path = "http lineage", "/api/v1/lineage"
    query = {"project": PROJECT}
    for event in _events(planted, door):
        yield "lineage", lineage.stream("POST", path, params=query, json=event)
    event = full_event(str(uuid.uuid4()), "OTHER")
    yield "headers", lineage.stream("POST", path, params=query, json=event, headers=_headers(planted, door))
    for url in (path, "/api/v1/namespaces", "/api/v1/namespaces/{}/jobs", "/api/v1/namespaces/etl/jobs/{}"):
        for name in ("project", "nodeId", "depth", "limit", "api_key"):
            secret = planted.take(door, f"GET {url} query {name}")
            yield url, lineage.stream("GET", url.format("etl"), params={**query, name: secret.text})
        secret = planted.take(door, f"GET {url} path", str.isalnum)
        yield url, lineage.stream("GET", url.format(secret.text), params=query)


async def _command_line(planted: PlantedSecrets, stack: Stack) -> None:
    """Options of commands, under a home that is searched too."""
    home = stack.data_dir / "home"
    home.mkdir()
    file = home / "orders.md"
    file.write_text("# Orders\n\nOrders are kept for ten days.\n")

    def said(option: str, form: str = "{}") -> tuple[str, str]:
        secret = planted.take("cli", option, lambda text: text.isprintable() and " " not in text)
        return option, form.format(secret.text)

    at = ("--url", stack.endpoints.http, "--project", PROJECT)
    token = ("--token", stack.endpoints.token)
    names = (*said("--run"), *said("--job", "etl/{}"), *said("--dataset", "db/{}"), *said("--idempotency-key"))
    commands = (
        ("submit", "troubleshoot", "The import fails", *names, *at, *token),
        ("submit", "question", "How long are orders kept?", *at, *said("--token")),
        ("lineage", said("a job", "etl/{}")[1], *at, *token),
        ("ingest", str(file), *said("--name"), *at, *token),
    )
    running = [
        await asyncio.create_subprocess_exec(
            str(Path(sys.executable).with_name("counterpoint")),
            *command,
            env={"PATH": os.environ["PATH"], "HOME": str(home)},
            stdout=asyncio.subprocess.DEVNULL,
            stderr=asyncio.subprocess.DEVNULL,
        )
        for command in commands
    ]
    assert [await process.wait() for process in running] == [0, 1, 1, 1]
    await pages(planted, stack.endpoints, home, PROJECT)


async def _intake(planted: PlantedSecrets, stack: Stack) -> None:
    login = stack.endpoints.users["publisher"]
    client = await nats.connect(
        stack.endpoints.nats, user=login.user, password=login.password, inbox_prefix=login.inbox_prefix.encode()
    )
    try:
        stream = client.jetstream()
        for subject, body, headers in _messages(planted):
            await stream.publish(subject, body, headers=headers)
    finally:
        await client.close()


def _messages(planted: PlantedSecrets) -> Iterator[tuple[str, bytes, dict[str, str] | None]]:
    for kind, model in (("task", SubmitTask), ("outcome", ReportOutcome)):
        document = schemas.of(model.TYPE)
        schema = Schema(document, document)
        subject, door = f"intake.{PROJECT}.{kind}", f"nats {kind}"
        for place in schema.places():
            known = schema.at(place)
            secret = planted.take(door, spelled(place), known.fits if known else lambda text: True)
            yield subject, json.dumps(schema.planted(place, secret.text)).encode(), None
        yield from _enveloped(planted, door, subject, model.TYPE, schema.sample())
    door, subject = "nats lineage", f"intake.{PROJECT}.lineage"
    for event in _events(planted, door):
        yield subject, json.dumps(event).encode(), None
    event = full_event(str(uuid.uuid4()), "OTHER")
    yield from _enveloped(planted, door, subject, "counterpoint.lineage.event.v1", event)
    for subject in ("intake.{}.task", "intake.{}.lineage"):
        secret = planted.take(
            "nats", f"subject {subject}", lambda text: text.isascii() and text.replace("-", "").isalnum()
        )
        yield subject.format(secret.text), b"{}", None
    secret = planted.take("nats", "a body that is no JSON")
    yield f"intake.{PROJECT}.task", f"{{not JSON {secret.text}".encode(), None
    secret = planted.take("nats", "a list")
    yield f"intake.{PROJECT}.outcome", json.dumps([secret.text]).encode(), None


def _enveloped(
    planted: PlantedSecrets, door: str, subject: str, message_type: str, body: Any
) -> Iterator[tuple[str, bytes, dict[str, str]]]:
    """A body as a CloudEvent in both modes, taken and refused, with a secret in one attribute or header at a time."""
    refused = [body]
    for said, kept in ((body, "taken"), (refused, "refused")):
        data = json.dumps(said).encode()
        known = {"source": "/ci", "type": message_type, "specversion": "1.0"}
        for names in (("id",), ("source",), ("type",), _ATTRIBUTES):
            planted_in = {name: planted.take(door, f"ce-{name}, {kept}", str.isprintable).text for name in names}
            event = {**known, "id": str(uuid.uuid4()), **planted_in}
            yield subject, data, {f"ce-{key}": value for key, value in event.items()}
            planted_in = {name: planted.take(door, f"{name} of a structured event, {kept}").text for name in names}
            event = {**known, "id": str(uuid.uuid4()), **planted_in, "data": said}
            yield subject, json.dumps(event).encode(), {"content-type": "application/cloudevents+json"}
        for names in (("Content-Type",), _EXTRA_HEADERS):
            yield (
                subject,
                data,
                {name: planted.take(door, f"header {name}, {kept}", str.isprintable).text for name in names},
            )
        secret = planted.take(door, f"name of a header, {kept}", str.isalnum)
        yield subject, data, {secret.text: "x"}
        secret = planted.take(door, f"name of an attribute, {kept}")
        event = {**known, "id": str(uuid.uuid4()), secret.text: "x", "data": said}
        yield subject, json.dumps(event).encode(), {"content-type": "application/cloudevents+json"}
