"""Timeouts for receiving an HTTP request, so that a half-sent one does not hold a socket or memory."""

import asyncio

import h11
from uvicorn.protocols.http.h11_impl import H11Protocol

HEAD_TIMEOUT_S = 15.0
"""Seconds from the connection, or from the first byte of a further request, to the end of its headers."""
BODY_TIMEOUT_S = 60.0
"""Seconds from the end of the headers to the end of the body."""


class RequestTimeoutProtocol(H11Protocol):
    """Closes the connection when the head or the body of a request does not arrive in time.

    Handlers and streamed responses have no limit; uvicorn closes idle connections.
    """

    _due: asyncio.TimerHandle | None = None
    _awaited: object = None

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        """Start the timeout of the first request."""
        super().connection_made(transport)
        self._await(h11.IDLE, HEAD_TIMEOUT_S)

    def data_received(self, data: bytes) -> None:
        """Receive a part, and restart or stop the timeout."""
        super().data_received(data)
        state = self.conn.their_state
        if state is h11.IDLE or state is h11.SEND_BODY:
            self._await(state, HEAD_TIMEOUT_S if state is h11.IDLE else BODY_TIMEOUT_S)
        else:
            self._stop()

    def connection_lost(self, exc: Exception | None) -> None:
        """Stop the timeout."""
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
