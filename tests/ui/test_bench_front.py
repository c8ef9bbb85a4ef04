"""`counterpoint bench front` on the running stack: the console's screen and many event streams, in a few seconds."""

import pytest
from playwright.async_api import Browser

from counterpoint.bench import chromium as bench_chromium
from counterpoint.bench import front_console, front_streams
from counterpoint.bench.report import BenchReport
from counterpoint.bus import Service
from counterpoint.local.stack import Stack


async def test_each_client_of_a_stream_gets_each_decision(
    stack: Stack, router: Service, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(front_streams, "CLIENTS", 8)
    monkeypatch.setattr(front_streams, "COUNT", 10)
    report = BenchReport("front")
    await front_streams.measure_streams(stack.endpoints, router, report)
    complete, p50, p99 = report.measures
    assert (complete.runs, complete.met) == ((8,), True)
    assert p50.value <= p99.value


async def test_decisions_are_timed_until_they_are_on_the_screen(
    stack: Stack, router: Service, chromium: Browser, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(front_console, "COUNT", 12)
    monkeypatch.setattr(front_console, "WARM_UP", 2)
    monkeypatch.setattr(front_console, "RATE", 20.0)
    monkeypatch.setattr(front_console, "LAST", 5)
    report = BenchReport("front")
    await front_console.measure_console(stack.endpoints, router, report)
    p50, p99, first_load, longest, painted = report.measures
    assert 0 < p50.value <= p99.value
    assert first_load.met
    assert painted.value > 0
    assert longest.value >= 0


async def test_without_chromium_the_reason_is_told_and_nothing_is_measured(
    stack: Stack, router: Service, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(bench_chromium, "PROGRAMS", ("no-such-browser",))
    report = BenchReport("front")
    await front_console.measure_console(stack.endpoints, router, report)
    assert report.measures == []
    assert "the console is not measured: none of no-such-browser is installed" in capsys.readouterr().err
