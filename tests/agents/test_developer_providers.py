"""Provider-first: the official package or a stop, in every lane that would build on a system."""

import json
from importlib.resources import files
from typing import Any

import pytest
from agents.developer_memory import Shelf

from counterpoint.developer.evidence.calibration import load_calibration
from counterpoint.developer.evidence.gather import gather, queries
from counterpoint.developer.evidence.providers import look_up_providers
from counterpoint.developer.handlers import handle_delegated
from counterpoint.proto.errors import Permanent
from counterpoint.proto.memory import Get, List
from counterpoint.proto.overrides import OverrideGiven
from counterpoint.proto.providers import Provider, provider_of
from counterpoint.proto.tasks import JobRef, SubmitTask, Target, TaskDelegated, TaskWorked

SHIPPED = json.loads(files("counterpoint.memory.ingest").joinpath("providers.json").read_text())
INDEX = [Provider.model_validate(row) for row in SHIPPED["rows"]]
HOWTO = (
    "# Invoices\n\n1. Export the invoices into the ledger.\n2. Check the totals of the ledger against the invoices.\n"
)


def test_the_index_names_packages_once_and_names_nothing_twice() -> None:
    names = [name.lower() for row in INDEX for name in (row.name, *row.aliases, *row.terms)]
    assert len(INDEX) >= 24
    assert len({row.package for row in INDEX}) == len(INDEX)
    assert sorted(name for name in set(names) if names.count(name) > 1) == sorted(
        row.name.lower() for row in INDEX if row.name in row.terms
    )
    assert all(row.package.startswith("apache-airflow-providers-") for row in INDEX)


def test_a_row_with_a_version_was_made_from_that_package_and_lists_its_classes() -> None:
    read = {row.package: row.package_version for row in INDEX if row.package_version}
    assert read == {source["package"]: source["version"] for source in SHIPPED["made_from"]}
    assert len(read) >= 12
    amazon = next(row for row in INDEX if row.package.endswith("-amazon"))
    assert {"S3CopyObjectOperator", "S3ToRedshiftOperator"} <= set(amazon.operators)
    assert {"S3KeySensor"} <= set(amazon.sensors)
    assert {"S3Hook", "AwsBaseHook"} & set(amazon.hooks)
    assert "aws" in amazon.connection_types
    assert "Apache License 2.0" in SHIPPED["note"]


@pytest.mark.parametrize(
    ("system", "package"),
    [
        ("Snowflake", "snowflake"),
        ("postgres", "postgres"),
        ("PostgreSQL", "postgres"),
        ("Google Cloud", "google"),
        ("big-query", None),
        ("BigQuery", "google"),
        ("k8s", "cncf-kubernetes"),
        ("sftp", "sftp"),
        ("s3", "amazon"),
        ("AWS", "amazon"),
        ("Batch", "amazon"),
        ("GCS", "google"),
        ("google_cloud_platform", "google"),
        ("azure", "microsoft-azure"),
        ("http", "http"),
        ("spark", "apache-spark"),
        ("mssql", "microsoft-mssql"),
        ("common", None),
        ("cloud", None),
        ("FreeIPA", None),
        ("", None),
    ],
)
def test_a_system_is_known_by_name_or_alias_alone(system: str, package: str | None) -> None:
    found = provider_of(system, INDEX)
    assert (found.package if found else None) == (f"apache-airflow-providers-{package}" if package else None)


def test_systems_are_those_named_else_those_mentioned_else_none() -> None:
    assert look_up_providers(["snowflake"], "", INDEX).exists is True
    assert look_up_providers(["snowflake", "ledger"], "", INDEX).missing == ("ledger",)
    assert look_up_providers(["snowflake", "ledger"], "", INDEX).exists is False
    assert look_up_providers([], "copy the table into Snowflake every night", INDEX).exists is True
    assert look_up_providers([], "the snowflakes fall", INDEX).exists is None


@pytest.mark.parametrize(
    "text",
    [
        "the batch job asks the drive with HTTP 503 and a common error",
        "ssh: connect to host: Connection refused",
        "step functions, web services and a systems manager",
        "see https://github.com/orders and s3-eu.amazonaws.com/bucket/key",
        "ada@google.test wrote it down in /srv/snowflake/orders/load.sql",
        "spark.executor.memory=4g and git commit",
    ],
)
def test_a_word_that_means_something_else_in_prose_is_no_system(text: str) -> None:
    assert look_up_providers([], text, INDEX).found == ()


@pytest.mark.parametrize(
    ("text", "package"),
    [
        ("load the orders into BigQuery", "google"),
        ("the pods of k8s are evicted", "cncf-kubernetes"),
        ("could not connect: postgresql://db.internal:5432/orders", "postgres"),
        ("an S3-compatible store", "amazon"),
    ],
)
def test_a_provider_named_in_prose_is_found(text: str, package: str) -> None:
    assert [row.package for _, row in look_up_providers([], text, INDEX).found] == [
        f"apache-airflow-providers-{package}"
    ]


async def worked(
    kind: str,
    lane: str,
    systems: list[str],
    override: OverrideGiven | None = None,
    likeness: float = 0.8,
    document: str | None = None,
    integrity: int = 2,
) -> TaskWorked:
    async def alike(query: str, texts: Any) -> list[float]:
        return [likeness] * len(texts)

    shelf = Shelf(alike)
    shelf.ingest("invoices.md", HOWTO)
    if document:
        shelf.ingest("ledger.md", document, integrity)
    for row in INDEX:
        shelf.put("providers", row.package, row.model_dump(mode="json"))
    recorded = override.model_dump(mode="json") if override else None
    shelf.put("tasks", "task", {"task_id": "task", "override": recorded})
    task = SubmitTask.model_validate(
        {"kind": kind, "description": "Export the invoices into the ledger", "systems": systems}
    )
    message = TaskDelegated(
        task_id="task", project="shop", session_id="s", attempt=1, task=task, lane=lane, override=override
    )
    commit = await handle_delegated(message, shelf.delivered("message", "task"))
    return TaskWorked.model_validate(commit.messages[-1].data)


@pytest.mark.parametrize(("kind", "lane"), [("develop", "build"), ("plan", "plan")])
async def test_without_a_provider_work_stops_and_names_no_stand_in(kind: str, lane: str) -> None:
    result = await worked(kind, lane, ["Ledgerland"])
    assert (result.outcome, result.code) == ("stopped", "no_provider")
    assert {need.kind for need in result.needs} == {"provider", "document"}
    assert any("Ledgerland" in asked for asked in result.searched_for)
    assert "BashOperator" not in result.model_dump_json()
    assert "PythonOperator" not in result.model_dump_json()
    assert {need.how for need in result.needs if need.kind == "document"} == {
        "counterpoint ingest docs/provider_plan_ledgerland.md --project shop"
    }
    assert result.text is not None
    assert "```" not in result.text, "a plan has no code"


async def test_the_plan_of_a_missing_provider_lists_known_and_unknown_facts() -> None:
    result = await worked("plan", "plan", ["Acme Ledger", "Snowflake"], document="The Acme Ledger takes CSV files.")
    text = result.text or ""
    assert text.startswith("# Provider plan: Acme Ledger\n\n`docs/provider_plan_acme_ledger.md`")
    headings = [line.removeprefix("## ") for line in text.splitlines() if line.startswith("## ")]
    assert headings == [
        "Searched", "Known about it", "Connections and operators", "Alternatives", "Steps", "Decision record",
        "Open points",
    ]  # fmt: skip
    assert "Acme Ledger has no official provider, and the task connects it with Snowflake." in text
    assert "- providers of: Acme Ledger, Snowflake" in text
    assert "> The Acme Ledger takes CSV files." in text
    assert "- Snowflake: `apache-airflow-providers-snowflake`; connections " in text
    assert "through a system that has a provider: Snowflake" in text
    assert [each.quote for each in result.findings.citations if each.role is None] == [
        "The Acme Ledger takes CSV files."
    ]
    other = await worked("plan", "plan", ["Acme Ledger"], document="The Acme Ledger takes CSV files.", integrity=0)
    assert "No trusted document of this project mentions Acme Ledger." in (other.text or "")
    assert "Decision record" not in (other.text or ""), "nothing else depends on the decision"


async def test_develop_offline_stops_as_no_model_with_plan_and_evidence() -> None:
    result = await worked("develop", "build", ["Snowflake"])
    assert (result.outcome, result.code) == ("stopped", "no_model")
    assert result.text
    assert "apache-airflow-providers-snowflake" in result.text
    assert "Export the invoices into the ledger." in result.text
    assert result.findings.citations
    assert [need.kind for need in result.needs] == ["model"]


@pytest.mark.parametrize(("kind", "lane"), [("develop", "build"), ("plan", "plan")])
async def test_where_nothing_is_near_enough_the_nearest_passages_are_the_evidence(kind: str, lane: str) -> None:
    result = await worked(kind, lane, [], likeness=0.1)
    assert (result.outcome, result.text) == ("stopped", None)
    assert [citation.source_path for citation in result.findings.citations] == ["invoices.md"]
    if kind == "develop":
        assert "the citations are candidates, not a plan" in result.findings.caveats
        assert [need.kind for need in result.needs] == ["model"]


async def test_a_plan_is_made_of_the_steps_that_are_known() -> None:
    result = await worked("plan", "plan", ["Snowflake"])
    assert result.outcome == "answered"
    assert result.text
    assert all(citation.quote in result.text for citation in result.findings.citations)


async def test_overrides_of_persons_and_explicit_ones_waive_the_gate() -> None:
    given = OverrideGiven(instruction="Use the queue.", reasoning="It is there.", by="ada", by_kind="person")
    result = await worked("plan", "plan", ["Ledgerland"], given)
    assert result.outcome == "answered"
    assert any("ada" in caveat and "bypassed" in caveat for caveat in result.findings.caveats)
    silent = given.model_copy(update={"by_kind": "system"})
    result = await worked("plan", "plan", ["Ledgerland"], silent)
    assert result.outcome == "stopped"
    bold = silent.model_copy(update={"confidence_override": True})
    result = await worked("plan", "plan", ["Ledgerland"], bold)
    assert result.outcome == "answered"


def test_only_lanes_that_need_a_provider_read_the_index() -> None:
    def read(lane: str) -> set[str]:
        task = SubmitTask(kind="question", description="Who owns the ledger?")
        asked = queries(TaskDelegated(task_id="t", project="shop", session_id="s", attempt=1, task=task, lane=lane))
        return {query.store for query in asked.values() if isinstance(query, List)}

    assert "providers" in read("investigate") & read("plan") & read("build")
    assert "providers" not in read("answer")


@pytest.mark.parametrize(
    ("systems", "text", "read"),
    [
        ([], "Copy the table into Snowflake failed with exit code 1", {"snowflake"}),
        ([], "Copy the table into the ledger failed", set()),
        ([], "could not connect: postgresql://db.internal:5432/orders", {"postgres"}),
        (["batch", "k8s"], "Copy the table into Snowflake failed", {"amazon", "cncf-kubernetes"}),
    ],
)
async def test_a_failure_reads_the_rows_of_the_index_that_it_names_in_its_one_request(
    systems: list[str], text: str, read: set[str]
) -> None:
    shelf = Shelf()
    for row in INDEX:
        shelf.put("providers", row.package, row.model_dump(mode="json"))
    target = Target(job=JobRef(namespace="plant", name="orders"))
    task = SubmitTask(kind="troubleshoot", description=text, systems=tuple(systems), target=target)
    message = TaskDelegated(task_id="task", project="shop", session_id="s", attempt=1, task=task, lane="investigate")
    memory = shelf.delivered("message", "task")
    evidence = await gather(memory, message, load_calibration())
    assert shelf.requests == 1
    assert Get(store="jobs", id="plant/orders") in shelf.queries
    assert evidence.downstream.name == "job plant/orders"
    assert {row.package.removeprefix("apache-airflow-providers-") for row in evidence.providers.index} == read
    whole = look_up_providers(systems, text, INDEX)
    assert (evidence.providers.found, evidence.providers.missing) == (whole.found, whole.missing)


async def test_an_unknown_lane_is_refused() -> None:
    with pytest.raises(Permanent, match="unknown_lane"):
        await worked("plan", "elsewhere", [])
