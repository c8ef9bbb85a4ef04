"""The console in Chromium in front of a house in memory: what a running stack shows only by accident."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import suppress
from datetime import timedelta
from typing import Any

import pytest
from agents.router_house import NOW, PROJECT
from growth import LIMIT
from playwright.async_api import Browser, Page, Route, expect
from playwright.async_api import Error as PlaywrightError
from ui.browser import ConsoleBrowser
from ui.console_project import shows_decisions
from ui.http_front import RunningFront, put_task
from ui.pending_approvals import put_approval

from counterpoint.proto.approvals import ApprovalDecided
from counterpoint.proto.decisions import DecisionMade

NOW_PAGE = f"/#/now?project={PROJECT}"
PORTION = 100
RENDERED = """async (texts) => {
    const {markdown} = await import("/console/markdown.js");
    const took = (text) => {
        const began = performance.now();
        markdown(text);
        return performance.now() - began;
    };
    return texts.map((text) => Math.min(took(text), took(text), took(text)));
}"""
"""The milliseconds for each text."""
QUOTED = """async (text) => {
    const {markdown} = await import("/console/markdown.js");
    const element = markdown(text);
    return [element.querySelectorAll("blockquote").length, element.textContent.length];
}"""
"""The number of quotes and the length of what is shown."""


@pytest.fixture
async def console(chromium: Browser, front: RunningFront) -> AsyncIterator[ConsoleBrowser]:
    """The console of the house. Nothing may be logged as an error."""
    console = ConsoleBrowser(chromium, front.url)
    yield console
    await console.close()
    assert not console.errors


async def opened(console: ConsoleBrowser, front: RunningFront, name: str, *roles: str, **options: Any) -> Page:
    page = await console.page(front.house.token_of(name, *roles), **options)
    await page.goto(NOW_PAGE)
    await page.get_by_text("live", exact=True).wait_for()
    return page


def decided(front: RunningFront, *numbers: int) -> None:
    for number in numbers:
        front.house.send(
            DecisionMade(
                decision_id=f"d{number}", task_id="t1", project=PROJECT, agent="manager", decision_type="plan",
                decision=f"step {number}", reasoning="because " * 20, made_at=NOW,
            ),
            PROJECT,
        )  # fmt: skip


async def test_the_second_of_two_decisions_is_refused_with_a_message(
    front: RunningFront, console: ConsoleBrowser
) -> None:
    approval = put_approval(front, expires_at=NOW.replace(year=2099))
    put_task(front, "t1", "input_required", waiting_for="approval")
    ann, bob = await opened(console, front, "ann"), await opened(console, front, "bob")
    for page, button in ((ann, "Approve"), (bob, "Reject")):
        await page.get_by_role("button", name=f"{button}:").click()
        dialog = page.get_by_role("dialog")
        await expect(dialog.locator("pre")).to_have_text(approval.artifact)
        await dialog.get_by_label("Reason").fill("seen")
    await ann.get_by_role("dialog").get_by_role("button", name="Approve").click()
    await expect(ann.get_by_role("dialog")).to_have_count(0)
    await expect(ann.locator("li.need").filter(has_text="a proposal")).to_have_count(0)
    await bob.get_by_role("dialog").get_by_role("button", name="Reject").click()
    await expect(bob.get_by_role("dialog").get_by_role("alert")).to_contain_text("was approved by ann")
    (sent,) = front.house.of_type(ApprovalDecided)
    assert (sent.decision, sent.by, sent.reason) == ("approved", "ann", "seen")
    await bob.keyboard.press("Escape")
    await expect(bob.locator("li.need").filter(has_text="a proposal")).to_have_count(0)


async def test_a_deputy_has_the_buttons_of_approvals_as_long_as_they_decide(
    front: RunningFront, console: ConsoleBrowser
) -> None:
    put_approval(front, expires_at=NOW.replace(year=2099))
    put_task(front, "t1", "input_required", waiting_for="approval")
    page = await console.page(front.house.token_of("ben", "read"))
    until = (NOW + timedelta(days=2)).isoformat()
    async with front.as_principal("ana", "read", "approve") as ana:
        assert (await ana.put("/v1/delegations", json={"to": "ben", "until": until})).status_code == 200
        await page.goto(NOW_PAGE)
        await page.get_by_role("button", name="Approve:").click()
        await page.get_by_role("dialog").get_by_role("button", name="Approve").click()
        await expect(page.get_by_role("dialog")).to_have_count(0)
        (sent,) = front.house.of_type(ApprovalDecided)
        assert (sent.decision, sent.by) == ("approved", "ben")
        put_approval(front, "a2", expires_at=NOW.replace(year=2099))
        assert (await ana.delete("/v1/delegations", params={"to": "ben"})).status_code == 200
    await page.reload()
    await expect(page.locator("li.need").filter(has_text="a proposal")).to_have_count(1)
    await expect(page.get_by_role("button", name="Approve:")).to_have_count(0)


async def test_a_gap_is_marked_where_decisions_are_missing(front: RunningFront, console: ConsoleBrowser) -> None:
    decided(front, 1, 2)
    front.house.forget()
    decided(front, 3)
    page = await console.page(front.house.token_of("ann"))
    await page.goto(f"{NOW_PAGE}&from=1")
    await expect(page.locator(".decisions li.marker.gap")).to_contain_text("deleted by retention")
    await expect(page.locator(".decisions li").first).to_contain_text("step 3")
    await expect(page.locator(".decisions li").filter(has_text="step 2")).to_have_count(0)


@pytest.mark.parametrize("flood", [2_000, pytest.param(10_000, marks=pytest.mark.slow)])
async def test_a_flood_of_decisions_is_kept_and_a_portion_is_shown(
    front: RunningFront, console: ConsoleBrowser, flood: int
) -> None:
    page = await opened(console, front, "ann")
    decided(front, *range(flood))
    await shows_decisions(page, flood)
    rows = page.locator(".decisions li")
    await expect(rows.first).to_contain_text(f"step {flood - 1}")
    assert await rows.count() <= PORTION
    await page.get_by_role("searchbox").fill("step 1234")
    await expect(rows).to_have_count(1)
    await page.get_by_role("searchbox").fill("")
    await expect(rows).to_have_count(PORTION)
    await page.get_by_role("button", name="Older ones").click()
    await expect(rows).to_have_count(2 * PORTION)


async def test_the_lane_is_sorted_by_priority_and_age(front: RunningFront, console: ConsoleBrowser) -> None:
    put_approval(front, expires_at=NOW.replace(year=2099))
    put_task(front, "t1", "input_required", waiting_for="approval", title="normal and approved by nobody")
    put_task(front, "t2", "input_required", waiting_for="override", title="urgent and stuck", priority="urgent")
    older = (NOW - timedelta(days=1)).isoformat()
    put_task(front, "t3", "input_required", waiting_for="override", title="normal and old", submitted_at=older)
    page = await opened(console, front, "ann")
    titles = page.locator("li.need h3")
    await expect(titles).to_have_text(["urgent and stuck", "normal and old", "normal and approved by nobody"])


async def test_a_long_lane_is_shown_in_portions_and_leads_on_by_keyboard(
    front: RunningFront, console: ConsoleBrowser
) -> None:
    for number in range(70):
        put_task(front, f"t{number}", "input_required", waiting_for="override", title=f"stuck {number}")
    page = await opened(console, front, "ann")
    cards = page.locator("li.need")
    await expect(cards).to_have_count(30)
    await page.get_by_text("70 open, 70 need you").wait_for()
    await page.get_by_role("button", name="Show 30 of 40 more").press("Enter")
    await expect(cards).to_have_count(60)
    await expect(cards.nth(30).get_by_role("link")).to_be_focused()
    await page.get_by_role("button", name="Show 10 of 10 more").click()
    await expect(cards).to_have_count(70)
    await expect(page.get_by_role("button", name="more")).to_be_hidden()


async def test_only_what_the_caller_may_act_on_is_said_to_need_them(
    front: RunningFront, console: ConsoleBrowser
) -> None:
    put_approval(front, expires_at=NOW.replace(year=2099))
    put_task(front, "t1", "input_required", waiting_for="approval", title="limit")
    put_task(front, "t2", "input_required", waiting_for="override", title="stuck", priority="urgent")
    put_task(front, "t3", "input_required", waiting_for="outcome", title="proposed")
    for name, roles, line in (
        ("reader", ("read",), "3 open, 0 need you, 3 wait for others"),
        ("approver", ("read", "approve"), "3 open, 1 needs you, 2 wait for others"),
        ("ann", (), "3 open, 3 need you"),
    ):
        page = await opened(console, front, name, *roles)
        await expect(page.get_by_role("status").filter(has_text="open")).to_have_text(line)
        first = "limit" if name == "approver" else "stuck"
        await expect(page.locator("li.need h3").first).to_have_text(first)


async def test_a_proposal_is_shown_beside_the_question_whether_it_worked(
    front: RunningFront, console: ConsoleBrowser
) -> None:
    proposal = "From valve.md [1]:\n\n> Close the valve.\n\n" + "x" * 500
    put_task(front, "t1", "input_required", waiting_for="outcome", attempt=1, title="stuck", proposal=proposal)
    page = await opened(console, front, "ann")
    shown = page.locator("li.need .proposed")
    await expect(shown).to_contain_text("Close the valve.")
    assert len(await shown.inner_text()) <= 300


async def test_the_question_about_the_change_is_answered(front: RunningFront, console: ConsoleBrowser) -> None:
    needs = [{"kind": "outcome", "what": "what was changed", "how": "counterpoint outcome"}]
    await front.me.post("/v1/tasks", json={"kind": "question", "description": "Why?", "task_id": "t1"})
    put_task(front, "t1", "completed", resolution="resolved", needs=needs, attempt=1, title="the door stuck")
    page = await opened(console, front, "ann")
    await page.get_by_role("button", name="What did you change?: the door stuck").click()
    dialog = page.get_by_role("dialog")
    await dialog.get_by_role("button", name="Answer").click()
    await expect(dialog.get_by_role("alert")).to_contain_text("Write what fixed it")
    await dialog.get_by_label("What fixed it").fill("Oiled the hinge.")
    await dialog.get_by_role("button", name="Answer").click()
    await expect(page.get_by_role("dialog")).to_have_count(0)
    reported = [each for each in front.house.log if each.type.endswith("outcome_reported.v1")]
    assert [(one.message.fixed_by, one.message.note) for one in reported] == [("something_else", "Oiled the hinge.")]


async def test_a_project_is_changed_in_the_address_and_kept(front: RunningFront, console: ConsoleBrowser) -> None:
    put_task(front, "t1", "working", title="of the orders")
    page = await opened(console, front, "ann")
    await page.get_by_role("link", name="of the orders").wait_for()
    await page.get_by_label("Project").fill("elsewhere")
    await page.keyboard.press("Enter")
    await page.get_by_text("Nothing is open.").wait_for()
    assert "project=elsewhere" in page.url
    await page.goto("about:blank")
    await page.goto("/")
    await expect(page.get_by_label("Project")).to_have_value("elsewhere")
    await page.get_by_role("button", name="Sign out").click()
    await page.get_by_role("dialog", name="Sign in to Counterpoint").wait_for()


async def test_a_link_signs_in_once_and_leaves_no_code_in_the_address(
    front: RunningFront, console: ConsoleBrowser
) -> None:
    put_task(front, "t1", "working", title="of the orders")
    code = (await front.me.post("/v1/sign-in-codes")).json()["code"]
    for times in range(2):
        page = await console.page(None)
        asked: list[str] = []
        page.on("request", lambda request, asked=asked: asked.append(request.url))  # type: ignore[misc]
        await page.goto(f"/#code={code}&project={PROJECT}")
        if times == 0:
            await page.get_by_role("link", name="of the orders").wait_for()
        else:
            await expect(page.get_by_role("dialog")).to_contain_text("no longer valid")
        assert code not in page.url
        assert not [url for url in asked if code in url]
        assert code not in await page.evaluate("JSON.stringify([localStorage, sessionStorage, document.cookie])")


async def test_a_list_that_could_not_be_read_is_not_called_empty(front: RunningFront, console: ConsoleBrowser) -> None:
    page = await console.page(front.house.token_of("eve", "submit"))
    await page.goto(NOW_PAGE)
    await page.get_by_role("alert").filter(has_text="needs the role read").wait_for()
    for text in ("Nothing is open.", "Nothing needs a person.", "No decision yet."):
        await expect(page.get_by_text(text)).to_be_hidden()
    await page.goto(f"/#/incident/nothing?project={PROJECT}")
    await page.get_by_role("alert").wait_for()
    await expect(page.get_by_role("heading", name="Replay")).to_be_hidden()


async def test_a_late_answer_does_not_replace_that_of_a_newer_search(
    front: RunningFront, console: ConsoleBrowser
) -> None:
    page = await console.page(front.house.token_of("ann"))
    first_is_held, release = asyncio.Event(), asyncio.Event()

    async def searched(route: Route) -> None:
        text = route.request.post_data_json["text"]
        if text == "first":
            first_is_held.set()
            await release.wait()
        hit = {"store": "attempts", "id": text, "version": 1, "score": 1, "integrity": 2, "text": f"about the {text}"}
        with suppress(PlaywrightError):  # the page has ended the request
            await route.fulfill(json={"items": [hit], "tier": "vector", "plan": "exact", "took_us": 1})

    await page.route("**/v1/search?*", searched)
    await page.goto(f"/#/memory?project={PROJECT}")
    for text in ("first", "second"):
        await page.get_by_label("Words or an error").fill(text)
        await page.get_by_role("button", name="Search", exact=True).click()
        if text == "first":
            await first_is_held.wait()
    await page.get_by_text("about the second").wait_for()
    release.set()
    await page.evaluate("fetch('/v1/whoami').then((answer) => answer.status)")
    await expect(page.get_by_text("about the second")).to_be_visible()
    await expect(page.get_by_text("about the first")).to_have_count(0)


async def test_quotes_in_quotes_are_rendered_to_a_depth(front: RunningFront, console: ConsoleBrowser) -> None:
    page = await opened(console, front, "ann")
    assert await page.evaluate(QUOTED, ">" * 16_000) == [5, 16_000 - 5]


@pytest.mark.parametrize("pump", ["[", "[a](", ">", "```\nx\n"])
async def test_a_markdown_text_is_rendered_in_linear_time(
    front: RunningFront, console: ConsoleBrowser, pump: str
) -> None:
    page = await opened(console, front, "ann")
    times = await page.evaluate(RENDERED, [pump * (size // len(pump)) for size in (8_000, 64_000)])
    assert times[1] / max(times[0], 2) < LIMIT


ON_A_PHONE = """() => {
    const header = document.querySelector("header").getBoundingClientRect();
    const outside = [...document.querySelectorAll("header a, header input, header button:not(.skip)")]
        .filter((each) => each.getBoundingClientRect().right > innerWidth).map((each) => each.textContent);
    const region = document.querySelector(".scroll:has(tbody tr)");
    region.scrollLeft = region.scrollWidth;
    const first = region.querySelector("tbody th").getBoundingClientRect();
    const visible = first.left >= 0 && first.right <= innerWidth / 2;
    return {height: header.height, outside, columns: region.scrollWidth, visible};
}"""
"""The height of the header, what of it is outside, the width of the table, and whether its first column is kept."""


async def test_the_header_and_a_wide_table_fit_a_phone(front: RunningFront, console: ConsoleBrowser) -> None:
    job = {"namespace": "production-north", "name": "orders_ingest.fetch_orders_from_the_ledger"}
    put_task(
        front, "t1", "input_required", kind="troubleshoot", waiting_for="override", target={"job": job},
        title="https://ledger.example.org/a/path/that/goes/on", context={"owner": "team-ledger@example.org"},
    )  # fmt: skip
    page = await opened(console, front, "ann", viewport={"width": 390, "height": 844})
    await page.locator(".scroll tbody th").first.wait_for()
    found = await page.evaluate(ON_A_PHONE)
    assert found["outside"] == []
    assert found["height"] <= 100
    assert found["columns"] <= 600
    assert found["visible"]
