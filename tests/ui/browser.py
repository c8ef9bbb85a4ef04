"""The console in a real Chromium: signed-in pages, their errors, and their accessibility."""

import os
import shutil
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import axe_playwright_python
import pytest
from playwright.async_api import Browser, ConsoleMessage, Page, Playwright, async_playwright

REQUIRED = "CHROMIUM_REQUIRED"
"""Variable that `.ci/run` sets where Chromium is installed: the tests are not skipped there."""
PROGRAMS = ("chromium", "chromium-browser", "google-chrome-stable", "google-chrome")
ARGUMENTS = ("--no-sandbox", "--disable-dev-shm-usage", "--disable-gpu")
"""Containers have neither user namespaces nor a large `/dev/shm`."""
WIDTHS = (360, 1440)
SCHEMES = ("dark", "light")
_AXE = Path(axe_playwright_python.__file__).with_name("axe.min.js")
_RULES = ["wcag2a", "wcag2aa", "wcag21a", "wcag21aa", "wcag22aa", "best-practice"]
_CHECK = """async (rules) => {
    const found = await axe.run(document, {runOnly: {type: "tag", values: rules}, resultTypes: ["violations"]});
    return found.violations.map((one) => `${one.id}: ` + one.nodes.map(
        (node) => `${node.html.slice(0, 200)} ${node.failureSummary}`).join(" | "));
}"""


def program() -> str:
    """Return the path of Chromium. Skips the test without one, except where it is required."""
    found = next(filter(None, map(shutil.which, PROGRAMS)), None)
    if found is None and os.environ.get(REQUIRED):
        pytest.fail(f"{REQUIRED} is set, and none of {', '.join(PROGRAMS)} is installed")
    if found is None:
        pytest.skip("no Chromium; on Debian: apt-get install chromium")
    return found


@asynccontextmanager
async def browsing() -> AsyncIterator[Browser]:
    """Run a Chromium."""
    path = program()
    playwright: Playwright
    async with async_playwright() as playwright:
        browser = await playwright.chromium.launch(executable_path=path, args=list(ARGUMENTS))
        try:
            yield browser
        finally:
            await browser.close()


class ConsoleBrowser:
    """Signed-in pages of one console. `errors` are what the pages logged, and what their policy blocked."""

    def __init__(self, browser: Browser, url: str) -> None:
        self.url = url
        self.errors: list[str] = []
        self._browser = browser
        self._contexts: list[Any] = []

    async def page(self, token: str | None, **options: Any) -> Page:
        """Return a page of a browser of its own, signed in by the cookie unless `token` is None."""
        context = await self._browser.new_context(
            base_url=self.url, **{"viewport": {"width": 1440, "height": 900}, "reduced_motion": "reduce"} | options
        )
        self._contexts.append(context)
        context.set_default_timeout(60_000)
        if token is not None:
            answer = await context.request.post("/v1/sign-in", data={"token": token}, headers={"Origin": self.url})
            assert answer.status == 200, await answer.text()
        page: Page = await context.new_page()
        page.on("console", self._logged)
        page.on("pageerror", lambda error: self.errors.append(f"{error.name}: {error.message}"))
        return page

    def _logged(self, message: ConsoleMessage) -> None:
        # Chromium logs each answer of 400 or more by itself; the page shows it.
        if message.type == "error" and not message.text.startswith("Failed to load resource"):
            self.errors.append(message.text)

    async def close(self) -> None:
        """Close the pages."""
        for context in self._contexts:
            await context.close()


async def axe(page: Page, widths: Sequence[int] = WIDTHS, schemes: Sequence[str] = SCHEMES) -> list[str]:
    """Return the violations of a page, with its elements, in each scheme and at each width. Nothing may overflow."""
    await page.evaluate(_AXE.read_text())
    found: list[str] = []
    for scheme in schemes:
        await page.emulate_media(color_scheme=scheme)  # type: ignore[arg-type]
        for width in widths:
            await page.set_viewport_size({"width": width, "height": 900})
            found += [f"{scheme} {width} px: {one}" for one in await page.evaluate(_CHECK, _RULES)]
            wide = await page.evaluate("document.documentElement.scrollWidth - document.documentElement.clientWidth")
            found += [f"{scheme} {width} px: {wide} px wider than the window"] if wide > 0 else []
    await page.set_viewport_size({"width": 1440, "height": 900})
    return found
