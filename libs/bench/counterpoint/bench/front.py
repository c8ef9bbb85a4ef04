"""`counterpoint bench front`: the cost of the front door: searches, MCP, the console, streams, notifications.

A search by MCP and by HTTP on a running stack, beside the same search from this process with the router's login, one
after the other. No query is repeated, so that none is answered from a cache.
"""

import json
import os
import time
from collections.abc import Awaitable, Callable, Iterator
from itertools import count
from pathlib import Path
from typing import Any

import httpx
from pydantic import SecretStr

from counterpoint import bus
from counterpoint.bench.command_line import bench_folder, bench_parser
from counterpoint.bench.front_console import measure_console
from counterpoint.bench.front_notify import NotifyReceiver, measure_notify
from counterpoint.bench.front_streams import measure_streams
from counterpoint.bench.processes import tree_pss_mb
from counterpoint.bench.report import BenchReport, Measurement, p50, progress
from counterpoint.bench.temporary_stack import detached_stack
from counterpoint.bus import BusSettings, Service
from counterpoint.local.credentials import load_credentials
from counterpoint.local.endpoints import Endpoints, read_endpoints
from counterpoint.local.service import NATS_USERS
from counterpoint.proto.memory import HybridSearch

PROJECT, NOTIFIED = "bench", "bench-notify"
DOCUMENTS = 500
SAMPLES, RUNS = 100, 3
TARGET_MS, IDLE_MB, USED_MB = 5.0, 90.0, 170.0
_VERSION = "2026-07-28"
_WORDS = ("resolver", "partition", "replica", "deadlock", "quota", "certificate", "lease", "schema")

Search = Callable[[str], Awaitable[object]]


def mcp_search(http: httpx.AsyncClient) -> Search:
    """Return a search by the tool `query_rag`."""
    headers = {
        "Accept": "application/json, text/event-stream",
        "MCP-Protocol-Version": _VERSION,
        "Mcp-Method": "tools/call",
        "Mcp-Name": "query_rag",
    }
    meta = {"io.modelcontextprotocol/protocolVersion": _VERSION, "io.modelcontextprotocol/clientCapabilities": {}}

    async def search(text: str) -> object:
        call = {"name": "query_rag", "arguments": {"query": text, "limit": 5}, "_meta": meta}
        message = {"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": call}
        reply = await http.post(f"/mcp?project={PROJECT}", json=message, headers=headers)
        result = json.loads(reply.raise_for_status().text.rpartition("data: ")[2])["result"]
        if not result["structuredContent"]["items"]:
            raise ValueError("the search found nothing")
        return result

    return search


def http_search(http: httpx.AsyncClient) -> Search:
    """Return a search by `POST /v1/search`."""

    async def search(text: str) -> object:
        return (await http.post("/v1/search", json={"text": text, "k": 5, "project": PROJECT})).raise_for_status()

    return search


async def measure_front(endpoints: Endpoints, router: Service, receiver: NotifyReceiver, report: BenchReport) -> None:
    """Add the rows of the front door to a report."""
    router_pid = endpoints.services["router"].pid
    idle_mb = tree_pss_mb(router_pid)
    headers = {"Authorization": f"Bearer {endpoints.token}"}
    async with httpx.AsyncClient(base_url=endpoints.http, headers=headers, timeout=60, trust_env=False) as http:
        documents = [document(number) for number in range(DOCUMENTS)]
        (await http.post("/v1/documents", json={"documents": documents, "project": PROJECT})).raise_for_status()
        progress(f"{DOCUMENTS} documents")

        async def direct(text: str) -> object:
            memory = router.memory(PROJECT, "administrator")
            return await memory.query(HybridSearch(store="chunks", text=text, k=5))

        numbers = count()
        searches: dict[str, Search] = {"direct": direct, "http": http_search(http), "mcp": mcp_search(http)}
        took = {name: list[float]() for name in searches}
        added = {name: list[float]() for name in ("http", "mcp")}
        for run in range(RUNS + 1):
            samples = await one_by_one(searches, numbers, SAMPLES)
            if run == 0:
                continue  # warms up
            report.note_load()
            for name, durations in samples.items():
                took[name].append(p50(durations))
            for name, differences in added.items():
                pairs = zip(samples[name], samples["direct"], strict=True)
                differences.append(p50([taken - alone for taken, alone in pairs]))
            progress(", ".join(f"{name} {durations[-1]:.1f} ms" for name, durations in took.items()))
        await measure_notify(http, receiver, NOTIFIED, report)
    await measure_console(endpoints, router, report)
    used_mb = tree_pss_mb(router_pid)
    await measure_streams(endpoints, router, report)
    for name, differences in added.items():
        target = TARGET_MS if name == "mcp" else None
        row = Measurement(f"a search by {name}, over the same in process, p50", "ms", tuple(differences), target)
        report.measures.append(row)
    report.measures.append(Measurement("a search in process, p50", "ms", tuple(took["direct"]), None))
    report.measures.append(
        Measurement("memory of the router before MCP and the console are used", "MB", (idle_mb,), IDLE_MB)
    )
    report.measures.append(Measurement("memory of the router after it", "MB", (used_mb,), USED_MB))
    streamed_mb = tree_pss_mb(router_pid)
    report.measures.append(Measurement("memory of the router after the event streams", "MB", (streamed_mb,), None))


async def one_by_one(searches: dict[str, Search], numbers: Iterator[int], samples: int) -> dict[str, list[float]]:
    """Return the durations of searches in milliseconds. The kinds take turns, so that all see the same load."""
    taken = {name: list[float]() for name in searches}
    for _ in range(samples):
        for name, search in searches.items():
            began = time.perf_counter()
            await search(question(next(numbers)))
            taken[name].append((time.perf_counter() - began) * 1000)
    return taken


def document(number: int) -> dict[str, Any]:
    """Return a short page about one word."""
    word = _WORDS[number % len(_WORDS)]
    text = f"# {word.title()} {number}\n\nWhen the {word} of host {number} fails, restart service {number * 7}."
    return {"source": f"page-{number}.md", "text": text}


def question(number: int) -> str:
    """Return a question that is asked once."""
    return f"What to do when the {_WORDS[number % len(_WORDS)]} of host {number % DOCUMENTS} fails, case {number}?"


async def _measure(data_dir: Path, receiver: NotifyReceiver, report: BenchReport) -> None:
    endpoints = read_endpoints(data_dir)
    password = load_credentials(data_dir / "secrets.json", NATS_USERS).nats["router"]
    settings = BusSettings(nats_url=endpoints.nats, nats_user="router", nats_password=SecretStr(password))
    router = Service("router", settings)
    await router.connection.open()
    try:
        await measure_front(endpoints, router, receiver, report)
    finally:
        await router.connection.close()


def main() -> None:
    """Run the command line."""
    bench_parser(__doc__).parse_args()
    report, receiver = BenchReport("front"), NotifyReceiver()
    os.environ |= {"COUNTERPOINT_NOTIFY_URL": receiver.url, "COUNTERPOINT_NOTIFY_PRIVATE": "true"}
    with bench_folder("front") as folder, detached_stack(folder) as data_dir:
        bus.run(_measure(data_dir, receiver, report))
    report.show()


if __name__ == "__main__":
    main()
