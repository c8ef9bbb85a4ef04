"""The OpenLineage event sets of `tests/data/lineage`, as decoded JSON."""

import json
import re
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[1] / "data" / "lineage"

ORDERS = ("1_monday_ok", "2_tuesday_fails", "3_tuesday_fixed", "4_wednesday_fails_again")


def orders(day: str) -> list[dict[str, Any]]:
    """One of the four files of the orders DAGs."""
    return _lines(ROOT / "airflow_orders" / f"{day}.jsonl")


def event_sets() -> dict[str, list[dict[str, Any]]]:
    """Every set, by its name in `expected_blast_radius.json` where it stands there."""
    template = (ROOT / "marquez" / "metadata.template.json").read_text()
    template = re.sub(r"\{\{RUN_START_TIME\}\}", "2026-11-20T12:00:00.123456789Z", template)
    template = re.sub(r"\{\{RUN_END_TIME_AFTER_(\d+)_MINUTES\}\}", r"2026-11-20T12:0\1:00", template)
    template = template.replace("T12:010:", "T12:10:")
    compat = ROOT / "ol_compat"
    return {
        "airflow_3.3.2_real": _lines(ROOT / "airflow_3.3.2_real" / "etl_dags_test.jsonl"),
        "compat_airflow": _files(compat / "airflow" / "events"),
        "compat_simple": _files(compat / "simple_run_event" / "events"),
        "marquez_food_delivery": json.loads(template),
        "airflow_orders": [event for day in ORDERS for event in orders(day)],
        "spec_example": [json.loads((ROOT / "ol_spec_tests" / "tests" / "example_full_event.json").read_text())],
    }


def spec_facets() -> dict[str, dict[str, Any]]:
    """The spec's example facets: file name to its `{facet name: facet}`."""
    folder = ROOT / "ol_spec_tests" / "tests"
    return {str(path.relative_to(folder)): json.loads(path.read_text()) for path in sorted(folder.glob("*/*.json"))}


def expected() -> dict[str, Any]:
    """Directed downstream and undirected component of each job of three sets."""
    found: dict[str, Any] = json.loads((ROOT / "expected_blast_radius.json").read_text())
    return found


def _lines(path: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in path.read_text().splitlines() if line.strip()]


def _files(folder: Path) -> list[dict[str, Any]]:
    return [json.loads(path.read_text()) for path in sorted(folder.glob("*.json"))]
