"""Logs: structlog events as JSON lines, or readable on a terminal."""

import logging
import sys

import structlog


def configure(service: str, level: str) -> None:
    """Set up logging for a process; called once, by `main`."""
    readable = sys.stderr.isatty()
    structlog.configure(
        processors=[
            structlog.contextvars.merge_contextvars,
            structlog.processors.add_log_level,
            structlog.processors.TimeStamper(fmt="iso", utc=True),
            structlog.processors.format_exc_info,
            structlog.dev.ConsoleRenderer() if readable else structlog.processors.JSONRenderer(),
        ],
        wrapper_class=structlog.make_filtering_bound_logger(getattr(logging, level.upper())),
        logger_factory=lambda *_: structlog.WriteLogger(sys.stderr),
    )
    structlog.contextvars.bind_contextvars(service=service)
