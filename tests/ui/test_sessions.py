"""Sessions: the digest within its budget, over HTTP, and as the command shows it."""

from datetime import timedelta
from typing import Any

from agents.router_house import NOW, PROJECT
from hypothesis import given
from hypothesis import strategies as st
from memory_service.record_bodies import rest
from typer.testing import CliRunner
from ui.cli_server import playing
from ui.http_front import RunningFront

from counterpoint.cli.main import app
from counterpoint.client.sessions import TOKEN_CHARS, SessionDigest, session_digest
from counterpoint.proto.attempts import Attempt
from counterpoint.proto.overrides import OverrideGiven, TaskConstraint
from counterpoint.proto.sessions import SessionRecord
from counterpoint.proto.tasks import Task

OVERRIDE = OverrideGiven(
    instruction="Rotate the key of the quay first.",
    reasoning="It is two years old.",
    constraints=("do not touch the crane",),
    by="ana",
    by_kind="person",
)
CONSTRAINTS = (TaskConstraint(text="do not touch the crane", by="ana", by_kind="person"),)


def session(number: int) -> SessionRecord:
    return SessionRecord(
        session_id="s-1",
        project=PROJECT,
        task_ids=tuple(f"t-{n}" for n in range(number)),
        summary="",
        opened_at=NOW,
        continued_at=NOW,
    )


def task(n: int, state: str = "completed", **more: Any) -> Task:
    body = rest("tasks", f"t-{n}", PROJECT) | {"state": state, "submitted_at": NOW + timedelta(minutes=n)}
    return Task.model_validate(body | {"description": f"Why does the crane of pier {n} stop?"} | more)


def attempt(n: int, tried: str, outcome: str, number: int = 1, **more: Any) -> Attempt:
    body = {"project": PROJECT, "attempt": number, "description": "d", "by": "ops", "at": NOW} | more
    return Attempt.model_validate(
        body | {"attempt_id": f"a-{n}-{number}", "task_id": f"t-{n}", "tried": tried, "outcome": outcome}
    )


def test_open_tasks_come_first_then_the_newest_with_their_attempts_and_lessons() -> None:
    tasks = [
        task(0, result="The brake had worn.", resolution="resolved"),
        task(1, "input_required", waiting_for="override", override=OVERRIDE, constraints=CONSTRAINTS),
        task(2, resolution="answered", result="Pier 2 has one brake."),
    ]
    attempts = [
        attempt(0, "Restart the drive", "failed", 1, note="it stopped again"),
        attempt(0, "Replace the brake", "succeeded", 2),
        attempt(0, "Look at the fuse", "superseded", 3),
        attempt(2, "Something in shadow", "failed", shadow=True),
    ]
    digest = session_digest(session(3), tasks, attempts, 2000)
    assert [one.task_id for one in digest.tasks] == ["t-1", "t-2", "t-0"]
    assert digest.learned == ("Replace the brake",)
    assert (digest.omitted, digest.tasks[0].instruction) == (0, OVERRIDE.instruction)
    assert [(act.tried, act.outcome) for act in digest.tasks[2].tried] == [
        ("Restart the drive", "failed"),
        ("Replace the brake", "succeeded"),
    ]
    for line in (
        "Worked: Replace the brake",
        "  tried: Restart the drive; failed: it stopped again",
        "  constraint: do not touch the crane",
        "  decided: The brake had worn.",
    ):
        assert line in digest.text.splitlines()
    assert "waits for override" in digest.text
    assert "fuse" not in digest.text
    assert "shadow" not in digest.text


def test_a_quoted_proposal_is_told_without_its_marks_and_references() -> None:
    text = "From cranes.md [1]:\n\n> 1. Stop it.\n> 2. Set list[1] > 0. [2][3]\n\n[1] cranes.md, characters 0 to 9  "
    (told,) = session_digest(session(1), [task(0, result=text)], [], 2000).tasks
    assert told.decided == "From cranes.md: 1. Stop it. 2. Set list[1] > 0."


@given(
    number=st.integers(0, 20),
    tokens=st.integers(100, 3000),
    words=st.integers(0, 400),
    states=st.lists(st.sampled_from(["completed", "working", "failed"]), min_size=20, max_size=20),
)
def test_a_digest_keeps_its_budget_and_counts_every_task(
    number: int, tokens: int, words: int, states: list[str]
) -> None:
    tasks = [task(n, states[n], result="brake " * words) for n in range(number)]
    attempts = [attempt(n, f"Replace part {n} " * (words // 3 + 1), "succeeded") for n in range(0, number, 2)]
    digest = session_digest(session(number), tasks, attempts, tokens)
    assert len(digest.text) <= tokens * TOKEN_CHARS
    assert digest.tokens <= tokens
    assert len(digest.tasks) + digest.omitted == number
    order = [one.task_id for one in sorted(tasks, key=lambda one: (one.state == "working", one.submitted_at))][::-1]
    assert [one.task_id for one in digest.tasks] == order[: len(digest.tasks)]
    if digest.omitted:
        assert digest.text.endswith(f"and {digest.omitted} more")


async def test_a_session_is_read_over_http(front: RunningFront) -> None:
    front.house.put("sessions", "s-1", session(2).model_dump(mode="json"))
    front.house.put("tasks", "t-0", task(0, result="The brake had worn.").model_dump(mode="json", exclude_none=True))
    front.house.put(
        "attempts", "a", attempt(0, "Replace the brake", "succeeded").model_dump(mode="json", exclude_none=True)
    )
    digest = SessionDigest.model_validate((await front.me.get("/v1/sessions/s-1", params={"tokens": 100})).json())
    assert ([one.task_id for one in digest.tasks], digest.learned) == (["t-0"], ("Replace the brake",))
    assert (await front.me.get("/v1/sessions/s-2")).status_code == 404
    assert (await front.me.get("/v1/sessions/s-1", params={"tokens": 1})).status_code == 422
    async with front.as_principal("reporter", "report") as reporter:
        assert (await reporter.get("/v1/sessions/s-1")).status_code == 403


def test_the_command_shows_the_text() -> None:
    digest = session_digest(session(1), [task(0)], [], 500).model_dump(mode="json", exclude_none=True)
    with playing() as api:
        api.on("GET /v1/sessions/s-1", (200, digest))
        done = CliRunner().invoke(app, ["session", "s-1", "--tokens", "500", *api.options()])
        assert done.exit_code == 0
        assert done.output.startswith("session s-1, opened 2026-03-02 ")
        assert "Why does the crane of pier 0 stop?; completed" in " ".join(done.output.split())
        assert api.asked[0].params == {"tokens": "500"}
        assert "compacted" not in done.output
        compacted = {"compacted": "The crane stands still since Monday.", "compacted_by": "openai/small"}
        api.on("GET /v1/sessions/s-1", (200, digest | compacted))
        done = CliRunner().invoke(app, ["session", "s-1", *api.options()])
        assert "compacted by openai/small:\nThe crane stands still since Monday." in done.output
        assert CliRunner().invoke(app, ["session", "s 1", *api.options()]).exit_code == 2
