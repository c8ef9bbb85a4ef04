"""Every refusal is an RFC 9457 problem with a code and the fields at fault."""

import re
from contextlib import AsyncExitStack
from typing import Any

import pytest
from agents.router_house import House
from structlog.testing import capture_logs
from ui.http_front import RunningFront, client
from ui.published_api import openapi_paths

from counterpoint.proto.errors import Conflict, Denied, Permanent, Problem, Transient
from counterpoint.proto.ids import document_id
from counterpoint.router.api import tasks
from counterpoint.router.problems import problem_of

TASK = {"kind": "question", "description": "x"}
OPEN = {"/v1/schemas/{message_type}"}
SIGN_IN = {"/v1/sign-in", "/v1/sign-out"}
"""They need no principal, but a page of the server as their origin."""
OWN = {"/v1/whoami", "/v1/sign-in-codes"}
"""Requests of a principal about itself need no role."""
OPERATIONS = [
    (method, path) for path, operations in openapi_paths().items() for method in operations if path not in OPEN
]


def problem(response: Any, status: int, code: str) -> dict[str, Any]:
    assert response.status_code == status
    assert response.headers["content-type"] == "application/problem+json"
    body: dict[str, Any] = response.json()
    assert (body["status"], body["code"]) == (status, code)
    assert body["title"]
    return body


@pytest.mark.parametrize("token", [None, "nobody-has-it", ""])
async def test_every_operation_needs_a_principal(front: RunningFront, token: str | None) -> None:
    async with client(front.url, token) as nobody:
        for method, path in OPERATIONS:
            response = await nobody.request(method, path)
            if path in SIGN_IN:
                problem(response, 403, "origin")
                continue
            problem(response, 401, "unauthenticated")
            assert response.headers["www-authenticate"] == "Bearer"


async def test_a_principal_without_a_role_in_the_project_is_refused_everywhere(front: RunningFront) -> None:
    bodies: dict[str, Any] = {
        "/v1/tasks": TASK,
        "/v1/search": {"text": "x"},
        "/v1/documents": {"source": "a", "text": "x"},
        "/v1/links": {"relation": "same", "tasks": ["a", "b"]},
        "/v1/incident-settings": {"quiet_s": 60},
        "/v1/approvals/{approval_id}": {
            "decision": "approved",
            "artifact_sha256": "0000000000000000000000000000000000000000000000000000000000000000",
        },
        "/v1/delegations": {"to": "x", "until": "2099-01-01T00:00:00Z"},
        "/v1/limits/organisation": {"tokens": 1},
        "/v1/tasks/{task_id}/replay/calls": {
            "key": "x",
            "deadline_s": 1,
            "messages": [{"role": "user", "content": "x"}],
            "commit_id": "x",
            "model": "x",
            "budget": {"tokens": 1},
            "max_tokens": 1,
        },
        "/v1/tasks/{task_id}/replay/queries": {
            "commit_id": "x",
            "queries": [{"op": "get", "store": "tasks", "id": "x"}],
        },
    }
    query = {"item": "x", "name": "x", "source": "x", "relation": "same", "task": ["a", "b"], "to": "x"}
    async with front.as_principal("elsewhere", projects=["billing"]) as elsewhere:
        for method, path in OPERATIONS:
            response = await elsewhere.request(
                method,
                re.sub("[{}]", "", path.replace("{tier}", "graph")),
                json=bodies.get(path),
                params=query,
            )
            if path in OWN:
                assert response.is_success
                continue
            problem(response, 403, "origin" if path in SIGN_IN else "role")


async def test_a_body_that_is_not_json_is_400(front: RunningFront) -> None:
    for raw in (b"{", b"\xff", b"[" * 100_000):
        problem(await front.me.post("/v1/tasks", content=raw), 400, "malformed")


@pytest.mark.parametrize(
    ("body", "field"),
    [
        ([], "body"),
        ({}, "kind"),
        (TASK | {"kind": "guess"}, "kind"),
        (TASK | {"systems": ["a", 3]}, "systems[1]"),
        (TASK | {"deadline": "2020-01-01T00:00:00Z"}, "deadline"),
        (TASK | {"task_id": "a b"}, "task_id"),
        (TASK | {"project": "Nope!"}, "project"),
        (TASK | {"context": {"x": "\0"}}, "context.x"),
    ],
)
async def test_an_invalid_task_is_refused_with_the_field(front: RunningFront, body: Any, field: str) -> None:
    front.me.params = front.me.params.remove("project")
    found = problem(await front.me.post("/v1/tasks", json=body), 422, "invalid")
    assert field in [each["field"] for each in found["errors"]]
    assert all(each["problem"] for each in found["errors"])


async def test_the_task_of_the_body_is_that_of_the_path(front: RunningFront) -> None:
    response = await front.me.post("/v1/tasks/t1/outcome", json={"task_id": "t2", "outcome": "failed"})
    assert problem(response, 422, "invalid")["errors"][0]["field"] == "task_id"


@pytest.mark.parametrize(
    ("path", "field", "said"),
    [
        ("/v1/tasks?limit=0", "limit", "must be at least 1"),
        ("/v1/tasks?limit=x", "limit", "must be a whole number"),
        ("/v1/tasks?state=guess", "state", "must be 'submitted', 'working'"),
        ("/v1/tasks?cursor=x", "cursor", "must be the `next_cursor` of a page"),
        ("/v1/tasks?project=Nope!", "project", "must be 1 to 63 lower-case letters"),
        ("/v1/tasks/a%20b", "task_id", "must be 1 to 64 letters"),
        ("/v1/blast-radius?item=a%00", "item", "must not contain a NUL character"),
    ],
)
async def test_an_invalid_url_is_refused_with_the_field(front: RunningFront, path: str, field: str, said: str) -> None:
    front.me.params = front.me.params.remove("project")
    found = problem(await front.me.get(path), 422, "invalid")
    assert [each["field"] for each in found["errors"]] == [field]
    assert found["errors"][0]["problem"].startswith(said)


@pytest.mark.parametrize(
    ("wrong", "field", "said"),
    [
        ({"name": " "}, "name", "must be 1 to 63 letters, digits or `._@-`"),
        ({"projects": ["BAD*"]}, "projects[0]", "must be 1 to 63 lower-case letters"),
        ({"projects": []}, "projects", "must not be empty"),
        ({"roles": ["king"]}, "roles[0]", "must be 'submit', "),
        ({"kind": 3}, "kind", "must be 'person', "),
    ],
)
async def test_an_invalid_body_of_a_principal_has_the_same_wording(
    front: RunningFront, wrong: dict[str, Any], field: str, said: str
) -> None:
    body = {"name": "airflow", "kind": "system", "projects": ["orders"], "roles": ["submit"]} | wrong
    found = problem(await front.me.post("/v1/principals", json=body), 422, "invalid")
    assert [each["field"] for each in found["errors"]] == [field]
    assert found["errors"][0]["problem"].startswith(said)
    assert not {"String", "Input"} & set(found["errors"][0]["problem"].split())


@pytest.mark.parametrize(
    ("path", "body", "field"),
    [
        ("/v1/quarantines", {"kind": "lift", "item": "a\0"}, "item"),
        ("/v1/erasures", {"scope": "source", "what": "a\0"}, "what"),
    ],
)
async def test_a_nul_character_in_a_search_is_refused_with_the_field(
    front: RunningFront, path: str, body: dict[str, Any], field: str
) -> None:
    found = problem(await front.me.post(path, json=body), 422, "invalid")
    assert found["errors"] == [{"field": field, "problem": "must not contain a NUL character"}]


@pytest.mark.parametrize("version", ["0", "-1", "00", "9" * 10, "9" * 1000, "\u0663"])
@pytest.mark.parametrize("name", ["notes.md", "tasks/t1"])
async def test_an_invalid_version_is_part_of_the_name_of_a_document(
    front: RunningFront, name: str, version: str
) -> None:
    body = {"kind": "rollback", "item": f"{name}@{version}", "reason": "wrong", "preview": True}
    assert (await front.me.post("/v1/quarantines", json=body)).status_code == 200
    wish = front.house.asked[-1].wish
    assert (wish.store, wish.id, wish.version) == ("documents", document_id(f"{name}@{version}"), None)


async def test_an_invalid_idempotency_key_is_refused(front: RunningFront) -> None:
    for key in ("", "x" * 256, "a b"):
        response = await front.me.post("/v1/tasks", json=TASK, headers={"Idempotency-Key": key})
        assert problem(response, 422, "invalid")["errors"][0]["field"] == "Idempotency-Key"


async def test_away_is_503_with_when_to_come_back(front: RunningFront) -> None:
    await front.me.get("/v1/tasks")
    front.house.away = True
    for response in (await front.me.get("/v1/tasks"), await front.me.post("/v1/tasks", json=TASK)):
        problem(response, 503, "unavailable")
        assert int(response.headers["retry-after"]) >= 1


async def test_a_task_for_which_there_is_no_room_is_told_to_come_back(
    front: RunningFront, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tasks, "ADMISSION_TIMEOUT_S", 0.01)
    limiter = front.limiter
    async with AsyncExitStack() as held:
        while not limiter.locked():
            await held.enter_async_context(limiter.slot("another"))
        response = await front.me.post("/v1/tasks", json=TASK)
        problem(response, 503, "unavailable")
        assert int(response.headers["retry-after"]) == 1
        assert (await front.me.get("/v1/tasks")).status_code == 200
    assert (await front.me.post("/v1/tasks", json=TASK)).status_code == 202


async def test_unknown_paths_are_404_and_unknown_methods_405(front: RunningFront) -> None:
    problem(await front.me.get("/v1/nothing"), 404, "not_found")
    problem(await front.me.delete("/v1/tasks"), 405, "method_not_allowed")


async def test_a_fault_of_ours_says_nothing_of_its_cause(front: RunningFront, monkeypatch: pytest.MonkeyPatch) -> None:
    async def broken(*_: Any) -> bytes:
        raise RuntimeError("a secret of the house")

    await front.me.get("/v1/tasks")
    monkeypatch.setattr(House, "transport", broken)
    with capture_logs() as logs:
        response = await front.me.get("/v1/tasks")
    assert [entry["event"] for entry in logs] == ["request.failed"]
    problem(response, 500, "internal")
    assert "secret" not in response.text


@pytest.mark.parametrize(
    ("error", "status"),
    [
        (Denied("store", "the right to read x"), 403),
        (Denied("principal", "a principal that is known and not revoked"), 403),
        (Transient("busy", retry_after_s=0.5), 503),
        (Conflict("tasks", "t1", 1, 2), 409),
        (Permanent("too_large"), 413),
        (Permanent("sensitive", (Problem(field="description", problem="contains what looks like a token"),)), 422),
    ],
)
def test_each_error_has_its_status(error: Any, status: int) -> None:
    found, headers = problem_of(error)
    assert found.status == status
    assert headers.get("Retry-After") == ("1" if status == 503 else None)
    assert list(found.errors) == list(getattr(error, "problems", ()))
