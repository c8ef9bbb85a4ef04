"""The dashboard asks for metrics that exist, by labels that they have; a real Prometheus answers its queries."""

import asyncio
import json
import re
import shutil
import subprocess
from pathlib import Path
from types import ModuleType
from typing import Any
from urllib.parse import urlsplit

import httpx
import pytest
import yaml
from bus.small_house import eventually
from contract.pages import table
from deploy.compose import ROOT, read
from deploy.tls_engines import free_port
from scripts import load_script

from counterpoint.local.service import SERVICES
from counterpoint.local.stack import Stack

FOLDER = ROOT / "deploy" / "grafana"
METRICS = {
    name: set(filter(None, (label.strip() for label in labels.rstrip("}").split(","))))
    for name, _, labels in (row[0].partition("{") for row in table(
        (ROOT / "docs" / "operations.md").read_text(), "## Health and metrics"))
}  # fmt: skip
"""The labels of each documented metric."""
ALWAYS = ("counterpoint_pending_messages", "counterpoint_disk_free_bytes", "counterpoint_consumer_pending", "up{")
"""Metrics that a house at rest has."""


@pytest.fixture(scope="module")
def generator() -> ModuleType:
    return load_script(FOLDER / "generate.py")


def queries() -> list[str]:
    """Every query of the dashboard."""
    panels: list[dict[str, Any]] = json.loads((FOLDER / "dashboard.json").read_text())["panels"]
    return [target["expr"] for panel in panels for target in panel.get("targets", ())]


def test_the_committed_dashboard_equals_the_generated_one(generator: ModuleType) -> None:
    assert (FOLDER / "dashboard.json").read_text() == generator.text()
    panels = generator.dashboard()["panels"]
    assert len({panel["id"] for panel in panels}) == len(panels)
    places = {(panel["gridPos"]["x"], panel["gridPos"]["y"]) for panel in panels}
    assert len(places) == len(panels)


def test_every_query_is_about_a_metric_that_exists_and_labels_that_it_has() -> None:
    for query in queries():
        names = re.findall(r"counterpoint_\w+", query)
        for name in names:
            known = METRICS[name.removesuffix("_bucket")]
            (by,) = re.findall(r"by \(([^)]*)\)", query) or [""]
            assert {label.strip() for label in by.split(",")} - {"le", ""} <= known, query
        assert names or "up{" in query


def test_prometheus_asks_every_service_where_it_answers() -> None:
    jobs = yaml.safe_load((FOLDER / "prometheus.yml").read_text())["scrape_configs"]
    port = re.search(r"COUNTERPOINT_HEALTH_PORT=(\d+)", (ROOT / "deploy" / "docker" / "Dockerfile").read_text())
    assert port
    targets = {job["job_name"]: job["static_configs"][0]["targets"] for job in jobs}
    assert targets == {name: [f"{name}:{port[1]}"] for name in SERVICES}


def test_compose_mounts_the_files_of_grafana_and_prometheus() -> None:
    services = read()["services"]
    mounted = dict(
        mount.split(":")[:2]
        for name in ("prometheus", "grafana")
        for mount in services[name]["volumes"]
        if mount.startswith("./")
    )
    assert all((ROOT / path).is_file() for path in mounted)
    (provider,) = yaml.safe_load((FOLDER / "dashboards.yml").read_text())["providers"]
    assert Path(mounted["./deploy/grafana/dashboard.json"]).parent == Path(provider["options"]["path"])


def _valid(configuration: Path) -> bool:
    return subprocess.run(["promtool", "check", "config", configuration], check=False).returncode == 0


@pytest.mark.skipif(shutil.which("prometheus") is None, reason="needs prometheus")
async def test_prometheus_answers_every_query(stack: Stack, tmp_path: Path) -> None:
    health = {name: urlsplit(service.health).netloc for name, service in stack.endpoints.services.items()}
    jobs = [{"job_name": name, "static_configs": [{"targets": [where]}]} for name, where in health.items()]
    configuration = {"global": {"scrape_interval": "1s"}, "scrape_configs": jobs}
    tmp_path.joinpath("prometheus.yml").write_text(yaml.safe_dump(configuration))
    assert _valid(FOLDER / "prometheus.yml")
    port = free_port()
    server = await asyncio.create_subprocess_exec(
        "prometheus", f"--config.file={tmp_path}/prometheus.yml", f"--storage.tsdb.path={tmp_path}/data",
        f"--web.listen-address=127.0.0.1:{port}", "--log.level=error",
    )  # fmt: skip
    try:
        async with httpx.AsyncClient(base_url=f"http://127.0.0.1:{port}", trust_env=False) as http:

            async def ask(query: str) -> list[Any]:
                written = query.replace("$__rate_interval", "1m").replace("$service", ".+")
                answer = await http.post("/api/v1/query", data={"query": written})
                assert answer.json()["status"] == "success", answer.text
                found: list[Any] = answer.json()["data"]["result"]
                return found

            async def scraped() -> bool:
                try:
                    is_ready = (await http.get("/-/ready")).is_success
                except httpx.TransportError:
                    return False
                return is_ready and len(await ask("up == 1")) == len(SERVICES)

            await eventually(scraped, "scraped")
            for query in queries():
                if any(name in query for name in ALWAYS):
                    await eventually(lambda query=query: ask(query), query)
                else:
                    await ask(query)
    finally:
        server.terminate()
        await server.wait()
