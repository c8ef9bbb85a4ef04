"""A project is closed to the callers of others."""

import json

import pytest
from access.principals import principal
from memory_service.house import PERSON, House, decision
from pydantic import ValidationError

from counterpoint.proto.ids import new_id
from counterpoint.proto.ingest import Document, IngestReply, IngestRequest
from counterpoint.proto.memory import EdgeWalk, Get, Line, List, LogAfter, Origin, Write

ILLEGAL_PROJECTS = ("*", ">", "demo.*", "demo-*", "", "Demo", "d\u0435mo", "demo\n", "-demo", "_system", "a" * 64, None)


class TestProjects:
    async def test_a_foreign_record_is_as_if_it_did_not_exist(self, house: House, project: str) -> None:
        theirs, mine = f"{project}-b", project
        await house.delegated(theirs, "t-1")
        await house.apply("router", house.standing(theirs), writes=(Write(store="submissions", id="s", body={}),))
        router = house.standing(mine)
        for store, record in (("tasks", "t-1"), ("submissions", "s"), ("tasks", "nobody's")):
            foreign = await house.answer("router", router, Get(store=store, id=record))
            assert foreign.items == ()
        for query in (List(store="tasks"), Line(task_id="t-1"), LogAfter(after=0, kinds=("tasks", "changes"))):
            assert (await house.answer("router", router, query)).items == ()
        walked = await house.answer("router", router, EdgeWalk(store="edges", start=("a",)))
        assert walked.items == ()
        manager = house.delivery(await house.routed(mine, "t-1"))
        assert (await house.answer("manager", manager, Get(store="tasks", id="t-1"))).items == ()

    async def test_two_projects_can_have_records_of_the_same_id(self, house: House, project: str) -> None:
        for place in (f"{project}-b", project):
            done = await house.apply(
                "router", house.standing(place), writes=(Write(store="submissions", id="s", body={}),)
            )
            assert done.versions == {"submissions/s": 1}

    async def test_a_project_with_a_similar_name_is_another_project(self, house: House, project: str) -> None:
        await house.apply("router", house.standing(project), writes=(Write(store="submissions", id="s", body={}),))
        for place in (project[:-1], f"{project}0", project.replace("-", "0", 1)):
            assert await house.body(place, "submissions", "s") is None

    @pytest.mark.parametrize("illegal", ILLEGAL_PROJECTS)
    async def test_a_project_with_an_illegal_name_is_refused(self, house: House, illegal: str | None) -> None:
        with pytest.raises(ValidationError):
            Origin(message_id="m", project=illegal)
        origin = {"message_id": new_id(), "fence": 1, "project": illegal}
        query = {"origin": origin, "queries": [{"op": "list", "store": "submissions"}]}
        asked = json.loads(await house.door.query("router", json.dumps(query).encode()))
        commit = {"origin": origin, "commit": {"writes": [{"store": "submissions", "id": "s", "body": {}}]}}
        written = json.loads(await house.door.commit("router", json.dumps(commit).encode()))
        for reply in (asked, written):
            assert reply["refusal"]["code"] == "invalid"
            assert [problem["field"] for problem in reply["refusal"]["problems"]] == ["origin.project"]

    async def test_a_token_for_one_project_opens_no_other(self, house: House, project: str) -> None:
        sent = await house.delegated(project, "t-1")
        for other in (f"{project}-b", project[:-1], "shared", "default"):
            await house.refusal(
                "developer", house.delivery(sent, project=other), "project", Get(store="tasks", id="t-1")
            )
            await house.refusal("developer", house.delivery(sent, project=other), "project", messages=(decision(),))

    async def test_the_shared_project_is_written_for_its_administrators_only(self, house: House, project: str) -> None:
        write = Write(store="submissions", id=new_id(), body={})
        reader = await principal(house, ("*",), "read", "submit")
        elsewhere = await principal(house, (project,), "read", "submit", "ingest", "operate", "admin")
        for who in (None, reader, elsewhere):
            await house.refusal("router", house.standing("shared", principal=who), "store", writes=(write,))
        page = IngestRequest(
            origin=house.standing("shared", principal=elsewhere), documents=(Document(source="a.md", text="Run it."),)
        )
        reply = IngestReply.model_validate_json(await house.door.ingest("router", page.model_dump_json().encode()))
        assert reply.refusal is not None
        assert (reply.refusal.code, reply.documents) == ("role", ())
        for number, projects in enumerate((("*",), ("shared",))):
            who = await principal(house, projects, "submit", "admin")
            again = write.model_copy(update={"expect": number})
            await house.apply("router", house.standing("shared", principal=who), writes=(again,))

    async def test_an_unshared_store_is_hidden_from_other_projects(self, house: House, project: str) -> None:
        write = Write(store="submissions", id=new_id(), body={"kept": "in shared"})
        await house.apply("router", house.standing("shared", principal=PERSON), writes=(write,))
        assert await house.body(project, "submissions", write.id) is None
        provider = Write(store="providers", id=new_id(), body={})
        await house.refusal("router", house.standing("shared", principal=PERSON), "store", writes=(provider,))
