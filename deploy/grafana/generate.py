"""Write `dashboard.json`, the Grafana dashboard, from the panels below: `python deploy/grafana/generate.py`.

The metrics are those of docs/operations.md.
"""

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

HERE = Path(__file__).parent
_WIDTH, _HEIGHT, _COLUMNS = 8, 7, 3
_RATE = "[$__rate_interval]"


@dataclass(frozen=True)
class Panel:
    """A graph: its title, unit, and each query with the legend of its lines."""

    title: str
    unit: str
    queries: tuple[tuple[str, str], ...]
    description: str


def _rate(metric: str, by: str) -> str:
    return f"sum by ({by}) (rate({metric}{_RATE}))"


def _quantiles(metric: str, by: str) -> tuple[tuple[str, str], ...]:
    return tuple(
        (f"histogram_quantile({share}, sum by (le, {by}) (rate({metric}_bucket{_RATE})))", f"{{{{{by}}}}} {name}")
        for share, name in ((0.5, "p50"), (0.95, "p95"))
    )


ROWS: dict[str, tuple[Panel, ...]] = {
    "Work": (
        Panel("Tasks", "ops", ((_rate("counterpoint_tasks_total", "state"), "{{state}}"),),
              "Tasks per second, by the state they reached"),
        Panel("Time to the end of a task", "s", _quantiles("counterpoint_task_duration_seconds", "kind"),
              "From submission to the end, with waiting for people"),
        Panel("Confidence", "ops", ((_rate("counterpoint_confidence_total", "band"), "{{band}}"),),
              "Decisions per second, by band"),
    ),
    "Health": (
        Panel("Services", "none", (('min by (job) (up{job=~"$service"})', "{{job}}"),),
              "1: the health port answers"),
        Panel("Dead letters", "short", ((f"sum by (consumer) (increase(counterpoint_dead_letters_total{_RATE}))",
              "{{consumer}}"),), "They are retried only by a person: counterpoint dead-letters list"),
        Panel("Refusals by the diode", "ops", ((_rate("counterpoint_diode_refusals_total", "store, rule"),
              "{{store}} {{rule}}"),), "If they rise, a service disagrees with the policy, or somebody exceeds rights"),
    ),
    "Bus": (
        Panel("Messages that wait for a consumer", "short",
              (("max by (stream, consumer) (counterpoint_consumer_pending)", "{{stream}} {{consumer}}"),),
              "Waiting, or not yet acknowledged"),
        Panel("Messages not known to be on the bus", "short", (("max(counterpoint_pending_messages)", "pending"),),
              "If it does not fall, the bus is unavailable or its streams were never created"),
        Panel("Deliveries", "ops", ((_rate("counterpoint_deliveries_total", "service, outcome"),
              "{{service}} {{outcome}}"),), "Deliveries per second, by outcome"),
    ),
    "Memory": (
        Panel("Commits", "s", _quantiles("counterpoint_commit_duration_seconds", "service"),
              "From the request of a commit to its reply"),
        Panel("Recall", "percentunit", (("min by (store, plan) (counterpoint_memory_recall_ratio)",
              "{{store}} {{plan}}"),), "Of searches with an index, compared with the exact answer"),
        Panel("Cache hits", "ops", ((_rate("counterpoint_cache_hits_total", "level"), "{{level}}"),),
              "Query vectors and answers found in a cache"),
        Panel("Free disk of memory", "bytes", (("min(counterpoint_disk_free_bytes)", "free"),),
              "Below COUNTERPOINT_DISK_RESERVE_BYTES memory is read-only"),
        Panel("Checkpoints of the audit log", "short",
              ((f"sum by (outcome) (increase(counterpoint_audit_checkpoints_total{_RATE}))", "{{outcome}}"),),
              "Refused: the log differs from what was signed before, see counterpoint verify"),
        Panel("Unreadable records", "short",
              ((f"sum by (store) (increase(counterpoint_unreadable_records_total{_RATE}))", "{{store}}"),),
              "Skipped, since they do not match the model of their store"),
    ),
    "Outside": (
        Panel("Cost of model calls", "currencyUSD",
              ((f"sum by (project, model) (increase(counterpoint_llm_cost_usd_total{_RATE}))",
                "{{project}} {{model}}"),), "Calls whose prices are known"),
        Panel("Model calls and searches", "ops", ((_rate("counterpoint_llm_calls_total", "outcome"), "{{outcome}}"),),
              "By outcome; refused: over the budget"),
        Panel("Notifications", "ops", ((_rate("counterpoint_notifications_total", "receiver, outcome"),
              "{{receiver}} {{outcome}}"),), "Calls to receivers outside"),
    ),
}  # fmt: skip
"""The panels, by row."""


def dashboard() -> dict[str, Any]:
    """Return the dashboard as Grafana imports it."""
    panels: list[dict[str, Any]] = []
    top = 0
    for title, row in ROWS.items():
        place = {"x": 0, "y": top, "w": _WIDTH * _COLUMNS, "h": 1}
        panels.append({"id": len(panels) + 1, "type": "row", "title": title, "collapsed": False, "gridPos": place})
        top += 1
        for number, panel in enumerate(row):
            place = {"x": number % _COLUMNS * _WIDTH, "y": top + number // _COLUMNS * _HEIGHT}
            panels.append(_panel(panel, len(panels) + 1, place | {"w": _WIDTH, "h": _HEIGHT}))
        top += -(-len(row) // _COLUMNS) * _HEIGHT
    return {
        "uid": "counterpoint",
        "title": "Counterpoint",
        "schemaVersion": 39,
        "editable": False,
        "refresh": "30s",
        "time": {"from": "now-3h", "to": "now"},
        "tags": ["counterpoint"],
        "templating": {"list": [_datasource_variable(), _service_variable()]},
        "panels": panels,
    }


def _panel(panel: Panel, number: int, place: dict[str, int]) -> dict[str, Any]:
    source = {"type": "prometheus", "uid": "${datasource}"}
    targets = [
        {"refId": chr(ord("A") + index), "expr": query, "legendFormat": legend, "datasource": source}
        for index, (query, legend) in enumerate(panel.queries)
    ]
    return {
        "id": number,
        "type": "timeseries",
        "title": panel.title,
        "description": panel.description,
        "datasource": source,
        "gridPos": place,
        "fieldConfig": {"defaults": {"unit": panel.unit, "min": 0}, "overrides": []},
        "options": {"legend": {"displayMode": "list", "placement": "bottom"}, "tooltip": {"mode": "multi"}},
        "targets": targets,
    }


def _datasource_variable() -> dict[str, Any]:
    return {"name": "datasource", "type": "datasource", "query": "prometheus", "hide": 0}


def _service_variable() -> dict[str, Any]:
    return {
        "name": "service",
        "type": "query",
        "datasource": {"type": "prometheus", "uid": "${datasource}"},
        "query": {"query": "label_values(up, job)", "refId": "service"},
        "includeAll": True,
        "allValue": ".+",
        "multi": True,
        "refresh": 2,
    }


def text() -> str:
    """Return the content of `dashboard.json`."""
    return json.dumps(dashboard(), indent=1) + "\n"


if __name__ == "__main__":
    (HERE / "dashboard.json").write_text(text())
