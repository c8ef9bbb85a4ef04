"""A quarantine takes a wrong record, and what used it, out of every read at once, and a lift undoes it."""

import asyncio

import pytest
from memory_service.house import PERSON, House, decision, task_body
from memory_service.learning_project import GOOD, POISON, ingest, learn, reading, there, wish, worked_on
from memory_service.leaves import leaf_bodies
from operations.resting_tasks import resting

from counterpoint.proto.ids import new_id
from counterpoint.proto.memory import Get, Line, List, VectorSearch, Write


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
