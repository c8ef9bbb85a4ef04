"""The pages *now* and *incident* of the console in Chromium, on the running stack."""

import asyncio
import re
from collections.abc import Awaitable, Callable
from typing import Any

import httpx
import pytest
from playwright.async_api import Page, expect
from ui.browser import axe
from ui.console_project import ConsoleProject, kill_router, shows_decisions

from counterpoint.local.stack import Stack

Pages = Callable[..., Awaitable[Page]]
FAILURE: dict[str, Any] = {
    "kind": "troubleshoot",
    "error_message": "OSError: [Errno 28] No space left on device: '/var/spool/ledger'",
    "priority": "high",
    "target": {"job": {"namespace": "night", "name": "ledger.close"}},
    "context": {
        "owner": "team-ledger",
        "repeats": {"count": 4},
        "downstream": [
            {"kind": "job", "namespace": "night", "name": "ledger.report", "hops": 1, "edge": "data", "owner": "tax"},
            {"kind": "dataset", "namespace": "s3", "name": "balances", "hops": 2, "edge": "data", "owner": None},
        ],
    },
}  # fmt: skip


@pytest.fixture
def home(http: httpx.AsyncClient, project: str) -> ConsoleProject:
    return ConsoleProject(http, project)


async def test_every_decision_appears_while_many_tasks_run(home: ConsoleProject, console_page: Pages) -> None:
    await home.submit("ledger", "The ledger was not closed.", **FAILURE)
    page = await console_page(await home.token("ann"))
    await page.goto(home.now())
    row = page.get_by_role("row").filter(has_text="ledger.close failed")
    await expect(row).to_contain_text("high")
    await expect(row).to_contain_text("4")
    await expect(row).to_contain_text("1 job, 1 data set")
    await expect(row).to_contain_text("tax")
    need = page.locator("li.need").filter(has_text="ledger.close failed")
    await expect(need).to_contain_text("needs a document or a decision")

    await page.get_by_text("live", exact=True).wait_for()
    await asyncio.gather(*(home.submit(f"q{number}", f"How long is shift {number}?") for number in range(8)))
    told = await home.decisions()
    await shows_decisions(page, len(told))
    await page.get_by_text("9 open, 9 need you").wait_for()
    links = await page.locator(".decisions a.permalink").evaluate_all("each => each.map(a => a.hash)")
    assert len(set(links)) == len(links) == len(told)

    await page.get_by_role("button", name="Pause").click()
    shown = await page.locator(".decisions li").count()
    await home.submit("paused", "Who has the key?")
    await page.get_by_text("paused, ", exact=False).filter(has_text="new").wait_for()
    assert await page.locator(".decisions li").count() == shown
    await page.get_by_role("button", name="Continue").click()
    await shows_decisions(page, len(await home.decisions()))

    await page.get_by_role("searchbox").fill("developer ledger")
    await expect(page.locator(".decisions li").first).to_contain_text("developer")
    assert await page.locator(".decisions li").count() < 10
    assert "filter=developer" in page.url
    assert await axe(page, widths=(360, 1440, 2560)) == []

    await page.goto("about:blank")
    await page.goto("/" + links[-1])
    await expect(page.locator(".decisions li.marker.from")).to_be_visible()
    await shows_decisions(page, len(await home.decisions()))


async def test_the_log_goes_on_after_the_router_was_killed_and_says_so(
    stack: Stack, home: ConsoleProject, console_page: Pages
) -> None:
    await home.submit("before", "Who opens the door?")
    page = await console_page(await home.token("ann"))
    await page.goto(home.now())
    await page.get_by_text("live", exact=True).wait_for()
    await kill_router(stack)
    await home.submit("after", "Who closes the door?")
    await expect(page.locator(".decisions li.marker.lost")).to_contain_text("nothing is missing")
    told = await home.decisions()
    await shows_decisions(page, len(told))
    links = await page.locator(".decisions a.permalink").evaluate_all("each => each.map(a => a.hash)")
    assert len(set(links)) == len(links) == len(told)
    await page.get_by_text("2 open, 2 need you").wait_for()
    await expect(page.locator(".error")).to_have_count(0)


async def test_a_token_that_is_revoked_ends_the_open_page(home: ConsoleProject, console_page: Pages) -> None:
    page = await console_page(await home.token("ann"))
    await page.goto(home.now())
    await page.get_by_text("live", exact=True).wait_for()
    await home.revoke("ann")
    await home.submit("later", "What is said after that?")
    dialog = page.get_by_role("dialog", name="Sign in to Counterpoint")
    await expect(dialog).to_contain_text("revoked")
    assert "What is said" not in await page.content()
    await dialog.get_by_label("Token").fill(await home.token("bob"))
    await dialog.get_by_role("button", name="Sign in").click()
    await page.locator("li.need").filter(has_text="What is said").wait_for()


HOSTILE = (
    '<img src=x onerror="window.pwned=1"><script>window.pwned=2</script></pre></textarea>'
    '<svg onload="window.pwned=3"> [click](javascript:window.pwned=4) `<b>` ${window.pwned=5} {{7*7}} rm \u202e/tmp'
)


async def test_markup_in_an_incident_is_text(home: ConsoleProject, console_page: Pages) -> None:
    job = {"namespace": HOSTILE[:40], "name": HOSTILE}
    context = {"owner": HOSTILE, "log_url": "javascript:window.pwned=6", "downstream": [
        {"kind": "job", "namespace": "n", "name": HOSTILE, "hops": 1, "edge": "data", "owner": HOSTILE}]}  # fmt: skip
    await home.submit(
        "hostile", HOSTILE, kind="troubleshoot", title=HOSTILE, error_message=HOSTILE, target={"job": job},
        context=context, systems=[HOSTILE],
    )  # fmt: skip
    page = await console_page(await home.token("ann"))
    await page.add_init_script(
        "window.blocked = []; addEventListener('securitypolicyviolation', (event) => blocked.push(event.blockedURI))"
    )
    for address in (home.now(), home.incident("hostile")):
        await page.goto(address)
        await page.reload()
        await page.get_by_role("link" if "now" in address else "heading", name="<img src=x").first.wait_for()
        if "incident" in address:
            await page.locator(".timeline li").first.wait_for()
            await page.locator(".events li").first.wait_for()
            for summary in await page.locator("summary").all():
                await summary.click()
            await page.get_by_role("button", name="Override").click()
            await page.get_by_role("dialog").wait_for()
        assert await page.evaluate("[window.pwned, window.blocked]") == [None, []]
        assert "\u202e" not in await page.evaluate("document.body.innerText")
        assert (
            await page.locator("script:not([src]), img[src='x'], svg[onload], [onerror], a[href^='javascript']").count()
            == 0
        )


async def test_an_incident_shows_its_reasons_its_attempts_and_that_the_record_is_whole(
    home: ConsoleProject, console_page: Pages
) -> None:
    await home.submit("ledger", "The ledger was not closed.", **FAILURE)
    page = await console_page(await home.token("ann"))
    await page.goto(home.incident("ledger"))
    await page.get_by_role("heading", name="ledger.close failed").wait_for()
    await expect(page.get_by_text("proved")).to_contain_text("audit:")
    await expect(page.get_by_role("img", name="Confidence")).to_be_visible()
    await expect(page.get_by_role("link", name="job ledger.report, owner tax")).to_be_visible()
    steps = page.locator("svg g.step")
    assert await steps.count() >= 4
    await steps.last.focus()
    await page.keyboard.press("Enter")
    await expect(page.locator(".timeline li:focus")).to_have_count(1)
    events = await page.locator(".events li").count()

    await page.get_by_role("button", name="Report the outcome").first.click()
    dialog = page.get_by_role("dialog")
    await dialog.get_by_label("Fixed by").select_option("something_else")
    await dialog.get_by_label("Note").fill("Moved the spool to the large volume.")
    await dialog.get_by_role("button", name="Report").click()
    own = page.get_by_role("region", name="Attempts of this task").get_by_role("row")
    await own.filter(has_text="Moved the spool").get_by_text("succeeded").wait_for()
    await expect(page.locator(".badge").filter(has_text="completed")).to_be_visible()
    assert await page.locator(".events li").count() > events
    await page.get_by_role("button", name="Rebuild the steps").click()
    await expect(page.get_by_text("steps are as the audit log says")).to_be_visible()
    await expect(page.locator("table.diff ins").filter(has_text="completed")).to_be_visible()
    assert await axe(page) == []

    decision = await page.locator(".timeline a.permalink").first.get_attribute("href")
    await page.goto("/" + str(decision))
    await page.reload()
    await expect(page.locator(".timeline li.marked")).to_be_focused()


async def test_a_wrong_proof_is_called_broken(home: ConsoleProject, console_page: Pages) -> None:
    await home.submit("ledger", "The ledger was not closed.", **FAILURE)
    page = await console_page(await home.token("ann"))

    async def altered(route: Any) -> None:
        found = await (await route.fetch()).json()
        found["leaves"][-1]["body"] = found["leaves"][-1]["body"].replace("project", "object")
        await route.fulfill(json=found)

    await page.route("**/v1/audit/proofs/**", altered)
    await page.goto(home.incident("ledger"))
    await expect(page.locator(".badge.bad").filter(has_text="audit: broken")).to_have_count(1)


async def test_everything_can_be_done_with_the_keyboard(home: ConsoleProject, console_page: Pages) -> None:
    await home.submit("ledger", "The ledger was not closed.", **FAILURE)
    page = await console_page(None)
    await page.goto(home.now())
    await page.get_by_role("dialog", name="Sign in to Counterpoint").wait_for()
    await page.keyboard.type(await home.token("ann"))
    await page.keyboard.press("Enter")
    await page.locator("li.need").wait_for()
    await page.keyboard.press("?")
    await expect(page.get_by_role("dialog", name="Keys")).to_contain_text("Next in the list")
    await page.keyboard.press("Escape")
    await page.keyboard.press("j")
    await page.keyboard.press("Enter")
    await page.get_by_role("heading", name="ledger.close failed").wait_for()
    await page.keyboard.press("g")
    await page.keyboard.press("n")
    await page.locator("li.need").wait_for()
    await page.keyboard.press("/")
    await page.keyboard.type("route")
    await expect(page.locator(".decisions li")).to_have_count(1)
    await page.keyboard.press("Shift+Tab")
    await page.keyboard.press("Enter")
    await expect(page.get_by_role("button", name="Continue")).to_be_focused()

    await page.locator("li.need h3 a").focus()
    for name in ("Add a document", "Override"):
        await page.keyboard.press("Tab")
        await expect(page.get_by_role("button", name=f"{name}: ledger.close")).to_be_focused()
    await page.keyboard.press("Enter")
    await page.get_by_role("dialog", name="Override").wait_for()
    await page.keyboard.type("Empty the spool")
    await page.keyboard.press("Tab")
    await page.keyboard.type("It is full of last year")
    for _ in range(4):
        await page.keyboard.press("Tab")
    await page.keyboard.press("Enter")
    await expect(page.get_by_role("dialog")).to_have_count(0)
    await page.locator(".decisions, .need").filter(has_text="has a proposal").wait_for()


async def test_a_dropped_document_is_found_and_the_task_goes_on(home: ConsoleProject, console_page: Pages) -> None:
    await home.submit("door", "How is the door of the cold store opened?")
    page = await console_page(await home.token("ann"))
    await page.goto(home.now())
    await page.locator("li.need").filter(has_text="cold store").wait_for()
    dropped = await page.evaluate_handle(
        """() => {
            const data = new DataTransfer();
            const text = "# Cold store\\n\\nThe door of the cold store is opened with the yellow key, pulled twice.\\n";
            data.items.add(new File([text], "cold-store.md", {type: "text/markdown"}));
            return data;
        }"""
    )
    for event in ("dragenter", "dragover", "drop"):
        await page.dispatch_event("main", event, {"dataTransfer": dropped})
    await page.get_by_text("cold-store.md: added").wait_for()
    await expect(page.locator("li.need").filter(has_text="cold store")).to_have_count(0)
    answered = (await home.http.get("/v1/tasks/door", params={"project": home.name})).json()
    assert (answered["state"], "yellow key" in answered["result"]) == ("completed", True)


async def test_acts_without_the_right_are_not_offered(home: ConsoleProject, console_page: Pages) -> None:
    await home.submit("ledger", "The ledger was not closed.", **FAILURE)
    page = await console_page(await home.token("reader", "read"))
    await page.goto(home.now())
    await expect(page.locator("li.need")).to_contain_text("You may read this")
    assert await page.locator("li.need button").count() == 0
    await page.goto(home.incident("ledger"))
    await page.get_by_text("audit needs the role audit").wait_for()
    # A reader may draft, and nothing else.
    assert await page.locator("div.actions button").all_inner_texts() == ["Draft a postmortem", "Draft a runbook"]
    await page.get_by_role("button", name="Draft a runbook").click()
    draft = page.get_by_role("dialog").get_by_label("Markdown")
    await expect(draft).to_have_value(re.compile("## Symptom.*No space left on device", re.DOTALL))
    assert await axe(page, widths=(360,), schemes=("dark",)) == []
