"""A decision is stored in the row of its action, and read, searched, taken back, erased and verified as a record."""

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from memory_service.house import DECISION, PERSON, WORKED, House, decision
from memory_service.learning_project import wish

from counterpoint.memory.commit.statement import _stored_with_last
from counterpoint.memory.record.canonical import canonical
from counterpoint.memory.record.joint_decisions import _SAME, joint_decisions
from counterpoint.memory.record.message_bodies import StoredBody
from counterpoint.memory.record.plan import PlannedMessage, PlannedWrite
from counterpoint.proto.ids import new_id
from counterpoint.proto.memory import Get, Line, List, LogAfter, Outgoing, Write

ROWS = "SELECT count(*) FROM records WHERE project = $1 AND store = 'decisions'"
JOINT = "SELECT count(*) FROM records WHERE project = $1 AND decision_id IS NOT NULL"
VALUES: st.SearchStrategy[Any] = st.sampled_from(["text", 1, 1.0, True, None, [1], [1.0], [True], {}])


def pair(project: str, task: str = "t-1", **changes: Any) -> tuple[Write, Outgoing]:
    """An action, and the decision that it names."""
    made = decision(task_id=task, project=project, reasoning="the runbook says so", sources=[], **changes)
    body = {
        "action_id": new_id(),
        "task_id": task,
        "agent": made.data["agent"],
        "kind": made.data["decision_type"],
        "reasoning": made.data["reasoning"],
        "result": made.data["decision"],
        "sources": made.data["sources"],
        "at": made.data["made_at"],
        "decision_id": made.data["decision_id"],
    }
    return Write(store="actions", id=body["action_id"], body=body), made


async def decided(house: House, project: str) -> tuple[Write, Outgoing]:
    """A commit with an action and its decision, in one row."""
    action, made = pair(project)
    origin = house.delivery(await house.delegated(project, "t-1"))
    await house.apply("developer", origin, step="decide", last=False, writes=(action,), messages=(made,))
    assert await counts(house, project) == (0, 1)
    return action, made


async def counts(house: House, project: str) -> tuple[int, int]:
    async with house.superuser() as connection:
        return await connection.fetchval(ROWS, project), await connection.fetchval(JOINT, project)


async def read(house: House, project: str, query: Any) -> list[tuple[str, int, Any]]:
    found = await house.answer("router", house.standing(project), query)
    return [(each.id, each.version, each.body) for each in found.items]


def row(store: str, record_id: str, body: dict[str, Any]) -> PlannedWrite:
    return PlannedWrite(store, record_id, 0, canonical(body), "t-1", "developer", 1, 1, b"")


@given(
    st.dictionaries(st.sampled_from([*_SAME.values(), "after"]), VALUES),
    st.dictionaries(st.sampled_from([*_SAME, "project", "confidence"]), VALUES),
)
def test_a_decision_is_the_same_again_or_has_a_row_of_its_own(action: dict[str, Any], made: dict[str, Any]) -> None:
    action |= {"decision_id": "d-1"}
    writes = row("actions", "a-1", action), row("decisions", "d-1", made)
    for at, fields in joint_decisions("orders", writes).values():
        implied = {name: action.get(field) for name, field in _SAME.items()} | {"project": "orders"}
        assert canonical(implied | json.loads(fields)) == writes[at].body


def test_stamps_that_differ_and_later_versions_are_not_joint() -> None:
    action, made = pair("orders")
    one, other = row("actions", action.id, action.body or {}), row("decisions", made.data["decision_id"], made.data)
    assert joint_decisions("orders", (one, other))
    assert not joint_decisions("orders", (row("actions", "a-2", {"decision_id": ["d-1"]}), other))
    for change in ({"label": 2}, {"integrity": 0}, {"author": "judge"}, {"expect": 1}, {"place": 7}):
        changed = PlannedWrite(**{name: getattr(other, name) for name in PlannedWrite.__slots__} | change)
        assert not joint_decisions("orders", (one, changed)), change


def planned(**changes: Any) -> PlannedMessage:
    """The planned message of a decision."""
    fields = {
        "id": "d", "type": DECISION, "subject": "decisions.p.developer", "task_id": "t-1", "versioned": False,
        "audience": (), "body": "{}", "label": 1, "integrity": 2, "due_at": None, "timer": None, "live": True,
        "stored": StoredBody("{}", (0,), None), **changes,
    }  # fmt: skip
    return PlannedMessage(**fields)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    "changes",
    [
        {"task_id": "t-2"}, {"label": 2}, {"integrity": 1}, {"audience": ("manager",)}, {"timer": "t-1.due"},
        {"versioned": True}, {"live": False}, {"stored": None}, {"stored": StoredBody("{}", (0,), "[]")},
        {"type": WORKED},
    ],
    ids=lambda changes: next(iter(changes)),
)  # fmt: skip
def test_a_message_that_differs_from_the_last_one_has_a_row_of_its_own(changes: dict[str, Any]) -> None:
    last = planned(type=WORKED, live=False, stored=None, audience=("manager",), versioned=True)
    assert _stored_with_last([planned(), last]) == {0: 0}
    assert _stored_with_last([planned(**changes), last]) == {}
    assert _stored_with_last([last, planned()]) == {}


async def test_a_joint_decision_is_read_as_a_record(house: House, project: str) -> None:
    action, made = await decided(house, project)
    decision_id, whole = made.data["decision_id"], [(made.data["decision_id"], 1, made.data)]
    for query in (
        Get(store="decisions", id=decision_id),
        List(store="decisions", task_id="t-1"),
        List(store="decisions", where={"decision_type": made.data["decision_type"]}),
        Get(store="decisions", id=decision_id, as_of="2100-01-01T00:00:00Z"),
        List(store="decisions", where={"agent": made.data["agent"]}, as_of="2100-01-01T00:00:00Z"),
    ):
        assert await read(house, project, query) == whole, query
    assert await read(house, project, List(store="decisions", where={"agent": "nobody"})) == []
    assert await read(house, project, Line(task_id="t-1")) == [(action.id, 1, action.body)]
    assert await read(house, f"{project}-b", Get(store="decisions", id=decision_id)) == []
    assert (await house.verify(project))["ok"]


@pytest.mark.parametrize("which", ["actions", "decisions"])
async def test_a_take_back_of_one_half_leaves_the_other(house: House, project: str, which: str) -> None:
    action, made = await decided(house, project)
    ids = {"actions": action.id, "decisions": made.data["decision_id"]}
    bodies = {"actions": action.body, "decisions": made.data}
    other = next(store for store in ids if store != which)
    quarantined = await wish(house, project, "quarantine", store=which, id=ids[which])
    assert await counts(house, project) == (1, 0)
    assert await house.body(project, which, ids[which]) is None
    assert await house.body(project, other, ids[other]) == bodies[other]
    assert (await house.verify(project))["ok"]
    await wish(house, project, "lift", id=quarantined)
    for store in ids:
        assert await house.body(project, store, ids[store]) == bodies[store]
    assert (await house.verify(project))["ok"]


async def test_an_erased_task_leaves_nothing_of_a_joint_decision(house: House, project: str) -> None:
    _, made = await decided(house, project)
    body = {"scope": "task", "what": "t-1", "reason": "asked for"}
    origin = house.standing(project, principal=PERSON)
    await house.apply("router", origin, writes=(Write(store="erasures", id=new_id(), body=body),))
    async with house.superuser() as connection:
        for table in ("records", "history", "messages", "audit"):
            like = f"SELECT count(*) FROM {table} t WHERE project = $1 AND t::text LIKE '%the runbook says so%'"
            assert await connection.fetchval(like, project) == 0, table
    assert await house.body(project, "decisions", made.data["decision_id"]) is None
    assert (await house.verify(project))["ok"]


async def test_an_id_that_exists_is_a_conflict_in_either_form(house: House, project: str) -> None:
    _, made = await decided(house, project)
    origin = house.delivery(await house.delegated(project, "t-2"))
    again = pair(project, "t-2", decision_id=made.data["decision_id"])
    for step, commit in (
        ("joint", {"writes": (again[0],), "messages": (again[1],)}),
        ("alone", {"messages": (again[1],)}),
    ):
        with pytest.raises(AssertionError, match="conflict"):
            await house.apply("developer", origin, step=step, last=False, **commit)
    assert await house.body(project, "decisions", made.data["decision_id"]) == made.data
    alone = pair(project, "t-2")
    await house.apply("developer", origin, step="own row", last=False, messages=(alone[1],))
    with pytest.raises(AssertionError, match="conflict"):
        await house.apply("developer", origin, step="second", last=False, writes=(alone[0],), messages=(alone[1],))


async def test_one_batch_does_not_create_a_decision_in_both_forms(house: House, project: str) -> None:
    """Tasks of a project share batches; a statement does not see the rows that it inserts."""
    origins = [house.delivery(await house.delegated(project, task)) for task in ("t-1", "t-2")]
    action, made = pair(project)
    _, again = pair(project, "t-2", decision_id=made.data["decision_id"])
    replies = await house.together(
        house.commit("developer", origins[0], step="joint", last=False, writes=(action,), messages=(made,)),
        house.commit("developer", origins[1], step="alone", last=False, messages=(again,)),
    )
    assert replies[0].status == "done"
    assert replies[1].refusal is not None
    assert replies[1].refusal.kind == "conflict"
    assert await counts(house, project) == (0, 1)
    assert (await house.verify(project))["ok"]


async def logged(house: House, project: str, limit: int, task: str | None = None) -> list[tuple[int, str, Any]]:
    """The log in pages: position, subject and body of each message."""
    found, after = list[tuple[int, str, Any]](), 0
    while True:
        page = await house.answer(
            "router",
            house.standing(project),
            LogAfter(after=after, kinds=("tasks", "decisions"), limit=limit, task_id=task),
        )
        found += [(each.seq, each.body["subject"], json.loads(each.body["data"])) for each in page.items]
        if len(page.items) < limit:
            return found
        after = page.items[-1].seq


async def test_messages_of_decisions_are_in_the_row_of_another_and_in_the_log_as_before(
    house: House, project: str
) -> None:
    sent = dict[str, list[Any]]()
    for task in ("t-1", "t-2", "t-3"):
        origin = house.delivery(await house.delegated(project, task))
        pairs = [pair(project, task), pair(project, task, agent="judge"), pair(project, task)]
        worked = Outgoing(type=WORKED, data={"task_id": task, "text": "done"})
        messages = (pairs[0][1], pairs[1][1], worked) if task == "t-1" else (*(made for _, made in pairs), worked)
        writes = tuple(action for action, made in pairs if made in messages)
        await house.apply("developer", origin, writes=writes, messages=messages)
        sent[task] = [each.data for each in messages]
    whole = await logged(house, project, 100)
    assert [seq for seq, *_ in whole] == sorted({seq for seq, *_ in whole})
    for limit in (1, 2, 3):
        assert await logged(house, project, limit) == whole
    for task, bodies in sent.items():
        assert [body for *_, body in await logged(house, project, 2, task)][-len(bodies) :] == bodies
    assert {subject for _, subject, _ in whole if "decisions" in subject} == {
        f"decisions.{project}.developer",
        f"decisions.{project}.judge",
    }
    async with house.superuser() as connection:
        rows = "SELECT count(*) FROM messages WHERE project = $1 AND type = $2"
        assert await connection.fetchval(rows, project, DECISION) == 0
        stored = "SELECT sum(cardinality(decision_ids)) FROM messages WHERE project = $1"
        assert await connection.fetchval(stored, project) == 8
    assert (await house.verify(project))["ok"]
