"""Everything that used an item, as a take-back counts it."""

from commit.test_retention import expire
from memory_service.house import PERSON, House, decision
from memory_service.learning_project import GOOD, POISON, ingest, learn, there, wish
from operations.resting_tasks import EARLIER, resting

from counterpoint.memory.rpc.queries import REPLY_LIMIT_BYTES
from counterpoint.proto.ids import new_id
from counterpoint.proto.memory import Dependents, Get, MemoryRadius, VectorSearch


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
