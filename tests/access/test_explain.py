"""Every refusal has an id, by which an auditor of its project learns who asked for what and what was missing."""

import re
from pathlib import Path
from typing import Any

import pytest
from memory_service.house import PERSON, House

from counterpoint.guard import capabilities
from counterpoint.memory.access import diode
from counterpoint.memory.audit.refusals import RULES
from counterpoint.memory.commit import planner
from counterpoint.proto.errors import ErrorCode
from counterpoint.proto.memory import Explain, Get, Outgoing, Write

TASK = Write(store="tasks", id="t-1", body={"task_id": "t-1"})


async def explained(house: House, project: str, **query: Any) -> list[dict[str, Any]]:
    items: list[dict[str, Any]] = (await house.report(project, Explain(**query)))["items"]
    return items


async def test_a_refusal_is_explained_by_its_id(house: House, project: str) -> None:
    origin = house.standing(project, "t-1", principal=PERSON)
    refused = await house.refusal("router", origin, "store", writes=(TASK,))
    assert refused.id is not None
    (found,) = await explained(house, project, id=refused.id)
    assert (found["id"], found["rule"], found["needed"]) == (refused.id, "store", refused.needed)
    assert (found["service"], found["principal"], found["task_id"]) == ("router", PERSON, "t-1")
    for said in ("router", PERSON, "commit done", "t-1", project, "`store`", RULES["store"], refused.needed):
        assert said in found["text"]


@pytest.mark.parametrize("how", ["query", "permanent"])
async def test_refusals_of_queries_and_invalid_requests_have_an_id_too(house: House, project: str, how: str) -> None:
    if how == "query":
        refused = await house.refusal("manager", house.standing(project), "grant", Get(store="tasks", id="t"))
    else:
        message = Outgoing(type="counterpoint.task.submitted.v1", data={"findings": 1})
        refused = await house.refusal("router", house.standing(project), "invalid", messages=(message,))
    assert refused.id is not None
    (found,) = await explained(house, project, id=refused.id)
    assert found["rule"] == refused.code
    assert ("Problem: " in found["text"], "Required: " in found["text"]) == (how == "permanent", how == "query")


async def test_a_transient_refusal_has_no_id(house: House, project: str) -> None:
    routed = await house.routed(project, "t-1")
    reply = await house.commit("manager", house.delivery(routed), reads=3)
    assert reply.refusal is not None
    assert (reply.refusal.kind, reply.refusal.id) == ("transient", None)


async def test_refusals_are_listed_newest_first_a_page_at_a_time(house: House, project: str) -> None:
    ids = [(await house.refusal("router", house.standing(project), "store", writes=(TASK,))).id for _ in range(5)]
    listed, before = list[str](), None
    while True:
        report = await house.report(project, Explain(limit=2, before=before))
        listed += [each["id"] for each in report["items"]]
        before = report["next"]
        if before is None:
            break
    assert listed == ids[::-1]


async def test_refusals_of_another_project_are_not_found(house: House, project: str) -> None:
    refused = await house.refusal("router", house.standing(project), "store", writes=(TASK,))
    other = f"{project}-b"
    assert await explained(house, other) == []
    await house.refusal("router", house.standing(other), "not_found", Explain(id=refused.id))


async def test_an_erased_refusal_says_that_it_was(house: House, project: str) -> None:
    refused = await house.refusal("router", house.standing(project), "store", writes=(TASK,))
    await house.sequencer.once()
    async with house.superuser() as connection:
        await connection.execute("UPDATE audit SET body = NULL, salt = NULL WHERE id = $1", refused.id)
    (found,) = await explained(house, project, id=refused.id)
    assert found["erased"]
    assert "rule" not in found


def test_every_rule_that_refuses_is_explained() -> None:
    named: set[str] = set()
    for module in (capabilities, diode, planner):
        source = Path(str(module.__file__)).read_text()
        named |= {ErrorCode[name].value for name in re.findall(r"ErrorCode\.([A-Z_]+)", source)}
    assert len(named) > 12
    assert named <= set(RULES), named - set(RULES)
