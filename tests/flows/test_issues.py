"""On the running stack: a task is an issue of a forge, what people do there arrives, and a kill doubles nothing."""

import asyncio
import hashlib
import hmac
import json
import os
import signal
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Any

import httpx
import pytest
import pytest_asyncio
from agents.forge_repository import ForgeRequest
from agents.scripted_forge import ScriptedForge, scripted_forge
from flows.found_secrets import Needles, in_files, in_streams, in_tables, quiet
from flows.own_stack import own_stack
from flows.planted_secrets import Mint

from counterpoint.local.stack import Stack

pytestmark = pytest.mark.timeout(180)
SECRET = "the-secret-of-the-webhook"
PROJECT = "tracked"


@pytest_asyncio.fixture(scope="module")
async def forge() -> AsyncIterator[ScriptedForge]:
    async with scripted_forge("gitea") as started:
        yield started


@pytest_asyncio.fixture(scope="module")
async def tracker_stack(forge: ScriptedForge, tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Stack]:
    """A stack with a tracker, and a source of its webhooks."""
    folder = tmp_path_factory.mktemp("tracked")
    trackers, hooks = folder / "trackers.toml", folder / "hooks.toml"
    trackers.write_text(
        f'[[tracker]]\nname = "shop"\nkind = "gitea"\nurl = "{forge.url}"\nrepo = "{forge.repo}"\n'
        f'token = "{forge.token}"\nproject = "{PROJECT}"\nprivate = true\nusers = {{ann = "ann"}}\n'
    )
    hooks.write_text(
        f'[[source]]\nname = "forge"\nkind = "gitea"\nsecret = "{SECRET}"\nprincipal = "forge"\nproject = "{PROJECT}"\n'
    )
    for file in (trackers, hooks):
        file.chmod(0o600)
    async with own_stack(
        inspect=True,
        COUNTERPOINT_ISSUES_FILE=str(trackers),
        COUNTERPOINT_ISSUES_TIMEOUT_S="2",
        COUNTERPOINT_HOOKS_FILE=str(hooks),
    ) as started:
        async with front(started) as http:
            for name, kind, roles in (("ann", "person", ["report", "read"]), ("forge", "system", ["submit"])):
                body = {"name": name, "kind": kind, "roles": roles, "projects": [PROJECT]}
                (await http.post("/v1/principals", json=body)).raise_for_status()
        yield started


@asynccontextmanager
async def front(stack: Stack) -> AsyncIterator[httpx.AsyncClient]:
    headers = {"Authorization": f"Bearer {stack.endpoints.token}"}
    async with httpx.AsyncClient(
        base_url=stack.endpoints.http, headers=headers, params={"project": PROJECT}, timeout=60
    ) as http:
        yield http


async def submit(http: httpx.AsyncClient, task_id: str) -> None:
    body = {"kind": "troubleshoot", "description": f"{task_id} failed", "error_message": f"no route to {task_id}"}
    (await http.post("/v1/tasks", json={**body, "task_id": task_id, "project": PROJECT})).raise_for_status()


async def push(stack: Stack, event: str, body: dict[str, Any], refused: int = 202) -> dict[str, Any]:
    """A webhook of the forge, signed; it is taken, or refused with a status that is allowed."""
    content = json.dumps(body).encode()
    headers = {
        "X-Gitea-Event": event,
        "X-Gitea-Signature": hmac.new(SECRET.encode(), content, hashlib.sha256).hexdigest(),
    }
    async with httpx.AsyncClient(base_url=stack.endpoints.http, timeout=60) as outside:
        answer = await outside.post("/hooks/forge", content=content, headers=headers)
    assert answer.status_code in (202, refused), answer.text
    reply: dict[str, Any] = answer.json()
    return reply


def about(forge: ScriptedForge, number: int, action: str) -> dict[str, Any]:
    issue = forge.issues[number]
    shown = {
        "number": number,
        "title": issue.title,
        "body": issue.body,
        "html_url": f"{forge.url}/{forge.repo}/issues/{number}",
    }
    return {"action": action, "issue": shown, "repository": {"html_url": f"{forge.url}/{forge.repo}"}}


async def until(forge: ScriptedForge, wanted: Callable[[], object]) -> None:
    """Wait until requests have made something true at the forge."""
    async with asyncio.timeout(90), forge.changed:
        await forge.changed.wait_for(lambda: bool(wanted()))


def issue_of(forge: ScriptedForge, task_id: str) -> int | None:
    found = [issue.number for issue in forge.issues.values() if f"` {task_id} `" in issue.body]
    assert len(found) < 2, f"{task_id} has {len(found)} issues"
    return found[0] if found else None


async def task(http: httpx.AsyncClient, task_id: str) -> dict[str, Any]:
    body: dict[str, Any] = (await http.get(f"/v1/tasks/{task_id}", params={"wait": 20})).json()
    return body


async def test_an_escalation_is_an_issue_whose_end_is_that_of_its_task(
    tracker_stack: Stack, forge: ScriptedForge
) -> None:
    async with front(tracker_stack) as http:
        await submit(http, "opened-1")
        await until(forge, lambda: issue_of(forge, "opened-1"))
        number = issue_of(forge, "opened-1")
        assert number is not None
        opened = await push(tracker_stack, "issues", about(forge, number, "opened"))
        assert opened["arrived"][0]["effect"] == "synced", "our own issue is no task"
        forge.person_closes(number)
        closed = await push(tracker_stack, "issues", about(forge, number, "closed"))
        assert closed["arrived"] == [{"task_id": "opened-1", "effect": "synced", "project": PROJECT}]
        await until(forge, lambda: any("nobody has said" in body for body in forge.bodies(number)))
        ended = await task(http, "opened-1")
        assert (ended["state"], ended["resolution"]) == ("completed", "resolved")
        forge.person_comments(number, "fixed by adding the route")
        await push(tracker_stack, "issue_comment", about(forge, number, "created"))
        async with asyncio.timeout(60):
            while (ended := await task(http, "opened-1")).get("needs"):
                pass
        attempts = (await http.get("/v1/attempts", params={"task_id": "opened-1"})).json()["items"]
    assert "adding the route" in str(attempts)
    assert "counterpoint: needs you" not in forge.issues[number].labels


async def test_no_secret_of_a_text_at_the_forge_is_kept(tracker_stack: Stack, forge: ScriptedForge) -> None:
    mint, secrets, kept, taken = Mint(20261127), list[str](), "kept-of-the-forge", list[bool]()

    def secret() -> str:
        made = mint.secret(str.isprintable)
        secrets.append(made.needle)
        return made.text

    async with front(tracker_stack) as http:
        await submit(http, "planted-1")
        await until(forge, lambda: issue_of(forge, "planted-1"))
        number = issue_of(forge, "planted-1")
        assert number is not None
        forge.person_edits(number, title=f"{kept} {secret()}", body=f"{forge.issues[number].body}\n{secret()}")
        await push(tracker_stack, "issues", about(forge, number, "edited"))
        for _ in range(6):
            forge.person_comments(number, f"{kept} {secret()}")
            forge.person_comments(number, f"fixed by {kept} {secret()}")
            forge.person_comments(number, f"fixed by {kept} {secret()}", by="stranger")
            await push(tracker_stack, "issue_comment", about(forge, number, "created"))
        forge.person_closes(number)
        await push(tracker_stack, "issues", about(forge, number, "closed"))
        for _ in range(6):
            opened = forge.person_opens(f"The load fails {secret()}", f"Why? {kept} {secret()}")
            taken.append(
                "arrived" in await push(tracker_stack, "issues", about(forge, opened.number, "opened"), refused=422)
            )
        assert set(taken) == {True, False}
        async with asyncio.timeout(60):
            while not (await http.get("/v1/attempts", params={"task_id": "planted-1"})).json()["items"]:
                pass
    await quiet(tracker_stack)
    needles = Needles((*secrets, kept))
    found = {**await in_tables(tracker_stack, needles), **await in_streams(tracker_stack, needles)}
    assert found.keys() == {kept}, found
    assert not in_files(tracker_stack.data_dir / "logs", needles)


@pytest.mark.slow
async def test_a_router_that_is_killed_at_a_call_opens_one_issue(tracker_stack: Stack, forge: ScriptedForge) -> None:
    """Killed when the forge has opened the issue and has not answered, and once more when it is searched."""
    kills = 0

    def hang(asked: ForgeRequest) -> bool:
        nonlocal kills
        opening = asked.method == "POST" and asked.path.endswith("/issues") and "killed-1" in str(asked.body)
        if opening and kills == 0:
            forge.answer(asked)
            kills = 1
            return True
        if kills == 1 and asked.path.endswith("/issues") and asked.method == "GET":
            kills = 2
            return True
        return False

    forge.hang = hang
    async with front(tracker_stack) as http:
        await submit(http, "killed-1")
        for number in (1, 2):
            await until(forge, lambda enough=number: kills >= enough)
            before = tracker_stack.endpoints.services["router"].pid
            os.kill(before, signal.SIGKILL)
            while tracker_stack.endpoints.services["router"].pid == before:  # noqa: ASYNC110 - the supervisor restarts it
                await asyncio.sleep(0)
        forge.hang = lambda asked: False
        opened = issue_of(forge, "killed-1")
        assert opened is not None
        await until(forge, lambda: forge.issues[opened].labels)
    assert forge.issues[opened].labels == ["counterpoint", "counterpoint: needs you"]
    assert issue_of(forge, "killed-1") == opened
