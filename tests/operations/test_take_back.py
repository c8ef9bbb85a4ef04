"""A wrong record is traced to all it touched, and taken back: at once, as a whole, and the way back again."""

import asyncio

import pytest
from commit.test_retention import expire
from memory_service.house import PERSON, House, decision, task_body
from memory_service.learning_project import GOOD, POISON, ingest, learn, reading, there, wish, worked_on
from memory_service.leaves import leaf_bodies

from counterpoint.memory.operations import take_back
from counterpoint.memory.record.plan import CommitPlan
from counterpoint.memory.rpc.queries import REPLY_LIMIT_BYTES
from counterpoint.proto.errors import Away
from counterpoint.proto.ids import new_id
from counterpoint.proto.memory import CommitReply, Dependents, Get, Line, List, MemoryRadius, VectorSearch, Write

EARLIER = """
WITH gone AS (DELETE FROM read_sets WHERE project = $1 RETURNING commit_id, cause, reads)
INSERT INTO sources (project, store, id, version, commit_id, cited, used, shared)
SELECT $1, item ->> 0, item ->> 1, (item ->> 2)::int, commit_id, coalesce(item ->> 4, '') IN ('cited', 'quoted'),
       coalesce(item ->> 4, '') = 'cited', coalesce(item ->> 5, 'false')::boolean
FROM gone, jsonb_array_elements(reads) AS item WHERE item ->> 4 IS DISTINCT FROM 'carried'
UNION ALL SELECT $1, 'commits', cause::text, 1, commit_id, true, false, false FROM gone
WHERE cause IS NOT NULL AND NOT reads @> '[["commits"]]'
"""
"""Turns the read sets of a project into `sources`, as an earlier release did after their retention."""


async def resting(
    house: House, project: str, store: str, record: str, version: int = 1
) -> dict[tuple[str, str, int], int]:
    query = Dependents(store=store, id=record, version=version)
    found = await house.answer("router", house.standing(project, principal=PERSON), query)
    if found.report is None:
        return {}
    radius = MemoryRadius.model_validate(found.report)
    return {(each.store, each.id, each.version): each.hops for each in radius.items}


class TestRadius:
    async def test_contains_decisions_and_lessons_that_used_a_document(self, house: House, project: str) -> None:
        document = await ingest(house, project, POISON)
        poisoned, clean = new_id(), new_id()
        learned = await learn(house, project, poisoned)
        await learn(house, project, clean, searches=False)
        reached = await resting(house, project, "documents", document)
        assert {
            (*each, 1): hops for each, hops in ((learned[n], 1) for n in ("attempt", "action", "decision"))
        }.items() <= (reached.items())
        assert reached[*learned["summary"], 1] == reached[*learned["plan"], 1] == 2
        assert reached["tasks", poisoned, 2] == 2
        assert not any(clean in record for _, record, _ in reached)
        assert await resting(house, project, "chunks", f"{document}-00000") == reached

    async def test_omits_stores_without_the_right_to_read(self, house: House, project: str) -> None:
        document = await ingest(house, project, POISON)
        await learn(house, project, new_id())
        reached = {store for store, _, _ in await resting(house, project, "documents", document)}
        assert len(reached) > 1
        grant, _ = await house.authority.authorise("router", house.standing(project))
        rights = frozenset({("documents", "read"), ("attempts", "read")})
        less = grant.model_copy(update={"rights": rights})
        (found,) = await house.queries.answer(less, (Dependents(store="documents", id=document),))
        assert {each.store for each in MemoryRadius.model_validate(found.report).items} == {"attempts"}

    async def test_of_a_version_omits_readers_of_earlier_versions(self, house: House, project: str) -> None:
        document = await ingest(house, project, GOOD)
        before, after = new_id(), new_id()
        good = await learn(house, project, before)
        await ingest(house, project, POISON)
        bad = await learn(house, project, after)
        reached = await resting(house, project, "documents", document, 2)
        assert (*bad["attempt"], 1) in reached
        assert (*good["attempt"], 1) not in reached
        assert (*good["attempt"], 1) in await resting(house, project, "documents", document)

    async def test_tells_cited_records_from_shown_ones(self, house: House, project: str) -> None:
        document = await ingest(house, project, POISON)
        learned = await learn(house, project, new_id())
        shown = house.delivery(await house.delegated(project, new_id()))
        await house.answer("developer", shown, VectorSearch(store="chunks", text="repair the orders pipeline", k=3))
        made = decision(project=project)
        await house.apply("developer", shown, reads=1, messages=(made,))
        person = house.standing(project, principal=PERSON)
        found = await house.answer("router", person, Dependents(store="documents", id=document, shown=True))
        cited = {each["id"]: each["cited"] for each in found.report["items"]} if found.report else {}
        assert cited[learned["plan"][1]] is True
        assert cited[made.data["decision_id"]] is False
        used = await resting(house, project, "documents", document)
        assert (*learned["plan"], 1) in used
        assert ("decisions", made.data["decision_id"], 1) not in used

    async def test_outlives_the_log(self, house: House, project: str) -> None:
        document = await ingest(house, project, POISON)
        learned = await learn(house, project, new_id())
        assert await resting(house, project, "documents", document)
        async with house.superuser() as connection:
            await connection.execute("UPDATE read_sets SET at = now() - interval '8 days' WHERE project = $1", project)
        await expire(house, project, 10**6)
        async with house.superuser() as connection:
            assert await connection.fetchval("SELECT count(*) FROM messages WHERE project = $1", project) == 0
        assert (*learned["plan"], 1) in await resting(house, project, "documents", document)

    async def test_survives_deletions_of_an_earlier_release(self, house: House, project: str) -> None:
        document = await ingest(house, project, POISON)
        learned = await learn(house, project, new_id())
        before = await resting(house, project, "documents", document)
        async with house.superuser() as connection:
            await connection.execute(EARLIER, project)
        assert await resting(house, project, "documents", document) == before
        assert (*learned["plan"], 1) in before
        assert (await house.verify(project))["ok"]
        async with house.superuser() as connection:
            await connection.execute("DELETE FROM sources WHERE project = $1", project)
        assert "is missing" in (await house.verify(project))["broken"][0]

    async def test_is_cut_at_the_size_of_a_message(self, house: House, project: str) -> None:
        document = await ingest(house, project, POISON)
        learned = await learn(house, project, new_id())
        await resting(house, project, "documents", document)
        async with house.superuser() as connection:
            await connection.execute(
                "INSERT INTO records (project, store, id, version, seq, task_id, author, label, integrity, commit_id)"
                " SELECT project, store, id || n, 1, seq + n, task_id || n, author, label, integrity, commit_id"
                " FROM records, generate_series(1, 9000) AS n WHERE project = $1 AND store = 'attempts' AND id = $2",
                project,
                learned["attempt"][1],
            )
        origin = house.standing(project, principal=PERSON)
        found = await house.answer("router", origin, Dependents(store="documents", id=document, limit=100_000))
        assert found.report is not None
        assert found.report["truncated"]
        assert len(found.report["items"]) > 1000
        assert len(found.model_dump_json()) < REPLY_LIMIT_BYTES

    async def test_of_an_item_of_another_project_is_empty(self, house: House, project: str) -> None:
        document = await ingest(house, project, POISON)
        await learn(house, project, new_id())
        assert await resting(house, f"{project}-b", "documents", document) == {}

    async def test_of_a_shared_item_spans_all_projects(self, house: House, project: str) -> None:
        document = await ingest(house, "shared", f"{POISON} {project}", source=f"{project}.md")
        learned = {each: await learn(house, each, new_id()) for each in (project, f"{project}-b")}
        for each in learned:
            assert (*learned[each]["plan"], 1) in await resting(house, each, "documents", document)
        same = await ingest(house, project, GOOD, source=f"{project}.md")
        assert same == document
        await wish(house, "shared", "quarantine", store="documents", id=document)
        assert all(await there(house, project, ("documents", document)))
        own = house.delivery(await house.delegated(project, new_id()))
        await house.answer("developer", own, Get(store="documents", id=document))
        await house.apply("developer", own, reads=1, messages=(decision(project=project),))
        for each in learned:
            assert not any(await there(house, each, *learned[each].values()))


class TestAQuarantine:
    async def test_removes_a_document_and_its_dependents_from_every_read(self, house: House, project: str) -> None:
        document = await ingest(house, project, POISON)
        poisoned, clean = new_id(), new_id()
        learned = await learn(house, project, poisoned)
        kept = await learn(house, project, clean, searches=False)
        out = [("documents", document), ("chunks", f"{document}-00000"), *learned.values()]
        assert all(await there(house, project, *out))
        wish_id = await wish(house, project, "quarantine", store="documents", id=document)
        assert not any(await there(house, project, *out))
        assert all(await there(house, project, *kept.values(), ("tasks", poisoned)))
        person = house.standing(project, principal=PERSON)
        for query in (List(store="attempts"), VectorSearch(store="attempts", text=poisoned), Line(task_id=poisoned)):
            found = await house.answer("router", person, query)
            assert not any(poisoned in each.id for each in found.items)
        done = await house.body(project, "quarantines", wish_id)
        assert done is not None
        assert (done["by"], done["tasks"], done["out"]["plans"]) == (PERSON, [poisoned], 1)
        assert (await house.verify(project))["ok"]
        async with house.superuser() as connection:
            *_, leaf = await leaf_bodies(connection, "project = $1", project)
        assert learned["plan"][1] in leaf
        assert PERSON in leaf

    async def test_can_be_lifted_without_loss(self, house: House, project: str) -> None:
        document = await ingest(house, project, POISON)
        learned = await learn(house, project, new_id())
        before = {each: await house.body(project, *each) for each in learned.values()}
        wish_id = await wish(house, project, "quarantine", store="documents", id=document)
        await wish(house, project, "lift", id=wish_id)
        assert {each: await house.body(project, *each) for each in learned.values()} == before
        found = await house.answer(
            "router", house.standing(project, principal=PERSON), VectorSearch(store="chunks", text=POISON)
        )
        assert [each.body["text"] for each in found.items] == [POISON]
        origin = house.standing(project, principal=PERSON)
        again = Write(store="quarantines", id=new_id(), body={"kind": "lift", "id": wish_id, "reason": "again"})
        await house.refusal("router", origin, "conflict", writes=(again,))
        # What was put back is wrong again when what it was made of is.
        assert (*learned["attempt"], 3) in await resting(house, project, "documents", document)

    async def test_is_a_conflict_for_commits_that_read_the_document(self, house: House, project: str) -> None:
        document = await ingest(house, project, POISON)
        origin = house.delivery(await house.delegated(project, new_id()))
        search = VectorSearch(store="chunks", text="repair the orders pipeline")
        assert (await house.answer("developer", origin, search)).items
        await wish(house, project, "quarantine", store="documents", id=document)
        reply = await house.commit("developer", origin, reads=1, messages=(decision(project=project),))
        assert reply.refusal is not None
        assert reply.refusal.kind == "conflict"
        anew = origin.model_copy(update={"run": 1})
        assert not (await house.answer("developer", anew, search)).items
        await house.apply("developer", anew, reads=1, messages=(decision(project=project),))

    async def test_of_a_shared_item_is_a_conflict_in_other_projects(self, house: House, project: str) -> None:
        document = await ingest(house, "shared", f"{POISON} {project}", source=f"{project}.md")
        origin = house.delivery(await house.delegated(project, new_id()))
        await house.answer("developer", origin, Get(store="documents", id=document))
        await wish(house, "shared", "quarantine", store="documents", id=document)
        reply = await house.commit("developer", origin, reads=1, messages=(decision(project=project),))
        assert reply.refusal is not None
        assert reply.refusal.kind == "conflict"

    @pytest.mark.parametrize("restarted", [False, True])
    async def test_reaches_commits_under_way(self, house: House, project: str, restarted: bool) -> None:
        document = await ingest(house, project, POISON)
        task = new_id()
        origin = house.delivery(await house.delegated(project, task))
        worked = worked_on(task, await reading(house, origin))
        done = await house.apply("developer", origin, reads=1, messages=(worked,))
        await wish(house, project, "quarantine", store="documents", id=document)
        if restarted:
            house.restart()
            await house.remember()
        plan = Write(store="plans", id=f"{task}-p", body={"plan_id": f"{task}-p", "task_id": task, "text": "drop it"})
        await house.apply("manager", house.delivery(done.message_ids[0]), writes=(plan,))
        assert await house.body(project, "plans", f"{task}-p") is None

    async def test_reaches_concurrent_commits(self, house: House, project: str) -> None:
        document = await ingest(house, project, POISON)
        tasks = [new_id() for _ in range(6)]
        learned, *_ = await asyncio.gather(
            asyncio.gather(*(learn(house, project, task) for task in tasks), return_exceptions=True),
            wish(house, project, "quarantine", store="documents", id=document),
        )
        radius = await resting(house, project, "documents", document)
        left = [each for each in radius if await house.body(project, each[0], each[1]) is not None]
        assert {store for store, _, _ in left} <= {"tasks"}
        assert len(learned) == len(tasks)

    async def test_lets_the_tasks_it_reached_go_on(self, house: House, project: str) -> None:
        """Their records stay: who reads one of them must not begin again for ever."""
        document = await ingest(house, project, POISON)
        task = new_id()
        origin = house.delivery(await house.delegated(project, task))
        worked = worked_on(task, await reading(house, origin))
        done = await house.apply("developer", origin, reads=1, messages=(worked,))
        waits = Write(store="tasks", id=task, body=task_body(task, "input_required"), expect=1)
        await house.apply("manager", house.delivery(done.message_ids[0]), writes=(waits,))
        await wish(house, project, "quarantine", store="documents", id=document)
        outcome = house.delivery(await house.reported(project, task))
        (known,) = (await house.answer("manager", outcome, Get(store="tasks", id=task))).items
        ended = Write(store="tasks", id=task, body=task_body(task, "completed"), expect=known.version)
        lesson = Write(store="plans", id=f"{task}-p", body={"plan_id": f"{task}-p", "task_id": task, "text": "drop it"})
        source = {"store": "tasks", "id": task, "version": known.version}
        made = decision("manager", task_id=task, project=project, sources=[source])
        await house.apply("manager", outcome, reads=1, writes=(ended, lesson), messages=(made,))
        assert (await house.body(project, "tasks", task) or {})["state"] == "completed"
        assert await house.body(project, "plans", f"{task}-p") is None

    async def test_leaves_room_for_a_new_record_of_the_same_name(self, house: House, project: str) -> None:
        document = await ingest(house, project, POISON)
        learned = await learn(house, project, new_id())
        await wish(house, project, "quarantine", store="documents", id=document)
        store, record = learned["summary"]
        origin = house.delivery(await house.routed(project, new_id()))
        reply = await house.apply("manager", origin, writes=(Write(store=store, id=record, body={"summary": "new"}),))
        assert reply.versions == {f"{store}/{record}": 3}
        assert (await house.body(project, store, record) or {})["summary"] == "new"
        await ingest(house, project, GOOD)
        assert all(await there(house, project, ("documents", document)))

    async def test_is_refused_to_services(self, house: House, project: str) -> None:
        document = await ingest(house, project, POISON)
        body = {"kind": "quarantine", "store": "documents", "id": document, "reason": "wrong"}
        write = Write(store="quarantines", id=new_id(), body=body)
        for caller in ("developer", "manager"):
            task = await (house.delegated if caller == "developer" else house.routed)(project, new_id())
            await house.refusal(caller, house.delivery(task), "store", writes=(write,))
        assert all(await there(house, project, ("documents", document)))

    async def test_of_unknown_and_foreign_items_is_refused(self, house: House, project: str) -> None:
        task = new_id()
        await house.delegated(project, task)
        other = await ingest(house, f"{project}-b", POISON)
        for store, record in (("documents", "doc-none"), ("tasks", task), ("documents", other), ("nothing", "x")):
            body = {"kind": "quarantine", "store": store, "id": record, "reason": "wrong"}
            origin = house.standing(project, principal=PERSON)
            await house.refusal(
                "router", origin, "not_found", writes=(Write(store="quarantines", id=new_id(), body=body),)
            )
        assert all(await there(house, f"{project}-b", ("documents", other)))


class TestARollback:
    @pytest.mark.parametrize("restarted", [False, True])
    async def test_of_a_quarantined_document_makes_it_usable_again(
        self, house: House, project: str, restarted: bool
    ) -> None:
        document = await ingest(house, project, GOOD)
        await ingest(house, project, POISON)
        await learn(house, project, new_id())
        await wish(house, project, "quarantine", store="documents", id=document)
        await wish(house, project, "rollback", store="documents", id=document)
        if restarted:
            house.restart()
            await house.remember()
        after = await learn(house, project, new_id())
        assert all(await there(house, project, *after.values(), ("documents", document)))

    async def test_restores_the_previous_version(self, house: House, project: str) -> None:
        document = await ingest(house, project, GOOD)
        good = await learn(house, project, new_id())
        await ingest(house, project, POISON)
        bad = await learn(house, project, new_id())
        await wish(house, project, "rollback", store="documents", id=document, version=2)
        chunk = await house.body(project, "chunks", f"{document}-00000")
        assert chunk is not None
        assert chunk["text"] == GOOD
        assert not any(await there(house, project, *bad.values()))
        assert all(await there(house, project, *good.values()))
        search = VectorSearch(store="chunks", text="restart the worker")
        found = await house.answer("router", house.standing(project, principal=PERSON), search)
        assert [each.body["text"] for each in found.items] == [GOOD]
        assert (await house.verify(project))["ok"]

    async def test_without_a_version_is_of_the_current_text(self, house: House, project: str) -> None:
        document = await ingest(house, project, GOOD)
        await ingest(house, project, POISON)
        wish_id = await wish(house, project, "quarantine", store="documents", id=document)
        await wish(house, project, "lift", id=wish_id)
        await wish(house, project, "rollback", store="documents", id=document)
        chunk = await house.body(project, "chunks", f"{document}-00000")
        assert chunk is not None
        assert chunk["text"] == GOOD

    async def test_after_a_quarantine_restores_the_good_version(self, house: House, project: str) -> None:
        document = await ingest(house, project, GOOD)
        await ingest(house, project, POISON)
        bad = await learn(house, project, new_id())
        await wish(house, project, "quarantine", store="documents", id=document, version=2)
        assert not any(await there(house, project, ("documents", document)))
        await wish(house, project, "rollback", store="documents", id=document, version=2)
        chunk = await house.body(project, "chunks", f"{document}-00000")
        assert chunk is not None
        assert chunk["text"] == GOOD
        assert not any(await there(house, project, *bad.values()))

    async def test_keeps_label_and_integrity(self, house: House, project: str) -> None:
        document = await ingest(house, project, GOOD)
        await ingest(house, project, POISON)
        origin = house.standing(project, principal=PERSON)
        (before,) = (await house.answer("router", origin, Get(store="documents", id=document))).items
        await wish(house, project, "rollback", store="documents", id=document, version=2)
        (after,) = (await house.answer("router", origin, Get(store="documents", id=document))).items
        assert (after.version, after.label, after.integrity, after.author) == (
            3,
            before.label,
            before.integrity,
            "memory",
        )
        assert after.body["sha256"] != before.body["sha256"]


class TestLostReply:
    """The commit of a wish whose answer is lost may have been applied, or not."""

    @staticmethod
    async def lost(
        house: House, project: str, document: str, monkeypatch: pytest.MonkeyPatch, *, applied: bool
    ) -> None:
        apply = house.committer.apply

        async def away(step: CommitPlan) -> CommitReply:
            if any(row.store == "quarantines" for row in step.writes):
                if applied:
                    await apply(step)
                raise Away("the database is away")
            return await apply(step)

        body = {"kind": "quarantine", "reason": "it is wrong", "store": "documents", "id": document}
        with monkeypatch.context() as patch:
            patch.setattr(house.committer, "apply", away)
            write = Write(store="quarantines", id=new_id(), body=body)
            reply = await house.commit("router", house.standing(project, principal=PERSON), writes=(write,))
        assert reply.refusal is not None
        assert reply.refusal.kind == "transient"

    @pytest.mark.parametrize("applied", [True, False])
    async def test_commits_that_read_it_are_refused_until_its_result_is_known(
        self, house: House, project: str, monkeypatch: pytest.MonkeyPatch, applied: bool
    ) -> None:
        document = await ingest(house, project, POISON)
        origin = house.delivery(await house.delegated(project, new_id()))
        await house.answer("developer", origin, VectorSearch(store="chunks", text="repair the orders pipeline", k=3))
        await self.lost(house, project, document, monkeypatch, applied=applied)

        async def rests() -> str:
            return (await house.commit("developer", origin, reads=1, step=new_id(), last=False)).status

        assert await rests() == "refused"
        await house.takebacks.settle()
        assert await rests() == "refused"
        monkeypatch.setattr(take_back, "_UNCONFIRMED_S", 0.0)
        await house.takebacks.settle()
        assert await rests() == ("refused" if applied else "done")
        assert await there(house, project, ("documents", document)) == [not applied]
        if not applied:
            await wish(house, project, "quarantine", store="documents", id=document)
            assert await rests() == "refused"
