"""The constraints of an override hold for every later proposal of its task."""

from agents.developer_memory import Shelf
from agents.known_attempts import HERE, tried
from agents.manager_house import House

from counterpoint.developer.handlers import handle_delegated
from counterpoint.proto.overrides import OverrideGiven, TaskConstraint
from counterpoint.proto.tasks import SubmitTask, TaskDelegated, TaskWorked

ERROR = "duckdb.IOException: could not set lock on file /data/x.db"
TASK = SubmitTask(
    kind="troubleshoot", description="the report reads the file of the loader", error_message=ERROR, systems=("duckdb",)
)


def by_ada(*texts: str) -> tuple[TaskConstraint, ...]:
    return tuple(TaskConstraint(text=text, by="ada", by_kind="person") for text in texts)


async def worked(
    *fixes: str, constraints: tuple[TaskConstraint, ...] = (), override: OverrideGiven | None = None
) -> TaskWorked:
    """Return the developer's result for a failure that `fixes` have solved before."""
    shelf = Shelf()
    for number, fix in enumerate(fixes):
        body = tried(fix, integrity=2, task=f"task-{number}").body
        earlier = {**body, "description": TASK.description, "error_message": ERROR, "job": None, "systems": ["duckdb"]}
        shelf.put("attempts", f"a{number}", earlier, integrity=2)
    if override is not None:
        shelf.put("tasks", HERE, {"override": override.model_dump()}, integrity=2)
    message = TaskDelegated(
        task_id=HERE, project="shop", session_id="s", attempt=2, task=TASK, lane="investigate",
        override=override, constraints=constraints,
    )  # fmt: skip
    commit = await handle_delegated(message, shelf.delivered("message", HERE))
    return TaskWorked.model_validate(commit.messages[-1].data)


async def test_a_later_proposal_states_the_constraints() -> None:
    fix = "Restart the loader."
    caveat = "constraint of ada for this task: “do not restart the loader”"
    result = await worked(fix, constraints=by_ada("do not restart the loader"))
    assert result.outcome == "proposed"
    assert caveat in result.findings.caveats
    assert caveat not in (await worked(fix)).findings.caveats


async def test_a_stop_states_the_constraints() -> None:
    result = await worked(constraints=by_ada("do not restart the loader"))
    assert result.outcome == "stopped"
    assert "constraint of ada for this task: “do not restart the loader”" in result.findings.caveats


async def test_a_constraint_that_the_proposal_quotes_is_not_stated_twice() -> None:
    override = OverrideGiven(
        instruction="Stop the loader.", reasoning="the lock is stale", constraints=("only tonight",), by="eve",
        by_kind="person",
    )  # fmt: skip
    constraints = by_ada("do not restart the loader", "only tonight")
    result = await worked(constraints=constraints, override=override)
    assert "only tonight" in (result.text or "")
    assert [each for each in result.findings.caveats if each.startswith("constraint of")] == [
        "constraint of ada for this task: “do not restart the loader”"
    ]


def test_constraints_of_a_task_of_the_release_before_are_not_lost() -> None:
    house = House()
    house.route(error_message=ERROR)
    house.developer("proposed")
    house.override(instruction="look at the lock", constraints=("no restart of the loader",), by="ada")
    item = house.item("tasks", "t1")
    assert item is not None
    del item.body["constraints"]
    house.override(instruction="go on", by="eve")
    assert [(each.text, each.by) for each in house.last(TaskDelegated).constraints] == [
        ("no restart of the loader", "ada")
    ]


def test_constraints_outlast_their_override_and_add_up() -> None:
    house = House()
    house.route(error_message=ERROR)
    house.developer("proposed")
    house.override(instruction="look at the lock", constraints=("no restart of the loader",), by="ada")
    house.developer("proposed")
    house.outcome("failed", error_message="PermissionError: not allowed")
    delegated = house.last(TaskDelegated)
    assert delegated.override is None
    assert [(each.text, each.by) for each in delegated.constraints] == [("no restart of the loader", "ada")]
    house.override(instruction="go on", constraints=("do not delete the file", "no restart of the loader"), by="eve")
    assert [(each.text, each.by) for each in house.last(TaskDelegated).constraints] == [
        ("no restart of the loader", "eve"), ("do not delete the file", "eve"),
    ]  # fmt: skip
