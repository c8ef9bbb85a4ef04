"""The stack of the chaos tests: services that SIGKILL themselves at a named await when they are ordered to.

`house.py stack DATA_DIR --report-fd N` is a supervisor as a program of its own, `house.py service NAME ORDERS` one of
its services. An order is a file named after the await in the folder ORDERS, holding how many passes are survived; the
process removes it and kills itself.
"""

import argparse
import ctypes
import functools
import importlib
import inspect
import os
import signal
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from counterpoint.local.serve import run_supervisor
from counterpoint.local.service import COMMANDS, SERVICES
from counterpoint.local.stack import Progress, Stack

_PR_SET_PDEATHSIG = 1


@dataclass(frozen=True)
class Await:
    """A place in the code: before or after the call of a function, which may be awaited."""

    name: str
    function: str
    when: Literal["before", "after"]

    @property
    def service(self) -> str:
        """The service whose process passes it."""
        return self.name.partition(".")[0]


_MEMORY = (
    Await("memory.received", "counterpoint.memory.commit.committer:Committer.apply", "before"),
    Await("memory.committed", "counterpoint.memory.commit.committer:Committer._answer", "before"),
    Await("memory.before_reply", "counterpoint.memory.rpc.server:RequestServer.commit", "after"),
    Await("memory.read", "counterpoint.memory.rpc.server:RequestServer.query", "after"),
    Await("memory.published", "counterpoint.bus.connection:Connection.publish", "after"),
    Await("memory.stored", "counterpoint.memory.commit.relay:Relay._acknowledged", "before"),
    Await("memory.sweeping", "counterpoint.memory.commit.relay:Relay._from_log", "after"),
    Await("memory.reconciling", "counterpoint.bus.connection:Connection.stream_info", "after"),
    Await("memory.ingesting", "counterpoint.memory.commit.pipeline:EmbeddingPipeline.beside", "after"),
)
_CONSUMING = (
    ("delivered", "counterpoint.bus.processor:DeliveryProcessor.handle", "before"),
    ("before_commit", "counterpoint.client.memory:Memory.step", "before"),
    ("after_commit", "counterpoint.client.memory:Memory.step", "after"),
    ("acked", "nats.aio.msg:Msg.ack", "after"),
)

AWAITS: dict[str, Await] = {
    point.name: point
    for point in (
        *_MEMORY,
        *(
            Await(f"{service}.{name}", function, when)  # type: ignore[arg-type]
            for service in SERVICES
            if service != "memory"
            for name, function, when in _CONSUMING
        ),
    )
}
"""Every await at which a service can be killed, by name."""


class Orders:
    """The orders for one process, looked up at each pass."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._passes: dict[str, int] = {}

    def passed(self, name: str) -> None:
        """A named await was passed: end here if that is the order."""
        order = self._folder / name
        if not order.exists():
            self._passes.pop(name, None)
            return
        left = self._passes.setdefault(name, int(order.read_text() or 0))
        self._passes[name] = left - 1
        if left <= 0:
            order.unlink(missing_ok=True)
            os.kill(os.getpid(), signal.SIGKILL)


def patch(point: Await, orders: Orders) -> None:
    """Have the function of an await look for orders. Raises `AttributeError` when the code has no such function."""
    module_name, _, path = point.function.partition(":")
    owner: Any = importlib.import_module(module_name)
    *parents, name = path.split(".")
    for parent in parents:
        owner = getattr(owner, parent)
    setattr(owner, name, _watched(getattr(owner, name), point, orders))


def _watched(function: Callable[..., Any], point: Await, orders: Orders) -> Callable[..., Any]:
    if inspect.iscoroutinefunction(function):

        @functools.wraps(function)
        async def awaited(*args: Any, **kwargs: Any) -> Any:
            if point.when == "before":
                orders.passed(point.name)
            result = await function(*args, **kwargs)
            if point.when == "after":
                orders.passed(point.name)
            return result

        return awaited

    @functools.wraps(function)
    def called(*args: Any, **kwargs: Any) -> Any:
        if point.when == "before":
            orders.passed(point.name)
        result = function(*args, **kwargs)
        if point.when == "after":
            orders.passed(point.name)
        return result

    return called


def orders_of(data_dir: Path) -> Path:
    """Return the folder of the orders for a stack."""
    return data_dir / "orders"


def stack_of(data_dir: Path, progress: Progress, *, inspect: bool = False) -> Stack:
    """A stack whose services take orders."""
    orders = orders_of(data_dir)
    orders.mkdir(parents=True, exist_ok=True)
    services = {name: (sys.executable, __file__, "service", name, str(orders)) for name in SERVICES}
    return Stack(data_dir, http_port=0, progress=progress, commands={**COMMANDS, **services}, inspect=inspect)


def _main() -> None:
    parser = argparse.ArgumentParser()
    parts = parser.add_subparsers(dest="part", required=True)
    stack = parts.add_parser("stack")
    stack.add_argument("data_dir", type=Path)
    stack.add_argument("--report-fd", type=int, required=True)
    service = parts.add_parser("service")
    service.add_argument("name", choices=SERVICES)
    service.add_argument("orders", type=Path)
    given = parser.parse_args()
    if given.part == "stack":
        if sys.platform.startswith("linux"):
            ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, int(signal.SIGTERM), 0, 0, 0)
        run_supervisor(lambda progress: stack_of(given.data_dir, progress), given.report_fd)
    else:
        orders = Orders(given.orders)
        for point in AWAITS.values():
            if point.service == given.name:
                patch(point, orders)
        importlib.import_module(f"counterpoint.{given.name}.main").run()


if __name__ == "__main__":
    _main()
