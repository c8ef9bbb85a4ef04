"""A recorded step: what a delivery was given is rebuilt byte for byte, and what differs from the leaves is named."""

from typing import Any

import pytest
from memory_service.house import WORKED, House

from counterpoint.memory.record.packed_text import unpack
from counterpoint.proto.ids import new_id
from counterpoint.proto.memory import (
    Costs,
    DeadLetter,
    Dependents,
    Erase,
    Get,
    HybridSearch,
    List,
    MemoryQuery,
    Origin,
    Outgoing,
    QueryResult,
    RecordedAnswer,
    RecordedStep,
    StepProblem,
    StepRecord,
    Write,
    query_digest,
    salted,
)
from counterpoint.proto.principals import Principal

TEXTS = ("the disk of the archive is full", "the archive has a full disk again", "orders are late on Mondays")
QUERIES: tuple[tuple[MemoryQuery, ...], ...] = (
    (
        HybridSearch(store="attempts", text="archive disk full", also=("full archive",), k=2),
        List(store="attempts", limit=1),
        List(store="links"),
    ),
    (Get(store="providers", id="none"), List(store="attempts", limit=5)),
)


def attempt(n: int, tried: str) -> dict[str, Any]:
    return {"attempt_id": f"a{n}", "tried": tried, "error_message": "", "description": tried, "task_id": f"before-{n}"}


async def worked(house: House, project: str) -> tuple[list[QueryResult], str, Origin]:
    """A developer's delivery that has read twice, and committed: its answers, its commit, its origin."""
    for n, text in enumerate(TEXTS):
        write = Write(store="attempts", id=f"a{n}", body=attempt(n, text))
        await house.apply("memory", house.standing(project), writes=(write,))
    task = new_id()
    origin = house.delivery(await house.delegated(project, task))
    answers: list[QueryResult] = []
    for queries in QUERIES:
        reply = await house.query("developer", origin, *queries)
        assert reply.refusal is None, reply.refusal
        answers += reply.found
    message = Outgoing(type=WORKED, data={"task_id": task})
    action = Write(store="actions", id=f"act-{task}", body={"task_id": task, "agent": "developer"})
    await house.apply("developer", origin, reads=len(QUERIES), writes=(action,), messages=(message,))
    return answers, await commit_of(house, project, "actions", f"act-{task}"), origin


async def commit_of(house: House, project: str, store: str, record_id: str) -> str:
    async with house.superuser() as connection:
        return str(
            await connection.fetchval(
                "SELECT commit_id::text FROM records WHERE project = $1 AND store = $2 AND id = $3",
                project,
                store,
                record_id,
            )
        )


async def rebuilt(house: House, project: str, commit: str) -> tuple[StepRecord, list[QueryResult]]:
    step = StepRecord.model_validate(await report(house, project, RecordedStep(commit_id=commit)))
    answers = []
    for request, count in enumerate(step.answers):
        for number in range(count):
            query = RecordedAnswer(commit_id=commit, request=request, number=number)
            answers.append(await house.answer("router", house.standing(project), query))
    return step, answers


async def report(house: House, project: str, query: MemoryQuery) -> Any:
    return (await house.answer("router", house.standing(project), query)).report


def context(answer: QueryResult) -> bytes:
    return answer.model_dump_json(exclude={"took_us", "cache", "report"}).encode()


def problems(step: StepRecord, answers: list[QueryResult]) -> list[StepProblem]:
    reported = [each for answer in answers for each in (answer.report or {})["problems"]]
    return [*step.problems, *map(StepProblem.model_validate, reported)]


async def test_the_answers_of_a_delivery_are_rebuilt_byte_for_byte(house: House, project: str) -> None:
    given, commit, origin = await worked(house, project)
    # What is written, changed and deleted later does not change them.
    changed = Write(store="attempts", id="a0", body=attempt(0, "the disk was exchanged"), expect=1)
    deleted = Write(store="attempts", id="a1", expect=1)
    another = Write(store="attempts", id="a9", body=attempt(9, "the archive disk is full"))
    await house.apply("memory", house.standing(project), writes=(changed, deleted, another))
    step, answers = await rebuilt(house, project, commit)
    assert [context(each) for each in answers] == [context(each) for each in given]
    assert len(given[0].items) == 2
    assert given[1].next_cursor is not None
    assert given[0].items[0].scores
    asked = [salted(query_digest(query), bytes.fromhex(step.salt)) for queries in QUERIES for query in queries]
    assert [(each.report or {})["query"] for each in answers] == asked
    assert step.answers == (3, 2)
    assert step.inbound is not None
    assert (step.message_id, step.service) == (origin.message_id, "developer")
    assert [write.store for write in step.writes] == ["actions"]
    assert WORKED in [message.type for message in step.messages]
    assert problems(step, answers) == []


async def test_an_answer_from_the_cache_is_recorded_as_a_fresh_one(house: House, project: str) -> None:
    await worked(house, project)
    contexts = []
    for n in range(2):
        origin = house.standing(project)
        (answer,) = (await house.query("router", origin, QUERIES[0][0])).found
        write = Write(store="submissions", id=f"s{n}", body={"title": "rest"})
        await house.apply("router", origin, reads=1, writes=(write,))
        commit = await commit_of(house, project, "submissions", f"s{n}")
        contexts.append((answer.cache, context(answer), context((await rebuilt(house, project, commit))[1][0])))
    assert contexts[0][0] == "miss"
    assert contexts[1][0] == "hit"
    assert len({each for _, *both in contexts for each in both}) == 1


async def test_what_a_task_asks_is_not_cached(house: House, project: str) -> None:
    await worked(house, project)
    for _ in range(2):
        origin = house.delivery(await house.routed(project, new_id()))
        (answer,) = (await house.query("manager", origin, QUERIES[0][0])).found
        assert answer.cache == "off"


@pytest.mark.parametrize(
    ("change", "wanted"),
    [
        ("UPDATE records SET body = body || '{{\"tried\": \"nothing\"}}' WHERE {here} AND id = 'a0'", "attempts/a0 at"),
        ("DELETE FROM records WHERE {here} AND id = 'a2'", "attempts/a2 at version 1 is no longer"),
        ("UPDATE read_sets SET packed = packed || '\\x00' WHERE {here}", "the read set differs"),
        ("UPDATE read_sets SET packed = substr(packed, 2) WHERE {here}", "the read set differs"),
        ("UPDATE read_sets SET packed = NULL, answers = '[]' WHERE {here}", "the read set differs"),
        ("UPDATE read_sets SET reads = reads - 0 WHERE {here} AND jsonb_array_length(reads) > 2", "the read set"),
        ("UPDATE messages SET body = '{{\"x\": 1}}' WHERE {here} AND type = '{worked}'", "differs from what was sent"),
    ],
)
async def test_differences_from_the_leaves_are_named(house: House, project: str, change: str, wanted: str) -> None:
    _, commit, _ = await worked(house, project)
    async with house.superuser() as connection:
        done = await connection.execute(change.format(here=f"project = '{project}'", worked=WORKED))
    assert not done.endswith(" 0")
    step, answers = await rebuilt(house, project, commit)
    found = problems(step, answers)
    assert any(each.kind == "differs" and wanted in each.problem for each in found), found


async def test_answers_of_the_release_before_are_read(house: House, project: str) -> None:
    given, commit, _ = await worked(house, project)
    async with house.superuser() as connection:
        row = await connection.fetchrow("SELECT packed FROM read_sets WHERE commit_id = $1::uuid", commit)
        older = "UPDATE read_sets SET packed = NULL, answers = $2 WHERE commit_id = $1::uuid"
        await connection.execute(older, commit, unpack(row["packed"]))
    step, answers = await rebuilt(house, project, commit)
    assert problems(step, answers) == []
    assert list(map(context, answers)) == list(map(context, given))


async def test_a_report_is_no_difference_but_cannot_be_rebuilt(house: House, project: str) -> None:
    origin = house.delivery(await house.routed(project, new_id()))
    assert (await house.query("manager", origin, Costs(by="project"))).refusal is None
    plan = Write(store="plans", id="p-1", body={"text": "rest"})
    await house.apply("manager", origin, reads=1, writes=(plan,))
    step, answers = await rebuilt(house, project, await commit_of(house, project, "plans", "p-1"))
    assert [each.kind for each in problems(step, answers)] == ["report"]


async def test_the_rest_of_a_partly_erased_commit_does_not_differ(house: House, project: str) -> None:
    both = [Write(store="attempts", id=f"a{n}", body=attempt(n, text)) for n, text in enumerate(TEXTS[:2])]
    await house.apply("memory", house.standing(project), writes=tuple(both))
    origin = house.delivery(await house.delegated(project, "t-1"))
    assert (await house.query("developer", origin, List(store="attempts", limit=5))).refusal is None
    action = Write(store="actions", id="act-1", body={"task_id": "t-1", "agent": "developer"})
    await house.apply("developer", origin, reads=1, writes=(action,))
    commit = await commit_of(house, project, "actions", "act-1")
    assert problems(*await rebuilt(house, project, commit)) == []
    erase = Write(store="erasures", id="e-1", body=Erase(scope="task", what="before-0", reason="asked").model_dump())
    await house.apply("router", house.standing(project, principal="administrator"), writes=(erase,))
    found = problems(*await rebuilt(house, project, commit))
    assert [(each.kind, each.problem) for each in found] == [("erased", "attempts/a0 at version 1 was erased")]


async def test_a_commit_of_a_release_that_did_not_keep_its_read_set_has_no_answers(house: House, project: str) -> None:
    _, commit, _ = await worked(house, project)
    async with house.superuser() as connection:
        await connection.execute("DELETE FROM read_sets WHERE project = $1 AND commit_id = $2::uuid", project, commit)
        step, _ = await rebuilt(house, project, commit)
        assert [each.kind for each in step.problems] == ["differs"]
        await connection.execute(
            "INSERT INTO sources (project, store, id, version, commit_id, cited, shared)"
            " VALUES ($1, 'attempts', 'a0', 1, $2::uuid, false, false)",
            project,
            commit,
        )
    step, answers = await rebuilt(house, project, commit)
    assert (step.problems, step.answers, answers) == ((), (), [])


async def test_a_dead_letter_is_shown_to_those_who_may_read_it(house: House, project: str) -> None:
    origin = house.delivery(await house.routed(project, "t-1"))
    letter = DeadLetter(code="malformed", subject=f"tasks.{project}.submitted", body="{}")
    await house.apply("manager", origin, step="dead", dead_letter=letter)
    async with house.superuser() as connection:
        commit = await connection.fetchval(
            "SELECT commit_id::text FROM records WHERE project = $1 AND store = 'dead_letters'", project
        )
    for roles, stores in ((("read", "audit"), []), (("read", "audit", "operate"), ["dead_letters"])):
        name = f"{'-'.join(roles)}-{project}"
        body = Principal(name=name, kind="person", projects=(project,), roles=roles).model_dump(exclude_none=True)
        created = Write(store="principals", id=name, body=body)
        await house.apply("router", house.standing("default", principal="administrator"), writes=(created,))
        found = await house.answer("router", house.standing(project, principal=name), RecordedStep(commit_id=commit))
        assert [write.store for write in StepRecord.model_validate(found.report).writes] == stores


def test_a_query_keeps_its_hash_when_it_gets_a_field_with_a_default() -> None:
    class LaterGet(Get):
        later: int = 5

    LaterGet.__name__ = "Get"
    assert query_digest(LaterGet(store="links", id="x")) == query_digest(Get(store="links", id="x"))
    assert query_digest(LaterGet(store="links", id="x", later=6)) != query_digest(Get(store="links", id="x"))
    assert query_digest(List(store="links")) != query_digest(Dependents(store="links", id="x"))


async def test_a_commit_of_another_project_is_not_found(house: House, project: str) -> None:
    _, commit, _ = await worked(house, project)
    reply = await house.query("router", house.standing("elsewhere"), RecordedStep(commit_id=commit))
    assert reply.refusal is not None
    assert reply.refusal.code == "not_found"
    other = await house.query("router", house.standing(project), RecordedStep(commit_id="nothing"))
    assert other.refusal is not None
    assert other.refusal.code == "not_found"
