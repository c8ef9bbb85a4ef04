"""Messages that need nothing from the router: reported to memory as finished, those of a second together.

A message of the last days that its consumer has not finished is published again when its stream has dropped it. If the
router is killed before the report, no more is lost than this note: the message would need nothing again.
"""

import asyncio
from typing import Any
from uuid import UUID

import structlog

from counterpoint.bus.processor import Handler
from counterpoint.client import Memory
from counterpoint.proto.commands import FINISHED_MAX, FinishMessages
from counterpoint.proto.errors import CounterpointError
from counterpoint.proto.memory import Commit
from counterpoint.proto.messages import Message

log = structlog.get_logger()

_EVERY_S = 1.0


class FinishedMessages:
    """Messages that have been handled without a commit and are not yet reported, by project."""

    def __init__(self) -> None:
        self._waiting: dict[str, tuple[Memory, list[str]]] = {}
        self._any = asyncio.Event()

    def of(self, handler: Handler[Any]) -> Handler[Any]:
        """Return a handler whose messages are reported if it commits nothing."""

        async def handle(message: Message, memory: Memory) -> Commit:
            commit: Commit = await handler(message, memory)
            if not (commit.writes or commit.messages or memory.stepped):
                _, ids = self._waiting.get(memory.project, (memory, []))
                ids.append(memory.origin.message_id)
                self._waiting[memory.project] = memory, ids
                self._any.set()
            return commit

        return handle

    async def run(self) -> None:
        """Report until cancelled."""
        while True:
            await self._any.wait()
            await asyncio.sleep(_EVERY_S)
            await self.report()

    async def report(self) -> None:
        """Report the messages that wait, each project's under the capability of the last of them."""
        self._any.clear()
        waiting, self._waiting = self._waiting, {}
        for project, (memory, ids) in waiting.items():
            for start in range(0, len(ids), FINISHED_MAX):
                try:
                    await memory.command(FinishMessages(ids=tuple(map(UUID, ids[start : start + FINISHED_MAX]))))
                except CounterpointError as error:
                    log.info("finished.unreported", project=project, messages=len(ids), reason=str(error))
                    break
