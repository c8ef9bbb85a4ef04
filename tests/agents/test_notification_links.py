"""Notifications lead to the incident in the console."""

from pathlib import Path

import pytest
from agents.hook_receiver import HookReceiver
from agents.notified_house import DONE, ESCALATED, PROPOSED, WORKING, NotifiedHouse, proposed, receiver
from agents.test_notification_bodies import UNEXPLAINED
from pydantic import ValidationError

from counterpoint.router.notify.bodies.teams import card
from counterpoint.router.notify.receivers import receivers_of
from counterpoint.router.notify.summary import summary_of
from counterpoint.router.settings import RouterSettings

CONSOLE = "https://counterpoint.example.com/"
PAGE = "https://counterpoint.example.com/#/incident/incident-1?project=orders"


@pytest.mark.parametrize("kind", ["slack", "teams", "pagerduty", "alertmanager"])
async def test_a_message_leads_to_the_incident_in_the_console(hook: HookReceiver, kind: str) -> None:
    house = NotifiedHouse([receiver(hook, kind, console_url=CONSOLE)])
    house.task(**PROPOSED)
    await house.tell(proposed())
    await house.settle()
    body = hook.received[0].json
    found = {
        "slack": lambda: body["blocks"][-1]["elements"][0]["text"].split("|")[0].strip("<"),
        "teams": lambda: body["attachments"][0]["content"]["actions"][0]["url"],
        "pagerduty": lambda: body["client_url"],
        "alertmanager": lambda: body[0]["generatorURL"],
    }[kind]()
    assert found == PAGE
    without = receiver(hook, kind)
    assert without.page_of("orders", "incident-1") is None
    if kind == "teams":
        assert "actions" not in card(summary_of(house.task(), {}))


def test_the_address_of_the_console_is_that_of_all_receivers_but_their_own(tmp_path: Path) -> None:
    file = tmp_path / "receivers.toml"
    rows = (("one", ""), ("two", 'console_url = "https://inside.example.com"\n'))
    file.write_text("".join(f'[[receiver]]\nname = "{name}"\nurl = "https://x.example"\n{row}' for name, row in rows))
    file.chmod(0o600)
    settings = {"nats_user": "router", "nats_password": "x", "notify_file": file}
    one, two = receivers_of(RouterSettings.model_validate({**settings, "console_url": CONSOLE}))
    assert (one.page_of("orders", "incident-1"), two.console_url) == (PAGE, "https://inside.example.com")
    for wrong in ("javascript:alert(1)", "https://c.example.com/?x", "https://c.example.com/#/now", "https://c>|x"):
        with pytest.raises(ValidationError, match="console_url"):
            RouterSettings.model_validate({**settings, "console_url": wrong})


async def test_the_button_of_teams_names_the_act() -> None:
    house = NotifiedHouse([])
    titles = {
        "Report the outcome": PROPOSED,
        "Decide": ESCALATED | {"proposal": None},
        "Open in the console": WORKING,
        "Say what was changed": DONE | {"needs": UNEXPLAINED},
    }
    for title, fields in titles.items():
        (button,) = card(summary_of(house.task(**fields), {}), PAGE)["actions"]
        assert button == {"type": "Action.OpenUrl", "title": title, "url": PAGE}
