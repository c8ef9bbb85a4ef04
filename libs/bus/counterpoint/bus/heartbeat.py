"""The heartbeat of a delivery: it extends the ack wait, so that the server does not redeliver work in progress."""

import asyncio
from collections.abc import Callable

import structlog
from nats.aio.msg import Msg

log = structlog.get_logger()


class Heartbeat:
    """Sends three in-progress acknowledgements per ack wait until `stop`, or until the delivery is not `current`.

    After a reconnect the server may know another message by the same number.
    """

    def __init__(self, raw: Msg, ack_wait_s: float, current: Callable[[], bool]) -> None:
        self._raw = raw
        self._current = current
        self._every_s = ack_wait_s / 3
        self._loop = asyncio.get_running_loop()
        self._sent: asyncio.Task[None] | None = None
        self._timer = self._loop.call_later(self._every_s, self._beat)

    def _beat(self) -> None:
        if not self._current():
            return
        self._sent = self._loop.create_task(self._raw.in_progress())
        self._sent.add_done_callback(_missed)
        self._timer = self._loop.call_later(self._every_s, self._beat)

    def stop(self) -> None:
        """Send no more."""
        self._timer.cancel()


def _missed(beat: asyncio.Task[None]) -> None:
    if not beat.cancelled() and (error := beat.exception()) is not None:
        log.info("heartbeat.missed", reason=type(error).__name__)
