"""Logging: structlog events as JSON lines, or readable on a terminal."""

import logging
import sys
from contextlib import suppress
from typing import TextIO

import structlog
from structlog.typing import EventDict, WrappedLogger

from counterpoint.guard.names import empty_fingerprint, redact_name


class LossyStream:
    """A log stream that drops lines when its disk is full, so that logging does not stop the process."""

    def __init__(self, stream: TextIO) -> None:
        self._stream = stream

    def write(self, text: str) -> int:
        """Write the text, or drop it."""
        with suppress(OSError):
            self._stream.write(text)
        return len(text)

    def flush(self) -> None:
        """Flush, or keep the buffer."""
        with suppress(OSError):
            self._stream.flush()


class LibraryHandler(logging.Handler):
    """Writes what libraries log as events. A warning has the type of its exception, an error the traceback too."""

    def emit(self, record: logging.LogRecord) -> None:
        """Write a record."""
        error = record.exc_info[1] if record.exc_info else None
        is_error = record.levelno >= logging.ERROR
        structlog.get_logger().log(
            record.levelno,
            "library.error" if is_error else "library.warning",
            logger=record.name,
            text=record.getMessage(),
            **({} if error is None else {"exc_info": error} if is_error else {"reason": type(error).__name__}),
        )


def configure(service: str, level: str) -> None:
    """Configure logging for the process, of libraries from warnings on; call once, in `main`."""
    logging.basicConfig(handlers=(LibraryHandler(),), level=logging.WARNING)
    readable = sys.stderr.isatty()
    structlog.configure(
        processors=[
            structlog.contextvars.merge_contextvars,
            structlog.processors.add_log_level,
            structlog.processors.TimeStamper(fmt="iso", utc=True),
            structlog.processors.format_exc_info,
            redact_event,
            structlog.dev.ConsoleRenderer() if readable else structlog.processors.JSONRenderer(),
        ],
        wrapper_class=structlog.make_filtering_bound_logger(getattr(logging, level.upper())),
        logger_factory=lambda *_: structlog.WriteLogger(LossyStream(sys.stderr)),  # type: ignore[arg-type]
    )
    structlog.contextvars.bind_contextvars(service=service)


def redact_event(_: WrappedLogger, __: str, event: EventDict) -> EventDict:
    """Redact secrets in the values of a log event; a structlog processor."""
    for key, value in event.items():
        if isinstance(value, str):
            event[key] = redact_name(value, empty_fingerprint)
    return event
