"""A Chromium that is driven by Playwright, where both are installed."""

import importlib.util
import shutil
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from playwright.async_api import Browser

PROGRAMS = ("chromium", "chromium-browser", "google-chrome-stable", "google-chrome")
ARGUMENTS = ("--no-sandbox", "--disable-dev-shm-usage", "--disable-gpu")
"""Containers have neither user namespaces nor a large `/dev/shm`."""


def find_chromium() -> str | None:
    """Return the path of an installed Chromium, None without one."""
    return next(filter(None, map(shutil.which, PROGRAMS)), None)


def missing_for_chromium() -> str | None:
    """Return the reason why no Chromium can be driven here, None if one can."""
    if importlib.util.find_spec("playwright") is None:
        return "the package playwright is not installed"
    return None if find_chromium() else f"none of {', '.join(PROGRAMS)} is installed"


@asynccontextmanager
async def running_chromium(path: str) -> "AsyncIterator[Browser]":
    """Run a Chromium without a window."""
    from playwright.async_api import async_playwright

    async with async_playwright() as playwright:
        browser = await playwright.chromium.launch(executable_path=path, args=list(ARGUMENTS))
        try:
            yield browser
        finally:
            await browser.close()
