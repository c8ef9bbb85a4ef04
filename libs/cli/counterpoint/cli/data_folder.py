"""Commands on the data folder of a stack."""

from counterpoint.cli.errors import UsageError
from counterpoint.cli.session import CommandSession


def quiet_logs() -> None:
    """Send the supervisor's log events of this process to standard error, from warnings up."""
    import logging
    import sys

    import structlog

    structlog.configure(
        wrapper_class=structlog.make_filtering_bound_logger(logging.WARNING),
        logger_factory=structlog.PrintLoggerFactory(sys.stderr),
    )


def reject_url(session: CommandSession) -> None:
    if session.url:
        raise UsageError("this command needs a data folder: use --data-dir, not --url")
