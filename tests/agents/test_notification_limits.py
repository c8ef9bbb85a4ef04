"""Limits of notifications: the addresses that may be called, the texts that are told, and the file of receivers."""

import asyncio
import socket
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from agents.hook_receiver import HookReceiver, Reply, hook_receiver
from agents.notified_house import NotifiedHouse, proposed, webhook

from counterpoint.proto.addresses import may_connect
from counterpoint.router.notify.receivers import ReceiverError, load_receivers


async def test_a_redirect_is_not_followed(hook: HookReceiver) -> None:
    async with hook_receiver() as elsewhere:
        for target in ("http://169.254.169.254/latest/meta-data/", elsewhere.url):
            hook.replies.append(Reply(307, {"Location": target}))
        house = NotifiedHouse([webhook(hook)])
        for number in range(2):
            house.task(f"incident-{number}")
            await house.tell(proposed(f"incident-{number}"))
        await house.settle(timedelta(days=1))
        assert (len(hook.received), elsewhere.received) == (2, [])
    assert len(house.dead) == 2
    assert all("redirects" in str(error) for _, error in house.dead)


@pytest.mark.parametrize(
    ("address", "private", "allowed"),
    [
        ("93.184.216.34", False, True),
        ("127.0.0.1", False, False),
        ("127.0.0.1", True, True),
        ("10.1.2.3", False, False),
        ("10.1.2.3", True, True),
        ("::ffff:10.1.2.3", False, False),
        ("fd00::1", False, False),
        ("169.254.169.254", True, False),
        ("::ffff:169.254.169.254", True, False),
        ("fe80::1%eth0", True, False),
        ("0.0.0.0", True, False),
        ("224.0.0.1", True, False),
        ("100.64.0.1", False, False),
        ("192.0.0.192", True, False),
        ("fd00:ec2::254", True, False),
        ("fd20:ce::254", True, False),
        ("fd20:ce::253", True, True),
        ("100.100.100.200", True, False),
        ("168.63.129.16", False, False),
        ("64:ff9b::a83f:8110", True, False),
        ("2606:4700::1111", False, True),
        ("64:ff9b::5db8:d822", False, True),
        ("64:ff9b::a9fe:a9fe", True, False),
        ("64:ff9b::a01:203", False, False),
        ("2002:a9fe:a9fe::1", True, False),
        ("::127.0.0.1", False, False),
    ],
)
def test_an_address_may_be_called(address: str, private: bool, allowed: bool) -> None:
    assert may_connect(address, private) is allowed


async def test_a_name_that_leads_to_a_private_address_is_refused(
    hook: HookReceiver, monkeypatch: pytest.MonkeyPatch
) -> None:
    port = int(hook.url.rpartition(":")[2])
    asked: list[str] = []

    async def resolve(self: Any, host: str, *args: Any, **kwargs: Any) -> list[Any]:
        asked.append(host)
        return [(socket.AF_INET, socket.SOCK_STREAM, 6, "", ("127.0.0.1", port))]

    monkeypatch.setattr(asyncio.BaseEventLoop, "getaddrinfo", resolve)
    for private, calls in ((False, 0), (True, 1)):
        house = NotifiedHouse([webhook(hook, url=f"http://hooks.example.com:{port}/in", private=private)])
        house.task()
        await house.tell(proposed())
        await house.settle()
        assert len(hook.received) == calls
    assert "hooks.example.com" in asked
    assert hook.received[0].headers["host"] == f"hooks.example.com:{port}"


async def test_text_above_the_clearance_is_withheld_and_long_text_shortened(hook: HookReceiver) -> None:
    slack = webhook(hook, name="slack", kind="slack", channel="C1", url=hook.url)
    house = NotifiedHouse([webhook(hook), slack])
    house.task(label=2, proposal="confidential words", waiting_for="outcome")
    await house.tell(proposed(proposal="confidential words"))
    await house.settle()
    assert len(hook.received) == 2
    assert all(b"confidential words" not in request.content for request in hook.received)
    house.task("incident-2", proposal="x" * 20_000)
    await house.tell(proposed("incident-2", "x" * 20_000))
    await house.settle()
    assert all(len(request.content) < 8000 for request in hook.received)


def test_the_file_of_receivers_is_private_and_named_problems_show_no_secret(tmp_path: Path) -> None:
    file = tmp_path / "receivers.toml"
    file.write_text('[[receiver]]\nname = "ops"\nkind = "slack"\nurl = "https://hooks.slack.com/services/T/B/hush"\n')
    file.chmod(0o644)
    with pytest.raises(ReceiverError, match="chmod 600"):
        load_receivers(None, None, False, file)
    file.chmod(0o600)
    (receiver,) = load_receivers(None, None, False, file)
    assert "hush" not in repr(receiver)
    wrong_rows = (
        'url = "ftp://hush"', 'kind = "pagerduty"', 'secret = "hush"\nkind = "slack"', 'color = "hush"',
        'url = "https://hush:hush@example.com"', 'url = "https://example.com:hush"', 'url = "https://hüsh.example"',
        'url = "https://example.com/hush"\nsecret = "whsec_"',
    )  # fmt: skip
    for wrong in wrong_rows:
        file.write_text(f'[[receiver]]\nname = "ops"\n{wrong}\n')
        with pytest.raises(ReceiverError) as refused:
            load_receivers(None, None, False, file)
        assert "hush" not in str(refused.value)


def test_a_receiver_that_is_no_table_is_refused_by_its_number(tmp_path: Path) -> None:
    file = tmp_path / "receivers.toml"
    file.write_text('receiver = ["https://hooks.example.com"]\n')
    file.chmod(0o600)
    with pytest.raises(ReceiverError, match="receiver 1"):
        load_receivers(None, None, False, file)
