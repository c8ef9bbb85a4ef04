"""The console's pages of lineage, memory, costs, dead letters and health, in Chromium on the running stack."""

from collections.abc import Awaitable, Callable
from typing import Any
from urllib.parse import quote

import httpx
import pytest
import pytest_asyncio
from playwright.async_api import Page, Route, expect
from ui.browser import axe
from ui.console_story import EXPORT, LETTERS, LOAD, QUESTION, SOURCE, Story, play

from counterpoint.local.stack import Stack

OpenPage = Callable[..., Awaitable[Page]]


@pytest_asyncio.fixture(scope="module")
async def story(stack: Stack) -> Story:
    """The project that the pages show."""
    headers = {"Authorization": f"Bearer {stack.endpoints.token}"}
    async with httpx.AsyncClient(base_url=stack.endpoints.http, headers=headers, timeout=90) as http:
        return await play(stack, http, "console-pages")


@pytest.fixture
async def open_page(console_page: OpenPage, stack: Stack) -> Callable[[str, str], Awaitable[Page]]:
    """Return a function that opens a page of the console in a project, in one browser."""
    page = await console_page(stack.endpoints.token)

    async def go(route: str, project: str) -> Page:
        address = f"#/{route}{'&' if '?' in route else '?'}project={project}"
        await page.goto(f"/{address}")
        await expect(page.locator("main")).to_have_attribute("data-shown", address)
        await expect(page.get_by_text("Loading…")).to_have_count(0)
        return page

    return go


async def accessible(page: Page, **only: Any) -> None:
    """Nothing violates a rule of axe, and no hostile text became markup."""
    assert await axe(page, **only) == []
    assert await page.evaluate("window.hacked") is None


def path(*parts: str) -> str:
    return "/".join(quote(part, safe="") for part in parts)


async def test_lineage_has_a_graph_with_hops_a_table_and_the_radius(story: Story, open_page: Any) -> None:
    page = await open_page("lineage", story.project)
    jobs = page.get_by_role("region", name="Jobs, last changed first")
    await expect(jobs.get_by_role("row")).to_have_count(3)
    await page.keyboard.press("/")
    await page.keyboard.type("LEDGER export")
    await page.keyboard.press("Enter")
    await expect(jobs.get_by_role("row")).to_have_count(2)
    await jobs.get_by_role("link").focus()
    await page.keyboard.press("Enter")
    await expect(page.get_by_role("heading", name=f"The job ns/α/{EXPORT}")).to_be_visible()
    around = page.get_by_role("region", name="Jobs and data sets around it")
    await expect(around.locator("td.numeric")).to_have_text(["0", "-1", "+1", "+1", "+2"])
    drawing = page.get_by_role("img", name="Graph of 5 jobs and data sets, 1 of them upstream.")
    await expect(drawing.locator("canvas").first).to_be_visible()
    await accessible(page)

    await page.get_by_label("As it was known at").fill("2001-01-01T00:00:00")
    await page.get_by_label("As it was known at").blur()
    await expect(page.get_by_text("is not a known job at that time")).to_be_visible()
    page = await open_page(f"lineage/{path('dataset', 'db', 'export')}?view=radius", story.project)
    downstream = page.get_by_role("region", name="Downstream, nearest first")
    await expect(downstream.get_by_role("link")).to_have_text([f"ns/α/{LOAD}", "db/ledger"])
    page = await open_page(f"lineage/{path('memory', SOURCE)}", story.project)
    await expect(page.get_by_role("region", name="Items that rest on it").get_by_role("row").nth(3)).to_be_visible()


async def test_memory_is_searched_traced_and_taken_back_after_a_preview(
    story: Story, open_page: Any, http: httpx.AsyncClient
) -> None:
    page = await open_page("memory", story.project)
    await page.keyboard.press("/")
    await page.keyboard.type(QUESTION)
    await page.keyboard.press("Enter")
    found = page.get_by_role("region", name="1 results, best first")
    await expect(found.get_by_role("columnheader")).to_have_text(
        ["Found in", "Text", "Score", "Meaning", "Words", "Trust"]
    )
    for cell in await found.get_by_role("cell").all():
        assert await cell.inner_text() not in ("", "–")
    await accessible(page)
    await found.get_by_role("link", name=SOURCE).click()
    resting = page.get_by_role("region", name="Items that rest on it")
    await expect(resting.get_by_text("used").first).to_be_visible()

    await page.get_by_role("button", name="Roll back…").click()
    dialog = page.get_by_role("dialog")
    await expect(dialog.get_by_text("1 record of documents restored to an earlier version")).to_be_visible()
    await expect(dialog.get_by_text("1 task rests on it; its record is kept")).to_be_visible()
    await accessible(page, widths=(360,), schemes=("dark",))
    await dialog.get_by_role("button", name="Cancel").click()
    asked = {"text": QUESTION, "project": story.project}
    assert "deleting" in (await http.post("/v1/search", json=asked)).json()["items"][0]["text"]

    await page.get_by_role("button", name="Roll back…").click()
    await page.get_by_label("Reason, which is recorded").fill("it deletes the table")
    await page.get_by_role("dialog").get_by_role("button", name="Roll back").click()
    undo = page.get_by_role("button", name="Undo the rollback of documents/")
    await expect(undo).to_be_visible()
    assert "restarting" in (await http.post("/v1/search", json=asked)).json()["items"][0]["text"]
    await undo.click()
    await page.get_by_role("dialog").get_by_role("button", name="Undo").click()
    await expect(page.get_by_text("rollback, undone")).to_be_visible()
    assert "deleting" in (await http.post("/v1/search", json=asked)).json()["items"][0]["text"]


async def test_dead_letters_are_read_and_retried_one_or_all_alike(story: Story, open_page: Any) -> None:
    page = await open_page("dead-letters", story.project)
    letters = page.get_by_role("region", name="Newest first")
    await expect(letters.get_by_role("row")).to_have_count(LETTERS + 1)
    await letters.get_by_role("link", name="malformed").first.click()
    await expect(page.get_by_label("Body")).to_contain_text("{no json <img src=x")
    await accessible(page)
    await page.get_by_role("button", name="Retry", exact=True).click()
    await expect(page.get_by_text("The message was sent again.")).to_be_visible()
    await expect(page.get_by_text("retried", exact=True)).to_be_visible()
    page = await open_page(f"dead-letters/{story.letters[1]}", story.project)
    await page.get_by_role("button", name="Retry all like it…").click()
    await page.get_by_role("dialog").get_by_role("button", name="Retry all").click()
    await expect(page.get_by_text("sent again.").last).to_be_visible()
    await expect(page.get_by_role("button", name="Retry all like it…")).to_have_count(0)


async def test_health_shows_services_lag_cache_and_verifies(story: Story, open_page: Any) -> None:
    page = await open_page("health", story.project)
    services = page.get_by_role("region", name="Messages that wait for each service")
    names = ["developer", "lineage", "manager", "memory", "router"]
    await expect(services.get_by_role("rowheader")).to_have_text(names)
    await expect(page.get_by_text("of", exact=False).filter(has_text="lookups").first).to_be_visible()
    await page.get_by_role("button", name="Verify the audit log").click()
    await expect(page.get_by_text("Nothing was changed")).to_be_visible()
    await accessible(page)


COST_LINES = [
    {"key": key, "calls": 4, "unpriced": 1, "unknown": 0, "usd": usd, "input_tokens": 1000, "output_tokens": 50,
     "under_way": 1, "reserved_usd": "0.01", "reserved_tokens": 10}
    for key, usd in (("<b>big</b>", "1.25"), ("small", "0.0004"))
]  # fmt: skip


async def test_costs_by_group_with_limits_that_are_set_and_removed(story: Story, open_page: Any) -> None:
    page = await open_page("costs", story.project)
    await expect(page.get_by_text("No model call in this time.")).to_have_count(2)
    await expect(page.get_by_text("No limit is set.")).to_be_visible()
    await page.get_by_role("button", name="Set a limit…").click()
    dialog = page.get_by_role("dialog")
    await dialog.get_by_role("button", name="Set").click()
    await expect(dialog.get_by_text("usd or tokens must be given")).to_be_visible()
    await dialog.get_by_label("US dollars", exact=True).fill("2.50")
    await dialog.get_by_label("Period").select_option("month")
    await dialog.get_by_role("button", name="Set").click()
    limits = page.get_by_role("region", name="A call whose estimate")
    await expect(limits.get_by_text("the project, a month")).to_be_visible()
    await expect(limits.get_by_text("$2.50")).to_be_visible()
    await expect(limits.get_by_text("not reached")).to_be_visible()

    async def spent(route: Route) -> None:
        by = "day" if "by=day" in route.request.url else "model"
        today = await page.evaluate("new Date().toISOString().slice(0, 10)")
        lines = [COST_LINES[0] | {"key": today}] if by == "day" else COST_LINES
        report = {"by": by, "lines": lines, "total": COST_LINES[0] | {"usd": "1.2504"}, "truncated": False}
        await route.fulfill(json=report)

    await page.route("**/v1/costs?*", spent)
    await page.reload()
    models = page.get_by_role("region", name="Model calls by model")
    await expect(models.get_by_role("rowheader")).to_have_text(["<b>big</b>", "small", "Total"])
    await expect(models.get_by_text("$0.0004")).to_be_visible()
    await expect(page.get_by_role("img", name="Costs by day, $1.25 in 30 days.").locator("canvas")).to_be_visible()
    await expect(page.get_by_text("at the pace of the last 7 days")).to_be_visible()
    await accessible(page)
    await limits.get_by_role("button", name="Remove the limit for the project, a month").click()
    await page.get_by_role("dialog").get_by_role("button", name="Remove").click()
    await expect(page.get_by_text("No limit is set.")).to_be_visible()
    await page.get_by_role("button", name="Set a limit…").click()
    await dialog.get_by_label("For", exact=True).select_option("organisation")
    await dialog.get_by_label("Name").fill("consoles")
    await dialog.get_by_label("Projects").fill(f"{story.project}, elsewhere")
    await dialog.get_by_label("Tokens", exact=True).fill("900")
    await dialog.get_by_role("button", name="Set").click()
    name = f"consoles of the organisation ({story.project}, elsewhere), a day"
    await expect(limits.get_by_text(name)).to_be_visible()
    await limits.get_by_role("button", name=f"Remove the limit for {name}").click()
    await page.get_by_role("dialog").get_by_role("button", name="Remove").click()
    await expect(page.get_by_text("No limit is set.")).to_be_visible()


async def test_ids_of_another_project_show_nothing(story: Story, open_page: Any) -> None:
    stranger = f"{story.project}-empty"
    for route, said in (
        (f"lineage/{path('job', 'ns/α', LOAD)}", "is not a known job"),
        (f"lineage/{path('dataset', 'db', 'export')}?view=radius", "is not a known data set"),
        (f"lineage/{path('memory', SOURCE)}", f"is not a memory of project {stranger}"),
        (f"dead-letters/{path(story.letters[0])}", "is not a dead letter of this project"),
        (f"memory/{path(f'tasks/{story.task_id}')}", f"is not a memory of project {stranger}"),
        (f"memory/{path(SOURCE)}", f"is not a memory of project {stranger}"),
    ):
        page = await open_page(route, stranger)
        await expect(page.get_by_role("alert")).to_contain_text(said)
    await page.get_by_role("button", name="Quarantine…").click()
    await expect(page.get_by_role("dialog").get_by_role("alert")).to_contain_text("is not a memory of project")
    await expect(page.get_by_role("dialog").get_by_role("button", name="Quarantine", exact=True)).to_have_count(0)


async def test_an_empty_project_says_so_and_a_reader_is_told_the_missing_right(
    story: Story, console_page: OpenPage, open_page: Any, http: httpx.AsyncClient
) -> None:
    for route, said in (
        ("lineage", "No job is known yet."),
        ("memory", "No documents."),
        ("costs", "No model call in this time."),
        ("dead-letters", "No dead letters."),
    ):
        page = await open_page(route, f"{story.project}-empty")
        await expect(page.get_by_text(said).first).to_be_visible()
    body = {"name": "reader-of-pages", "kind": "person", "projects": [story.project], "roles": ["read"]}
    token = (await http.post("/v1/principals", json=body)).json()["token"]
    reader = await console_page(token)
    for route in ("dead-letters", "health"):
        await reader.goto(f"/#/{route}?project={story.project}")
        await expect(reader.get_by_role("alert").first).to_contain_text("the role operate in project")
        await expect(reader.get_by_text("Loading…")).to_have_count(0)
    await expect(reader.get_by_role("button", name="Verify the audit log")).to_have_count(0)
    await reader.goto(f"/#/costs?project={story.project}")
    await expect(reader.get_by_text("No limit is set.")).to_be_visible()
    await expect(reader.get_by_role("button", name="Set a limit…")).to_have_count(0)
    await http.delete("/v1/principals/reader-of-pages")
    await reader.goto(f"/#/lineage?project={story.project}")
    await expect(reader.get_by_role("dialog")).to_contain_text("the token was revoked")
