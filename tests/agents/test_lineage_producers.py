"""Incidents of dbt and other producers, and what is known to have changed since the last success."""

import random
from datetime import timedelta
from typing import Any

import pytest
from agents.lineage_house import NOW, House

from counterpoint.graph.names import job
from counterpoint.lineage.incidents.incident import IncidentState
from counterpoint.lineage.incidents.titles import short_name, title_of

MODEL = "model.shop.fct_revenue"
BINDER = 'Binder Error: Referenced column "amount" not found in FROM clause'


def dbt(kind: str, second: float, name: str, run_id: str, **more: Any) -> dict[str, Any]:
    facets: dict[str, Any] = dict(more.get("run_facets", {}))
    if error := more.get("error"):
        facets["errorMessage"] = {"message": error, "programmingLanguage": "sql"}
    if parent := more.get("parent"):
        facets["parent"] = {"job": {"namespace": "dbt", "name": parent[0]}, "run": {"runId": parent[1]}}
        facets["parent"]["root"] = {"job": {"namespace": "dbt", "name": "dbt-run-shop"}, "run": {"runId": more["flow"]}}
    job_facets = {"jobType": {"integration": "DBT", "jobType": more.get("type", "MODEL"), "processingType": "BATCH"}}
    return {
        "eventTime": (NOW + timedelta(seconds=second)).isoformat(),
        "eventType": kind,
        "run": {"runId": run_id, "facets": facets},
        "job": {"namespace": "dbt", "name": name, "facets": job_facets | more.get("job_facets", {})},
        "inputs": more.get("inputs", []),
        "outputs": more.get("outputs", []),
    }


def structured(flow: str, second: float = 0) -> list[dict[str, Any]]:
    node = {"parent": ("dbt-run-shop", flow), "flow": flow}
    statement = {"parent": (MODEL, f"{flow}-n"), "flow": flow, "type": "SQL"}
    return [
        dbt("START", second, "dbt-run-shop", flow, type="JOB"),
        dbt("START", second + 1, MODEL, f"{flow}-n", **node),
        dbt("START", second + 2, f"{MODEL}.sql.2", f"{flow}-s", **statement),
        dbt("FAIL", second + 3, f"{MODEL}.sql.2", f"{flow}-s", error=BINDER, **statement),
        dbt("FAIL", second + 4, MODEL, f"{flow}-n", error=f"Runtime Error in model fct_revenue\n  {BINDER}", **node),
        dbt("FAIL", second + 5, "dbt-run-shop", flow, error="dbt command failed", type="JOB"),
    ]


@pytest.mark.parametrize("seed", range(6))
async def test_a_dbt_failure_is_one_task_of_the_model_in_any_order(seed: int) -> None:
    house = House()
    events = structured("f1")
    random.Random(seed).shuffle(events)
    await house.take(events)
    await house.wait(10_000)
    (incident,) = [one for one in house.incidents if one.active]
    (task,) = house.tasks
    assert (incident.job, incident.tries, incident.count) == (f"job:dbt/{MODEL}", 1, 1)
    assert task.target is not None
    assert task.target.job is not None
    assert task.target.job.name == MODEL
    assert (task.error_message or "").startswith("Runtime Error in model fct_revenue")
    assert (task.title or "").startswith('fct_revenue: Binder Error: Referenced column "amount" not found')
    assert (task.context or {})["tries"] == 1


async def test_the_same_model_fails_again_with_another_number_of_its_statement() -> None:
    house = House()
    await house.take([*structured("f1"), *structured("f2", 1000)])
    await house.wait(10_000)
    (incident,) = [one for one in house.incidents if one.active]
    assert (len(house.tasks), incident.count) == (1, 2)
    fixed = {"parent": ("dbt-run-shop", "f3"), "flow": "f3"}
    start, end = dbt("START", 2000, MODEL, "f3-n", **fixed), dbt("COMPLETE", 2004, MODEL, "f3-n", **fixed)
    await house.take([start, end])
    assert [one.state for one in house.incidents if one.has_task] == [IncidentState.CLOSED]
    assert len(house.outcomes) == 1


async def test_a_test_without_an_error_names_its_failed_assertion() -> None:
    orders = {
        "namespace": "db",
        "name": "shop.orders",
        "inputFacets": {
            "dataQualityAssertions": {
                "assertions": [
                    {"assertion": "not_null", "success": True, "column": "day"},
                    {"assertion": "unique", "success": False, "column": "id"},
                ]
            }
        },
    }
    house = House()
    more = {"parent": ("dbt-run-shop", "f"), "flow": "f", "type": "TEST", "inputs": [orders]}
    await house.take([dbt("FAIL", 1, "test.shop.unique_orders_id.fed79b3a6e", "t", **more)])
    (task,) = house.tasks
    assert task.error_message == "test failed: unique on column id of shop.orders"
    assert (task.title or "").startswith("unique_orders_id failed: ")


async def test_a_model_without_an_error_takes_the_message_of_its_result() -> None:
    house = House()
    more = {"parent": ("dbt-run-shop", "f"), "flow": "f"}
    result = {"dbt_node_result": {"status": "error", "message": BINDER}}
    await house.take([dbt("FAIL", 1, MODEL, "n", run_facets=result, **more)])
    assert house.tasks[0].error_message == BINDER


async def test_a_model_failure_without_an_error_names_the_option_to_switch_on() -> None:
    """The events of `dbt-ol` without its structured logs: neither a part nor the whole holds an error."""
    name, more = "shop.main.shop.fct_revenue", {"parent": ("dbt-run-shop", "f"), "flow": "f"}
    house = House()
    await house.take([dbt("FAIL", 1, name, "n", **more), dbt("FAIL", 2, "dbt-run-shop", "f", type="JOB")])
    (task,) = house.tasks
    assert task.error_message == "failed without an error message"
    assert task.title == "fct_revenue failed"
    assert "--consume-structured-logs" in (task.context or {})["hint"]
    told = House()
    await told.take([dbt("FAIL", 1, name, "n", error=BINDER, **more)])
    assert "hint" not in (told.tasks[0].context or {})


async def test_a_task_lists_the_changes_since_the_last_success() -> None:
    def run(kind: str, second: float, run_id: str, version: str, **facts: Any) -> dict[str, Any]:
        code = {"type": "git", "url": "https://github.com/o/etl", "repoUrl": "https://github.com/o/etl.git"}
        table = {
            "namespace": "db",
            "name": "raw.orders",
            "facets": {"schema": {"fields": [{"name": name, "type": "INT"} for name in facts["columns"]]}},
            "inputFacets": {"inputStatistics": {"rowCount": facts["rows"]}},
        }
        return dbt(
            kind,
            second,
            "load",
            run_id,
            inputs=[table],
            type="TASK",
            error="no such column: amount" if kind == "FAIL" else None,
            job_facets={"sourceCodeLocation": {**code, "version": version}},
            run_facets={
                "kubernetesPod": {"image": facts["image"]},
                "spark_properties": {"properties": {"spark.executor.memory": facts["memory"]}},
            },
        )

    old = {"columns": ["id", "amount"], "rows": 1000, "image": "etl:1.4", "memory": "4g"}
    new = {"columns": ["id", "total"], "rows": 10, "image": "etl:1.5", "memory": "4g"}
    upstream = {"outputs": [{"namespace": "db", "name": "raw.orders"}], "type": "TASK"}
    house = House()
    await house.take(
        [
            dbt("COMPLETE", 0, "import", "i-1", **upstream),
            run("START", 10, "r-1", "aaa1111", **old),
            run("COMPLETE", 70, "r-1", "aaa1111", **old),
            dbt("FAIL", 100, "import", "i-2", error="timeout", **upstream),
            dbt("COMPLETE", 110, "import", "i-3", **upstream),
            dbt("START", 9_000, "other", "o-1", type="TASK"),
            run("START", 10_000, "r-2", "bbb2222", **new),
            run("FAIL", 10_300, "r-2", "bbb2222", **new),
        ]
    )
    task = next(task for task in house.tasks if "load" in (task.title or ""))
    changed = {(row["what"], row.get("name")): row for row in (task.context or {})["changed"]}
    assert changed["code", None]["url"] == "https://github.com/o/etl/compare/aaa1111...bbb2222"
    assert changed["image", None]["after"] == "etl:1.5"
    assert changed["schema", "raw.orders"] == {
        "what": "schema",
        "name": "raw.orders",
        "before": "amount:INT",
        "after": "total:INT",
    }
    assert changed["volume", "raw.orders"]["after"] == "10 rows read"
    assert changed["duration", None]["before"] == "1 min"
    assert not any(what == "configuration" for what, _ in changed)
    await house.take([run("START", 20_000, "r-3", "ccc3333", **new), run("COMPLETE", 20_100, "r-3", "ccc3333", **new)])
    (outcome,) = [one for one in house.outcomes if one.task_id == task.task_id]
    assert "code: bbb2222, then ccc3333" in outcome.changed


def test_titles_are_short_and_name_the_job_as_people_do() -> None:
    assert short_name(job("dbt", "model.shop.fct_revenue.sql.2")) == "fct_revenue"
    assert short_name(job("dbt", "test.shop.not_null_orders_id.cf6c17daed")) == "not_null_orders_id"
    assert short_name(job("prod", "orders_ingest.fetch_orders")) == "orders_ingest.fetch_orders"
    assert short_name(job("prod", "app.stage.load.export")) == "app.stage.load.export"
    assert short_name(job("dbt", "db.main.shop.fct_revenue.build.run"), "DBT") == "fct_revenue"
    assert short_name(job("dbt", "dbt-run-shop"), "DBT") == "dbt-run-shop"
    said = title_of(job("ns", "a" * 300), "org.postgresql.util.PSQLException: FATAL: " + "word " * 100)
    assert len(said) <= 80
    assert "PSQLException: FATAL" in said
