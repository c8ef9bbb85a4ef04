"""The knowledge graph: what documents and tasks mention, followed without loss, and taken back with what said it."""

from typing import Any

import pytest
from memory_service.house import PERSON, House, task_body
from memory_service.learning_project import ingest

from counterpoint.memory.ingest.entities import KnowledgeGraph, entity_id
from counterpoint.memory.ingest.mentions import MAX_CHARS, Mention, mentions
from counterpoint.proto.errors import Transient
from counterpoint.proto.ids import new_id
from counterpoint.proto.memory import EdgeWalk, HybridSearch, List, Write

PAGE = """The DAG `orders_ingest` in dags/orders_ingest.py reads from sftp.carrier.internal over SFTP.
When it fails with ConnectionError or airflow.exceptions.AirflowException, look at /etc/resolv.conf and at Postgres.
"""


@pytest.mark.parametrize(
    ("text", "kind", "name"),
    [
        ("see dags/orders_ingest.py", "file", "dags/orders_ingest.py"),
        ("in /etc/resolv.conf.", "file", "/etc/resolv.conf"),
        ("config.yaml is wrong", "file", "config.yaml"),
        ("ask ldap.internal:389", "service", "ldap.internal"),
        ("dag_id='orders_ingest'", "dag", "orders_ingest"),
        ("the DAG `finance_daily` waits", "dag", "finance_daily"),
        ("requests.exceptions.ConnectionError: refused", "error", "ConnectionError"),
        ("ORA-12154: TNS", "error", "ORA-12154"),
        ("connect ECONNREFUSED 10.0.0.1", "error", "ECONNREFUSED"),
        ("getaddrinfo ENOTFOUND db.internal", "error", "ENOTFOUND"),
        ("see models/orders.sql", "file", "models/orders.sql"),
        ("the template orders.sql.j2 is rendered", "file", "orders.sql.j2"),
        ("redis.conf sets maxmemory", "file", "redis.conf"),
        ("it is stored in AMAZON S3", "system", "Amazon"),
    ],
)
def test_things_are_found_by_rules(text: str, kind: Any, name: str) -> None:
    assert Mention(kind, name, 1) in mentions(text)


@pytest.mark.parametrize("hostile", ["a.", "a/", "a.sql("])
def test_a_long_text_is_looked_through_in_time_that_grows_with_it(hostile: str) -> None:
    assert Mention("error", "PumpError", 1) in mentions(hostile * (MAX_CHARS // len(hostile) - 10) + " PumpError")


def test_mentions_in_a_long_text_are_counted_exactly_once() -> None:
    line = "Look at /etc/resolv.conf and ldap.internal, it says PumpError.\n"
    found = mentions(line * 1_000 + "x" * 40_000 + " " + line.strip() * 2)
    assert {(each.kind, each.name, each.count) for each in found} == {
        ("file", "/etc/resolv.conf", 1_002), ("service", "ldap.internal", 1_002), ("error", "PumpError", 1_002),
    }  # fmt: skip


@pytest.mark.parametrize(
    "text",
    [
        "2026-11-17 05:30:12 ERROR task failed",
        "ERROR: EXAMPLE, EXCEPT, ENABLED, EVENT, EXISTS, ENVIRONMENT, ENTRYPOINT",
        "frame = spark.sql(query)",
        "it was read with spark.sql",
        "spark.sql.shuffle.partitions is 200",
        "logger.log(level) and later logger.log",
        "client.json(body) was called, and client.json failed",
        "etl/daily.load failed, and prod/shop.report waits",
    ],
)
def test_levels_constants_code_and_jobs_are_neither_errors_nor_files(text: str) -> None:
    assert not {(each.kind, each.name) for each in mentions(text) if each.kind in ("error", "file")}


@pytest.mark.parametrize("text", ["", "it was 3.5 times as much", "e.g. this and that", "1.2.3", "and/or", "Mr. Smith"])
def test_plain_words_are_no_mentions(text: str) -> None:
    assert mentions(text) == ()


async def follow(house: House, project: str) -> None:
    while await house.knowledge.follow(project):
        pass


async def listed(house: House, project: str, store: str, **where: Any) -> list[dict[str, Any]]:
    found = await house.answer("router", house.standing(project, principal=PERSON), List(store=store, where=where))
    return [each.body for each in found.items]


async def test_a_document_and_a_task_that_mention_the_same_are_neighbours(house: House, project: str) -> None:
    document = await ingest(house, project, PAGE)
    task = new_id()
    origin = house.delivery(await house.routed(project, task))
    body = task_body(task, "completed", description="orders_ingest.py raised ConnectionError for sftp.carrier.internal")
    await house.apply("manager", origin, writes=(Write(store="tasks", id=task, body=body),))
    await follow(house, project)
    kinds = {(each["kind"], each["name"]) for each in await listed(house, project, "entities")}
    assert {("dag", "orders_ingest"), ("service", "sftp.carrier.internal"), ("system", "SFTP")} <= kinds
    person = house.standing(project, principal=PERSON)
    start = f"entities/{entity_id(Mention('service', 'sftp.carrier.internal', 1))}"
    near = await house.answer(
        "router", person, EdgeWalk(store="relationships", start=(start,), direction="both", depth=1)
    )
    assert {each.body["source"] for each in near.items} == {f"documents/{document}", f"tasks/{task}"}
    far = await house.answer(
        "router", person, EdgeWalk(store="relationships", start=(start,), direction="both", depth=2)
    )
    assert len(far.items) > len(near.items)
    assert {each.score for each in far.items} == {1.0, 2.0}
    by_words = await house.answer("router", person, HybridSearch(store="entities", text="carrier", vector_weight=0))
    assert by_words.items[0].body["name"] == "sftp.carrier.internal"


async def test_a_second_pass_changes_nothing_and_a_new_version_removes_old_mentions(house: House, project: str) -> None:
    await ingest(house, project, PAGE)
    await follow(house, project)
    before = await listed(house, project, "relationships")
    async with house.superuser() as connection:
        await connection.execute("DELETE FROM extracted WHERE project = $1", project)
    await follow(house, project)
    assert await listed(house, project, "relationships") == before
    await ingest(house, project, "Nothing but config.yaml is named here.")
    await follow(house, project)
    assert [each["properties"]["name"] for each in await listed(house, project, "relationships")] == ["config.yaml"]


async def test_a_crash_in_between_loses_nothing(house: House, project: str, monkeypatch: pytest.MonkeyPatch) -> None:
    await ingest(house, project, PAGE)

    async def killed(*_: Any) -> None:
        raise Transient("killed")

    with monkeypatch.context() as patch:
        patch.setattr(KnowledgeGraph, "_mentioned", killed)
        with pytest.raises(Transient):
            await house.knowledge.follow(project)
    house.restart()
    await follow(house, project)
    assert await listed(house, project, "relationships")


async def test_a_quarantine_takes_the_relationships_and_leaves_the_names(house: House, project: str) -> None:
    document = await ingest(house, project, PAGE)
    await follow(house, project)
    body = {"kind": "quarantine", "store": "documents", "id": document, "reason": "wrong"}
    write = Write(store="quarantines", id=new_id(), body=body)
    await house.apply("router", house.standing(project, principal=PERSON), writes=(write,))
    assert await listed(house, project, "relationships") == []
    assert await listed(house, project, "entities")
    await follow(house, project)
    assert await listed(house, project, "relationships") == []


async def test_an_erasure_takes_names_that_nothing_else_mentions(house: House, project: str) -> None:
    await ingest(house, project, PAGE, source="one.md")
    await ingest(house, project, "Only SFTP is named here.", source="two.md")
    await follow(house, project)
    body = {"scope": "source", "what": "one.md", "reason": "asked for"}
    write = Write(store="erasures", id=new_id(), body=body)
    await house.apply("router", house.standing(project, principal=PERSON), writes=(write,))
    await follow(house, project)
    assert [each["name"] for each in await listed(house, project, "entities")] == ["SFTP"]
    assert (await house.verify(project))["ok"]


async def test_entities_of_another_project_are_hidden(house: House, project: str) -> None:
    await ingest(house, f"{project}-b", PAGE)
    await follow(house, f"{project}-b")
    assert await listed(house, project, "entities") == []
    start = f"entities/{entity_id(Mention('system', 'SFTP', 1))}"
    walk = EdgeWalk(store="relationships", start=(start,), direction="both", depth=3)
    assert not (await house.answer("router", house.standing(project, principal=PERSON), walk)).items
