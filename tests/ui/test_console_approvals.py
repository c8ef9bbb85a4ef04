"""Two people and one approval in Chromium, on a running stack with a model whose call is over a budget."""

import httpx
import pytest
from agents.gateway_world import PRICED, world
from flows.own_stack import own_stack
from flows.questions import ingest_documents, settled
from flows.test_investigating import KNOWLEDGE, says
from playwright.async_api import Browser, expect
from ui.browser import ConsoleBrowser
from ui.console_project import ConsoleProject

from counterpoint.local.stack import Stack

PROJECT = "budgeted"
FAILURE = {"kind": "troubleshoot", "error_message": "could not resolve ldap.internal: DNS lookup timed out after 5 s"}


@pytest.mark.slow
async def test_one_of_two_decides_and_the_other_is_told_by_whom(chromium: Browser) -> None:
    async with world() as outside:
        outside.script = says
        provider = {"OPENAI_API_BASE": f"{outside.url}/v1", "OPENAI_API_KEY": "sk-nobody"}
        async with own_stack(COUNTERPOINT_MODEL=PRICED, COUNTERPOINT_RELATIONS_TOKENS="0", **provider) as stack:
            headers = {"Authorization": f"Bearer {stack.endpoints.token}"}
            async with httpx.AsyncClient(base_url=stack.endpoints.http, headers=headers, timeout=60) as http:
                await ingest_documents(http, PROJECT, KNOWLEDGE)
                await _decided_by_two(chromium, stack, ConsoleProject(http, PROJECT))


async def _decided_by_two(chromium: Browser, stack: Stack, home: ConsoleProject) -> None:
    waiting = await home.submit("ldap", "fetch_orders cannot resolve ldap.internal", budget={"tokens": 50}, **FAILURE)
    assert waiting["waiting_for"] == "approval", waiting
    console = ConsoleBrowser(chromium, stack.endpoints.http)
    ann, bob = [await console.page(await home.token(name)) for name in ("ann", "bob")]
    for page, button in ((ann, "Approve"), (bob, "Reject")):
        await page.goto(home.now())
        await page.get_by_role("button", name=f"{button}:").click()
        await expect(page.get_by_role("dialog").locator("pre")).to_contain_text("Lift the limits")
        await page.get_by_role("dialog").get_by_label("Reason").fill("as said")
    await ann.get_by_role("dialog").get_by_role("button", name="Approve").click()
    await expect(ann.get_by_role("dialog")).to_have_count(0)
    await bob.get_by_role("dialog").get_by_role("button", name="Reject").click()
    await expect(bob.get_by_role("dialog").get_by_role("alert")).to_contain_text(f"was approved by ann-{PROJECT}")
    await bob.keyboard.press("Escape")
    for page in (ann, bob):
        await expect(page.locator("li.need")).to_contain_text("has a proposal")
    task = await settled(home.http, PROJECT, "ldap")
    assert (task["waiting_for"], task["attempt"]) == ("outcome", 2), task
    await console.close()
    assert not console.errors
