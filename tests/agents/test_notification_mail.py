"""Notifications by mail: one thread an incident, delivered once."""

import itertools
from datetime import timedelta
from types import SimpleNamespace

import pytest
from agents.mail_server import mail_server
from agents.notified_house import PROPOSED, NotifiedHouse, course, proposed

from counterpoint.router.notify.bodies import mail


async def test_mails_of_an_incident_are_one_thread() -> None:
    mails: list[str] = []
    async with mail_server(mails) as receiver:
        house = NotifiedHouse([receiver])
        await course(house)
    first = next(line for line in mails[0].splitlines() if line.startswith("Message-ID: ")).removeprefix("Message-ID: ")
    assert len(mails) == 4
    assert all(f"In-Reply-To: {first}" in each for each in mails[1:])
    assert "Subject: [orders] orders_ingest.fetch is resolved" in mails[3]
    assert not house.dead


@pytest.mark.parametrize("farewell", [b"", b"421 too busy\r\n"])
async def test_a_mail_that_was_taken_is_delivered_however_the_connection_ends(farewell: bytes) -> None:
    mails: list[str] = []
    async with mail_server(mails, farewell) as receiver:
        house = NotifiedHouse([receiver])
        house.task(**PROPOSED)
        await house.tell(proposed())
        await house.settle(timedelta(days=1))
    assert (len(mails), house.deliveries()[0]["state"]) == (1, "delivered")


async def test_the_answers_of_a_mail_server_have_the_time_of_one_call(monkeypatch: pytest.MonkeyPatch) -> None:
    seconds = itertools.count()
    monkeypatch.setattr(mail, "time", SimpleNamespace(monotonic=lambda: next(seconds)))
    mails: list[str] = []
    async with mail_server(mails) as receiver:
        house = NotifiedHouse([receiver], timeout_s=3)
        house.task(**PROPOSED)
        await house.tell(proposed())
        await house.settle()
    assert (mails, house.deliveries()[0]["last_error"]) == ([], "no answer within 3 s")
