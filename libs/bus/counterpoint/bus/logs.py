"""Logs: structlog events as JSON lines, or readable on a terminal."""

import logging
import sys
from contextlib import suppress
from typing import TextIO

import structlog
from structlog.typing import EventDict, WrappedLogger

from counterpoint.guard.names import kept, unnamed


class Losing:
    """A stream of log lines, without those that its disk has no room for: a log does not end what it tells of."""

    def __init__(self, stream: TextIO) -> None:
        self._stream = stream

    def write(self, text: str) -> int:
        """Write, or lose it."""
        with suppress(OSError):
            self._stream.write(text)
        return len(text)

    def flush(self) -> None:
        """Flush, or keep it in the buffer."""
        with suppress(OSError):
            self._stream.flush()


def configure(service: str, level: str) -> None:
    """Set up logging for a process; called once, by `main`."""
    readable = sys.stderr.isatty()
    structlog.configure(
        processors=[
            structlog.contextvars.merge_contextvars,
            structlog.processors.add_log_level,
            structlog.processors.TimeStamper(fmt="iso", utc=True),
            structlog.processors.format_exc_info,
            harmless,
            structlog.dev.ConsoleRenderer() if readable else structlog.processors.JSONRenderer(),
        ],
        wrapper_class=structlog.make_filtering_bound_logger(getattr(logging, level.upper())),
        logger_factory=lambda *_: structlog.WriteLogger(Losing(sys.stderr)),  # type: ignore[arg-type]
    )
    structlog.contextvars.bind_contextvars(service=service)


def harmless(_: WrappedLogger, __: str, event: EventDict) -> EventDict:
    """A log line without what is secret in the names and reasons that it quotes."""
    for key, value in event.items():
        if isinstance(value, str):
            event[key] = kept(value, unnamed)
    return event
