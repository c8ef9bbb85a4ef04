"""Erasure removes content everywhere, with everything derived from it; proofs still hold, and gaps are named."""

import asyncio
import json
from typing import Any

import pytest
from memory_service.house import PERSON, House
from memory_service.learning_project import GOOD, POISON, SEARCH, commit_of, ingest, learn, there, wish
from memory_service.leaves import leaf_bodies
from operations.erasures import MARK, erase, everywhere

from counterpoint.guard.policy import policy
from counterpoint.memory.ingest.entities import KnowledgeGraph
from counterpoint.memory.operations import erasure, extent
from counterpoint.memory.operations.erasure import Erasures
from counterpoint.proto.ids import new_id
from counterpoint.proto.memory import GatewayToken, Get, HybridSearch, List, LogAfter, QueryReply, QueryRequest, Write
from counterpoint.proto.upcast import UPCASTERS


async def test_a_source_is_gone_from_every_table_with_its_dependents(house: House, project: str) -> None:
    document = await ingest(house, project, f"{POISON} {MARK}", source="wrong.md")
    kept = await ingest(house, project, GOOD, source="right.md")
    poisoned, clean = f"{MARK}-{new_id()}", new_id()
    learned = await learn(house, project, poisoned)
    others = await learn(house, project, clean, searches=False)
    assert {"records", "vectors", "messages", "postings", "lexicon", "history"} <= {
        *(await everywhere(house, project, MARK)), "history"
    }  # fmt: skip
    done = await erase(house, project, "source", "wrong.md")
    assert done["gone"]["documents"] == done["gone"]["chunks"] == 1
    assert not any(await there(house, project, ("documents", document), *learned.values(), ("tasks", poisoned)))
    assert all(await there(house, project, ("documents", kept), *others.values(), ("tasks", clean)))
    # Ids stay: of what is gone it is still known that it was.
    async with house.superuser() as connection:
        for table, column in (("records", "body"), ("history", "body"), ("messages", "body")):
            rows = await connection.fetch(f"SELECT {column}::text AS said FROM {table} WHERE project = $1", project)
            assert not [
                row["said"] for row in rows if MARK in (row["said"] or "") and POISON[:20] in (row["said"] or "")
            ]
        bodies = await leaf_bodies(connection, "project = $1", project)
        assert not [body for body in bodies if MARK in body and POISON[:20] in body]
        assert not await connection.fetchval(
            "SELECT count(*) FROM lexicon WHERE project = $1 AND term = $2", project, MARK
        )
        assert not await connection.fetchval(
            "SELECT count(*) FROM vectors WHERE project = $1 AND id LIKE $2 || '%'", project, document
        )
    found = await house.answer("router", house.standing(project, principal=PERSON), SEARCH)
    assert [each.body["text"] for each in found.items] == [GOOD]


async def test_an_erased_task_is_gone_and_the_proofs_hold(house: House, project: str) -> None:
    task, other = new_id(), new_id()
    learned = await learn(house, project, task, searches=False)
    others = await learn(house, project, other, searches=False)
    before = await house.verify(project)
    assert before["ok"]
    done = await erase(house, project, "task", task)
    assert done["gone"]["tasks"] == 1
    assert not any(await there(house, project, *learned.values(), ("tasks", task)))
    assert all(await there(house, project, *others.values(), ("tasks", other)))
    report = await house.verify(project)
    assert report["ok"], report["broken"]
    assert report["erased"] > 0
    log = await house.answer("router", house.standing(project), LogAfter(after=0, kinds=("tasks", "decisions")))
    assert not [each for each in log.items if task in json.dumps(each.body["data"])]
    async with house.superuser() as connection:
        referring = "SELECT count(*) FROM logged_messages WHERE project = $1 AND task_id = $2 AND records IS NOT NULL"
        assert await connection.fetchval(referring, project, other) > 0
        assert await connection.fetchval(referring, project, task) == 0


async def test_capabilities_of_an_erased_task_end_until_it_is_submitted_again(house: House, project: str) -> None:
    developer = house.delivery(await house.delegated(project, "t-1"))
    queries = (List(store="attempts"), HybridSearch(store="chunks", text="disk full"))
    for query in queries:
        await house.answer("developer", developer, query)
    await erase(house, project, "task", "t-1")
    for query in queries:
        await house.refusal("developer", developer, "ended", query)
    request = QueryRequest(origin=developer, gateway=GatewayToken(purpose="model", reads=len(queries)))
    reply = QueryReply.model_validate_json(await house.door.query("developer", request.model_dump_json().encode()))
    assert reply.refusal is not None
    assert reply.refusal.code == "ended"
    submission = Write(store="submissions", id="task:t-1", body={"task_id": "t-1"})
    await house.apply("router", house.standing(project, principal=PERSON), writes=(submission,))
    house.restart()
    for query in queries:
        await house.answer("developer", developer, query)


async def test_an_erased_task_takes_its_incident_its_failed_runs_and_its_links_with_it(
    house: House, project: str
) -> None:
    task, other = "incident-1", "incident-2"
    for each in (task, other):
        await learn(house, project, each, searches=False)
    error = f"no rows for {MARK}"
    side, others = {"task_id": task, "error_message": error}, ({"task_id": other}, {"task_id": "incident-3"})
    rows = {
        ("incidents", task): {"incident_id": task, "error_message": error},
        ("incidents", other): {"incident_id": other},
        ("runs", "r-1"): {"run_id": "r-1", "job": "job:n/load", "error_message": error, "incident": task},
        ("runs", "r-2"): {"run_id": "r-2", "job": "job:n/load", "incident": other},
    }
    of_lineage = tuple(Write(store=store, id=each, body=body) for (store, each), body in rows.items())
    await house.apply("lineage", house.standing(project), writes=of_lineage)
    pairs = {"l-1": [side, others[0]], "l-2": [others[0], side], "l-3": others}
    links = tuple(Write(store="links", id=each, body={"link_id": each, "pair": pair}) for each, pair in pairs.items())
    await house.apply("router", house.standing(project, principal=PERSON), writes=links)
    assert "records" in await everywhere(house, project, MARK)
    done = await erase(house, project, "task", task)
    assert {store: done["gone"][store] for store in ("incidents", "runs", "links")} == {
        "incidents": 1,
        "runs": 1,
        "links": 2,
    }
    assert await everywhere(house, project, MARK) == []
    assert all(await there(house, project, ("incidents", other), ("runs", "r-2"), ("links", "l-3")))


async def test_an_erased_project_is_gone_and_no_other(house: House, project: str) -> None:
    document = await ingest(house, project, f"{GOOD} {MARK}")
    await ingest(house, f"{project}-b", f"{GOOD} {MARK}")
    learned = await learn(house, project, new_id())
    await erase(house, project, "project", project)
    assert not any(await there(house, project, ("documents", document), *learned.values()))
    assert await everywhere(house, project, MARK) == []
    assert await everywhere(house, f"{project}-b", MARK)
    assert (await house.verify(project))["ok"]
    assert (await house.verify(f"{project}-b"))["ok"]
    # And begins anew.
    await ingest(house, project, GOOD)
    assert (await house.answer("router", house.standing(project, principal=PERSON), SEARCH)).items


async def test_queries_of_the_past_name_erased_records(house: House, project: str) -> None:
    document = await ingest(house, project, GOOD)
    commit = await commit_of(house, project, "documents", document)
    await erase(house, project, "source", "runbook.md")
    origin = house.standing(project, principal=PERSON)
    then = await house.answer("router", origin, Get(store="documents", id=document, as_of=commit))
    assert then.items == ()
    assert [(each.store, each.id, each.version) for each in then.erased] == [("documents", document, 1)]
    listed = await house.answer("router", origin, List(store="chunks", as_of=commit))
    assert [each.id for each in listed.erased] == [f"{document}-00000"]


async def test_records_that_were_merely_shown_the_source_stay_unless_asked_for(house: House, project: str) -> None:
    await ingest(house, project, POISON)
    origin = house.delivery(await house.delegated(project, new_id()))
    await house.answer("developer", origin, SEARCH)
    plan = {"attempt_id": "a", "tried": "nothing", "error_message": ""}
    await house.apply("developer", origin, reads=1, writes=(Write(store="attempts", id="a", body=plan),))
    done = await erase(house, project, "source", "runbook.md")
    assert done["shown_to"] == 1
    assert all(await there(house, project, ("attempts", "a")))
    await ingest(house, project, POISON)
    await erase(house, project, "source", "runbook.md", shown=True)
    assert not any(await there(house, project, ("attempts", "a")))


async def test_an_interrupted_one_is_finished_at_the_next_start(
    house: House, project: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    document = await ingest(house, project, f"{GOOD} {MARK}")

    async def killed(*_: Any) -> None:
        raise RuntimeError("killed")

    with monkeypatch.context() as patch:
        patch.setattr(Erasures, "_wipe", killed)
        body = {"scope": "source", "what": "runbook.md", "reason": "asked for"}
        write = Write(store="erasures", id=new_id(), body=body)
        reply = await house.commit("router", house.standing(project, principal=PERSON), writes=(write,))
        assert reply.status == "refused"
    assert not any(await there(house, project, ("documents", document)))
    assert "history" in await everywhere(house, project, MARK)
    house.restart()
    await house.erasures.finish()
    assert await everywhere(house, project, MARK) == []
    done = await house.body(project, "erasures", write.id)
    assert done is not None
    assert done["state"] == "erased"
    assert (await house.verify(project))["ok"]


async def test_an_erasure_needs_an_administrator_and_an_existing_item(house: House, project: str) -> None:
    await ingest(house, project, GOOD)
    body = {"scope": "source", "what": "runbook.md", "reason": "asked for"}
    task = await house.delegated(project, new_id())
    await house.refusal(
        "developer", house.delivery(task), "store", writes=(Write(store="erasures", id="e", body=body),)
    )
    origin = house.standing(project, principal=PERSON)
    for scope, what in (("source", "other.md"), ("task", "none"), ("project", f"{project}-b")):
        write = Write(store="erasures", id=new_id(), body={"scope": scope, "what": what, "reason": "x"})
        await house.refusal("router", origin, "not_found", writes=(write,))


async def test_a_leaf_that_lost_its_content_without_an_erasure_is_found(house: House, project: str) -> None:
    await learn(house, project, new_id(), searches=False)
    await house.verify(project)
    async with house.superuser() as connection:
        at = await connection.fetchval(
            "UPDATE audit SET body = NULL, packed = NULL, salt = NULL WHERE arrival = ("
            "SELECT max(arrival) FROM audit WHERE project = $1) RETURNING position",
            project,
        )
    report = await house.verify(project)
    assert f"leaf {at} has no content, and no erasure accounts for it" in report["broken"]


async def test_other_records_of_a_partly_erased_commit_are_still_verified(house: House, project: str) -> None:
    """A commit wrote two records; one is erased, and the other one is changed afterwards: that is found."""
    task, other = new_id(), new_id()
    origin = house.standing(project)
    bodies = ({"name": "a", "task_id": task}, {"name": "b", "task_id": other})
    await house.apply(
        "memory", origin, writes=tuple(Write(store="entities", id=each["name"], body=each) for each in bodies)
    )
    await erase(house, project, "task", task)
    assert (await house.verify(project))["ok"]
    async with house.superuser() as connection:
        await connection.execute(
            "UPDATE records SET body = '{\"name\": \"c\"}' WHERE project = $1 AND store = 'entities' AND id = 'b'",
            project,
        )
    assert "entities/b at version 1 differs from what was committed" in (await house.verify(project))["broken"]


async def test_other_records_of_a_partly_erased_commit_can_be_erased(house: House, project: str) -> None:
    """The first erasure vouches for the second record, and the second one takes that back for this record alone."""
    task, other, third = new_id(), new_id(), new_id()
    bodies = [{"name": name, "task_id": about} for name, about in (("a", task), ("b", other), ("c", third))]
    await house.apply(
        "memory",
        house.standing(project),
        writes=tuple(Write(store="entities", id=each["name"], body=each) for each in bodies),
    )
    await erase(house, project, "task", task)
    await erase(house, project, "task", other)
    report = await house.verify(project)
    assert report["ok"], report["broken"]
    async with house.superuser() as connection:
        await connection.execute(
            "UPDATE records SET body = NULL, erased = now() WHERE project = $1 AND store = 'entities' AND id = 'c'",
            project,
        )
    assert "entities/c at version 1 differs from what was committed" in (await house.verify(project))["broken"]


async def test_messages_about_a_task_during_its_erasure_stay_in_the_log(
    house: House, project: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The leaf of the erasure does not name it, so nothing of it may go."""
    task = new_id()
    await learn(house, project, task, searches=False)
    wipe = Erasures._wipe

    async def meanwhile(self: Erasures, *given: Any) -> None:
        plan = Write(store="plans", id="p", body={"text": "x"})
        await house.refusal("router", house.standing(project, task), "store", writes=(plan,))
        await house.routed(project, task)
        await house.sequencer.once()
        await wipe(self, *given)

    with monkeypatch.context() as patch:
        patch.setattr(Erasures, "_wipe", meanwhile)
        await erase(house, project, "task", task)
    report = await house.verify(project)
    assert report["ok"], report["broken"]
    assert report["erased"] > 0


def test_only_stores_of_decisions_survive_the_erasure_of_a_project() -> None:
    system = {name for name, row in policy().stores.items() if row.system}
    assert erasure.KEPT & set(policy().stores) == {
        "audit", "erasures", "quarantines", "releases", "revocations", "providers", "projections"
    }  # fmt: skip
    assert not system & erasure.KEPT


async def test_records_of_an_older_schema_can_be_taken_back_and_erased(
    house: House, project: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    steps: dict[str, list[Any]] = {}
    monkeypatch.setattr(UPCASTERS, "_steps", steps)
    for store in policy().stores:
        UPCASTERS.register(store, 1)(lambda body: body)
    document = await ingest(house, project, f"{POISON} {MARK}", source="wrong.md")
    await learn(house, project, new_id())
    async with house.superuser() as connection:
        written = "SELECT DISTINCT schema_version FROM records WHERE project = $1"
        assert [row[0] for row in await connection.fetch(written, project)] == [2]
    lifted = await wish(house, project, "quarantine", store="documents", id=document)
    assert await there(house, project, ("documents", document)) == [False]
    await wish(house, project, "lift", id=lifted)
    await erase(house, project, "source", "wrong.md")
    assert await everywhere(house, project, MARK) == []


async def test_a_document_that_is_scanned_during_its_erasure_leaves_no_mention(
    house: House, project: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    await ingest(house, project, f"It is in dags/{MARK}.py", source="wrong.md")
    reading, read = asyncio.Event(), asyncio.Event()
    found = KnowledgeGraph._text

    async def slowly(self: KnowledgeGraph, place: str, row: Any) -> str:
        text = await found(self, place, row)
        reading.set()
        await read.wait()
        return text

    monkeypatch.setattr(KnowledgeGraph, "_text", slowly)
    looking = asyncio.create_task(house.knowledge.follow(project))
    await reading.wait()
    erasing = asyncio.create_task(erase(house, project, "source", "wrong.md"))
    await asyncio.wait({erasing}, timeout=0.5)
    read.set()
    assert await looking == 1
    assert (await erasing)["gone"]["entities"] > 0
    assert await everywhere(house, project, MARK) == []


@pytest.mark.parametrize(("module", "limit"), [(erasure, "_LIMIT"), (extent, "LIMIT")])
async def test_an_act_over_the_limit_is_refused_as_a_whole(
    house: House, project: str, monkeypatch: pytest.MonkeyPatch, module: Any, limit: str
) -> None:
    document = await ingest(house, project, f"{POISON} {MARK}", source="wrong.md")
    await learn(house, project, new_id())
    monkeypatch.setattr(module, limit, 1)
    wishes = {
        erasure: Write(store="erasures", id=new_id(), body={"scope": "source", "what": "wrong.md", "reason": "r"}),
        extent: Write(
            store="quarantines",
            id=new_id(),
            body={"kind": "quarantine", "store": "documents", "id": document, "reason": "r"},
        ),
    }
    origin = house.standing(project, principal=PERSON)
    await house.refusal("router", origin, "too_much", writes=(wishes[module],))
    assert await there(house, project, ("documents", document)) == [True]


async def test_a_quarantine_that_cannot_be_followed_any_more_does_not_keep_memory_from_starting(
    house: House, project: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    document = await ingest(house, project, POISON)
    await learn(house, project, new_id())
    await wish(house, project, "quarantine", store="documents", id=document)
    monkeypatch.setattr(extent, "LIMIT", 1)
    await house.remember()
    await house.finish()
