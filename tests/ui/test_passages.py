"""The text of a document: its passages in order over HTTP, and on its page of the console."""

from collections.abc import AsyncIterator
from typing import Any

import pytest
from playwright.async_api import Browser, expect
from ui.browser import ConsoleBrowser
from ui.http_front import RunningFront

from counterpoint.proto.ingest import chunk_id

SOURCE = "kiln/burner.md"


@pytest.fixture
async def console(chromium: Browser, front: RunningFront) -> AsyncIterator[ConsoleBrowser]:
    """The console of the house. Nothing may be logged as an error."""
    console = ConsoleBrowser(chromium, front.url)
    yield console
    await console.close()
    assert not console.errors


def put_document(front: RunningFront, count: int, **texts: str) -> None:
    """A document with so many passages; the last ones are stored before the first."""
    body: dict[str, Any] = {"source": SOURCE, "title": "Burner", "type": "markdown", "chars": 9, "chunks": count}
    front.house.put("documents", "doc-1", body | {"ingested_by": "ann"})
    for n in reversed(range(count)):
        text = texts.get(f"p{n}", f"Turn screw {n}.")
        chunk = {"source": SOURCE, "text": text, "context": f"Burner > Part {n // 2}", "start": 20 * n}
        front.house.put("chunks", chunk_id("doc-1", n), chunk)


async def test_the_passages_of_a_document_come_in_order_and_in_pages(front: RunningFront) -> None:
    put_document(front, 5)
    first = (await front.me.get("/v1/passages", params={"source": SOURCE, "limit": 3})).json()
    assert [each["text"] for each in first["items"]] == ["Turn screw 0.", "Turn screw 1.", "Turn screw 2."]
    assert first["items"][2]["context"] == "Burner > Part 1"
    rest = await front.me.get("/v1/passages", params={"source": SOURCE, "limit": 3, "cursor": first["next_cursor"]})
    assert [each["text"] for each in rest.json()["items"]] == ["Turn screw 3.", "Turn screw 4."]
    assert rest.json()["next_cursor"] is None
    assert (await front.me.get("/v1/passages", params={"source": "nothing.md"})).status_code == 404


async def test_a_caller_who_may_not_read_the_project_gets_nothing(front: RunningFront) -> None:
    put_document(front, 2)
    async with front.as_principal("sender", "submit") as sender:
        assert (await sender.get("/v1/passages", params={"source": SOURCE})).status_code == 403
    async with front.as_principal("other", "read", projects=["elsewhere"]) as other:
        assert (await other.get("/v1/passages", params={"source": SOURCE})).status_code == 403


async def test_the_page_of_a_document_shows_its_text_as_text_and_more_on_request(
    front: RunningFront, console: ConsoleBrowser
) -> None:
    hostile = "<img src=x onerror=window.hacked=1>"
    put_document(front, 12, p1=hostile)
    page = await console.page(front.house.token_of("ann"))
    await page.goto("/#/memory/kiln%2Fburner.md?project=orders")
    passages = page.locator(".passages pre")
    await expect(passages).to_have_count(10)
    await expect(passages.nth(1)).to_have_text(hostile)
    await expect(page.locator(".passages p")).to_have_text([f"Burner > Part {n}" for n in range(5)])
    await page.get_by_role("button", name="More", exact=True).first.click()
    await expect(passages).to_have_count(12)
    assert await page.evaluate("window.hacked") is None
