"""Memory is killed again and again while a folder is ingested: in the end every document is there once and whole."""

import asyncio
import json
from collections import Counter
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any

import asyncpg
import httpx
import pytest
from chaos.house import orders_of, stack_of
from typer.testing import CliRunner

from counterpoint.cli.main import app
from counterpoint.local.stack import Stack
from counterpoint.memory.ingest.documents import STEP_WRITES

SMALL, LARGE = 40, 2
KILLS = (("memory.ingesting", 5), ("memory.received", 9), ("memory.committed", 12))
"""Points at which memory is killed, and the number of times it passes them before."""

Kept = tuple[Counter[str], dict[str, list[str]]]


def fill_folder(folder: Path) -> dict[str, list[str]]:
    """The passages of each document of a folder by its source; some are written in several steps."""
    folder.mkdir()
    passages = {}
    for n in range(LARGE + SMALL):
        many = STEP_WRITES * 2 + 20 if n < LARGE else 1 + n % 4
        passages[f"docs/{n:02d}.md"] = [f"# Part {n}-{k}\n\nPump {n} has the seal {k}." for k in range(many)]
        (folder / f"{n:02d}.md").write_text("\n\n".join(passages[f"docs/{n:02d}.md"]))
    return passages


async def stored_documents(stack: Stack, project: str) -> Kept:
    """Return the count of each document and its passages in order; assert that each is indexed at its version."""
    connection = await asyncpg.connect(stack.endpoints.engines["postgres"].dsn)
    try:
        await connection.execute("SELECT set_config('counterpoint.project', $1, false)", project)
        rows = await connection.fetch(
            "SELECT store, r.version, body, v.version AS searched FROM records r"
            " LEFT JOIN vectors v USING (project, store, id)"
            " WHERE project = $1 AND store IN ('documents', 'chunks') AND body IS NOT NULL ORDER BY id",
            project,
        )
    finally:
        await connection.close()
    passages: dict[str, list[str]] = {}
    documents = Counter[str]()
    for row in rows:
        body = json.loads(row["body"])
        if row["store"] == "chunks":
            assert row["version"] == row["searched"]
            passages.setdefault(body["source"], []).append(body["text"])
        else:
            documents[body["source"]] += 1
    return documents, passages


async def cut_short(stack: Stack, project: str, passages: dict[str, list[str]], order: Path) -> None:
    """Hand all in at once, until memory has ended by its order and is there again."""
    documents = [{"source": source, "text": "\n\n".join(each)} for source, each in passages.items()]
    headers = {"Authorization": f"Bearer {stack.endpoints.token}"}
    killed = stack.endpoints.services["memory"].pid
    await stack.ready("router")
    async with httpx.AsyncClient(base_url=stack.endpoints.http, headers=headers, timeout=120) as http:
        handing_in = asyncio.create_task(http.post("/v1/documents", json={"documents": documents, "project": project}))
        while await asyncio.to_thread(order.exists):
            assert not handing_in.done(), handing_in.result().text
            await asyncio.sleep(0.02)
        handing_in.cancel()
        await asyncio.gather(handing_in, return_exceptions=True)
    while stack.endpoints.services["memory"].pid in (killed, None):  # noqa: ASYNC110 - nothing says that it is another
        await asyncio.sleep(0.02)
    await stack.ready("memory")


async def ingested(stack: Stack, project: str, docs: Path) -> tuple[int, dict[str, Any]]:
    """The exit code of the command, and its report."""
    options = ["--url", stack.endpoints.http, "--token", stack.endpoints.token, "--project", project, "--json"]
    shown = await asyncio.to_thread(CliRunner().invoke, app, ["ingest", str(docs), *options])
    return shown.exit_code, json.loads(shown.stdout or "{}")


@pytest.mark.slow
@pytest.mark.timeout(600)
async def test_a_folder_that_memory_was_killed_over_is_there_once_and_whole(tmp_path: Path, project: str) -> None:
    passages = fill_folder(tmp_path / "docs")
    async with AsyncExitStack() as ends:
        stack = stack_of(tmp_path / "data", lambda stage, seconds: None, inspect=True)
        await stack.start()
        ends.push_async_callback(stack.stop)
        for point, passes in KILLS:
            order = orders_of(tmp_path / "data") / point
            order.write_text(str(passes))
            await cut_short(stack, project, passages, order)
            async with asyncio.timeout(120):
                while set((now := await stored_documents(stack, project))[0]) != set(now[1]):  # noqa: ASYNC110 - memory tidies up
                    await asyncio.sleep(0.1)
            assert now[1] == {source: passages[source] for source in now[0]}
        code, report = await ingested(stack, project, tmp_path / "docs")
        assert (code, len(report["documents"])) == (0, len(passages))
        assert await stored_documents(stack, project) == (Counter(passages.keys()), passages)
        code, report = await ingested(stack, project, tmp_path / "docs")
        assert code == 0
        assert {one["status"] for one in report["documents"]} == {"unchanged"}
