"""The log of a service: one event for each thing it did, and never a word of what users wrote."""

import json
from typing import Any

import pytest
from structlog.testing import capture_logs

from counterpoint.bus.step_log import effects, log_effects
from counterpoint.guard.policy import policy
from counterpoint.proto import generate
from counterpoint.proto.memory import Commit, CommitReply, Origin, Outgoing, Write

SECRET = "what a user wrote"
ORIGIN = Origin(message_id="m-1", fence=1, project="orders", task_id="t-1")
SENT = [name for name, row in policy().messages.items() if row.senders]


def hidden(value: Any) -> Any:
    """The value with every text replaced."""
    match value:
        case str():
            return SECRET
        case dict():
            return {name: hidden(each) for name, each in value.items()}
        case list():
            return [hidden(each) for each in value]
        case _:
            return value


def outgoing(type_: str, **more: Any) -> Outgoing:
    body = json.loads((generate.FOLDER / "examples" / type_ / "full.json").read_text())
    texts = {name: hidden(body[name]) for name in policy().messages[type_].text if name in body}
    return Outgoing(type=type_, data=body | texts, task_id="t-1", **more)


@pytest.mark.parametrize("type_", SENT)
def test_every_message_is_an_event_of_its_name_without_its_texts(type_: str) -> None:
    ((event, fields),) = effects(Commit(messages=(outgoing(type_),)))
    assert event == type_.removeprefix("counterpoint.").removesuffix(".v1")
    assert fields["task_id"] == "t-1"
    assert SECRET not in json.dumps(fields)


def test_a_decision_of_lineage_about_an_incident_is_logged_as_its_event() -> None:
    decided = {"agent": "lineage", "decision_type": "incident", "decision": "opened", "reasoning": SECRET}
    message = Outgoing(type="counterpoint.decision.made.v1", data=decided)
    ((event, fields),) = effects(Commit(messages=(message,)))
    assert event == "incident.opened"
    assert SECRET not in json.dumps(fields)
    wordy = message.model_copy(update={"data": decided | {"decision": SECRET}})
    assert [name for name, _ in effects(Commit(messages=(wordy,)))] == ["decision.made"]


def test_a_timer_and_a_step_that_only_writes_have_their_events() -> None:
    due = outgoing("counterpoint.task.due.v1", due_at="2026-11-22T22:00:00Z", timer="wait")
    ((event, fields),) = effects(Commit(messages=(due,)))
    assert (event, fields["message"]) == ("timer.set", "task.due")
    writes = tuple(Write(store=store, id=SECRET, body={"text": SECRET}, expect=0) for store in ("runs", "runs", "jobs"))
    assert list(effects(Commit(writes=writes))) == [("records.written", {"stores": {"runs": 2, "jobs": 1}})]


def test_only_applied_commits_are_logged_with_their_message_id() -> None:
    commit = Commit(messages=(outgoing("counterpoint.task.routed.v1"),))
    with capture_logs() as events:
        log_effects(ORIGIN, commit, CommitReply(status="done"))
        for status in ("stale", "replayed"):
            log_effects(ORIGIN, commit, CommitReply(status=status))
    assert [event for event in events if event["log_level"] == "info"] == [
        {"event": "task.routed", "project": "orders", "message_id": "m-1", "task_id": "t-1", "log_level": "info"}
    ]
