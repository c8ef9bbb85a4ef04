"""Log lines quote names and reasons, and no secret that is in one."""

import io
import json
import logging
import sys

import pytest
import structlog

from counterpoint.bus.logs import LibraryHandler, configure

KEY = "AKIA" + "Z7QF3MPLKD2WXYTB"
PASSWORD = "hV7q2Lx9" + "Zt4wRk8p"


def test_secrets_are_not_written_to_log_lines(monkeypatch: pytest.MonkeyPatch) -> None:
    lines = io.StringIO()
    monkeypatch.setattr(sys, "stderr", lines)
    try:
        configure("router", "info")
        log = structlog.get_logger()
        log.info("delivery.refused", reason=f"invalid: context.{KEY}: must be text", delivered=2)
        try:
            raise ValueError(f"https://robot:{PASSWORD}@git.internal")
        except ValueError as error:
            log.error("handler.failed", message_id="01a20276-b2ef-7d2e-be56-8ebfd6363fcc", exc_info=error)
    finally:
        structlog.contextvars.clear_contextvars()
    refused, failed = map(json.loads, lines.getvalue().splitlines())
    assert refused["reason"] == "invalid: context.[redacted:aws_access_key]: must be text"
    assert (refused["service"], refused["delivered"], refused["event"]) == ("router", 2, "delivery.refused")
    assert failed["message_id"] == "01a20276-b2ef-7d2e-be56-8ebfd6363fcc"
    assert "ValueError: https://git.internal" in failed["exception"]
    assert PASSWORD not in failed["exception"]


def test_log_records_of_libraries_are_single_json_lines(monkeypatch: pytest.MonkeyPatch) -> None:
    lines = io.StringIO()
    monkeypatch.setattr(sys, "stderr", lines)
    library = logging.Logger("asyncpg.pool")
    library.addHandler(LibraryHandler())
    try:
        configure("memory", "info")
        try:
            raise ValueError(f"https://robot:{PASSWORD}@git.internal")
        except ValueError:
            library.warning("retrying %s", KEY, exc_info=True)
            library.exception("given up")
    finally:
        structlog.contextvars.clear_contextvars()
    retrying, given_up = map(json.loads, lines.getvalue().splitlines())
    assert (retrying["event"], retrying["level"], retrying["service"]) == ("library.warning", "warning", "memory")
    assert (retrying["logger"], retrying["reason"]) == ("asyncpg.pool", "ValueError")
    assert retrying["text"] == "retrying [redacted:aws_access_key]"
    assert "exception" not in retrying
    assert (given_up["event"], given_up["level"]) == ("library.error", "error")
    assert "ValueError: https://git.internal" in given_up["exception"]
