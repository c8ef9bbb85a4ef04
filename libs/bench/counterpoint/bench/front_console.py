"""The console in `counterpoint bench front`: its first load, and the time from a commit to the screen.

Chromium shows the page *now*. A decision is on the screen when the frame is drawn after its row was added.
"""

from typing import TYPE_CHECKING

from counterpoint.bench.chromium import find_chromium, missing_for_chromium, running_chromium
from counterpoint.bench.front_decisions import MARK, commit_decisions, percentile
from counterpoint.bench.report import BenchReport, Measurement, progress
from counterpoint.bus import Service
from counterpoint.local.endpoints import Endpoints

if TYPE_CHECKING:
    from playwright.async_api import Page

PROJECT = "bench-console"
RATE, COUNT, WARM_UP = 100.0, 600, 100
LAST = 20
"""Number of decisions at the end that the page shows in any case."""
P50_MS, P99_MS, FIRST_LOAD_KB, PAINT_MS = 100.0, 500.0, 250.0, 1000.0
_PAINTED = 'performance.getEntriesByName("first-contentful-paint")[0].startTime'
_LOADED = """() => [...performance.getEntriesByType("navigation"), ...performance.getEntriesByType("resource")]
    .filter(({name}) => !new URL(name).pathname.startsWith("/v1/"))
    .reduce((sum, {encodedBodySize}) => sum + encodedBodySize, 0)"""
_WATCH = """(mark) => {
    globalThis.seen = {};
    globalThis.longest = 0;
    new PerformanceObserver((list) => {
        for (const {duration} of list.getEntries()) globalThis.longest = Math.max(globalThis.longest, duration);
    }).observe({type: "longtask"});
    const pattern = new RegExp(mark);
    new MutationObserver((changes) => {
        const numbers = changes.flatMap((change) => [...change.addedNodes])
            .map((node) => node.textContent.match(pattern)?.[1]).filter(Boolean);
        if (numbers.length) requestAnimationFrame(() => {
            const at = performance.timeOrigin + performance.now();
            for (const number of numbers) globalThis.seen[number] ??= at;
        });
    }).observe(document.querySelector("ol.decisions"), {childList: true});
}"""


async def measure_console(endpoints: Endpoints, router: Service, report: BenchReport) -> None:
    """Add the rows of the console; without a Chromium none, and the reason is told."""
    reason, path = missing_for_chromium(), find_chromium()
    if reason is not None or path is None:
        progress(f"the console is not measured: {reason}")
        return
    async with running_chromium(path) as browser:
        context = await browser.new_context(base_url=endpoints.http, viewport={"width": 1440, "height": 900})
        signed_in = await context.request.post(
            "/v1/sign-in", data={"token": endpoints.token}, headers={"Origin": endpoints.http}
        )
        if signed_in.status != 200:
            raise ValueError(f"the console did not sign in: {await signed_in.text()}")
        page = await context.new_page()
        await page.goto(f"/#/now?project={PROJECT}")
        await page.locator("ol.decisions").wait_for()
        await page.locator(".badge.good", has_text="live").wait_for()
        loaded_kb = float(await page.evaluate(_LOADED)) / 1024
        painted_ms = float(await page.evaluate(_PAINTED))
        seen_ms = await _seen(page, router)
        longest_ms = float(await page.evaluate("globalThis.longest"))
    report.note_load()
    name = f"a decision committed to the console's screen, {RATE:g} a second"
    rows = (
        Measurement(f"{name}, p50", "ms", (percentile(seen_ms, 0.5),), P50_MS),
        Measurement(f"{name}, p99", "ms", (percentile(seen_ms, 0.99),), P99_MS),
        Measurement("the console's first load, gzip", "KB", (loaded_kb,), FIRST_LOAD_KB),
        Measurement("the longest task of the page meanwhile; 0 for none over 50 ms", "ms", (longest_ms,), None),
        Measurement("the console's first paint", "ms", (painted_ms,), PAINT_MS),
    )
    report.measures.extend(rows)


async def _seen(page: "Page", router: Service) -> list[float]:
    """Return the time from the commit to the screen of each decision, in milliseconds.

    The page shows the newest decisions of a burst. One that it left out has the time of the next one that it shows.
    """
    await page.evaluate(_WATCH, MARK)
    committed = await commit_decisions(router, PROJECT, RATE, COUNT)
    last = sorted(committed)[-LAST:]
    await page.wait_for_function("(numbers) => numbers.every((each) => each in globalThis.seen)", arg=last)
    seen = {int(number): float(at) for number, at in (await page.evaluate("globalThis.seen")).items()}
    next_at, took = seen[last[-1]], list[float]()
    for number in sorted(committed, reverse=True):
        next_at = seen.get(number, next_at)
        if number >= WARM_UP:
            took.append(next_at - committed[number] * 1000)
    left_out = len(committed.keys() - seen.keys())
    progress(f"{len(took)} decisions, p50 {percentile(took, 0.5):.0f} ms; {left_out} were left out by the page")
    return took
