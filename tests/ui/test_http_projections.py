"""Cypher and rebuilds over HTTP and by the command line: on a router alone, and on the whole house."""

import asyncio
import json
import os
import sys
from pathlib import Path
from typing import Any

import httpx
import pytest
from ui.cli_server import playing
from ui.command_runner import run
from ui.http_front import RunningFront

from counterpoint.local.stack import Stack
from counterpoint.proto.commands import RebuildProjection
from counterpoint.proto.memory import Cypher, Rebuild

COMMAND = Path(sys.executable).with_name("counterpoint")


async def test_a_query_is_handed_on_and_its_rows_are_shown(front: RunningFront) -> None:
    front.house.report = {"columns": ["n"], "rows": [[1]], "cut": True}
    body = {"query": "RETURN $n AS n", "parameters": {"n": 1}, "limit": 1, "timeout_ms": 20, "depth": 3}
    shown = await front.me.post("/v1/cypher", json=body)
    assert shown.json() == front.house.report | {"took_us": 7, "ignored": ["depth"]}
    assert front.house.asked == [Cypher(query="RETURN $n AS n", parameters={"n": 1}, limit=1, timeout_ms=20)]


@pytest.mark.parametrize(
    "body", [{}, {"query": ""}, {"query": "RETURN 1", "limit": 0}, {"query": "x", "timeout_ms": 9e9}]
)
async def test_an_invalid_cypher_request_is_422(front: RunningFront, body: dict[str, Any]) -> None:
    response = await front.me.post("/v1/cypher", json=body)
    assert response.status_code == 422
    assert response.json()["errors"]


@pytest.mark.parametrize(
    ("method", "path"), [("POST", "cypher"), ("POST", "rebuild/graph"), ("GET", "rebuild/episodic")]
)
async def test_cypher_and_rebuilds_need_the_role_operate(front: RunningFront, method: str, path: str) -> None:
    async with front.as_principal("lead", "read", "override", "audit", "approve", "admin") as lead:
        response = await lead.request(method, f"/v1/{path}", json={"query": "RETURN 1"})
    assert (response.status_code, response.json()["code"]) == (403, "role")
    assert front.house.asked == []


async def test_a_rebuild_is_started_and_looked_at(front: RunningFront) -> None:
    front.house.report = {"project": "default", "state": "running", "records": 3, "of": 9, "problem": None}
    started = await front.me.post("/v1/rebuild/graph")
    assert (started.status_code, started.json()) == (202, front.house.report | {"tier": "graph"})
    assert (await front.me.get("/v1/rebuild/graph")).json() == started.json()
    assert front.house.asked == [RebuildProjection(tier="graph"), Rebuild(tier="graph")]
    assert (await front.me.post("/v1/rebuild/record")).status_code == 422


# The commands


def test_the_rows_are_printed_and_there_is_more() -> None:
    with playing() as api:
        found = {"columns": ["kind", "n"], "rows": [["search", 2], [None, [1]]], "cut": True, "took_us": 5}
        api.on("POST /v1/cypher", (200, found))
        asked = ("cypher", "RETURN $a, $b", "--parameter", "a=1", "--parameter", "b=task-1", "-n", "2", "-p", "orders")
        printed = run(*asked, *api.options())
        assert printed.exit_code == 0, printed.output
        assert [word for word in ("kind", "search", "null", "[1]", "there is more") if word not in printed.stdout] == []
        assert api.asked[0].body == {
            "query": "RETURN $a, $b", "parameters": {"a": 1, "b": "task-1"}, "limit": 2, "timeout_ms": 1000,
            "project": "orders",
        }  # fmt: skip
        assert json.loads(run(*asked, "--json", *api.options()).stdout) == found
        assert run("cypher", "RETURN 1", "--parameter", "a", *api.options()).exit_code == 2


def test_a_rebuild_is_waited_for_and_its_progress_is_shown(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("counterpoint.cli.commands.rebuild._LOOK_S", 0)
    progress = {"project": "default", "tier": "graph", "state": "running", "records": 1, "of": 4}
    with playing() as api:
        api.on("POST /v1/rebuild/graph", (202, progress))
        api.on(
            "GET /v1/rebuild/graph", (200, progress | {"records": 3}), (200, progress | {"state": "done", "records": 4})
        )
        done = run("rebuild", "graph", *api.options())
        assert (done.exit_code, done.stdout) == (0, "graph of default is rebuilt: 4 records\n")
        assert "1 of 4 records\n3 of 4 records\n" in done.stderr
        api.on("GET /v1/rebuild/graph", (200, progress | {"state": "failed", "problem": "it is away"}))
        failed = run("rebuild", "graph", *api.options())
        assert (failed.exit_code, "it is away" in failed.stdout) == (1, True)
        assert run("rebuild", "record", *api.options()).exit_code == 2


async def test_the_whole_house_answers(stack: Stack, http: httpx.AsyncClient, project: str) -> None:
    made = await http.post("/v1/tasks", json={"kind": "question", "description": "Why?", "project": project})
    task = made.json()["task_id"]
    await http.get(f"/v1/tasks/{task}", params={"project": project, "wait": 20})
    line = (await http.get(f"/v1/tasks/{task}/line", params={"project": project})).json()
    query = "MATCH (a:Action)-[:PART_OF]->(:Task {task_id: $task}) RETURN a.action_id ORDER BY a.seq"
    body = {"query": query, "parameters": {"task": task}, "project": project}
    rows = (await http.post("/v1/cypher", json=body)).json()["rows"]
    assert len(rows) >= 2
    assert [row[0] for row in rows][: len(line["items"])] == [action["action_id"] for action in line["items"]]
    refused = await http.post("/v1/cypher", json={"query": "MATCH (a) DELETE a", "project": project})
    assert (refused.status_code, refused.json()["code"]) == (422, "cypher")
    environment = os.environ | {"COUNTERPOINT_DATA_DIR": str(stack.data_dir), "COUNTERPOINT_PROJECT": project}
    for tier in ("graph", "episodic"):
        process = await asyncio.create_subprocess_exec(COMMAND, "rebuild", tier, env=environment)
        assert await asyncio.wait_for(process.wait(), 60) == 0
    assert (await http.post("/v1/cypher", json=body)).json()["rows"] == rows
