"""Tasks are issues of a forge: one each, in step with the task; the steps of a plan too."""

import pytest
from agents.issue_house import HOUR, PLAN, IssueHouse, completed, house_of, planned, proposed, tracker_of
from agents.scripted_forge import ScriptedForge

from counterpoint.router.issues.marks import marked_issue


async def test_a_proposal_opens_one_issue_and_the_end_of_its_task_closes_it(forge: ScriptedForge) -> None:
    house = house_of(forge, labels=("incident", "on call"))
    await house.open()
    (issue,) = forge.issues.values()
    assert (issue.title, issue.state) == ("orders_ingest.fetch", "open")
    assert "no route to db" in issue.body
    assert "Restart it" in issue.body
    assert issue.labels == ["incident", "on call", "counterpoint: proposed"]
    assert not issue.comments
    await house.end(result="Restarted it")
    assert (issue.state, issue.labels) == ("closed", ["incident", "on call"])
    (card,) = forge.bodies()
    assert "is resolved" in card
    assert "Restarted it" in card
    assert not house.dead
    assert house.record()["state"] == "synced"


async def test_a_state_that_changes_often_is_one_comment_that_is_edited(forge: ScriptedForge) -> None:
    house = house_of(forge)
    await house.open()
    for text in ("Restart the other", "Unlock the user"):
        house.task(proposal=text)
        await house.tell(proposed(proposal=text))
        await house.settle()
    (card,) = forge.bodies()
    assert "Unlock the user" in card
    writes = len(forge.writes())
    for _ in range(3):
        await house.tell(proposed())
        await house.settle()
    assert len(forge.writes()) == writes, "what is the same is not written again"


async def test_a_task_outside_the_filters_of_a_tracker_opens_no_issue(github: ScriptedForge) -> None:
    house = house_of(github, severity="high", kinds=["troubleshoot"])
    house.task()
    await house.tell(proposed())
    house.task("question", kind="question", priority="urgent")
    await house.tell(proposed("question"))
    house.task("shadow", shadow=True, priority="urgent")
    await house.tell(proposed("shadow"))
    elsewhere = IssueHouse([tracker_of(github, project="payments")])
    elsewhere.task()
    await elsewhere.tell(proposed())
    for each in (house, elsewhere):
        await each.settle()
    assert not github.asked
    house.task("urgent", priority="urgent")
    await house.tell(proposed("urgent"))
    await house.settle()
    assert len(github.issues) == 1


async def test_an_owner_is_assigned_when_the_issue_is_opened(forge: ScriptedForge) -> None:
    house = house_of(forge, owners={"team-ingest": "bea"})
    await house.open(context={"owner": "team-ingest"})
    assert forge.issues[1].assignees == (["5"] if forge.kind == "gitlab" else ["bea"])


async def test_an_owner_who_has_left_is_not_assigned(forge: ScriptedForge) -> None:
    house = house_of(forge, owners={"team-ingest": "bea"})
    if forge.kind == "gitlab":
        forge.before = lambda asked: (200, []) if asked.path.endswith("/users") else None
    else:
        forge.before = lambda asked: (422, None) if asked.body and asked.body.get("assignees") else None
    await house.open(context={"owner": "team-ingest"})
    assert forge.issues[1].assignees == []


@pytest.mark.parametrize(
    ("fields", "state"),
    [
        ({"state": "failed"}, "open"),
        ({"state": "completed", "resolution": "proposed"}, "open"),
        ({"state": "completed", "resolution": "quiet"}, "closed"),
        ({"state": "cancelled"}, "closed"),
    ],
)
async def test_an_issue_stays_open_while_there_is_work_left(
    github: ScriptedForge, fields: dict[str, str], state: str
) -> None:
    house = house_of(github)
    await house.open()
    await house.end(**fields)
    assert github.issues[1].state == state
    never = house_of(github, close=False)
    await never.open(task_id="incident-2")
    await never.end("incident-2", **fields)
    assert github.issues[2].state == "open"


async def test_closing_the_issue_of_an_untried_proposal_reports_another_cause(github: ScriptedForge) -> None:
    house = house_of(github)
    await house.open()
    await house.end(resolution="proposed")
    github.person_closes(1)
    for _ in range(2):
        await house.hook()
        await house.settle()
    (outcome,) = house.outcomes()
    assert outcome.fixed_by == "something_else"


async def test_a_label_that_is_refused_stops_nothing_else(forge: ScriptedForge) -> None:
    house = house_of(forge)
    forge.before = lambda asked: (422, None) if asked.writes and "label" in f"{asked.path} {asked.body}" else None
    await house.open()
    house.task(proposal="Another")
    await house.tell(proposed())
    await house.settle()
    assert "Another" in forge.bodies()[0]
    await house.end()
    await house.settle(HOUR)
    assert forge.issues[1].state == "closed"
    assert forge.issues[1].labels == []


async def test_an_issue_names_that_of_the_incident_before(forge: ScriptedForge) -> None:
    house = house_of(forge)
    await house.open()
    await house.open(task_id="incident-2", context={"previous_incident": "incident-1"})
    await house.open(task_id="incident-3", context={"previous_incident": "unknown"})
    assert "- the same job before: #1\n" in forge.issues[2].body
    assert "before: #" not in forge.issues[1].body + forge.issues[3].body


async def test_above_the_clearance_an_issue_has_ids_and_states_only(github: ScriptedForge) -> None:
    house = house_of(github)
    await house.open(label=2)
    issue = github.issues[1]
    assert issue.title == "Task incident-1"
    assert "no route" not in issue.body
    assert "Restart it" not in issue.body


async def test_a_task_that_came_from_an_issue_uses_it(forge: ScriptedForge) -> None:
    person = forge.person_opens("The import fails", "Since noon")
    house = house_of(forge)
    path = "/-/issues/1" if forge.kind == "gitlab" else "/issues/1"
    await house.open(source_ref=f"{forge.url}/{forge.repo}{path}")
    assert list(forge.issues) == [1]
    assert (person.title, person.body) == ("The import fails", "Since noon")
    assert "Restart it" in forge.bodies()[0]
    await house.end()
    assert person.state == "closed"


async def test_the_steps_of_a_plan_are_a_task_list(forge: ScriptedForge) -> None:
    house = house_of(forge)
    plan = "# Plan\n\n## Steps\n\n1. Ask @ann about #12\n2. Write it\n\n```\n- not this\n```\n\n## Open\n\n- Who?"
    house.task("plan-1", kind="plan", state="completed", waiting_for=None, resolution="planned", result=plan)
    await house.tell(completed("plan-1", "planned", plan))
    await house.settle()
    issue = forge.issues[1]
    items = [line for line in issue.body.splitlines() if line.startswith("- [ ]")]
    assert [item.replace("\u200b", "") for item in items] == ["- [ ] 1. Ask @ann about #12", "- [ ] 2. Write it"]
    assert "@ann" not in issue.body.split("**Plan**")[0]
    assert issue.state == "open", "its steps are still to be done"


async def test_the_steps_of_a_plan_become_issues_where_that_is_wanted(forge: ScriptedForge) -> None:
    house = IssueHouse([tracker_of(forge, todos="issues")])
    house.task("plan-1", kind="plan", result=PLAN)
    await house.tell(proposed("plan-1"))
    await house.settle()
    assert [issue.title for issue in forge.issues.values()] == ["orders_ingest.fetch"], "the plan is not finished"
    await house.tell(planned(house))
    await house.settle()
    plan, *steps = forge.issues.values()
    assert [issue.title for issue in steps] == ["Ask @ann about #12", "Write it"]
    assert all("A step of the plan in #1." in issue.body for issue in steps)
    assert all(issue.labels == ["counterpoint"] for issue in steps)
    assert "**To do**" not in plan.body
    (listed,) = [body for body in forge.bodies() if "**To do**" in body]
    assert listed.splitlines()[-2:] == ["- [ ] #2", "- [ ] #3"]

    steps[0].state, steps[1].title = "closed", "Write it by Friday"
    await house.tell(planned(house, PLAN.replace("3. write  it", "3. Test it")))
    await house.settle(2 * HOUR)
    assert [issue.title for issue in forge.issues.values()][1:] == [
        "Ask @ann about #12",
        "Write it by Friday",
        "Test it",
    ]
    assert (steps[0].state, plan.state) == ("closed", "open")
    (listed,) = [body for body in forge.bodies() if "**To do**" in body]
    assert listed.splitlines()[-3:] == ["- [ ] #2", "- [ ] #3", "- [ ] #4"]
    assert await house.hook(2, marked_issue(steps[0].body)) is None
