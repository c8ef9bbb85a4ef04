"""Plants a secret in every part of lessons: over HTTP, and in pages that the command imports."""

import asyncio
import os
import sys
import tempfile
from pathlib import Path
from typing import Any

import httpx
from flows.planted_secrets import KEY, leaves, replaced, spelled

from counterpoint.local.endpoints import Endpoints

_WORDS = ("by", "by_kind", "override_by", "summary", "outcome_error", "note", "cause", "verification", "reason")
_TIME = "2026-11-20T12:00:00Z"
_PAGES = 14


def lesson(number: int) -> dict[str, Any]:
    """A lesson with every field."""
    attempt = {"id": f"planted-lesson-{number}-1", "attempt": 1, "tried": "Restart the load", "outcome": "failed"}
    attempt |= {"at": _TIME, "decided_at": _TIME, "constraints": ["keep the table"], "changed": ["the schema"]}
    failure = {"title": "Load", "description": "The load of the orders failed", "error_message": "no route"}
    failure |= {"error_signature": "e1", "systems": ["s3"], "job": {"namespace": "etl", "name": "daily"}}
    failure |= {"source": "wiki/load.md", "submitted_by": "ann", "submitted_at": _TIME, "ended_at": _TIME}
    failure |= {"resolution": "resolved", "cited": ["The load needs a route"]}
    fixed = {**attempt, "id": f"planted-lesson-{number}-2", "attempt": 2, "outcome": "succeeded"}
    words = dict.fromkeys(_WORDS, "said")
    return {"id": f"planted-lesson-{number}", "failure": failure, "attempts": [attempt, {**fixed, **words}]}


async def lessons(planted: Any, api: httpx.AsyncClient, project: str) -> None:
    """Import lessons with a secret in one place each; a door that takes one is noted as 200."""
    door, places = "lessons", [*leaves(lesson(0)), (KEY,), ("failure", KEY), ("attempts", 1, KEY)]
    turn = asyncio.Semaphore(8)

    async def one(number: int, place: Any) -> None:
        secret = planted.take(door, spelled(place))
        path = (*place[:-1], secret.text) if place[-1] == KEY else place
        value = replaced(lesson(number), path, "x" if place[-1] == KEY else secret.text)
        async with turn:
            reply = await api.post("/v1/lessons", params={"project": project}, json={"lessons": [value]})
        is_taken = reply.is_success and any(each["status"] == "added" for each in reply.json()["attempts"])
        planted.statuses.append((door, 200 if is_taken else 422))

    await asyncio.gather(*(one(number, place) for number, place in enumerate(places)))


async def pages(planted: Any, endpoints: Endpoints, home: Path, project: str) -> None:
    """Import pages of lessons by the command, which were exported and then edited, with a secret in each."""
    at = ("--url", endpoints.http, "--token", endpoints.token, "--project", project, "--json")
    with tempfile.TemporaryDirectory(prefix="counterpoint-") as folder:
        await _command(home, "lessons", "export", folder, *at)
        _edit(planted, Path(folder))
        printed = await _command(home, "lessons", "import", folder, *at)
    planted.statuses.append(("lesson page", 200 if b'"status": "edited"' in printed else 422))


def _edit(planted: Any, folder: Path) -> None:
    for path in sorted(folder.glob("*.md"))[:_PAGES]:
        secret = planted.take("lesson page", path.name)
        path.write_text(path.read_text().replace("Restart the load", f"Restart it {secret.text}"))


async def _command(home: Path, *words: str) -> bytes:
    process = await asyncio.create_subprocess_exec(
        str(Path(sys.executable).with_name("counterpoint")),
        *words,
        env={"PATH": os.environ["PATH"], "HOME": str(home)},
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.DEVNULL,
    )
    printed, _ = await process.communicate()
    return printed
