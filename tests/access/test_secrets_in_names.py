"""A secret in a name at the door of memory: taken out with its fingerprint, or refused where nothing could be left."""

import json

import pytest
from access.sensitive_values import KEY, fingerprint_of, release, tables_with
from memory_service.house import PERSON, ROUTED, House, task_body
from memory_service.leaves import leaf_bodies

from counterpoint.guard.fingerprints import Fingerprints
from counterpoint.proto.ids import new_id
from counterpoint.proto.ingest import Document, IngestReply, IngestRequest, Job
from counterpoint.proto.memory import DeadLetter, Outgoing, QueryReply, QueryRequest, Write

TOKEN = "ghp_" + "016C7hXz3mR9tQ2wYbLkD8vNcJ5sFpA4eG1u"
SUBMITTED = "counterpoint.task.submitted.v1"


async def screened_names(house: House, project: str, *names: str) -> tuple[str, ...]:
    request = QueryRequest(origin=house.standing(project), names=names)
    return QueryReply.model_validate_json(await house.door.query("lineage", request.model_dump_json().encode())).names


class TestRedaction:
    async def test_a_secret_name_is_redacted_everywhere_and_lineage_still_joins(
        self, house: House, project: str
    ) -> None:
        fingerprint = Fingerprints(house.keys).of(KEY)
        name = f"etl.[redacted:aws_access_key:{fingerprint}]"
        job = {"namespace": f"https://robot:{TOKEN}@git.internal/etl", "name": f"etl.{KEY}", "owners": [KEY]}
        written = (Write(store="jobs", id="one", body={**job, KEY: 1}), Write(store="jobs", id="two", body=job))
        await house.apply("lineage", house.standing(project), writes=written)
        for record_id in ("one", "two"):
            body = await house.body(project, "jobs", record_id)
            assert body is not None
            assert (body["namespace"], body["name"]) == ("https://git.internal/etl", name)
        ignored = {"task_id": "t-1", "ignored": [f"context.{KEY}"], "submitted_by": KEY}
        done = await house.apply(
            "router", house.standing(project, "t-1"), messages=(Outgoing(type=SUBMITTED, data=ignored),)
        )
        assert json.loads(house.sent[done.message_ids[0]].row.body)["submitted_by"] == name.removeprefix("etl.")
        for secret in (KEY, TOKEN):
            assert await tables_with(house, project, secret) == set()
            assert all(secret not in sent.row.body for sent in house.sent.values())
        async with house.superuser() as connection:
            bodies = map(json.loads, await leaf_bodies(connection, "project = $1", project))
        (leaf,) = (body for body in bodies if body["writes"] and body["writes"][0][1] == "one")
        assert ["jobs/one", "name", "name"] in leaf["redacted"]

    async def test_services_are_told_the_same_names_that_records_have(self, house: House, project: str) -> None:
        body = {"namespace": "etl", "name": f"etl.{KEY}"}
        await house.apply("lineage", house.standing(project), writes=(Write(store="jobs", id="one", body=body),))
        kept = await house.body(project, "jobs", "one")
        assert kept is not None
        assert await screened_names(house, project, f"etl.{KEY}", "etl") == (kept["name"], "etl")
        assert await screened_names(house, project, kept["name"]) == (kept["name"],)

    async def test_a_released_value_stays_in_names(self, house: House, project: str) -> None:
        manager = house.delivery(await house.routed(project, "t-1"))
        write = Write(store="tasks", id="t-1", body=task_body("t-1", description=KEY))
        refusal = await house.refusal("manager", manager, "sensitive", writes=(write,))
        person = house.standing(project, principal=PERSON)
        await house.apply("router", person, writes=(release(fingerprint_of(refusal)),))
        assert await screened_names(house, project, f"etl.{KEY}") == (f"etl.{KEY}",)

    async def test_a_dead_letter_is_known_by_harmless_names(self, house: House, project: str) -> None:
        letter = DeadLetter(
            code="invalid",
            problems=({"field": f"context.{KEY}", "problem": f"no {TOKEN}"},),
            subject=f"intake.{project}.{KEY}",
            headers={"ce-source": KEY, "ce-id": f"https://robot:{TOKEN}@ci.internal/1"},
            body=json.dumps({KEY: {TOKEN: "x"}, "job": KEY}),
        )
        await house.apply("router", house.standing(project), step="dead", dead_letter=letter)
        for secret in (KEY, TOKEN):
            assert await tables_with(house, project, secret) == set()
            assert all(secret not in sent.row.body for sent in house.sent.values())
        assert await tables_with(house, project, "https://ci.internal/1") == {"records"}


class TestRefusals:
    @pytest.mark.parametrize("store", ["jobs", "runs"])
    async def test_a_record_id_with_a_secret_is_refused(self, house: House, project: str, store: str) -> None:
        write = Write(store=store, id=f"etl/{KEY}", body={"name": "a"})
        refusal = await house.refusal("lineage", house.standing(project), "sensitive", writes=(write,))
        assert [problem.field for problem in refusal.problems] == [f"writes.{store}.id"]
        assert KEY not in refusal.model_dump_json()
        assert await tables_with(house, project, KEY) == set()

    async def test_a_task_id_with_a_secret_is_refused(self, house: House, project: str) -> None:
        body = {"task_id": KEY, "content_sha256": "a"}
        write = Write(store="submissions", id="x", body=body)
        refusal = await house.refusal("router", house.standing(project), "sensitive", writes=(write,))
        assert [problem.field for problem in refusal.problems] == ["task_id"]
        message = Outgoing(type=ROUTED, data={"task_id": KEY, "task": {}})
        await house.refusal("router", house.standing(project, KEY), "sensitive", messages=(message,))
        assert await tables_with(house, project, KEY) == set()

    async def test_a_project_name_with_a_secret_is_refused_and_logged_in_the_default_project(
        self, house: House
    ) -> None:
        name = "sk-" + "a8fk2kd93kfls03kdlq0w7vb"
        reply = await house.commit("router", house.standing(name), writes=())
        assert reply.refusal is not None
        assert (reply.refusal.kind, reply.refusal.code) == ("denied", "project")
        async with house.superuser() as connection:
            assert not await connection.fetchval("SELECT count(*) FROM projects WHERE project = $1", name)
            assert not await connection.fetchval("SELECT count(*) FROM audit WHERE project = $1", name)
            said = "SELECT count(*) FROM audit WHERE project = 'default' AND id = $1"
            assert await connection.fetchval(said, reply.refusal.id) == 1

    async def test_an_ingest_job_id_with_a_secret_is_refused_as_a_whole(self, house: House, project: str) -> None:
        request = IngestRequest(
            origin=house.standing(project, principal=PERSON),
            documents=(Document(source="a.md", text="Orders are kept for ten days."),),
            job=Job(job_id=KEY, documents=1, done=0),
        )
        raw = await house.door.ingest("router", request.model_dump_json().encode())
        refusal = IngestReply.model_validate_json(raw).refusal
        assert refusal is not None
        assert [problem.field for problem in refusal.problems] == ["job.job_id"]
        assert await tables_with(house, project, "ten days") == set()
        assert await tables_with(house, project, KEY) == set()

    async def test_a_quote_in_a_refusal_holds_no_secret(self, house: House, project: str) -> None:
        refusal = await house.refusal(
            "router",
            house.standing(project),
            "agent",
            writes=(Write(store="decisions", id=new_id(), body={"agent": KEY}),),
        )
        assert refusal.needed
        assert await tables_with(house, project, KEY) == set()
