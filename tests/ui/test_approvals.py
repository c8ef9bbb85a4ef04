"""Approvals over HTTP."""

from datetime import timedelta
from typing import Any

import pytest
from agents.router_house import NOW
from ui.http_front import RunningFront, put_task
from ui.pending_approvals import LIFT, URL, put_approval

from counterpoint.proto.approvals import Approval, ApprovalDecided, artifact_sha256, lifts_as_text
from counterpoint.proto.notifications import NotificationDue
from counterpoint.router.notify.caller import Caller
from counterpoint.router.notify.handlers import Notifications
from counterpoint.router.notify.receivers import Receiver


def body(approval: Approval, decision: str = "approved", **more: Any) -> dict[str, Any]:
    return {"decision": decision, "artifact_sha256": approval.artifact_sha256, "reason": "seen", **more}


async def test_a_decision_is_recorded_once_and_sent_once(front: RunningFront) -> None:
    approval = put_approval(front)
    first = await front.me.post(f"{URL}/a1", json=body(approval))
    assert (first.status_code, first.json()["state"], first.json()["decided_by"]) == (200, "approved", "me")
    again = await front.me.post(f"{URL}/a1", json=body(approval))
    assert again.json() == first.json()
    async with front.as_principal("ben", "approve", "read") as ben:
        for decision in ("approved", "rejected"):
            late = await ben.post(f"{URL}/a1", json=body(approval, decision))
            assert (late.status_code, late.json()["code"]) == (409, "conflict")
            assert "was approved by me at 2026-03-02" in late.text
    (sent,) = front.house.of_type(ApprovalDecided)
    assert (sent.approval_id, sent.task_id, sent.decision, sent.by) == ("a1", "t1", "approved", "me")
    (action,) = front.house.line("t1")
    assert (action.agent, action.kind, action.result, action.reasoning) == ("human", "approval", "approved", "seen")


async def test_receivers_are_told_of_a_decision_by_a_step_of_its_own(front: RunningFront) -> None:
    approval = put_approval(front)
    put_task(front, "t1", "input_required", waiting_for="approval")
    object.__setattr__(front.app.state.resources, "has_receivers", True)
    async with front.as_principal("ann", "approve") as ann:
        for _ in range(2):
            assert (await ann.post(f"{URL}/a1", json=body(approval))).status_code == 200
    (commit,) = [one for one in front.house.commits if one.writes]
    assert {message.type for message in commit.messages} == {ApprovalDecided.TYPE, NotificationDue.TYPE}
    assert {write.store for write in commit.writes} == {"approvals", "actions"}
    rule = {"name": "ops", "url": "http://127.0.0.1:9/", "private": True}
    notifications = Notifications([Receiver.model_validate(rule)], Caller(1.0))
    (due,) = front.house.of_type(NotificationDue)
    for _ in range(2):
        memory = front.house.memory("due-1", type=NotificationDue.TYPE)
        await memory.step(await notifications.on_due(due, memory))
    (delivery,) = front.house.kept("webhook_deliveries").values()
    assert delivery["event"]["type"] == ApprovalDecided.TYPE
    assert (delivery["event"]["data"]["by"], delivery["event"]["data"]["decision"]) == ("ann", "approved")


async def test_a_decision_has_its_own_stamps_and_its_notification_those_of_the_task(front: RunningFront) -> None:
    approval = put_approval(front)
    put_task(front, "t1", "input_required", waiting_for="approval")
    task = front.house.item("tasks", "t1")
    assert task is not None
    front.house.put("tasks", "t1", task.body, label=2, integrity=0)
    object.__setattr__(front.app.state.resources, "has_receivers", True)
    assert (await front.me.post(f"{URL}/a1", json=body(approval))).status_code == 200
    stored = front.house.records.values()
    stamps = {(each.store, each.integrity) for each in stored if each.store in ("approvals", "actions")}
    assert stamps == {("approvals", 2), ("actions", 2)}
    rule = {"name": "ops", "url": "http://127.0.0.1:9/", "private": True}
    notifications = Notifications([Receiver.model_validate(rule)], Caller(1.0))
    (due,) = front.house.of_type(NotificationDue)
    memory = front.house.memory("due-1", type=NotificationDue.TYPE)
    await memory.step(await notifications.on_due(due, memory))
    (delivery,) = [each for each in stored if each.store == "webhook_deliveries"]
    assert (delivery.label, delivery.integrity) == (2, 0)


async def test_a_decision_that_is_overtaken_says_who_decided(front: RunningFront) -> None:
    approval = put_approval(front)
    decided = {"state": "rejected", "decided_by": "ben", "decided_at": NOW, "reason": "no"}

    def overtaken() -> None:
        front.house.put("approvals", "a1", approval.model_copy(update=decided).model_dump(mode="json"))

    front.house.before_commit = overtaken
    late = await front.me.post(f"{URL}/a1", json=body(approval))
    assert (late.status_code, "was rejected by ben" in late.text) == (409, True)
    assert not front.house.of_type(ApprovalDecided)


async def test_a_text_other_than_the_one_read_is_not_approved(front: RunningFront) -> None:
    approval = put_approval(front)
    other = await front.me.post(f"{URL}/a1", json=body(approval, artifact_sha256=artifact_sha256("another")))
    assert (other.status_code, "read the approval again" in other.text) == (409, True)
    put_approval(front, "a2", artifact_sha256=approval.artifact_sha256, artifact="[redacted]")
    assert (await front.me.post(f"{URL}/a2", json=body(approval))).status_code == 409
    dearer = LIFT.model_copy(update={"by_tokens": 10**9})
    altered = put_approval(front, "a3", artifact=lifts_as_text((LIFT,)), lifts=(dearer,))
    assert (await front.me.post(f"{URL}/a3", json=body(altered))).status_code == 409
    assert not front.house.of_type(ApprovalDecided)


async def test_a_text_that_was_redacted_may_be_rejected(front: RunningFront) -> None:
    approval = put_approval(front)
    put_approval(front, "a2", artifact_sha256=approval.artifact_sha256, artifact="[redacted]")
    rejected = await front.me.post(f"{URL}/a2", json=body(approval, decision="rejected", reason="unreadable"))
    assert rejected.json()["state"] == "rejected"


async def test_a_decision_after_the_time_is_refused_before_its_timer_is_handled(front: RunningFront) -> None:
    approval = put_approval(front, expires_at=NOW)
    late = await front.me.post(f"{URL}/a1", json=body(approval))
    assert (late.status_code, "expired at 2026-03-02 03:00 UTC" in late.text) == (409, True)
    assert (await front.me.get(f"{URL}/a1")).json()["state"] == "expired"
    assert (await front.me.get(URL)).json()["items"] == []
    assert [one["state"] for one in (await front.me.get(URL, params={"state": "expired"})).json()["items"]] == [
        "expired"
    ]


async def test_only_persons_who_may_approve_decide(front: RunningFront) -> None:
    approval = put_approval(front)
    for name, roles, kind in (
        ("bot", ("approve", "read"), "agent"),
        ("system", ("approve", "read"), "system"),
        ("reader", ("read", "override", "operate", "admin"), "person"),
    ):
        async with front.as_principal(name, *roles, kind=kind) as other:
            assert (await other.post(f"{URL}/a1", json=body(approval))).status_code == 403
            assert (await other.get(f"{URL}/a1")).status_code == 200
    async with front.as_principal("sender", "submit") as sender:
        assert (await sender.get(URL)).status_code == 403
    assert (await front.me.get(f"{URL}/a1")).json()["state"] == "pending"


async def test_a_deputy_decides_in_the_place_of_who_has_delegated(front: RunningFront) -> None:
    approval = put_approval(front)
    until = (NOW + timedelta(days=2)).isoformat()
    async with front.as_principal("ben", "read") as ben, front.as_principal("ana", "read", "approve") as ana:
        refused = await ben.post(f"{URL}/a1", json=body(approval))
        assert (refused.status_code, refused.json()["code"]) == (403, "role")
        made = await ana.put("/v1/delegations", json={"to": "ben", "until": until})
        assert (made.status_code, made.json()["by"], made.json()["to"]) == (200, "ana", "ben")
        deputies = [(await each.get("/v1/whoami")).json().get("deputy_of") for each in (ben, ana)]
        assert deputies == ["ana", None]
        elsewhere = await ben.get("/v1/whoami", params={"project": "elsewhere"})
        assert "deputy_of" not in elsewhere.json()
        listed = (await ana.get("/v1/delegations")).json()["items"]
        assert [(each["by"], each["to"]) for each in listed] == [("ana", "ben")]
        assert (await ben.put("/v1/delegations", json={"to": "eve", "until": until})).status_code == 403
        decided = (await ben.post(f"{URL}/a1", json=body(approval, reason=None))).json()
        assert (decided["state"], decided["decided_by"], decided["decided_for"]) == ("approved", "ben", "ana")
        (action,) = front.house.line("t1")
        assert action.reasoning == "approved by ben in the place of ana"
        other = put_approval(front, "a2")
        assert (await ana.delete("/v1/delegations", params={"to": "ben"})).status_code == 200
        assert (await ben.post(f"{URL}/a2", json=body(other))).status_code == 403
        assert (await ana.delete("/v1/delegations", params={"to": "ben"})).status_code == 404


async def test_a_deputy_of_two_persons_decides_a_large_act_in_the_place_of_who_did_not_ask(front: RunningFront) -> None:
    until = (NOW + timedelta(days=2)).isoformat()
    async with (
        front.as_principal("ben", "read") as ben,
        front.as_principal("ana", "read", "approve") as ana,
        front.as_principal("eve", "read", "approve") as eve,
    ):
        for person in (ana, eve):
            (await person.put("/v1/delegations", json={"to": "ben", "until": until})).raise_for_status()
        for asker, other in (("ana", "eve"), ("eve", "ana")):
            act = put_approval(front, f"act-{asker}", task_id=None, category="erasure", requested_by=asker)
            decided = (await ben.post(f"{URL}/{act.approval_id}", json=body(act))).json()
            assert (decided["state"], decided["decided_by"], decided["decided_for"]) == ("approved", "ben", other)
        (await ana.delete("/v1/delegations", params={"to": "ben"})).raise_for_status()
        act = put_approval(front, "act-2", task_id=None, category="erasure", requested_by="eve")
        refused = await ben.post(f"{URL}/act-2", json=body(act))
        assert (refused.status_code, "a second person" in refused.text) == (403, True)


@pytest.mark.parametrize(
    ("given", "problem"),
    [
        ({"to": "b\0n"}, "to"),
        ({"to": ""}, "to"),
        ({"to": "nobody"}, "is not an active person with the role read"),
        ({"to": "bot"}, "is not an active person with the role read"),
        ({"to": "submitter"}, "is not an active person with the role read"),
        ({"to": "ana"}, "is yourself"),
        ({"until": (NOW - timedelta(seconds=1)).isoformat()}, "must be a time in the next 90 days"),
        ({"until": (NOW + timedelta(days=91)).isoformat()}, "must be a time in the next 90 days"),
        ({"until": "soon"}, "until"),
    ],
)
async def test_a_wrong_delegation_is_refused_by_name(front: RunningFront, given: dict[str, Any], problem: str) -> None:
    front.house.token_of("ben", "read")
    front.house.token_of("bot", "read", kind="agent")
    front.house.token_of("submitter", "submit")
    fields = {"to": "ben", "until": (NOW + timedelta(days=1)).isoformat(), **given}
    async with front.as_principal("ana", "read", "approve") as ana:
        refused = await ana.put("/v1/delegations", json=fields)
    assert (refused.status_code, problem in refused.text) == (422, True), refused.text


async def test_the_list_is_filtered_and_hides_withheld_approvals(front: RunningFront) -> None:
    put_approval(front)
    put_approval(front, "a2", category="spend", task_id="t2")
    put_approval(front, "a3", state="withdrawn", reason="cancelled")

    async def listed(**params: str) -> list[str]:
        return [one["approval_id"] for one in (await front.me.get(URL, params=params)).json()["items"]]

    assert await listed() == ["a2", "a1"]
    assert await listed(category="spend") == ["a2"]
    assert await listed(task_id="t1") == ["a1"]
    assert await listed(state="all") == ["a3", "a2", "a1"]
    assert await listed(state="withdrawn") == ["a3"]
    assert "what only the manager needs" not in (await front.me.get(URL)).text
    assert (await front.me.get(URL, params={"state": "lost"})).status_code == 422


async def test_wrong_requests_are_refused_in_words_that_make_sense(front: RunningFront) -> None:
    approval = put_approval(front)
    unknown = await front.me.post(f"{URL}/a9", json=body(approval))
    assert (unknown.status_code, "is not an approval of project orders" in unknown.text) == (404, True)
    assert (await front.me.get(f"{URL}/a9")).status_code == 404
    for wrong, field in (
        ({"decision": "maybe"}, "decision"),
        ({"artifact_sha256": "abc"}, "artifact_sha256"),
        ({"decision": "rejected", "reason": None}, "reason must be given"),
    ):
        refused = await front.me.post(f"{URL}/a1", json=body(approval) | wrong)
        assert (refused.status_code, field in refused.text) == (422, True)
