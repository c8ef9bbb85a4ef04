"""Streams of decisions over HTTP."""

from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from typing import Any

import httpx
from agents.router_house import NOW, PROJECT
from ui.http_front import Event, Events, RunningFront

from counterpoint.proto.decisions import DecisionMade

DECISIONS = "/v1/decisions/stream"


@asynccontextmanager
async def stream(asker: httpx.AsyncClient, path: str, last: int | None = None, **params: Any) -> AsyncIterator[Events]:
    headers = {"Last-Event-ID": str(last)} if last is not None else {}
    async with asker.stream("GET", path, headers=headers, params=params) as response:
        assert response.status_code == 200
        assert response.headers["content-type"].startswith("text/event-stream")
        assert "no-store" in response.headers["cache-control"]
        assert response.headers["x-accel-buffering"] == "no"
        events = Events(response)
        assert await events.next() == ": open"
        yield events


def decided(front: RunningFront, number: int, project: str = PROJECT) -> None:
    front.house.send(
        DecisionMade(
            decision_id=f"d{number}",
            task_id="t1",
            project=project,
            agent="manager",
            decision_type="plan",
            decision=f"step {number}",
            reasoning="x",
            made_at=NOW,
        ),
        project,
    )


def steps(events: list[Event]) -> Iterator[str]:
    return (event.data["data"]["decision"] for event in events)
