"""One message per incident, by kind of receiver: opened, updated in place, resolved, and told again in its thread."""

import json
from datetime import timedelta

import pytest
from agents.hook_receiver import HookReceiver, Reply, hook_receiver
from agents.notified_house import (
    DONE,
    ESCALATED,
    EVIL,
    NOW,
    PROPOSED,
    ROWS,
    SLACK_REPLY,
    NotifiedHouse,
    completed,
    course,
    escalated,
    proposed,
    receiver,
    webhook,
)

from counterpoint.proto.ids import new_id
from counterpoint.proto.notifications import NotificationDue
from counterpoint.proto.tasks import TaskCancelled
from counterpoint.router.notify.bodies import mail
from counterpoint.router.notify.bodies.slack import blocks
from counterpoint.router.notify.bodies.teams import card
from counterpoint.router.notify.deliveries import ATTEMPTS
from counterpoint.router.notify.summary import ordinal, summary_of


@pytest.fixture
def hook(hook: HookReceiver) -> HookReceiver:
    """A receiver that answers as Slack does."""
    hook.reply = SLACK_REPLY
    return hook


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
    hook.reply = SLACK_REPLY
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


async def test_a_message_has_the_title_of_the_card() -> None:
    house = NotifiedHouse([])
    error = "java.net.ConnectException: refused"
    long = house.task(title=None, description="Run 7 of the loader failed. " * 20, error_message=error, **PROPOSED)
    named = summary_of(long, {})
    assert named.headline.endswith("ConnectException: refused has a proposal")
    assert len(named.title) <= 80


async def test_texts_of_others_hold_no_mentions_and_no_links() -> None:
    house = NotifiedHouse([])
    incident = summary_of(house.task(title=EVIL, error_message=EVIL, **PROPOSED), {})
    slack = json.dumps(blocks(incident))
    assert "<!channel>" not in slack
    assert "<https" not in slack
    assert slack.count('"mrkdwn"') == slack.count('"verbatim": true')
    teams = json.dumps(card(incident))
    assert "](https" not in teams
    assert "*bold*" not in teams


UNEXPLAINED = [{"kind": "outcome", "what": "the job works again: report what was changed", "how": "counterpoint ..."}]


async def test_the_message_of_an_unexplained_end_asks_for_the_change(hook: HookReceiver) -> None:
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
        busy.reply = SLACK_REPLY
        await house.settle(timedelta(hours=1))
        assert len(busy.received) == 4
        assert not house.dead


def test_ordinals() -> None:
    assert [ordinal(number) for number in (1, 2, 3, 4, 11, 12, 13, 21, 102)] == [
        "1st", "2nd", "3rd", "4th", "11th", "12th", "13th", "21st", "102nd",
    ]  # fmt: skip


async def test_owners_downstream_are_told_which_of_their_data_will_be_late(hook: HookReceiver) -> None:
    rows = [{**row, "owner": f"team-{number % 2}"} for number, row in enumerate(ROWS[:4])]
    house = NotifiedHouse([receiver(hook, "slack", owners=["team-1"])])
    house.task(findings={"downstream": rows}, context={"owner": "team-ingest"}, **PROPOSED)
    await house.tell(proposed())
    await house.settle()
    (told,) = hook.received
    assert told.json["text"] == "orders_ingest.fetch has a proposal, and makes yours late"
    assert "*will be late* job-1 (team-1), job-3 (team-1)" in told.content.decode()


async def test_the_first_message_waits_for_the_incident_of_the_whole(hook: HookReceiver) -> None:
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
