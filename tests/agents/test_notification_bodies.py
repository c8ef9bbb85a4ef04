"""One message per incident, by kind of receiver: opened, updated in place, resolved, and told again in its thread."""

import itertools
import json
from collections.abc import AsyncIterator
from datetime import datetime, timedelta
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import pytest_asyncio
from agents.hook_receiver import HookReceiver, Reply, hook_receiver
from agents.mail_server import mail_server
from agents.notified_house import NOW, NotifiedHouse, webhook
from pydantic import ValidationError

from counterpoint.proto.findings import Findings
from counterpoint.proto.ids import new_id
from counterpoint.proto.notifications import NotificationDue
from counterpoint.proto.tasks import TaskCancelled, TaskCompleted, TaskEscalated, TaskProposed, TaskResumed
from counterpoint.router.notify.bodies import mail
from counterpoint.router.notify.bodies.slack import blocks
from counterpoint.router.notify.bodies.teams import card
from counterpoint.router.notify.deliveries import ATTEMPTS
from counterpoint.router.notify.quiet_hours import QuietHours
from counterpoint.router.notify.receivers import Receiver, receivers_of
from counterpoint.router.notify.summary import ordinal, summary_of
from counterpoint.router.settings import RouterSettings

EVIL = "<!channel> <https://evil.example|click> *bold* [click](https://evil.example) `x`"
ROWS = [
    {"kind": "job", "namespace": "prod", "name": f"job-{n}", "hops": 1, "edge": "data", "owner": "team-finance"}
    for n in range(14)
]


@pytest_asyncio.fixture
async def hook() -> AsyncIterator[HookReceiver]:
    async with hook_receiver() as receiver:
        receiver.reply = Reply(body={"ok": True, "channel": "C9", "ts": "17.5"})
        yield receiver


def receiver(hook: HookReceiver, kind: str, **fields: Any) -> Receiver:
    extra = {"slack": {"secret": "xoxb-1", "channel": "C9"}, "pagerduty": {"secret": "key-1"}}.get(kind, {})
    made = {"name": kind, "kind": kind, "url": hook.url, "private": True, **extra, **fields}
    return Receiver.model_validate(made)


PROPOSED: dict[str, Any] = {"state": "input_required", "waiting_for": "outcome", "proposal": "Restart it"}
ESCALATED: dict[str, Any] = {
    "state": "input_required",
    "waiting_for": "override",
    "escalation": {
        "to": "human",
        "code": "low_confidence",
        "needs": [{"kind": "document", "what": "a runbook", "how": "counterpoint ingest F"}],
    },
}
WORKING: dict[str, Any] = {"state": "working", "waiting_for": None, "escalation": None, "proposal": None}
DONE: dict[str, Any] = {"state": "completed", "waiting_for": None, "escalation": None, "resolution": "resolved"}


def proposed(task_id: str = "incident-1") -> TaskProposed:
    return TaskProposed(task_id=task_id, attempt=1, proposal="p", artifact_sha256="0" * 64, findings=Findings())


def escalated(task_id: str = "incident-1") -> TaskEscalated:
    return TaskEscalated(task_id=task_id, to="human", code="low_confidence", findings=Findings())


def completed(task_id: str = "incident-1") -> TaskCompleted:
    return TaskCompleted.model_validate(
        {
            "task_id": task_id,
            "resolution": "resolved",
            "result": "r",
            "cost_usd": "0",
            "tokens": 0,
            "duration_ms": 1,
            "findings": {},
        }
    )


async def course(house: NotifiedHouse) -> None:
    """An incident that is proposed, escalated, worked on and resolved, an hour apart."""
    house.task(findings={"downstream": ROWS}, context={"owner": "team-ingest", "affected_count": 200})
    for fields, message in (
        (PROPOSED, proposed()),
        (ESCALATED, escalated()),
        (WORKING, TaskResumed(task_id="incident-1", reason="an override")),
        (DONE, completed()),
    ):
        house.task(**fields)
        await house.tell(message)
        await house.settle(timedelta(hours=1))


async def test_slack_has_one_message_that_is_updated_in_place(hook: HookReceiver) -> None:
    house = NotifiedHouse([receiver(hook, "slack")])
    await course(house)
    assert [one.path for one in hook.received] == ["/api/chat.postMessage", *["/api/chat.update"] * 3]
    assert {one.json.get("ts") for one in hook.received[1:]} == {"17.5"}
    texts = [one.json["text"] for one in hook.received]
    assert [text.removeprefix("orders_ingest.fetch ") for text in texts] == [
        "has a proposal",
        "needs you",
        "is being worked on",
        "is resolved",
    ]
    shown = hook.received[0].content.decode()
    assert "job-9 (team-finance) and 4 more" in shown
    assert "*also failed*" in shown
    assert "200" in shown
    assert hook.received[0].headers["authorization"] == "Bearer xoxb-1"


async def test_the_next_incident_of_the_job_is_told_in_the_thread_of_the_first(hook: HookReceiver) -> None:
    house = NotifiedHouse([receiver(hook, "slack")])
    previous = None
    for number in range(1, 4):
        hook.reply = Reply(body={"ok": True, "channel": "C9", "ts": f"{number}.0"})
        house.task(f"incident-{number}", context={"previous_incident": previous} if previous else None, **PROPOSED)
        await house.tell(proposed(f"incident-{number}"))
        await house.settle(timedelta(days=10))
        previous = f"incident-{number}"
    assert [one.json.get("thread_ts") for one in hook.received] == [None, "1.0", "1.0"]
    assert "3rd of this in 20 days" in hook.received[2].content.decode()


async def test_an_error_of_slack_in_a_good_answer_is_a_failure(hook: HookReceiver) -> None:
    house = NotifiedHouse([receiver(hook, "slack")])
    house.task(**PROPOSED)
    hook.replies = [Reply(body={"ok": False, "error": "ratelimited"})]
    await house.tell(proposed())
    await house.settle(timedelta(minutes=1))
    assert len(hook.received) == 2
    hook.replies = [Reply(body={"ok": False, "error": "channel_not_found"})]
    house.task(**ESCALATED)
    await house.tell(escalated())
    await house.settle(timedelta(days=1))
    assert len(hook.received) == 3
    assert "channel_not_found" in str(house.dead[0][1])


@pytest.mark.parametrize("error", ["message_not_found", "cant_update_message"])
async def test_a_message_that_was_deleted_in_slack_is_posted_anew(hook: HookReceiver, error: str) -> None:
    house = NotifiedHouse([receiver(hook, "slack")])
    hook.reply = Reply(body={"ok": True, "channel": "C9", "ts": "17.5"})
    house.task(**PROPOSED)
    await house.tell(proposed())
    await house.settle()
    hook.replies = [Reply(body={"ok": False, "error": error})]
    hook.reply = Reply(body={"ok": True, "channel": "C9", "ts": "18.5"})
    house.task(**ESCALATED)
    await house.tell(escalated())
    await house.settle()
    house.task(**PROPOSED)
    await house.tell(proposed())
    await house.settle()
    paths = [one.path.removeprefix("/api/chat.") for one in hook.received]
    assert paths == ["postMessage", "update", "postMessage", "update"]
    assert "ts" not in hook.received[2].json
    assert hook.received[3].json["ts"] == "18.5"
    assert not house.dead


async def test_a_thread_that_was_deleted_in_slack_is_left(hook: HookReceiver) -> None:
    house = NotifiedHouse([receiver(hook, "slack")])
    hook.reply = Reply(body={"ok": True, "channel": "C9", "ts": "1.0"})
    house.task("incident-1", **PROPOSED)
    await house.tell(proposed("incident-1"))
    await house.settle()
    hook.replies = [Reply(body={"ok": False, "error": "thread_not_found"})]
    house.task("incident-2", context={"previous_incident": "incident-1"}, **PROPOSED)
    await house.tell(proposed("incident-2"))
    await house.settle()
    assert [one.json.get("thread_ts") for one in hook.received] == [None, "1.0", None]
    assert not house.dead


async def test_an_error_about_a_message_that_there_is_not_is_a_failure(hook: HookReceiver) -> None:
    house = NotifiedHouse([receiver(hook, "slack")])
    hook.reply = Reply(body={"ok": False, "error": "message_not_found"})
    house.task(**PROPOSED)
    await house.tell(proposed())
    await house.settle(timedelta(days=10))
    assert len(hook.received) == ATTEMPTS
    assert len(house.dead) == 1


async def test_pagerduty_is_triggered_acknowledged_and_resolved_under_one_key(hook: HookReceiver) -> None:
    house = NotifiedHouse([receiver(hook, "pagerduty")])
    await course(house)
    bodies = [one.json for one in hook.received]
    assert [body["event_action"] for body in bodies] == ["trigger", "trigger", "acknowledge", "resolve"]
    assert {body["dedup_key"] for body in bodies} == {"counterpoint/orders/incident-1"}
    assert {body["routing_key"] for body in bodies} == {"key-1"}
    assert bodies[0]["payload"]["severity"] == "warning"


async def test_an_alert_has_the_same_labels_until_it_ends(hook: HookReceiver) -> None:
    house = NotifiedHouse([receiver(hook, "alertmanager")])
    house.task(priority="high", **PROPOSED)
    await house.tell(proposed())
    await house.settle()
    await course(house)
    alerts = [one.json[0] for one in hook.received]
    assert {one.path for one in hook.received} == {"/api/v2/alerts"}
    assert len({json.dumps(alert["labels"], sort_keys=True) for alert in alerts}) == 1
    assert alerts[0]["labels"]["severity"] == "high"
    house.task("incident-2", context={"owner": "team-ingest"}, **PROPOSED)
    await house.tell(proposed("incident-2"))
    await house.settle()
    assert hook.received[-1].json[0]["labels"]["owner"] == "team-ingest"
    ends = (NOW + timedelta(hours=3)).isoformat()
    assert [alert["endsAt"] <= ends for alert in alerts] == [*[False] * 4, True]


async def test_changes_while_a_receiver_does_not_answer_are_told_as_one(hook: HookReceiver) -> None:
    hook.replies = [Reply(503)]
    house = NotifiedHouse([receiver(hook, "teams")])
    house.task(**PROPOSED)
    await house.tell(proposed())
    await house.settle()
    for number in range(200):
        house.task(**ESCALATED, context={"affected_count": number})
        await house.tell(escalated())
    house.task(**DONE)
    await house.tell(completed())
    await house.settle(timedelta(days=1))
    assert len(hook.received) == 2
    assert "is resolved" in hook.received[1].content.decode()


async def test_texts_of_others_mention_nobody_and_hold_no_links() -> None:
    house = NotifiedHouse([])
    incident = summary_of(house.task(title=EVIL, error_message=EVIL, **PROPOSED), {})
    slack = json.dumps(blocks(incident))
    assert "<!channel>" not in slack
    assert "<https" not in slack
    assert slack.count('"mrkdwn"') == slack.count('"verbatim": true')
    teams = json.dumps(card(incident))
    assert "](https" not in teams
    assert "*bold*" not in teams


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


async def test_the_button_of_teams_says_what_is_to_be_done() -> None:
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


UNEXPLAINED = [{"kind": "outcome", "what": "the job works again: report what was changed", "how": "counterpoint ..."}]


async def test_what_did_you_change_is_asked_where_the_end_is_told(hook: HookReceiver) -> None:
    house = NotifiedHouse([receiver(hook, "slack", buttons=True)])
    house.task(**ESCALATED)
    await house.tell(escalated())
    await house.settle()
    assert "report what was changed" not in hook.received[-1].content.decode()
    house.task(**DONE, needs=UNEXPLAINED)
    await house.tell(completed())
    await house.settle()
    shown = hook.received[-1].json["blocks"]
    assert "report what was changed" in json.dumps(shown)
    (question,) = [block for block in shown if block["type"] == "input"]
    assert json.loads(question["block_id"]) == {"project": "orders", "task_id": "incident-1"}
    assert len(question["block_id"]) < 256
    incident = summary_of(house.task(), {})
    assert "report what was changed" in mail.text(incident)
    assert "report what was changed" in json.dumps(card(incident))


async def test_an_answer_after_the_end_updates_the_message_and_tells_no_event(hook: HookReceiver) -> None:
    async with hook_receiver() as events:
        posted = receiver(events, "slack", name="posted", secret=None, channel=None)
        house = NotifiedHouse([receiver(hook, "slack", buttons=True), webhook(events), posted])
        house.task(**DONE, needs=UNEXPLAINED)
        await house.tell(completed())
        await house.settle()
        assert "input" in hook.received[-1].content.decode()
        for needs, calls in ((UNEXPLAINED, 1), ([], 2), ([], 2)):
            house.task(needs=needs)
            due = NotificationDue(delivery_id="incident-1", turn=1, task_id="incident-1")
            await house._run(house.notifications.on_due, due, new_id())
            await house.settle()
            assert (len(hook.received), len(events.received)) == (calls, 2)
        assert hook.received[-1].path.endswith("chat.update")
        assert "input" not in hook.received[-1].content.decode()
        house.task("untold", **DONE)
        await house._run(house.notifications.on_due, due.model_copy(update={"task_id": "untold"}), new_id())
        await house.settle()
        assert (len(hook.received), len(events.received)) == (2, 2)


async def test_a_workspace_that_answers_429_gets_its_pause_and_delays_no_other(hook: HookReceiver) -> None:
    async with hook_receiver() as busy:
        busy.reply = Reply(429, {"Retry-After": "1800"})
        house = NotifiedHouse([receiver(busy, "slack"), receiver(hook, "teams")])
        for number in range(3):
            house.task(f"incident-{number}", **PROPOSED)
            await house.tell(proposed(f"incident-{number}"))
        await house.settle(timedelta(minutes=29))
        assert (len(busy.received), len(hook.received)) == (1, 3)
        busy.reply = Reply(body={"ok": True, "channel": "C9", "ts": "17.5"})
        await house.settle(timedelta(hours=1))
        assert len(busy.received) == 4
        assert not house.dead


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


def test_ordinals() -> None:
    assert [ordinal(number) for number in (1, 2, 3, 4, 11, 12, 13, 21, 102)] == [
        "1st", "2nd", "3rd", "4th", "11th", "12th", "13th", "21st", "102nd",
    ]  # fmt: skip


async def test_owners_downstream_are_told_what_of_theirs_will_be_late(hook: HookReceiver) -> None:
    rows = [{**row, "owner": f"team-{number % 2}"} for number, row in enumerate(ROWS[:4])]
    house = NotifiedHouse([receiver(hook, "slack", owners=["team-1"])])
    house.task(findings={"downstream": rows}, context={"owner": "team-ingest"}, **PROPOSED)
    await house.tell(proposed())
    await house.settle()
    (told,) = hook.received
    assert told.json["text"] == "orders_ingest.fetch has a proposal, and makes yours late"
    assert "*will be late* job-1 (team-1), job-3 (team-1)" in told.content.decode()


async def test_quiet_hours_hold_back_all_but_what_is_urgent(hook: HookReceiver) -> None:
    quiet = {"start": "22:00", "end": "07:30", "zone": "Europe/Berlin"}
    house = NotifiedHouse([receiver(hook, "slack", quiet=quiet)])
    assert NOW.hour == 3
    house.task(**PROPOSED)
    await house.tell(proposed())
    house.task("incident-2", priority="urgent", **PROPOSED)
    await house.tell(proposed("incident-2"))
    await house.settle()
    assert len(hook.received) == 1
    house.task(**DONE)
    await house.tell(completed())
    await house.settle(timedelta(hours=3, minutes=30))
    assert len(hook.received) == 2
    assert "is resolved" in hook.received[1].json["text"]


@pytest.mark.parametrize(
    ("start", "end", "at", "over"),
    [
        ("22:00", "07:00", "2026-03-02T21:59:00Z", None),
        ("22:00", "07:00", "2026-03-02T22:00:00Z", "2026-03-03T07:00:00Z"),
        ("22:00", "07:00", "2026-03-02T06:59:00Z", "2026-03-02T07:00:00Z"),
        ("22:00", "07:00", "2026-03-02T07:00:00Z", None),
        ("12:00", "13:00", "2026-03-02T12:30:00Z", "2026-03-02T13:00:00Z"),
        ("12:00", "13:00", "2026-03-02T11:30:00Z", None),
    ],
)
def test_quiet_hours_may_pass_midnight(start: str, end: str, at: str, over: str | None) -> None:
    hours = QuietHours.model_validate({"start": start, "end": end})
    assert hours.over_at(datetime.fromisoformat(at)) == (datetime.fromisoformat(over) if over else None)


def test_quiet_hours_that_are_impossible_are_refused() -> None:
    for wrong in ({"zone": "Mars/Base"}, {"end": "22:00"}, {"start": "25:00"}):
        with pytest.raises(ValidationError):
            QuietHours.model_validate({"start": "22:00", "end": "07:00", **wrong})


async def test_the_first_message_waits_for_what_the_incident_is_part_of(hook: HookReceiver) -> None:
    house = NotifiedHouse([receiver(hook, "slack", wait_s=20)], waits=True)
    for number in range(1, 6):
        house.task(f"incident-{number}", **PROPOSED)
        await house.tell(proposed(f"incident-{number}"))
    await house.settle(timedelta(seconds=19))
    assert not hook.received
    for number in range(2, 6):
        house.task(f"incident-{number}", state="cancelled", waiting_for=None)
        await house.tell(TaskCancelled(task_id=f"incident-{number}", reason="part of incident-1", by="lineage"))
    house.task("incident-1", **ESCALATED)
    await house.tell(escalated("incident-1"))
    await house.settle(timedelta(minutes=5))
    assert [one.json["text"] for one in hook.received] == ["orders_ingest.fetch needs you"]
    house.task("incident-1", **DONE)
    await house.tell(completed("incident-1"))
    await house.settle()
    assert hook.received[-1].path == "/api/chat.update", "only the first message waits"
    assert not house.dead


async def test_an_incident_that_may_have_been_told_is_told_that_it_was_cancelled(hook: HookReceiver) -> None:
    """A call of a process that was killed may have reached the receiver."""
    house = NotifiedHouse([receiver(hook, "slack")])
    hook.replies = [Reply(500)]
    house.task(**PROPOSED)
    await house.tell(proposed())
    await house.settle()
    house.task(state="cancelled", waiting_for=None)
    await house.tell(TaskCancelled(task_id="incident-1", reason="known", by="ann"))
    await house.settle(timedelta(minutes=5))
    assert [one.json["text"].removeprefix("orders_ingest.fetch ") for one in hook.received] == [
        "has a proposal",
        "was cancelled",
    ]
    wants = NotifiedHouse([receiver(hook, "slack", events=["cancelled"])])
    wants.task(state="cancelled", waiting_for=None)
    await wants.tell(TaskCancelled(task_id="incident-1", reason="known", by="ann"))
    await wants.settle()
    assert len(hook.received) == 3
