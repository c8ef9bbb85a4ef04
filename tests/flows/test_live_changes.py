"""An observer hears of every commit of a task, whether a service acts on it or not, and of every decision."""

import asyncio
import json

import httpx
import nats
from nats.aio.msg import Msg

from counterpoint.local.stack import Stack


async def test_an_observer_hears_of_the_commits_of_every_service(
    stack: Stack, http: httpx.AsyncClient, project: str
) -> None:
    observer = stack.endpoints.users["observer"]
    client = await nats.connect(
        stack.endpoints.nats, user=observer.user, password=observer.password,
        inbox_prefix=observer.inbox_prefix.encode(),
    )  # fmt: skip
    heard: dict[str, list[str]] = {}
    complete = asyncio.Event()
    decided: list[str] = []

    async def received(message: Msg) -> None:
        changed = json.loads(message.data)
        assert message.subject == f"live.changes.{project}.{changed['service']}"
        heard.setdefault(changed["service"], []).extend(write["store"] for write in changed["writes"])
        if {"router", "manager", "developer", "lineage"} <= heard.keys():
            complete.set()

    async def decision(message: Msg) -> None:
        made = json.loads(message.data)
        assert message.subject == f"live.decisions.{project}.{made['agent']}"
        decided.append(made["decision_id"])

    try:
        await client.subscribe(f"live.decisions.{project}.>", cb=decision)
        await client.subscribe(f"live.changes.{project}.>", cb=received)
        await client.flush()
        body = {"text": "# Parrots\n\nThe office parrot is fed by Ada at noon.\n", "source": "parrots.md"}
        await http.post("/v1/documents", json={"documents": [body], "project": project})
        task = {"kind": "question", "description": "Who feeds the office parrot?", "project": project}
        asked = (await http.post("/v1/tasks", json=task, headers={"Prefer": "wait=30"})).raise_for_status().json()
        await asyncio.wait_for(complete.wait(), 30)
        line = await http.get(f"/v1/tasks/{asked['task_id']}/line", params={"project": project})
    finally:
        await client.close()
    assert {"documents", "chunks"} <= {*heard["memory"]}
    assert "submissions" in heard["router"]
    assert heard["manager"].count("tasks") == 2
    assert {"actions", "decisions"} <= {*heard["developer"]}
    assert "edges" in heard["lineage"]
    assert sorted(decided) == sorted(each["decision_id"] for each in line.json()["decisions"])
