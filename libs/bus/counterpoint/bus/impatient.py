"""An HTTP connection that waits only so long for a request: one that is half sent holds neither a socket nor a body."""

import asyncio

import h11
from uvicorn.protocols.http.h11_impl import H11Protocol

HEAD_S = 15.0
"""From the connection, or the first byte of a further request, to the end of its headers."""
BODY_S = 60.0
"""From the end of the headers to the end of the body."""


class Impatient(H11Protocol):
    """Closes the connection when the head or the body of a request has not come in time.

    What works on a whole request, and a stream that answers one, may take as long as they like; a connection without a
    request is closed by uvicorn.
    """

    _due: asyncio.TimerHandle | None = None
    _awaited: object = None

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        """Begin to wait for the first request."""
        super().connection_made(transport)
        self._await(h11.IDLE, HEAD_S)

    def data_received(self, data: bytes) -> None:
        """Take a part, and wait for the next one if there must be one."""
        super().data_received(data)
        state = self.conn.their_state
        if state is h11.IDLE or state is h11.SEND_BODY:
            self._await(state, HEAD_S if state is h11.IDLE else BODY_S)
        else:
            self._stop()

    def connection_lost(self, exc: Exception | None) -> None:
        """Wait no more."""
        self._stop()
        super().connection_lost(exc)

    def _await(self, state: object, seconds: float) -> None:
        if state is not self._awaited:
            self._stop()
            self._awaited, self._due = state, self.loop.call_later(seconds, self.transport.close)

    def _stop(self) -> None:
        if self._due is not None:
            self._due.cancel()
        self._awaited = self._due = None
