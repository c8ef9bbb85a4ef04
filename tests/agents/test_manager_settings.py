"""Settings by project or job: an incident that closes by itself, and one in shadow, which proposes nothing."""

from datetime import timedelta
from typing import Any

import pytest
from agents.manager_house import START, House

from counterpoint.proto.decisions import DecisionMade
from counterpoint.proto.findings import Findings, SimilarAttempt
from counterpoint.proto.incident_settings import (
    EffectiveIncidentSettings,
    IncidentSettings,
    ShadowDue,
    effective_settings,
    ids_for,
    settings_id,
)
from counterpoint.proto.tasks import JobRef, Target, TaskCompleted, TaskEscalated

JOB = JobRef(namespace="shop", name="load")
TARGET = Target(job=JOB)


def house(job: JobRef | None = None, asked: dict[str, Any] | None = None, **settings: Any) -> House:
    made = House()
    known = {"project": "orders", "by": "ops", "at": START.isoformat()} | settings
    made.put("incident_settings", settings_id(job), known)
    made.route(**({"target": TARGET, "error_message": "Error: user is locked"} | (asked or {})))
    return made


def shadowed() -> House:
    made = house(shadow=True)
    made.developer("proposed", text="Look at the export job")
    return made


def test_a_job_inherits_settings_of_its_project() -> None:
    project = IncidentSettings(quiet_s=3600, shadow=True)
    assert effective_settings([]) == EffectiveIncidentSettings(quiet_s=None, shadow=False)
    assert effective_settings([project, IncidentSettings(job=JOB, quiet_s=60)]) == EffectiveIncidentSettings(
        quiet_s=60, shadow=True
    )
    assert effective_settings([project, IncidentSettings(job=JOB, shadow=False)]) == EffectiveIncidentSettings(
        quiet_s=3600
    )
    assert ids_for(JOB)[0] == ids_for(None)[0]


@pytest.mark.parametrize("job", [None, JOB])
def test_an_incident_closes_by_itself_after_a_quiet_time(job: JobRef | None) -> None:
    made = house(job, quiet_s=3600.0)
    made.developer("proposed")
    made.wait(3599)
    assert made.task().state == "input_required"
    made.wait(1)
    ended = made.task()
    assert (ended.state, ended.resolution, ended.proposal) == ("completed", "quiet", "text of attempt 1")
    assert made.last(TaskCompleted).resolution == "quiet"
    assert made.attempt(1).outcome == "unknown"
    assert not made.timers
    made.outcome("succeeded", fixed_by="something_else", note="added a disk")
    assert made.attempt(2).tried == "added a disk"


@pytest.mark.parametrize("of_a_part", [False, True])
def test_the_quiet_time_is_counted_from_the_last_failure_also_of_a_part(of_a_part: bool) -> None:
    made = house(quiet_s=3600.0)
    made.developer("stopped", 0.3, code="low_confidence")
    first, last = START.isoformat(), (START + timedelta(seconds=1800)).isoformat()
    own = {"failures": [{"at": first}, {"at": last}]}
    joined = {"failures": [{"at": first}], "live": {"merged": [{"task_id": "t2", "last_at": last}]}}
    made.put("incidents", "t1", joined if of_a_part else own)
    made.wait(3600)
    assert made.task().state == "input_required"
    made.wait(1799)
    assert made.task().state == "input_required"
    made.wait(1)
    assert (made.task().state, made.task().resolution) == ("completed", "quiet")


def test_other_jobs_and_questions_are_left_alone() -> None:
    assert house(JOB, {"target": Target(job=JobRef(namespace="shop", name="mail"))}, shadow=True).task().shadow is False
    assert house(None, {"kind": "question"}, shadow=True, quiet_s=60.0).task().quiet_s is None


def test_in_shadow_a_proposal_is_recorded_and_not_shown() -> None:
    made = shadowed()
    task = made.task()
    assert (task.state, task.waiting_for, task.shadow) == ("input_required", "outcome", True)
    assert "Nothing is proposed" in (task.proposal or "")
    assert "TaskProposed" not in made.names()
    assert task.findings is not None
    assert task.findings.similar_attempts == ()
    (kept,) = made.attempts()
    assert (kept.tried, kept.shadow, kept.outcome) == ("Look at the export job", True, "unknown")
    assert "export" not in task.model_dump_json()


def test_in_shadow_a_stop_offers_nothing() -> None:
    made = house(shadow=True)
    fix = SimilarAttempt(id="a1", when=made.now, tried="Unlock it", outcome="succeeded", by="ops", score=0.5)
    known = Findings(similar_attempts=(fix,), next_steps=("Unlock it",))
    made.developer("stopped", 0.3, code="low_confidence", text="> Unlock it", findings=known)
    assert made.task().waiting_for == "documents"
    assert "Unlock" not in made.task().model_dump_json()
    assert "Unlock" not in made.last(TaskEscalated).model_dump_json()


@pytest.mark.parametrize("evidence", ["reported", "observed"])
def test_a_success_in_shadow_is_never_that_of_the_proposal(evidence: str) -> None:
    made = shadowed()
    made.outcome("succeeded", evidence=evidence, note="unlocked the user")
    assert made.attempt(1).outcome == "superseded"
    if evidence == "observed":
        made.outcome("succeeded", note="unlocked the user")
    assert [(one.tried, one.outcome, one.shadow) for one in made.attempts()] == [
        ("Look at the export job", "superseded", True),
        ("unlocked the user", "succeeded", False),
    ]
    findings = made.task().findings
    assert findings is not None
    assert [one.tried for one in findings.similar_attempts] == ["unlocked the user"]


def test_a_failure_in_shadow_is_the_reporters_own() -> None:
    made = shadowed()
    made.outcome("failed", note="restarted it")
    assert [(one.tried, one.outcome) for one in made.attempts()] == [
        ("Look at the export job", "unknown"),
        ("restarted it", "failed"),
    ]
    assert made.task().waiting_for == "outcome"


def test_in_shadow_an_instruction_is_proposed_as_it_is() -> None:
    made = house(shadow=True)
    made.developer("stopped", 0.3, code="low_confidence")
    made.override(instruction="do it so")
    made.developer("proposed", text="do it so")
    assert (made.task().proposal, made.names()[-1]) == ("do it so", "TaskProposed")
    made.outcome("succeeded")
    assert [(one.tried, one.outcome, one.shadow) for one in made.attempts()] == [("do it so", "succeeded", False)]


def in_shadow_since_the_start(**settings: Any) -> tuple[House, ShadowDue]:
    made = shadowed()
    made.outcome("succeeded", note="unlocked the user", fixed_by="something_else")
    since = {"shadow": True, "shadow_since": START.isoformat()} | settings
    record_id = settings_id(JobRef.model_validate(settings["job"]) if "job" in settings else None)
    made.put("incident_settings", record_id, {"project": "orders", "by": "ops", "at": START.isoformat()} | since)
    return made, ShadowDue(settings_id=record_id, since=START)


def reports(made: House) -> list[str]:
    said = [sent.message for sent in made.log if isinstance(sent.message, DecisionMade)]
    return [one.decision for one in said if one.decision_type == "shadow_report"]


def test_a_shadow_reports_every_week_and_each_week_once() -> None:
    made, due = in_shadow_since_the_start()
    assert made.deliver(due, message_id="week-1") == "done"
    assert made.deliver(due, message_id="week-1") == "replayed"
    assert reports(made) == ["report the shadow of project orders: 1 proposal not shown, 1 explained, 0 right (0%)"]
    assert [timer.timer for timer in made.timers] == ["shadow.project"]
    assert made.wait(7 * 24 * 3600 - 1) == 0
    assert made.wait(1) == 1
    assert len(reports(made)) == 2
    assert len(made.timers) == 1


@pytest.mark.parametrize("now", [{"shadow": False}, {"shadow_since": (START + timedelta(days=2)).isoformat()}])
def test_a_shadow_that_ended_or_began_anew_reports_nothing(now: dict[str, Any]) -> None:
    made, due = in_shadow_since_the_start(**now)
    made.deliver(due)
    assert (reports(made), made.timers) == ([], [])


def test_the_report_of_a_job_counts_its_own_proposals() -> None:
    made, due = in_shadow_since_the_start(job={"namespace": "shop", "name": "mail"})
    made.deliver(due)
    assert reports(made) == ["report the shadow of job shop/mail: no proposal was made in shadow"]
