"""On the running stack: what happens to a task reaches its receiver, also when the router is killed on the way."""

import asyncio
import base64
import os
import random
import signal
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import timedelta
from typing import Any

import httpx
import pytest
import pytest_asyncio
from agents.hook_receiver import HookReceiver, HookRequest, Reply, hook_receiver
from flows.incident_front import Front, event, live
from flows.own_stack import own_stack
from typer.testing import CliRunner

from counterpoint.cli.main import app
from counterpoint.local.stack import Stack
from counterpoint.proto.messages import utc_now

pytestmark = pytest.mark.timeout(120)
SECRET = "whsec_" + base64.b64encode(b"0" * 32).decode()
TOKEN = "xoxb-hush-hush-token"
CASCADE_S = 90
"""Time that a slow machine may need for a cascade."""


@pytest_asyncio.fixture(scope="module")
async def hook() -> AsyncIterator[HookReceiver]:
    async with hook_receiver() as receiver:
        yield receiver


@pytest_asyncio.fixture(scope="module")
async def slack() -> AsyncIterator[HookReceiver]:
    async with hook_receiver() as receiver:
        receiver.reply = Reply(body={"ok": True, "channel": "C1", "ts": "1.2"})
        yield receiver


@pytest_asyncio.fixture(scope="module")
async def receiver_stack(
    hook: HookReceiver, slack: HookReceiver, tmp_path_factory: pytest.TempPathFactory
) -> AsyncIterator[Stack]:
    """A stack that tells both receivers."""
    file = tmp_path_factory.mktemp("notified") / "receivers.toml"
    file.write_text(
        f'[[receiver]]\nname = "chat"\nkind = "slack"\nurl = "{slack.url}"\nsecret = "{TOKEN}"\n'
        'channel = "C1"\nprivate = true\nprojects = ["chatty"]\nwait_s = 0\n'
        f'[[receiver]]\nname = "grouped"\nkind = "slack"\nurl = "{slack.url}"\nsecret = "{TOKEN}"\n'
        f'channel = "C2"\nprivate = true\nprojects = ["cascades"]\nwait_s = {CASCADE_S}\n'
    )
    times = [(utc_now() + timedelta(seconds=8 * number)).strftime("%H:%M:%S") for number in range(1, 25)]
    with file.open("a") as more:
        more.write(
            f'[[receiver]]\nname = "digest"\nkind = "slack"\nurl = "{slack.url}/digest"\nprivate = true\n'
            f'projects = ["digested"]\ndigest = {{at = {times}, unless = "urgent"}}\n'
        )
    file.chmod(0o600)
    async with own_stack(
        COUNTERPOINT_NOTIFY_URL=f"{hook.url}/events",
        COUNTERPOINT_NOTIFY_SECRET=SECRET,
        COUNTERPOINT_NOTIFY_PRIVATE="true",
        COUNTERPOINT_NOTIFY_FILE=str(file),
        COUNTERPOINT_NOTIFY_TIMEOUT_S="1",
    ) as started:
        yield started


@asynccontextmanager
async def front(stack: Stack) -> AsyncIterator[httpx.AsyncClient]:
    headers = {"Authorization": f"Bearer {stack.endpoints.token}"}
    async with httpx.AsyncClient(base_url=stack.endpoints.http, headers=headers, timeout=60) as http:
        yield http


async def submit(http: httpx.AsyncClient, project: str, task_id: str) -> None:
    body = {
        "kind": "troubleshoot",
        "description": "orders failed",
        "error_message": "no route to db",
        "project": project,
    }
    (await http.post("/v1/tasks", json={**body, "task_id": task_id})).raise_for_status()


async def dead_letters(http: httpx.AsyncClient, project: str) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = (await http.get("/v1/dead-letters", params={"project": project})).json()["items"]
    return found


def of_task(receiver: HookReceiver, task_id: str) -> list[HookRequest]:
    return [one for one in receiver.received if task_id.encode() in one.content]


async def until(receiver: HookReceiver, wanted: Any, timeout_s: float = 60) -> None:
    async with asyncio.timeout(timeout_s), receiver.changed:
        await receiver.changed.wait_for(wanted)


async def test_an_escalation_and_its_end_are_told_and_the_chat_message_is_updated(
    receiver_stack: Stack, hook: HookReceiver, slack: HookReceiver
) -> None:
    async with front(receiver_stack) as http:
        await submit(http, "chatty", "told-1")
        await until(hook, lambda: len(of_task(hook, "told-1")) >= 1)
        await until(slack, lambda: len(of_task(slack, "told-1")) >= 1)
        outcome = {"outcome": "succeeded", "note": "added the route"}
        (await http.post("/v1/tasks/told-1/outcome", params={"project": "chatty"}, json=outcome)).raise_for_status()
        await until(hook, lambda: len(of_task(hook, "told-1")) >= 2)
        await until(slack, lambda: "is resolved" in str(slack.received[-1].json))
    events = [one.json["type"] for one in of_task(hook, "told-1")]
    assert events == ["counterpoint.task.escalated.v1", "counterpoint.task.completed.v1"]
    assert all(one.headers["webhook-signature"].startswith("v1,") for one in of_task(hook, "told-1"))
    first, last = slack.received[0], slack.received[-1]
    assert (first.path, last.path) == ("/api/chat.postMessage", "/api/chat.update")
    assert (last.json["channel"], last.json["ts"]) == ("C1", "1.2")
    assert first.headers["authorization"] == f"Bearer {TOKEN}"
    words = ["replay", "told-1", "--project", "chatty", "--data-dir", str(receiver_stack.data_dir)]
    replayed = await asyncio.to_thread(CliRunner().invoke, app, words)
    assert replayed.exit_code == 0, replayed.output


async def test_a_router_that_is_killed_loses_nothing_and_repeats_only_under_the_same_key(
    receiver_stack: Stack, hook: HookReceiver
) -> None:
    """Killed before a call, while one hangs and after one was answered, as often as the loop meets them."""
    tasks = [f"killed-{number}" for number in range(6)]
    async with front(receiver_stack) as http:
        hook.replies = [Reply(), Reply(hangs=True), Reply()]
        seen = len(hook.received)
        for task in tasks:
            await submit(http, "quiet", task)
    for number in (1, 2):
        await until(hook, lambda enough=seen + number: len(hook.received) >= enough)
        before = receiver_stack.endpoints.services["router"].pid
        os.kill(before, signal.SIGKILL)
        while receiver_stack.endpoints.services["router"].pid == before:  # noqa: ASYNC110 - the supervisor restarts it
            await asyncio.sleep(0)
    await until(hook, lambda: all(len(of_task(hook, task)) >= 1 for task in tasks))
    async with front(receiver_stack) as http:
        await submit(http, "quiet", "killed-last")
        await until(hook, lambda: len(of_task(hook, "killed-last")) >= 1)
    for task in tasks:
        assert len({one.headers["webhook-id"] for one in of_task(hook, task)}) == 1


async def test_a_digest_is_sent_at_its_time(receiver_stack: Stack, slack: HookReceiver) -> None:
    def told() -> list[HookRequest]:
        return [one for one in slack.received if one.path == "/digest"]

    async with front(receiver_stack) as http:
        for number in (1, 2):
            await submit(http, "digested", f"digested-{number}")
        await until(slack, lambda: sum(one.content.count(b"needs you") for one in told()) >= 2)
    assert all(one.json["text"].startswith("digested: ") for one in told())
    assert len(told()) <= 2


@pytest.mark.slow
@pytest.mark.timeout(400)
async def test_a_cascade_of_two_hundred_failed_tasks_is_one_message(receiver_stack: Stack, slack: HookReceiver) -> None:
    """In any order: most failures are incidents of their own until their cause arrives."""
    events = [event("FAIL", 1, "root.load", "r0", task=True, parent=("root", "f0"), writes=["t0"],
                    error="DiskFull: no space left on device")]  # fmt: skip
    for at in range(1, 201):
        part = {"parent": (f"d{at}", f"f{at}"), "task": True, "reads": [f"t{at // 2}"], "writes": [f"t{at}"]}
        events.append(event("FAIL", at + 2, f"d{at}.use", f"r{at}", error=f"FileNotFound: input {at}", **part))
    random.Random(3).shuffle(events)
    async with httpx.AsyncClient(timeout=60) as client:
        lineage = Front(receiver_stack, "cascades", client)
        await lineage.post(events)

        def is_whole(found: list[dict[str, Any]]) -> bool:
            standing = live(found)
            return len(standing) == 1 and standing[0]["context"].get("affected_count") == 200

        (task,) = live(await lineage.until(is_whole, CASCADE_S))
        await until(slack, lambda: of_task(slack, task["task_id"]), 2 * CASCADE_S)
        await lineage.report(task["task_id"], "made room")
        await until(slack, lambda: any("is resolved" in str(one.json) for one in of_task(slack, task["task_id"])))
    told = [one for one in slack.received if one.json.get("channel") in ("C1", "C2") and "cascades" in str(one.json)]
    assert [one.path for one in told] == ["/api/chat.postMessage", "/api/chat.update"]
    assert told[0].json["text"] == "root.load failed: DiskFull: no space left on device needs you"
    assert "200" in told[1].content.decode()


async def test_a_dead_letter_is_retried(receiver_stack: Stack, hook: HookReceiver) -> None:
    hook.replies = [Reply(410)]
    async with front(receiver_stack) as http:
        await submit(http, "gone", "gone-1")
        await until(hook, lambda: len(of_task(hook, "gone-1")) >= 1)
        async with asyncio.timeout(120):
            while not (letters := await dead_letters(http, "gone")):  # noqa: ASYNC110
                await asyncio.sleep(0)
        (letter,) = letters
        assert "HTTP 410" in str(letter)
        path = f"/v1/dead-letters/{letter['dead_letter_id']}/retry"
        (await http.post(path, params={"project": "gone"})).raise_for_status()
        await until(hook, lambda: len(of_task(hook, "gone-1")) >= 2)
    first, second = of_task(hook, "gone-1")
    assert first.headers["webhook-id"] == second.headers["webhook-id"]
