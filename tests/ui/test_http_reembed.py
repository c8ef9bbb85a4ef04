"""Changing the model over HTTP and on the command line."""

import json
from typing import Any

import pytest
from ui.cli_server import playing
from ui.command_runner import run
from ui.http_front import RunningFront

from counterpoint.proto.commands import ChangeEmbeddingModel
from counterpoint.proto.memory import Reembed

NOW = {
    "active": "old", "dimensions": 384, "state": "filling", "other": "new", "other_dimensions": 384, "vectors": 3,
    "of": 9, "refused": 0, "refused_records": [], "unindexed": [], "problem": None, "per_s": 20.0,
}  # fmt: skip
READY = NOW | {"state": "ready", "vectors": 8, "refused": 1, "unindexed": ["orders"], "refused_records": [
    {"project": "orders", "store": "chunks", "id": "c-1", "reason": "label"}]}  # fmt: skip


async def test_requests_are_handed_on_to_memory(front: RunningFront) -> None:
    front.house.report = NOW
    assert (await front.me.get("/v1/reembed")).json() == NOW
    body = {"act": "switch", "model": "new", "unindexed": True, "soon": 1}
    assert (await front.me.post("/v1/reembed", json=body)).json() == NOW | {"ignored": ["soon"]}
    assert front.house.asked == [Reembed(), ChangeEmbeddingModel(act="switch", model="new", unindexed=True)]
    for wrong in ({}, {"act": "status"}, {"act": "begin", "model": ""}, {"act": "begin", "model": "m" * 300}):
        response = await front.me.post("/v1/reembed", json=wrong)
        assert (response.status_code, bool(response.json()["errors"])) == (422, True)


@pytest.mark.parametrize("method", ["GET", "POST"])
async def test_changing_the_model_needs_the_role_operate(front: RunningFront, method: str) -> None:
    async with front.as_principal("lead", "read", "override", "audit", "approve", "admin") as lead:
        response = await lead.request(method, "/v1/reembed", json={"act": "drop"})
    assert (response.status_code, response.json()["code"]) == (403, "role")
    assert front.house.asked == []


# The command


def test_the_command_begins_follows_and_switches(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("counterpoint.cli.commands.reembed._LOOK_S", 0)
    switched = NOW | {"active": "new", "other": "old", "state": "kept", "vectors": 9}
    with playing() as api:
        api.on("POST /v1/reembed", (200, NOW), (200, switched))
        api.on("GET /v1/reembed", (200, NOW | {"vectors": 5, "problem": "it is away"}), (200, READY))
        done = run("reembed", "new", "--switch", "--unindexed", *api.options())
        assert (done.exit_code, "active model: new" in done.stdout, "--rollback" in done.stdout) == (0, True, True)
        assert "3 of 9 vectors\n5 of 9 vectors; waiting: it is away\n" in done.stderr
        assert [each.body for each in api.asked if each.body] == [
            {"act": "begin", "model": "new"}, {"act": "switch", "model": "new", "unindexed": True},
        ]  # fmt: skip


def test_how_far_it_is_is_shown() -> None:
    with playing() as api:
        api.on("GET /v1/reembed", (200, READY))
        shown = run("reembed", *api.options())
        wanted = ("active model: old", "new is ready: 8 of 9", "orders chunks/c-1: label", "no index yet: orders")
        assert [each for each in wanted if each not in shown.stdout] == []
        assert json.loads(run("reembed", "--json", *api.options()).stdout) == READY
        api.on("GET /v1/reembed", (200, NOW | {"state": "none"}))
        assert run("reembed", *api.options()).stdout == "active model: old: 3 of 9 vectors\n"


@pytest.mark.parametrize("act", ["rollback", "drop"])
def test_one_command_goes_back_or_forgets(act: str) -> None:
    with playing() as api:
        api.on("POST /v1/reembed", (200, NOW | {"state": "none"}))
        assert run("reembed", f"--{act}", *api.options()).exit_code == 0
        assert api.asked[0].body == {"act": act}
        assert run("reembed", "--rollback", "--drop", *api.options()).exit_code == 2


def test_interrupting_the_command_says_that_embedding_continues(monkeypatch: pytest.MonkeyPatch) -> None:
    def stopped(seconds: float) -> Any:
        raise KeyboardInterrupt

    with playing() as api:
        api.on("POST /v1/reembed", (200, NOW))
        monkeypatch.setattr("counterpoint.cli.commands.reembed.time.sleep", stopped)
        ended = run("reembed", "new", *api.options())
        assert (ended.exit_code, "embedding continues in the background" in ended.stderr) == (1, True)
