"""Principals, dead letters and the audit log over HTTP."""

import asyncio
from collections.abc import AsyncIterator
from datetime import UTC, datetime
from typing import Any

import pytest
from agents.router_house import NOW
from ui.http_front import RunningFront, client, running

from counterpoint.client import Memory
from counterpoint.router.api.application import HttpApi
from counterpoint.router.authentication import Authenticator, token_id

NEW = {"name": "airflow", "kind": "system", "projects": ["orders"], "roles": ["submit", "report"]}


@pytest.fixture
async def front(listener: tuple[HttpApi, str]) -> AsyncIterator[RunningFront]:
    async with running(*listener, principal_cache_s=60.0) as found:
        yield found


async def test_a_principal_gets_a_token_that_is_shown_once_and_kept_nowhere(front: RunningFront) -> None:
    made = await front.me.post("/v1/principals", json=NEW)
    assert made.status_code == 201
    token = made.json()["token"]
    assert made.json()["principal"] | NEW == made.json()["principal"]
    assert token not in str(front.house.records)
    assert token_id(token) in front.house.kept("principals", "_system")
    assert made.json()["ignored"] == []
    listed = await front.me.get("/v1/principals")
    assert token not in listed.text
    assert token_id(token) not in listed.text
    assert [each["name"] for each in listed.json()["items"]] == ["airflow", "me"]
    async with client(front.url, token) as airflow:
        body = {"kind": "question", "description": "x"}
        assert (await airflow.post("/v1/tasks", json=body)).status_code == 202
        assert (await airflow.post("/v1/tasks", json=body, params={"project": "billing"})).status_code == 403
        assert (await airflow.get("/v1/tasks")).status_code == 403


async def test_the_administrator_of_a_project_sees_who_may_act_there(front: RunningFront) -> None:
    local = {"name": "ada", "kind": "person", "projects": ["billing"], "roles": ["admin"]}
    token = (await front.me.post("/v1/principals", json=local)).json()["token"]
    assert (await front.me.post("/v1/principals", json=NEW)).status_code == 201
    async with client(front.url, token) as ada:
        listed = await ada.get("/v1/principals", params={"project": "billing"})
    assert [each["name"] for each in listed.json()["items"]] == ["ada", "me"]


async def test_unknown_fields_of_a_new_principal_are_named(front: RunningFront) -> None:
    made = await front.me.post("/v1/principals", json=NEW | {"project": "orders"})
    assert (made.status_code, made.json()["ignored"]) == (201, ["project"])


async def test_a_revoked_principal_is_refused_at_once(front: RunningFront) -> None:
    token = (await front.me.post("/v1/principals", json=NEW)).json()["token"]
    async with client(front.url, token) as airflow:
        body = {"kind": "question", "description": "x"}
        assert (await airflow.post("/v1/tasks", json=body)).status_code == 202
        revoked = await front.me.delete("/v1/principals/airflow")
        assert (revoked.status_code, revoked.json()["revoked_at"][:10]) == (200, f"{NOW:%Y-%m-%d}")
        refused = await airflow.post("/v1/tasks", json=body)
    assert (refused.status_code, refused.json()["code"]) == (401, "unauthenticated")
    assert (await front.me.delete("/v1/principals/airflow")).status_code == 404


async def test_a_token_is_refused_from_its_expiry_on(front: RunningFront) -> None:
    deputy = {"name": "deputy", "kind": "person", "projects": ["orders"], "roles": ["read", "approve"]}
    made = await front.me.post("/v1/principals", json=deputy | {"expires_at": "2099-01-01T00:00:00Z"})
    assert (made.status_code, made.json()["principal"]["expires_at"]) == (201, "2099-01-01T00:00:00Z")
    async with client(front.url, made.json()["token"]) as asking:
        assert (await asking.get("/v1/tasks", params={"project": "orders"})).status_code == 200
        # The cached principal is looked at as well.
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr("counterpoint.router.authentication.utc_now", lambda: datetime(2099, 1, 1, tzinfo=UTC))
            refused = await asking.get("/v1/tasks", params={"project": "orders"})
    assert (refused.status_code, refused.json()["code"]) == (401, "unauthenticated")
    assert "expired" in refused.json()["detail"]


async def test_a_name_is_that_of_one_principal_until_it_is_revoked(front: RunningFront) -> None:
    assert (await front.me.post("/v1/principals", json=NEW)).status_code == 201
    taken = await front.me.post("/v1/principals", json=NEW | {"roles": ["read"]})
    assert (taken.status_code, taken.json()["errors"][0]["field"]) == (409, "name")
    await front.me.delete("/v1/principals/airflow")
    assert (await front.me.post("/v1/principals", json=NEW)).status_code == 201


@pytest.mark.parametrize(
    ("more", "field"),
    [
        ({"name": "a b"}, "name"),
        ({"kind": "robot"}, "kind"),
        ({"roles": []}, "roles"),
        ({"roles": ["everything"]}, "roles[0]"),
        ({"roles": ["approve"]}, "roles"),
        ({"projects": ["Nope!"]}, "projects[0]"),
        ({"projects": []}, "projects"),
        ({"expires_at": "2001-01-01T00:00:00Z"}, "expires_at"),
        ({"expires_at": "soon"}, "expires_at"),
    ],
)
async def test_an_invalid_principal_is_refused_with_the_field(
    front: RunningFront, more: dict[str, Any], field: str
) -> None:
    response = await front.me.post("/v1/principals", json=NEW | more)
    assert response.status_code == 422
    assert response.json()["errors"][0]["field"].startswith(field)


async def test_a_principal_cannot_revoke_itself(front: RunningFront) -> None:
    response = await front.me.delete("/v1/principals/me")
    assert response.status_code == 409
    assert (await front.me.get("/v1/principals")).status_code == 200


@pytest.mark.parametrize(("method", "path"), [("POST", ""), ("GET", ""), ("DELETE", "/me")])
async def test_principals_are_for_administrators(front: RunningFront, method: str, path: str) -> None:
    async with front.as_principal("lead", "read", "override", "operate", "audit", "approve") as lead:
        response = await lead.request(method, f"/v1/principals{path}", json=NEW)
    assert (response.status_code, response.json()["code"]) == (403, "role")


async def test_a_principal_is_looked_up_again_when_its_time_is_over(front: RunningFront) -> None:
    clock = [0.0]
    authenticator = Authenticator(front.house.of_principal, 3.0, lambda: clock[0])
    token = front.house.token_of("somebody", "read")
    assert (await authenticator.authenticate(token)).roles == ("read",)
    front.house.token_of("somebody", "submit")
    assert (await authenticator.authenticate(token)).roles == ("read",)
    clock[0] = 3.1
    assert (await authenticator.authenticate(token)).roles == ("submit",)


async def test_a_principal_that_changes_while_it_is_looked_up_is_not_remembered(front: RunningFront) -> None:
    read, let = asyncio.Event(), asyncio.Event()

    async def held_up(subject: str, body: bytes, timeout_s: float) -> bytes:
        reply = await front.house.transport(subject, body, timeout_s)
        read.set()
        await let.wait()
        return reply

    def memory(project: str, principal: str | None) -> Memory:
        return Memory(held_up, "router", front.house.of_principal(project, principal).origin, front.house.now)

    token = front.house.token_of("somebody", "read")
    authenticator = Authenticator(memory, 3.0, lambda: 0.0)
    asked = asyncio.create_task(authenticator.authenticate(token))
    await read.wait()
    front.house.token_of("somebody", "submit")
    authenticator.forget()
    let.set()
    await asked
    assert (await authenticator.authenticate(token)).roles == ("submit",)


def letter(front: RunningFront, name: str, state: str = "dead", **more: Any) -> None:
    body = {"code": "invalid", "problems": [{"field": "kind", "problem": "is required"}], "headers": {"ce-id": "1"}}
    body |= {"subject": "intake.orders.task", "body": "{}", "consumer": "router", "message_id": "m1", "state": state}
    body |= more
    front.house.put("dead_letters", name, body)


async def test_a_dead_letter_is_retried_with_all_like_it(front: RunningFront) -> None:
    for name in ("a1", "a2", "a3", "a4"):
        letter(front, name)
    letter(front, "b", code="conflict")
    letter(front, "c", consumer="lineage")
    letter(front, "d", "retry")
    letter(front, "e", subject="intake.orders.outcome")
    reply = await front.me.post("/v1/dead-letters/a1/retry-alike", params={"limit": 3})
    assert reply.status_code == 202, reply.text
    first = reply.json()
    assert (first["retried"], first["refused"]) == (["a4", "a3"], [])
    second = (
        await front.me.post("/v1/dead-letters/a1/retry-alike", params={"limit": 3, "cursor": first["next_cursor"]})
    ).json()
    assert (second["retried"], second["next_cursor"]) == (["a2", "a1"], None)
    kept = front.house.kept("dead_letters")
    assert {name for name in kept if kept[name]["state"] == "dead"} == {"b", "c", "e"}
    again = (await front.me.post("/v1/dead-letters/a1/retry-alike")).json()
    assert (again["retried"], again["refused"]) == ([], [])


async def test_dead_letters_are_listed_shown_and_asked_to_be_retried_once(front: RunningFront) -> None:
    letter(front, "l1")
    letter(front, "l2", "retry")
    listed = (await front.me.get("/v1/dead-letters")).json()
    assert [each["dead_letter_id"] for each in listed["items"]] == ["l2", "l1"]
    dead = (await front.me.get("/v1/dead-letters", params={"state": "dead"})).json()
    assert [each["dead_letter_id"] for each in dead["items"]] == ["l1"]
    shown = (await front.me.get("/v1/dead-letters/l1")).json()
    assert (shown["code"], shown["problems"][0]["field"], shown["headers"]) == ("invalid", "kind", {"ce-id": "1"})
    retried = await front.me.post("/v1/dead-letters/l1/retry")
    assert (retried.status_code, retried.json()["state"]) == (202, "retry")
    kept = front.house.kept("dead_letters")["l1"]
    assert (kept["state"], kept["retried_by"], kept["body"]) == ("retry", "me", "{}")
    assert (await front.me.post("/v1/dead-letters/l1/retry")).status_code == 409


@pytest.mark.parametrize(
    ("method", "path"), [("GET", ""), ("GET", "/l1"), ("POST", "/l1/retry"), ("POST", "/l1/retry-alike")]
)
async def test_dead_letters_are_for_those_who_operate(front: RunningFront, method: str, path: str) -> None:
    letter(front, "l1")
    async with front.as_principal("lead", "read", "override", "audit", "submit") as lead:
        response = await lead.request(method, f"/v1/dead-letters{path}")
    assert (response.status_code, response.json()["code"]) == (403, "role")
    assert front.house.kept("dead_letters")["l1"]["state"] == "dead"


async def test_a_letter_that_is_not_there_is_404(front: RunningFront) -> None:
    assert (await front.me.get("/v1/dead-letters/nobody")).status_code == 404
    assert (await front.me.post("/v1/dead-letters/nobody/retry")).status_code == 404


async def test_the_audit_log_is_checked_for_those_who_audit(front: RunningFront) -> None:
    front.house.report = {"ok": False, "broken": ["leaf 3 was changed"]}
    async with front.as_principal("auditor", "audit") as auditor:
        response = await auditor.get("/v1/audit/verify", params={"task_id": "t1"})
    assert (response.status_code, response.json()) == (200, front.house.report)
    async with front.as_principal("lead", "read", "operate") as lead:
        assert (await lead.get("/v1/audit/verify")).status_code == 403


async def test_a_task_of_which_the_audit_log_knows_nothing_is_404(front: RunningFront) -> None:
    front.house.report = {"ok": True, "leaves": 0}
    response = await front.me.get("/v1/audit/verify", params={"task_id": "nope"})
    assert (response.status_code, response.json()["code"]) == (404, "unknown_task")
    assert (await front.me.get("/v1/audit/verify")).status_code == 200
