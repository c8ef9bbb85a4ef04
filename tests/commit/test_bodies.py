"""A body is as its store's model demands before it is written, and one that is not costs itself when it is read."""

from typing import Any

import pytest
from memory_service.house import House
from memory_service.record_bodies import rest

from counterpoint.client import readable, record, records
from counterpoint.client.readable import UNREADABLE
from counterpoint.guard.policy import policy
from counterpoint.memory.access.principals import Principals
from counterpoint.proto.attempts import Attempt
from counterpoint.proto.errors import Denied, Permanent
from counterpoint.proto.memory import Get, Item, Write
from counterpoint.proto.records import MODELS, body_problems

WITHOUT_MODEL = {
    **dict.fromkeys(
        ("documents", "ingests", "chunks", "entities", "relationships", "audit", "projections"),
        "only memory writes them",
    ),
    **dict.fromkeys(("quarantines", "erasures", "dead_letters", "releases"), "memory handles them as operations"),
    **dict.fromkeys(
        ("submissions", "webhook_deliveries", "sync_cursors", "incidents", "routes", "checkpoints", "calibration"),
        "only the writing service reads them",
    ),
    **dict.fromkeys(("spend", "model_calls"), "only the gateway reads them, others as totals"),
    "plans": "texts of agents with arbitrary fields",
    **dict.fromkeys(("coder_memory", "planner_memory", "judge_memory"), "texts with arbitrary fields"),
}
"""The stores without a model, with the reason."""

DEMANDED = [(store, name) for store, shape in MODELS.items() for name, field in shape.model_fields.items()
            if field.is_required()]  # fmt: skip


def test_every_store_has_a_model_or_a_reason_to_have_none() -> None:
    assert sorted([*MODELS, *WITHOUT_MODEL]) == sorted(policy().stores)


@pytest.mark.parametrize(("store", "field"), DEMANDED)
def test_a_missing_or_wrong_field_is_named(store: str, field: str) -> None:
    body = rest(store, "r-1", "orders")
    assert body_problems(store, body, 1) == ()
    for wrong in ({key: value for key, value in body.items() if key != field}, body | {field: {"no": ["such"]}}):
        (problem,) = body_problems(store, wrong, 1)
        assert problem.field.partition("[")[0] == field


@pytest.mark.parametrize("version", [1, 99])
async def test_a_body_that_does_not_fit_its_store_is_refused(house: House, project: str, version: int) -> None:
    developer = house.delivery(await house.delegated(project, "t-1"))
    body = {**rest("attempts", "a-1", project, "t-1"), "constraints": "none"}
    del body["tried"]
    write = Write(store="attempts", id="a-1", body=body, schema_version=version)
    refusal = await house.refusal("developer", developer, "invalid", writes=(write,), whole=False)
    assert {(problem.field, problem.problem) for problem in refusal.problems} == {
        ("writes.attempts/a-1.tried", "is required"),
        ("writes.attempts/a-1.constraints", "must be a list"),
    }
    assert not (await house.answer("developer", developer, Get(store="attempts", id="a-1"))).items


async def test_a_principal_that_cannot_be_read_is_none_and_harms_no_other(house: House, project: str) -> None:
    async with house.superuser() as connection:
        for name, projects in ((f"broken-{project}", '"none"'), (f"whole-{project}", "[]")):
            await connection.execute(
                "INSERT INTO records (project, store, id, version, body, author, label, integrity, sha256, commit_id,"
                " seq)"
                " SELECT project, store, $1, 1, jsonb_build_object('name', $1::text, 'kind', 'person', 'roles',"
                " '[]'::jsonb, 'projects', $2::jsonb), author, label, integrity, sha256, commit_id, seq"
                " FROM records WHERE store = 'principals' LIMIT 1",
                name,
                projects,
            )
    principals = Principals(house.database)
    with pytest.raises(Denied):
        await principals.of(f"broken-{project}")
    whole = await principals.of(f"whole-{project}")
    assert whole is not None


def item(record_id: str, **changes: Any) -> Item:
    body = {**rest("attempts", record_id, "orders"), **changes}
    stamps: dict[str, Any] = {"author": "developer", "label": 1, "integrity": 1, "seq": 1, "at": body["at"]}
    return Item(store="attempts", id=record_id, project="orders", version=3, body=body, **stamps)


def test_an_unreadable_record_is_left_out_and_counted() -> None:
    before = UNREADABLE.labels("attempts")._value.get()
    items = [item("a-1"), item("a-2", tried=["no", "text"]), item("a-3")]
    assert [body.attempt_id for body in records(items, Attempt)] == ["a-1", "a-3"]
    assert [kept.id for kept, _ in readable(items, Attempt)] == ["a-1", "a-3"]
    assert UNREADABLE.labels("attempts")._value.get() == before + 2
    with pytest.raises(Permanent, match=r"unreadable: attempts/a-2\.tried: must be text"):
        record(items[1], Attempt)
