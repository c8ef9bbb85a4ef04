"""A search by type, place, time and metadata; by several wordings; and with what stands around."""

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from memory_service.house import PERSON, House, running_house

from counterpoint.proto.conversation import Turn, transcript
from counterpoint.proto.ids import new_id
from counterpoint.proto.ingest import Document, IngestReply, IngestRequest
from counterpoint.proto.memory import HybridSearch, Item

RUNBOOK = "# Resolver\n\nRestart the resolver.\n\n# Firewall\n\nOpen port 389.\n\n# Clock\n\nSet the clock by hand.\n"
CODE = '"""Tools."""\n\n\ndef restart_resolver():\n    """Restart the resolver."""\n    run("resolver")\n'


@pytest.fixture(scope="module")
async def house(tmp_path_factory: pytest.TempPathFactory) -> Any:
    async with running_house(tmp_path_factory.mktemp("widely")) as house:
        yield house


@pytest.fixture(scope="module")
async def project(house: House) -> str:
    project = f"p-{new_id()}"
    said = [Turn("Caroline", "I went camping by the lake."), Turn("Mel", "Caroline, camping is what I want too!")]
    documents = (
        Document(source="runbooks/dns.md", text=RUNBOOK, metadata={"team": "platform"}),
        Document(source="tools/dns.py", text=CODE, metadata={"team": "data"}),
        Document(source="talks/one", text=transcript(said), type="conversation"),
    )
    request = IngestRequest(origin=house.standing(project, principal=PERSON), documents=documents)
    reply = IngestReply.model_validate_json(await house.door.ingest("router", request.model_dump_json().encode()))
    assert [each.status for each in reply.documents] == ["added"] * 3
    return project


async def look(house: House, project: str, text: str, **how: Any) -> tuple[Item, ...]:
    query = HybridSearch(store="chunks", text=text, **how)
    return (await house.answer("router", house.standing(project, principal=PERSON), query)).items


def sources(items: tuple[Item, ...]) -> set[str]:
    return {each.body["source"] for each in items}


@pytest.mark.parametrize(
    ("filter", "wanted"),
    [
        ({"where": {"type": "python"}}, {"tools/dns.py"}),
        ({"where": {"metadata": {"team": "platform"}}}, {"runbooks/dns.md"}),
        ({"where": {"metadata": {"team": "nobody"}}}, set()),
        ({"under": "runbooks/"}, {"runbooks/dns.md"}),
        ({"under": "run%"}, set()),
        ({"since": datetime.now(UTC) + timedelta(hours=1)}, set()),
        ({"until": datetime.now(UTC) - timedelta(hours=1)}, set()),
        ({"since": datetime.now(UTC) - timedelta(hours=1), "under": "tools/"}, {"tools/dns.py"}),
    ],
)
async def test_only_records_that_pass_the_filter_are_found(
    house: House, project: str, filter: dict[str, Any], wanted: set[str]
) -> None:
    assert sources(await look(house, project, "restart the resolver", **filter)) == wanted


async def test_filters_as_of_a_time_work_except_by_metadata(house: House, project: str) -> None:
    now = (datetime.now(UTC) + timedelta(seconds=1)).isoformat()
    assert sources(await look(house, project, "resolver", under="tools/", as_of=now)) == {"tools/dns.py"}
    asked = HybridSearch(store="chunks", text="resolver", where={"metadata": {"team": "data"}}, as_of=now)
    reply = await house.query("router", house.standing(project, principal=PERSON), asked)
    assert reply.refusal is not None
    assert reply.refusal.problems[0].field == "where.metadata"


async def test_each_part_of_a_question_brings_its_own(house: House, project: str) -> None:
    alone = await look(house, project, "restart the resolver", k=1, under="runbooks/")
    both = await look(house, project, "restart the resolver", also=("set the clock",), k=2, under="runbooks/")
    assert [each.body["context"] for each in alone] == ["Resolver"]
    assert {each.body["context"] for each in both} == {"Resolver", "Clock"}
    assert all(each.score for each in both)


async def test_neighbours_come_along_without_a_score(house: House, project: str) -> None:
    found = await look(house, project, "open port 389", k=1, neighbours=1, under="runbooks/")
    assert [(each.body["context"], each.score is None) for each in found] == [
        ("Firewall", False),
        ("Resolver", True),
        ("Clock", True),
    ]


async def test_neighbours_can_be_limited_to_the_best_hit(house: House, project: str) -> None:
    asked = {"text": "open port 389", "also": ("Where did Caroline go camping?",), "k": 2, "neighbours": 1}
    best = await look(house, project, **asked, neighbours_of=1)
    every = await look(house, project, **asked)
    assert [each.id for each in best if each.score] == [each.id for each in every if each.score]
    assert sources(tuple(each for each in best if each.score is None)) == {best[0].body["source"]}
    assert sources(tuple(each for each in every if each.score is None)) == {"runbooks/dns.md", "talks/one"}


async def test_the_turn_of_who_is_named_is_before_the_turn_that_names_her(house: House, project: str) -> None:
    first, second = await look(house, project, "Where did Caroline go camping?", k=2, where={"type": "conversation"})
    assert (first.body["speaker"], second.body["speaker"]) == ("Caroline", "Mel")
    scores = first.scores or {}
    assert scores["by_name"] > 0 == (second.scores or {})["by_name"]
    assert sum(
        scores[part] for part in ("by_words", "by_meaning", "by_name", "by_fullness", "by_exact_form")
    ) == pytest.approx(first.score, abs=1e-5)


async def test_a_filter_is_that_of_the_document_itself_not_of_one_of_the_same_name_elsewhere(
    house: House, project: str
) -> None:
    before = datetime.now(UTC)
    shared = Document(source="runbooks/dns.md", text=RUNBOOK, metadata={"team": "shared"})
    request = IngestRequest(origin=house.standing("shared", principal=PERSON), documents=(shared,))
    reply = IngestReply.model_validate_json(await house.door.ingest("router", request.model_dump_json().encode()))
    assert [each.status for each in reply.documents] == ["added"]
    filters: tuple[tuple[dict[str, Any], set[str]], ...] = (
        ({}, {project, "shared"}),
        ({"where": {"metadata": {"team": "platform"}}}, {project}),
        ({"where": {"metadata": {"team": "shared"}}}, {"shared"}),
        ({"since": before}, {"shared"}),
        ({"until": before}, {project}),
    )
    for filter, wanted in filters:
        found = await look(house, project, "restart the resolver", under="runbooks/", **filter)
        assert {each.project for each in found} == wanted
