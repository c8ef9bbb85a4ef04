"""Pictures of the console for the documentation: `make pictures`.

It plays the demo's story, starts its stack once more, and writes what Chromium shows of each page to `docs/pictures`.
"""

import asyncio
import base64
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from urllib.parse import quote

import httpx
from playwright.async_api import Browser, Page
from ui.browser import ConsoleBrowser, browsing

from counterpoint.local.endpoints import Endpoints, read_endpoints
from counterpoint.local.listen_addresses import ListenAddresses
from counterpoint.local.up import down, up

FOLDER = Path(__file__).parent / "pictures"
COMMAND = Path(sys.executable).with_name("counterpoint")
PROJECT = "orders"
SIZE = {"width": 1280, "height": 800}
SETTLE_MS = 1500
"""Time for a graph or a stream to appear, in milliseconds."""
QUALITY = 0.82
_KEPT = re.compile(r"--data-dir (\S+)")
_TO_WEBP = """async ([png, quality]) => {
    const picture = await createImageBitmap(await (await fetch(png)).blob());
    const canvas = Object.assign(document.createElement("canvas"), {width: picture.width, height: picture.height});
    canvas.getContext("2d").drawImage(picture, 0, 0);
    return canvas.toDataURL("image/webp", quality);
}"""


@contextmanager
def played() -> Iterator[Path]:
    """Play the demo, and yield the data folder of its stack."""
    demo = subprocess.run([COMMAND, "demo", "--keep"], capture_output=True, text=True, check=False)
    kept = _KEPT.search(demo.stderr + demo.stdout)
    if kept is None:
        raise SystemExit(f"the demo kept no data:\n{demo.stderr[-2000:]}")
    folder = Path(kept[1])
    try:
        yield folder
    finally:
        shutil.rmtree(folder.parent)


def routes(endpoints: Endpoints) -> dict[str, str]:
    """Return the pages by the name of their picture."""
    headers = {"Authorization": f"Bearer {endpoints.token}"}
    with httpx.Client(base_url=endpoints.http, headers=headers, trust_env=False) as http:
        tasks = http.get("/v1/tasks", params={"project": PROJECT, "limit": 200}).raise_for_status().json()["items"]
    task = next(each for each in tasks if each["kind"] == "troubleshoot")
    job = task["target"]["job"]
    return {
        "now": "now",
        "incident": f"incident/{task['task_id']}",
        "lineage": f"lineage/job/{quote(job['namespace'], safe='')}/{quote(job['name'], safe='')}",
        "memory": f"memory?text={quote('could not resolve ldap.internal: DNS lookup timed out')}",
        "health": "health",
    }


async def take(browser: Browser, endpoints: Endpoints) -> None:
    """Write a picture of each page, in light and, of some, in dark."""
    FOLDER.mkdir(exist_ok=True)
    encoder = await browser.new_page()
    for scheme, names in (("light", None), ("dark", ("now", "incident"))):
        console = ConsoleBrowser(browser, endpoints.http)
        page = await console.page(endpoints.token, viewport=SIZE, color_scheme=scheme)
        for name, route in routes(endpoints).items():
            if names is None or name in names:
                await page.goto(f"/#/{route}{'&' if '?' in route else '?'}project={PROJECT}")
                await page.locator("main h1").wait_for()
                await page.wait_for_timeout(SETTLE_MS)
                written = await write(page, encoder, f"{name}{'' if names is None else '-dark'}.webp")
                print(f"{written.relative_to(FOLDER.parent)}: {written.stat().st_size / 1024:.0f} KiB")
        await console.close()
        if console.errors:
            raise SystemExit("\n".join(console.errors))


async def write(page: Page, encoder: Page, name: str) -> Path:
    """Write what a page shows as WebP, which Chromium encodes itself."""
    png = base64.b64encode(await page.screenshot()).decode()
    encoded = await encoder.evaluate(_TO_WEBP, [f"data:image/png;base64,{png}", QUALITY])
    path = FOLDER / name
    path.write_bytes(base64.b64decode(encoded.partition(",")[2]))
    return path


async def main(folder: Path) -> None:
    """Take the pictures of the stack on a data folder."""
    async with browsing() as browser:
        await take(browser, read_endpoints(folder))


if __name__ == "__main__":
    with played() as data_dir:
        up(data_dir, addresses=ListenAddresses(http_port=0), detach=True)
        try:
            asyncio.run(main(data_dir))
        finally:
            down(data_dir)
