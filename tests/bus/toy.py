"""A developer as a process of its own, whose handler does what the task's description says.

`die` ends the process at once; `hold FILE` makes FILE and works until `FILE.go` is there; anything else just works.
"""

import asyncio
import os
import time
from pathlib import Path

from bus.small_house import specs, worked

from counterpoint.bus import BusSettings, Service
from counterpoint.client import Memory
from counterpoint.proto.memory import Commit
from counterpoint.proto.tasks import TaskDelegated


async def handle(message: TaskDelegated, memory: Memory) -> Commit:
    match message.task.description.split():
        case ["die"]:
            os._exit(9)
        case ["hold", name]:
            await asyncio.to_thread(_hold, Path(name), Path(f"{name}.go"))
    return worked(message, memory)


def _hold(held: Path, go: Path) -> None:
    held.touch()
    while not go.exists():
        time.sleep(0.02)


def main() -> None:
    service = Service("developer", BusSettings(), specs())
    service.on(TaskDelegated)(handle)
    asyncio.run(service.run())


if __name__ == "__main__":
    main()
