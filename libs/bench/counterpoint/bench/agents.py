"""`counterpoint bench agents`: what deciding costs without a model, and what the gateway adds to a model call.

All services are real except the developer, whose deliveries this process takes, and the provider, which is simulated.
"""

import asyncio
import time
from datetime import datetime
from importlib import import_module
from itertools import islice
from pathlib import Path

from counterpoint import bus
from counterpoint.bench.command_line import bench_folder
from counterpoint.bench.developer_stack import DeveloperStack, developer_stack
from counterpoint.bench.gateway_calls import measure_first_token, measure_limits, measure_single_calls
from counterpoint.bench.processes import tree_pss_mb
from counterpoint.bench.replays import measure_replays
from counterpoint.bench.report import BenchReport, Measurement, p50, progress
from counterpoint.bench.synthetic_incidents import synthetic_incidents
from counterpoint.cli.demo.provider import simulated_provider, variables
from counterpoint.client import Memory
from counterpoint.developer.agent.context import LINE_CHARS, line_readings
from counterpoint.developer.evidence.calibration import load_calibration
from counterpoint.developer.evidence.gather import gather
from counterpoint.developer.policies.lanes import conclude
from counterpoint.developer.policies.review import review
from counterpoint.local.stack import Stack
from counterpoint.proto.memory import Item
from counterpoint.proto.messages import utc_now
from counterpoint.proto.signature import signature
from counterpoint.proto.tasks import TaskDelegated
from counterpoint.router.intake.lanes import routing

IDLE_S = 2.0
ACTIONS, CONTEXTS = 1_000, 50
"""Actions of a long line, and contexts that are built of it."""
INCIDENTS, FAILURES, REPEATS = 200, 30, 5
"""Past incidents in memory, failures that are decided, and decisions of each."""


async def measure_deciding(of: DeveloperStack, report: BenchReport) -> None:
    """Measure the processor time of the pure decisions on failures, some of which are known."""
    past = list(islice(synthetic_incidents(INCIDENTS + FAILURES // 2), INCIDENTS + FAILURES // 2))
    (await of.http.post("/v1/attempts", json={"incidents": past[:INCIDENTS]})).raise_for_status()
    calibration, spent = load_calibration(), list[float]()

    async def decide(message: TaskDelegated, memory: Memory) -> None:
        evidence = await gather(memory, message, calibration)
        began = time.process_time()
        for _ in range(REPEATS):
            routing(message.task)
            signature(message.task.error_message or "")
            review(message, conclude(message, evidence, calibration))
        spent.append((time.process_time() - began) * 1000 / REPEATS)

    for number, incident in enumerate(past[-FAILURES:]):
        names = ("title", "description", "error_message")
        task = {"kind": "troubleshoot", "task_id": f"f-{number}", **{name: incident[name] for name in names}}
        await of.deliver(task, decide)
    report.note_load()
    name = "routing, signature, confidence, policies and review of a failure, processor time, p50"
    report.measures.append(Measurement(name, "ms", (p50(spent),), 2.0))


def measure_context(report: BenchReport) -> None:
    """Measure the processor time of the context of a long line: its newest actions within the limit, none cut."""
    now, spent = utc_now(), list[float]()
    items = [_action(number, now) for number in range(ACTIONS)]
    for _ in range(CONTEXTS):
        began = time.process_time()
        readings = line_readings(items)
        spent.append((time.process_time() - began) * 1000)
        kept = sum(len(reading.hit.text) for reading in readings)
        assert 0 < kept <= LINE_CHARS, "a context is within its limit"
    name = f"context of a line of {ACTIONS:,} actions within 8,000 tokens, processor time, p50"
    report.measures.append(Measurement(name, "ms", (p50(spent),), 5.0))


def _action(number: int, now: datetime) -> Item:
    body = {
        "action_id": f"a-{number}",
        "task_id": "t",
        "agent": "developer",
        "kind": "assess",
        "reasoning": f"step {number}: " + "the disk of the export is full, so the folder of old files is read; " * 3,
        "result": "go on",
        "at": now.isoformat(),
    }
    return Item(
        store="actions", id=f"a-{number}", project="p", version=1, body=body, author="developer", label=1, integrity=1,
        seq=number, at=now,
    )  # fmt: skip


async def measure_manager(folder: Path, report: BenchReport) -> None:
    """Measure the memory of an idle manager without a model."""
    stack = Stack(folder, http_port=0)
    await stack.start()
    try:
        if service := stack.endpoints.services.get("manager"):
            await asyncio.sleep(IDLE_S)
            name = "proportional set size of the manager without a model"
            report.measures.append(Measurement(name, "MiB", (tree_pss_mb(service.pid),), 120))
    finally:
        await stack.stop()


async def run(folder: Path) -> BenchReport:
    """Run the benchmark on temporary stacks."""
    report = BenchReport("agents")
    measure_context(report)
    progress("manager without a model")
    await measure_manager(folder / "bare", report)
    await measure_replays(folder / "replays", report)
    with simulated_provider("It was the disk.") as provider, variables(provider.environment()):
        # A slow import within a delivery would have the bus deliver again.
        await asyncio.to_thread(import_module, "litellm")
        async with developer_stack(folder / "stack") as of:
            progress("deciding")
            await measure_deciding(of, report)

            async def calls(message: TaskDelegated, memory: Memory) -> None:
                progress("single calls")
                await measure_single_calls(of.gateway, memory, provider, report)
                progress("first token of a stream")
                await measure_first_token(of.gateway_url, memory, provider, report)

            await of.deliver({"kind": "question", "task_id": "calls", "description": "Which disk?"}, calls)
            manager = of.stack.endpoints.services["manager"]
            name = "proportional set size of the manager with a model"
            report.measures.append(Measurement(name, "MiB", (tree_pss_mb(manager.pid),), 350))
            progress("calls under five limits")
            await measure_limits(of, report)
    return report


def main() -> None:
    """Run the command line."""
    with bench_folder("agents") as folder:
        bus.run(run(folder)).show()


if __name__ == "__main__":
    main()
