"""Known things: what tables, records and attempts say for certain, and how it is put together."""

from datetime import UTC, datetime
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from counterpoint.cli.commands.entities import describe
from counterpoint.graph.edges import EdgeKind, edge
from counterpoint.graph.names import dataset, job
from counterpoint.graph.ownership import ownership_rows
from counterpoint.proto.attempts import Attempt
from counterpoint.proto.memory import Item
from counterpoint.router.api.entity_models import EntityRelation, NamedEntity
from counterpoint.router.api.relations import (
    entity_of_node,
    entity_profile,
    failure_of_run,
    fix_of,
    fixed_by_relation,
    host_of,
    matching_exceptions,
    raises_relation,
    relation_of_document,
    relation_of_edge,
    relation_of_model,
    relations_of_record,
    relations_of_row,
)

AT = datetime(2026, 11, 20, 5, tzinfo=UTC)
TABLE = """# Pipelines

| Pipeline | Runs at | Owned by | Page |
|:---------|---------|----------|------|
| `harbour_tides` | 04:10 | **Quay team**, Dana | [page](x.md) |
| gull_census | 05:00 | - | |

No table: a | b
"""
WORD = st.text("abcdefgh_", min_size=1, max_size=12).filter(lambda word: word.strip("_"))


def item(store: str, record_id: str, body: dict[str, Any]) -> Item:
    return Item(
        store=store,
        id=record_id,
        project="p",
        version=1,
        body=body,
        author="memory",
        label=1,
        integrity=2,
        seq=1,
        at=AT,
    )


def attempt(**more: Any) -> Attempt:
    fields = {"attempt_id": "a", "task_id": "t", "project": "p", "attempt": 1, "description": "d", "by": "dana"}
    return Attempt.model_validate({**fields, "tried": "raised the limit", "at": AT, **more})


class TestOwnershipTables:
    def test_a_row_names_things_owners_and_the_rest(self) -> None:
        (row,) = ownership_rows(TABLE)
        assert (row.subjects, row.owners) == (("harbour_tides",), ("Quay team", "Dana"))
        assert row.properties == {"Runs at": "04:10", "Page": "page"}
        assert row.quote in TABLE

    def test_parentheses_after_a_name_are_ignored(self) -> None:
        table = "| Dag | Owner |\n|---|---|\n| orders (fetch, clean), bills | Ada |\n"
        assert ownership_rows(table)[0].subjects == ("orders", "bills")

    @pytest.mark.parametrize("head", ["Verantwortlich", "Zuständiges Team", "Data owner", "Steward"])
    def test_the_head_of_the_column_says_that_it_is_one_in_either_language(self, head: str) -> None:
        assert ownership_rows(f"| Sache | {head} |\n|---|---|\n| wetter_lauf | Ada |\n")[0].owners == ("Ada",)

    @pytest.mark.parametrize("head", ["Hours", "How a team gets in and out of it", "Ownershipless", ""])
    def test_a_table_without_a_column_of_owners_names_none(self, head: str) -> None:
        assert ownership_rows(f"| Thing | {head} |\n|---|---|\n| weather | Ada |\n") == ()

    @given(st.lists(st.tuples(WORD, WORD), min_size=1, max_size=8), st.integers(0, 3))
    def test_every_row_is_read_with_any_other_columns(self, pairs: list[tuple[str, str]], more: int) -> None:
        pairs = [(thing.strip("_"), owner.strip("_")) for thing, owner in pairs]
        heads = ["thing", *(f"c{n}" for n in range(more)), "owner"]
        lines = [heads, ["---"] * len(heads), *([thing, *["x"] * more, owner] for thing, owner in pairs)]
        text = "\n".join("| " + " | ".join(line) + " |" for line in lines)
        assert [(row.subjects[0], row.owners[0]) for row in ownership_rows(text)] == pairs


class TestRelations:
    def test_lineage_says_who_owns_it_where_its_code_is_and_where_it_runs(self) -> None:
        node = job("spark://yard.internal:7077", "harbour_tides")
        code = {"repo_url": "https://git.example/tides", "path": "dags/tides.py", "version": "4f1"}
        found = relations_of_record(node, item("jobs", node.id, {"owners": ["quay"], "code": code}))
        assert {(each.kind, each.source.name, each.target.name) for each in found} == {
            ("owns", "quay", "harbour_tides"),
            ("depends_on", "harbour_tides", "https://git.example/tides"),
            ("depends_on", "harbour_tides", "dags/tides.py"),
            ("runs_on", "harbour_tides", "yard.internal"),
        }
        assert {each.provenance.by for each in found} == {"lineage"}

    def test_edges_are_produced_consumed_or_waited_for(self) -> None:
        load, tides, report = job("ns", "load"), dataset("db", "tides"), job("ns", "report")
        edges = [
            edge(EdgeKind.DATA, load, tides),
            edge(EdgeKind.DATA, tides, report),
            edge(EdgeKind.CONTROL, load, report),
            edge(EdgeKind.PARENT, job("ns", "all"), load),
        ]
        found = [relation for each in edges if (relation := relation_of_edge(each))]
        assert [(each.kind, each.source.name, each.target.name) for each in found] == [
            ("produces", "load", "tides"),
            ("consumes", "report", "tides"),
            ("depends_on", "report", "load"),
        ]

    @pytest.mark.parametrize(
        ("namespace", "host"),
        [("postgres://db.internal:5432", "db.internal"), ("prod", None), ("file", None), ("s3://bucket", "bucket")],
    )
    def test_a_namespace_names_a_host_where_it_is_a_uri(self, namespace: str, host: str | None) -> None:
        assert host_of(namespace) == host

    def test_a_page_documents_and_a_program_mentions(self) -> None:
        thing = NamedEntity(kind="job", name="harbour_tides")
        page = relation_of_document(
            item("chunks", "1", {"type": "markdown", "source": "a.md"}), thing, "harbour_tides runs"
        )
        code = relation_of_document(item("chunks", "2", {"type": "python", "source": "dags/a.py"}), thing, None)
        assert [(each.kind, each.source.kind, each.provenance.by) for each in (page, code)] == [
            ("documents", "document", "document"),
            ("mentions", "file", "code"),
        ]
        assert page.provenance.quote == "harbour_tides runs"


def profile_records() -> dict[str, Any]:
    node, tides = job("prod", "harbour_tides"), dataset("db", "tides")
    thing = entity_of_node(node)
    relations: list[EntityRelation] = relations_of_record(node, item("jobs", node.id, {"owners": ["quay"]}))
    relations += [each for e in (edge(EdgeKind.DATA, tides, node),) if (each := relation_of_edge(e))]
    (row,) = ownership_rows(TABLE)
    page = item("chunks", "c", {"type": "markdown", "source": "pipelines.md", "text": TABLE})
    relations += relations_of_row(row, "harbour_tides", (thing,), page)
    run = item("runs", "r", {"job": node.ref, "error_message": "TideError: gauge 7 is dry", "ended_at": AT.isoformat()})
    failure = failure_of_run(run)
    assert failure is not None
    fixes = [
        fix
        for one in (
            attempt(outcome="succeeded", evidence="reported", error_message="TideError: gauge 7 is dry"),
            attempt(outcome="failed"),
            attempt(outcome="superseded"),
        )
        if (fix := fix_of(item("attempts", "a", {}), one))
    ]
    relations += [fixed_by_relation(fix, thing) for fix in fixes]
    assert [each.name for each in matching_exceptions("tideerror", [failure])] == ["TideError"]
    relations += [each for each in (raises_relation(failure),) if each]
    found = entity_profile("harbour_tides", (thing,), relations, [failure, failure], fixes, truncated=False)
    return found.model_dump(mode="json")


def test_the_four_questions_are_answered_each_with_its_record() -> None:
    found = profile_records()
    assert found["owned_by"] == ["quay", "Quay team", "Dana"]
    assert found["fed_by"] == ["tides"]
    assert [(each["exception"], each["provenance"]["store"]) for each in found["broken_by"]] == [("TideError", "runs")]
    assert [(each["tried"], each["by"]) for each in found["fixed_by"]] == [("raised the limit", "dana")]
    assert {each["kind"] for each in found["relations"]} == {"owns", "consumes", "fixed_by", "mentions"}
    assert all(each["provenance"]["id"] for each in found["relations"])
    owned = [each for each in found["relations"] if each["provenance"].get("source") == "pipelines.md"]
    assert [each["properties"] for each in owned] == [{"Runs at": "04:10", "Page": "page"}] * 2
    assert {each["properties"]["namespace"] for each in found["things"]} == {"prod"}
    assert {each["target"]["properties"]["evidence"] for each in found["relations"] if each["kind"] == "fixed_by"} == {
        "reported"
    }


def test_an_entity_is_described_line_by_line() -> None:
    assert describe(profile_records()) == [
        "harbour_tides: job in prod",
        "  owned by: quay, Quay team (pipelines.md), Dana (pipelines.md)",
        "  fed by: tides",
        "  broken by: TideError: gauge 7 is dry · prod/harbour_tides · 2026-11-20",
        "  fixed by: raised the limit · reported by dana · 2026-11-20",
    ]


def stated(number: int) -> Item:
    properties = {
        "subject": "quay team",
        "object": "harbour_tides",
        "names": ["harbour_tides", "quay team"],
        "span": f"The quay team owns harbour_tides {number}.",
        "document": "teams.md",
        "version": 1,
        "chunk": "c",
        "model": "openai/one",
    }
    return item("relationships", f"r{number}", {"source": "stated/d", "kind": "owns", "properties": properties})


def test_relations_of_a_model_are_quoted_and_set_no_owner() -> None:
    nothing = entity_profile("harbour_tides", (), (), (), (), truncated=False)
    found = nothing.model_copy(update={"stated": tuple(relation_of_model(stated(n)) for n in range(12))})
    assert found.owned_by == ()
    lines = describe(found.model_dump(mode="json"))
    said = "quay team owns harbour_tides, found by openai/one in teams.md"
    assert lines[1] == f"  {said}: 'The quay team owns harbour_tides 0.'"
    assert lines[-1] == "  and 2 more relations found by a model"


def test_an_unknown_name_is_described_as_unknown() -> None:
    nothing = entity_profile("zeppelin", (), (), (), (), truncated=False).model_dump(mode="json")
    assert describe(nothing) == ["zeppelin: unknown: no lineage, document or attempt contains this name"]


def test_a_name_without_a_record_of_its_own_has_the_kind_that_relations_give_it() -> None:
    owned = relations_of_record(
        job("wh", "kessel_import"), item("jobs", "wh/kessel_import", {"owners": ["Team Wärme"]})
    )
    lines = describe(entity_profile("team wärme", (), owned, (), (), truncated=False).model_dump(mode="json"))
    assert lines == ["team wärme: owner", "  owns: kessel_import"]


def test_a_name_known_only_from_an_error_is_described_without_a_record() -> None:
    run = item("runs", "r", {"job": "job:wh/load", "error_message": "ORA-01653: unable to extend table"})
    failure = failure_of_run(run)
    assert failure is not None
    (first, *_) = describe(entity_profile("ORA-01653", (), (), (failure,), (), truncated=False).model_dump(mode="json"))
    assert first == "ORA-01653: a name without a record"
