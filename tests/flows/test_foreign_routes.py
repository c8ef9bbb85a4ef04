"""No route of the HTTP API shows or changes a project to a principal of another one, whatever its roles there."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any, get_args
from uuid import uuid4

import httpx
from flows.planted_secrets import Schema
from flows.valid_bodies import valid

from counterpoint.proto.principals import Role

OPENAPI = json.loads((Path(__file__).parents[2] / "proto" / "openapi.json").read_text())
MARK, KNOWN = "zebrafinch", "griffin"
"""A word of the texts of the project, and one of the names that the other principal knows."""
LISTS = (
    "/v1/tasks",
    "/v1/documents",
    "/v1/attempts",
    "/v1/limits",
    "/v1/links",
    "/v1/incident-settings",
    "/v1/releases",
)
OWN = {"/v1/whoami", "/v1/sign-in", "/v1/sign-in-codes", "/v1/sign-out", "/v1/schemas/{message_type}"}
"""Routes that are about the caller, or about nobody."""


async def filled(http: httpx.AsyncClient, project: str) -> dict[str, str]:
    """Fill a project, and return the ids in it by the names of their parameters."""
    about = {"description": f"The load of {MARK} fails", "error_message": f"{MARK} is full", "task_id": KNOWN}
    job = {"namespace": KNOWN, "name": f"{KNOWN}.load"}
    document = {"source": f"{KNOWN}.md", "text": f"# {MARK}\n\nRestart {MARK} when it is full."}
    answers = [
        await http.post("/v1/documents", params={"project": project}, json={"documents": [document]}),
        await http.post(
            "/v1/tasks",
            params={"project": project, "wait": 30},
            json={"kind": "troubleshoot", "target": {"job": job}, **about},
        ),
    ]
    assert [answer.status_code for answer in answers] == [200, 202], [answer.text for answer in answers]
    task = (await http.get(f"/v1/tasks/{KNOWN}", params={"project": project, "wait": 30})).json()
    return {"task_id": KNOWN, "session_id": task["session_id"], **job}


def requests(ids: dict[str, str], theirs: str, ours: str) -> Iterator[tuple[str, str, dict[str, Any]]]:
    """Each route with its own URL, once for each way to name a project or none: method, path, arguments."""
    for path, operations in OPENAPI["paths"].items():
        for method, operation in operations.items():
            parts = {each["name"]: Schema(OPENAPI, each["schema"]).sample() for each in operation.get("parameters", ())}
            url = path.format(**{name: ids.get(name, part) for name, part in parts.items()})
            query = {name: ids[name] for name in parts if name in ids and f"{{{name}}}" not in path}
            body = operation.get("requestBody")
            schema = Schema(OPENAPI, body["content"]["application/json"]["schema"]) if body else None
            for named, project in (("url", theirs), ("url", ours), ("body", theirs), ("nowhere", theirs)):
                given: dict[str, Any] = {"params": query | ({"project": project} if named == "url" else {})}
                if schema is not None:
                    smallest = schema.sample()
                    value = valid(f"{method.upper()} {path}", 0, smallest, smallest)
                    given["json"] = {**value, "project": project} if named == "body" else value
                elif named == "body":
                    continue
                yield f"{method.upper()} {path} {named} {project}", f"{method} {url}", given


async def test_no_route_is_open_to_a_principal_of_another_project(http: httpx.AsyncClient) -> None:
    theirs, ours = (f"{name}-{uuid4().hex[:8]}" for name in ("theirs", "ours"))
    ids = await filled(http, theirs)
    person = {"name": ours, "kind": "person", "projects": [ours], "roles": get_args(Role)}
    token = (await http.post("/v1/principals", json=person)).json()["token"]
    before = [(await http.get(path, params={"project": theirs})).json() for path in LISTS]
    headers = {"Authorization": f"Bearer {token}"}
    wrong, asked = [], 0
    async with httpx.AsyncClient(base_url=http.base_url, headers=headers, timeout=60) as foreign:
        for name, request, given in requests(ids, theirs, ours):
            method, url = request.split(" ", 1)
            async with foreign.stream(method.upper(), url, **given) as answer:
                asked += 1
                stream = answer.headers.get("content-type", "").startswith("text/event-stream")
                text = "" if stream else (await answer.aread()).decode()
            is_open = answer.is_success and f" {ours}" not in name and name.split()[1] not in OWN
            if is_open or (MARK in text and answer.is_success) or answer.status_code >= 500:
                wrong.append((name, answer.status_code, text[:200]))
    assert not wrong
    assert asked > 200
    assert MARK in json.dumps(before)
    assert [(await http.get(path, params={"project": theirs})).json() for path in LISTS] == before
