"""Polls of a forge, its limits and failures, and trackers that are changed or removed."""

import re
from datetime import timedelta
from typing import Any

import pytest
from agents.issue_house import DAY, HOUR, PROJECT, SLOWER, house_of, proposed, tracker_of
from agents.scripted_forge import ScriptedForge, scripted_forge
from structlog.testing import capture_logs

from counterpoint.proto.errors import Permanent
from counterpoint.router.issues.poll import RECONCILE


async def test_without_webhooks_a_poll_finds_the_changes_of_people(forge: ScriptedForge) -> None:
    house = house_of(forge, poll_s=300)
    for number in range(4):
        await house.open(task_id=f"incident-{number}")
    forge.person_opens("Something else")
    await house.settle(HOUR / 4)
    forge.clock += DAY
    forge.person_comments(3, "fixed by itself")
    await house.settle(timedelta(seconds=400))
    (outcome,) = house.outcomes()
    assert (outcome.task_id, outcome.fixed_by) == ("incident-2", "nothing")
    asked = len(forge.asked)
    await house.settle(timedelta(seconds=2000))
    quiet = [each for each in forge.asked[asked:] if not each.path.endswith("/issues")]
    assert not quiet, "an issue that has not changed is not read again"


async def test_every_hour_all_open_issues_are_compared(github: ScriptedForge) -> None:
    house = house_of(github, poll_s=600)
    await house.open()
    await house.open(task_id="incident-2")
    await house.end("incident-2")
    github.issues[1].comments[7] = {"body": "fixed by rain", "author": "ann", "at": github.issues[1].at}
    await house.settle(RECONCILE + timedelta(minutes=10))
    (outcome,) = house.outcomes()
    assert outcome.note == "rain"
    asked = len(github.asked)
    await house.settle(RECONCILE + timedelta(minutes=10))
    again = {each.path for each in github.asked[asked:] if re.search(r"/issues/\d+$", each.path)}
    assert again == {"/api/v3/repos/shop/orders/issues/1"}, "one that is over is of no interest"


async def test_polls_go_on_when_the_forge_comes_back(github: ScriptedForge) -> None:
    house = house_of(github, poll_s=600)
    await house.open()
    github.before = lambda asked: (503, None)
    await house.settle(DAY)
    github.before = lambda asked: None
    github.clock += 2 * DAY
    github.person_closes(1)
    await house.settle(2 * HOUR)
    assert len(house.outcomes()) == 1
    assert not house.dead


async def test_a_tracker_that_was_removed_is_polled_no_more_and_again_when_it_is_back(github: ScriptedForge) -> None:
    house = house_of(github, poll_s=600)
    await house.open()
    trackers, house.trackers = house.trackers, []
    house.restart()
    await house.settle(DAY)
    assert not house.memory.timers
    house.trackers = trackers
    house.restart()
    await house.open(task_id="incident-2")
    github.person_comments(1, "fixed by rain")
    await house.settle(HOUR)
    assert len(house.outcomes()) == 1


@pytest.mark.parametrize(
    ("status", "headers", "body"),
    [
        (429, {"Retry-After": "1800"}, None),
        (403, {"X-RateLimit-Remaining": "0", "X-RateLimit-Reset": "1772422200"}, None),
        (403, {"Retry-After": "1800"}, {"message": "You have exceeded a secondary rate limit"}),
        (429, {"RateLimit-Reset": "1772422200"}, None),
        (503, {"Retry-After": "1800"}, None),
    ],
)
async def test_a_forge_that_asks_for_a_pause_gets_it_from_all_issues(
    forge: ScriptedForge, status: int, headers: dict[str, str], body: Any
) -> None:
    """1772422200 is half an hour after the beginning."""
    house = house_of(forge)
    for number in range(3):
        house.task(f"incident-{number}")
        await house.tell(proposed(f"incident-{number}"))
    forge.before = lambda asked: (status, body, headers)
    await house.settle(timedelta(minutes=25))
    assert len(forge.asked) == 1
    forge.before = lambda asked: None
    await house.settle(HOUR)
    assert len(forge.issues) == 3
    assert not house.dead


async def test_a_secondary_limit_does_not_wait_for_the_first_one(github: ScriptedForge) -> None:
    house = house_of(github)
    headers = {"X-RateLimit-Remaining": "4000", "X-RateLimit-Reset": "1772422200"}
    github.before = lambda asked: (403, {"message": "You have exceeded a secondary rate limit"}, headers)
    house.task()
    await house.tell(proposed())
    await house.settle(timedelta(seconds=30))
    assert len(github.asked) == 1
    github.before = lambda asked: None
    await house.settle(timedelta(minutes=3))
    assert len(github.issues) == 1


async def test_a_limit_that_is_reached_pauses_before_it_is_exceeded(github: ScriptedForge) -> None:
    house = house_of(github)
    reached = {"X-RateLimit-Remaining": "0", "X-RateLimit-Reset": "1772422200"}
    github.before = lambda asked: (*github.answer(asked)[:2], reached)  # type: ignore[return-value]
    house.task()
    await house.tell(proposed())
    await house.settle(timedelta(minutes=25))
    assert len(github.asked) == 1
    github.before = lambda asked: None
    await house.settle(HOUR)
    assert len(github.issues) == 1


@pytest.mark.parametrize("forge", SLOWER, indirect=True)
async def test_a_forge_that_is_down_for_a_day_loses_nothing(forge: ScriptedForge) -> None:
    house = house_of(forge)
    await house.open(task_id="before")
    forge.before = lambda asked: (500, None)
    for number in range(5):
        house.task(f"incident-{number}")
        await house.tell(proposed(f"incident-{number}"))
    await house.end("before")
    await house.settle(DAY)
    forge.before = lambda asked: None
    await house.settle(2 * DAY)
    assert len(forge.issues) == 6
    assert forge.issues[1].state == "closed"
    assert not house.dead


async def test_a_forge_that_does_not_answer_is_a_warning_in_the_log(github: ScriptedForge) -> None:
    house = house_of(github, poll_s=600)
    github.before = lambda asked: (500, None)
    with capture_logs() as events:
        await house.open()
        await house.settle(HOUR)
    levels = {each["event"]: each["log_level"] for each in events}
    assert (levels["issue.compared"], levels["tracker.poll_failed"]) == ("warning", "warning")


async def test_after_three_days_it_is_a_dead_letter_that_can_be_retried(github: ScriptedForge) -> None:
    house = house_of(github)
    github.locked = True
    house.task()
    await house.tell(proposed())
    await house.settle(4 * DAY)
    ((message, error),) = house.dead
    assert isinstance(error, Permanent)
    assert "HTTP 404" in str(error)
    assert github.url not in str(error)
    assert github.token not in str(error)
    github.locked = False
    await house._run(house.issues.on_due, message, "retry-1")
    assert (len(github.issues), house.record()["state"]) == (1, "synced")


@pytest.mark.parametrize("forge", SLOWER, indirect=True)
async def test_a_lost_permission_is_not_taken_for_a_deleted_issue(forge: ScriptedForge) -> None:
    house = house_of(forge)
    await house.open()
    forge.locked = True
    house.task(proposal="Another")
    await house.tell(proposed())
    await house.settle(HOUR)
    assert house.record()["state"] == "pending"
    forge.locked = False
    await house.settle(DAY)
    assert "Another" in forge.bodies()[0]


@pytest.mark.parametrize("how", ["deleted", "moved"])
async def test_an_issue_that_is_gone_is_left_alone(forge: ScriptedForge, how: str) -> None:
    if (forge.kind, how) == ("gitea", "moved"):
        pytest.skip("Gitea moves no issues")
    house = house_of(forge)
    await house.open()
    forge.issues[1].gone = how
    forge.issues[1].state = "closed"
    forge.issues[1].closed_by = "ann"
    await house.hook()
    await house.settle()
    assert (house.record()["state"], house.record()["left"]) == ("left", how)
    await house.end()
    assert len(forge.issues) == 1
    assert not house.outcomes()
    assert not house.dead


async def test_a_tracker_that_names_another_repository_leaves_its_issues_alone(github: ScriptedForge) -> None:
    house = house_of(github)
    await house.open()
    async with scripted_forge("github") as other:
        stranger = other.person_opens("Another thing", "which is not ours")
        house.trackers = [tracker_of(other)]
        house.restart()
        await house.end()
        assert (stranger.state, stranger.labels, stranger.comments) == ("open", [], {})
        assert (house.record()["state"], house.record()["left"]) == ("left", "moved")
        assert not other.writes()


async def test_a_tracker_of_another_project_now_is_told_nothing_of_this_one(github: ScriptedForge) -> None:
    house = house_of(github)
    house.task()
    await house.tell(proposed())
    house.trackers = [tracker_of(github, project="billing")]
    house.restart()
    await house.settle()
    assert not github.asked
    ((_, error),) = house.dead
    assert "no tracker of project orders" in str(error)


async def test_a_pull_request_finds_the_task_of_a_synchronized_issue(github: ScriptedForge) -> None:
    house = house_of(github)
    await house.open()
    memory = house.memory.memory("m1", now=house.now)
    url = house.trackers[0].repository_url
    assert await house.issues.tasks_of(memory, url, (1, 2)) == ("incident-1",)
    assert await house.issues.tasks_of(memory, f"{url}-other", (1,)) == ()


@pytest.mark.parametrize("kind", ["github", "gitea"])
async def test_a_repository_that_was_renamed_is_followed(kind: str) -> None:
    async with scripted_forge(kind) as forge:
        house = house_of(forge)
        await house.open()
        forge.renamed = "shop/sales"
        await house.open(task_id="incident-2")
        await house.end()
        assert len(forge.issues) == 2
        assert forge.issues[1].state == "closed"
        assert not house.dead


async def test_a_redirect_to_another_host_is_not_followed(github: ScriptedForge) -> None:
    async with scripted_forge("github") as other:
        house = house_of(github)
        github.before = lambda asked: (301, None, {"Location": f"{other.url}{asked.path}"})
        house.task()
        await house.tell(proposed())
        await house.settle()
        assert not other.asked
        ((_, error),) = house.dead
        assert "another host" in str(error)


async def test_a_private_address_needs_to_be_allowed(github: ScriptedForge) -> None:
    house = house_of(github, private=False)
    house.task()
    await house.tell(proposed())
    await house.settle()
    assert not github.asked
    assert "private" in str(house.dead[0][1])


@pytest.mark.parametrize("answer", [None, [], {}, {"number": "x"}, [{"number": True}], "text", {"number": 1}])
async def test_an_answer_of_another_form_is_a_failure_that_is_tried_again(github: ScriptedForge, answer: Any) -> None:
    house = house_of(github)
    github.before = lambda asked: (200, answer)
    house.task()
    await house.tell(proposed())
    await house.settle()
    assert house.record()["state"] == "pending"
    assert not house.dead
    github.before = lambda asked: None
    await house.settle(HOUR)
    assert len(github.issues) == 1


async def test_records_and_logs_hold_no_token_and_no_text_of_people(
    forge: ScriptedForge, capsys: pytest.CaptureFixture[str]
) -> None:
    house = house_of(forge)
    await house.open()
    forge.person_comments(1, "fixed by the word xyzzy", by="mallory")
    forge.person_edits(1, title="plugh")
    await house.hook()
    await house.settle()
    shown = str(house.memory.kept("sync_cursors")) + str(house.memory.log) + "".join(capsys.readouterr())
    assert PROJECT in shown
    for secret in (forge.token, "xyzzy", "plugh"):
        assert secret not in shown
    assert forge.token not in repr(house.trackers)
