"""One incident of real producers: failure, card, reported fix, repaired run, second failure recognised.

python tests/producers/run.py FOLDER [--only airflow] [--json]

FOLDER holds an environment for each producer, such as FOLDER/airflow/bin/airflow; `make producers` makes them. One that
is not there is skipped with the reason in FOLDER/<name>.log. Exit code 1 where a check failed, or nothing was played.
"""

import argparse
import json
import os
import re
import shlex
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from counterpoint.card.history import RECOGNISED
from counterpoint.cli.address import Address
from counterpoint.cli.api import ApiClient
from counterpoint.local.endpoints import Endpoints, read_endpoints

HERE = Path(__file__).parent
ROOT = HERE.parents[1]
COMMAND = Path(sys.executable).with_name("counterpoint")
PATIENCE_S = 90.0
POLL_S = 0.5
RUN_S = 600
_SETTLED = frozenset({"input_required", "completed", "failed"})


@dataclass(frozen=True)
class Target:
    """Target of a producer's events: the OpenLineage API, a token, and the folder of its own files."""

    lineage: str
    token: str
    folder: Path


@dataclass(frozen=True)
class Producer:
    """One producer: its program, how it is prepared and run, two errors of one kind, and what fixed the first.

    `environment` is what tells it of Counterpoint; `run` is given the error to fail with, None to pass. `silent` is the
    option that makes it send errors, where it does not by itself.
    """

    name: str
    program: str
    environment: Callable[[Target], dict[str, str]]
    run: Callable[[Path, str | None], list[str]]
    errors: tuple[str, str]
    fix: str
    prepare: tuple[str, ...] = ()
    variable: str | None = None
    silent: str | None = None


@dataclass
class Report:
    """Checks of one producer, and its cards."""

    checks: list[dict[str, Any]] = field(default_factory=list)
    cards: list[str] = field(default_factory=list)

    def check(self, name: str, ok: bool, seen: Any = None) -> None:
        """Note one check, and say it."""
        self.checks.append({"name": name, "ok": ok, "seen": seen})
        print(f"  {'ok' if ok else 'FAILED'}  {name}" + ("" if ok else f": {seen}"), flush=True)


def airflow_transport(target: Target) -> str:
    """The transport of README.md, with this house's address and token."""
    (line,) = re.findall(r"^export AIRFLOW__OPENLINEAGE__TRANSPORT=.*$", (ROOT / "README.md").read_text(), re.MULTILINE)
    value = shlex.split(line)[1].partition("=")[2]
    transport = json.loads(value)
    transport["url"], transport["auth"]["apiKey"] = target.lineage, target.token
    return json.dumps(transport)


PRODUCERS = (
    Producer(
        name="airflow",
        program="airflow",
        prepare=("db", "migrate"),
        environment=lambda target: {
            "AIRFLOW_HOME": str(target.folder),
            "AIRFLOW__CORE__DAGS_FOLDER": str(HERE / "airflow"),
            "AIRFLOW__CORE__LOAD_EXAMPLES": "False",
            "AIRFLOW__OPENLINEAGE__NAMESPACE": "airflow",
            "AIRFLOW__OPENLINEAGE__TRANSPORT": airflow_transport(target),
        },
        run=lambda folder, error: ["dags", "test", "orders_ingest"],
        variable="ORDERS_BREAK",
        errors=(
            "could not resolve warehouse.internal: DNS lookup timed out after 5 s (resolver 10.20.0.3:53)",
            "could not resolve warehouse.internal: DNS lookup timed out after 8 s (resolver 10.20.0.9:53)",
        ),
        fix="The nightly role had dropped the resolver's firewall rule for port 53; opened 53/udp and 53/tcp again.",
    ),
    Producer(
        name="dbt",
        program="dbt-ol",
        environment=lambda target: {
            "OPENLINEAGE_URL": target.lineage,
            "OPENLINEAGE_API_KEY": target.token,
            "OPENLINEAGE_NAMESPACE": "dbt",
            "SHOP_DATABASE": str(target.folder / "shop.duckdb"),
            "DBT_SEND_ANONYMOUS_USAGE_STATS": "False",
        },
        silent="--consume-structured-logs",
        run=lambda folder, error: [
            "--consume-structured-logs",
            "run",
            "--project-dir",
            str(HERE / "dbt"),
            "--profiles-dir",
            str(HERE / "dbt"),
            "--target-path",
            str(folder / "target"),
            "--log-path",
            str(folder / "logs"),
            "--vars",
            json.dumps({"amount": error or "12"}),
        ],
        errors=("n/a", "unknown"),
        fix="The shop exports texts for cancelled orders: left them out in stg_orders and loaded the table again.",
    ),
)


@contextmanager
def house(folder: Path) -> Iterator[Endpoints]:
    """A running Counterpoint in a folder."""
    environment = {name: value for name, value in os.environ.items() if not name.startswith("COUNTERPOINT_")}
    up = [COMMAND, "up", "--detach", "--http-port", "0", "--data-dir", folder]
    subprocess.run(up, env=environment, check=True, capture_output=True)
    try:
        yield read_endpoints(folder)
    finally:
        subprocess.run([COMMAND, "down", "--data-dir", folder], check=False, capture_output=True)


def play(producer: Producer, programs: Path, data: Path, endpoints: Endpoints, folder: Path) -> Report:
    """Play the incident of one producer in a project of its own."""
    report, project = Report(), f"{producer.name}-orders"
    folder.mkdir(parents=True)
    with ApiClient(Address(endpoints.http, endpoints.token)) as api:
        principal = {"name": producer.name, "kind": "system", "roles": ["report"], "projects": [project]}
        token = str(api.post("/v1/principals", principal)["token"])
        settings = producer.environment(Target(endpoints.lineage, token, folder))
        environment = {
            "PATH": f"{programs}{os.pathsep}{os.environ['PATH']}",
            "HOME": str(folder),
            "LANG": "C.UTF-8",
            **settings,
        }
        if producer.prepare:
            _run([str(programs / producer.program), *producer.prepare], environment, folder)

        def run(error: str | None, without: str | None = None) -> int:
            broken = {producer.variable: error} if producer.variable and error else {}
            options = [option for option in producer.run(folder, error) if option != without]
            return _run([str(programs / producer.program), *options], environment | broken, folder)

        code = run(producer.errors[0])
        first = _new_task(api, project, set())
        report.check("a failed run becomes a task", first is not None, f"exit code {code}, no task")
        if first is None:
            return report
        report.cards.append(_card(data, project, first["task_id"]))
        report.check("its card says the error", _said(producer.errors[0], report.cards[0]), report.cards[0])
        _reported(data, project, first["task_id"], producer.fix)
        report.check("the repaired run passes", run(None) == 0, "its exit code is not 0")
        run(producer.errors[1])
        second = _new_task(api, project, {first["task_id"]})
        report.check("the next failure becomes a task of its own", second is not None, "no second task")
        if second is None:
            return report
        report.cards.append(_card(data, project, second["task_id"]))
        proposal = json.dumps(second.get("proposal"), ensure_ascii=False)
        likelihood = (second.get("findings") or {}).get("likelihood") or 0.0
        report.check("it is recognised", likelihood >= RECOGNISED, report.cards[1])
        report.check("what fixed the first is proposed", producer.fix[:40] in proposal, second.get("escalation"))
        every = api.get("/v1/tasks", project=project, limit=50)["items"]
        report.check("there are two tasks and no more", len(every) == 2, [task.get("title") for task in every])
        if producer.silent:
            run(producer.errors[0], without=producer.silent)
            third = _new_task(api, project, {task["task_id"] for task in every})
            report.check("a failure without an error becomes a task too", third is not None, "no third task")
            if third is not None:
                report.cards.append(_card(data, project, third["task_id"]))
                report.check(
                    "its card says what to switch on", _said(producer.silent, report.cards[2]), report.cards[2]
                )
    return report


def _run(command: list[str], environment: Mapping[str, str], folder: Path) -> int:
    with (folder / "run.log").open("ab") as log:
        done = subprocess.run(
            command, env=dict(environment), cwd=folder, stdout=log, stderr=log, timeout=RUN_S, check=False
        )
    return done.returncode


def _new_task(api: ApiClient, project: str, known: set[str]) -> dict[str, Any] | None:
    """The task that is not known yet, once it waits for somebody or has ended."""
    until = time.monotonic() + PATIENCE_S
    while time.monotonic() < until:
        for task in api.get("/v1/tasks", project=project, limit=50)["items"]:
            if task["task_id"] not in known and task["state"] in _SETTLED:
                found: dict[str, Any] = api.get(f"/v1/tasks/{task['task_id']}", project=project)
                return found
        time.sleep(POLL_S)
    return None


def _card(data: Path, project: str, task_id: str) -> str:
    show = [COMMAND, "show", task_id, "--project", project, "--data-dir", data]
    return subprocess.run(show, capture_output=True, text=True, check=True).stdout


def _reported(data: Path, project: str, task_id: str, fix: str) -> None:
    said = ["outcome", task_id, "succeeded", "--by", "something-else", "--note", fix]
    subprocess.run([COMMAND, *said, "--project", project, "--data-dir", data], check=True, capture_output=True)


def _said(error: str, card: str) -> bool:
    """Whether the error stands in the card, wherever its lines are folded."""
    return "".join(error.split()) in "".join(card.split())


def main() -> int:
    """Play every producer that is installed."""
    parser = argparse.ArgumentParser(prog="tests/producers/run.py")
    parser.add_argument("folder", type=Path)
    parser.add_argument("--only", choices=[producer.name for producer in PRODUCERS])
    parser.add_argument("--json", action="store_true")
    given = parser.parse_args()
    reports: dict[str, Report] = {}
    with tempfile.TemporaryDirectory(prefix="counterpoint-producers-") as name, house(Path(name) / "data") as endpoints:
        for producer in PRODUCERS:
            programs = given.folder.resolve() / producer.name / "bin"
            if given.only not in (None, producer.name):
                continue
            if not (programs / producer.program).exists():
                log = given.folder / f"{producer.name}.log"
                why = (
                    log.read_text().strip().splitlines()[-1]
                    if log.exists() and log.read_text().strip()
                    else "not there"
                )
                print(f"{producer.name}: SKIPPED, not installed: {why}")
                continue
            print(producer.name, flush=True)
            folder = Path(name) / producer.name
            reports[producer.name] = play(producer, programs, Path(name) / "data", endpoints, folder)
            if not all(check["ok"] for check in reports[producer.name].checks):
                print((folder / "run.log").read_text(errors="replace")[-3000:], file=sys.stderr)
    if given.json:
        print(
            json.dumps({name: {"checks": each.checks, "cards": each.cards} for name, each in reports.items()}, indent=1)
        )
    else:
        print("\n\n".join(card for report in reports.values() for card in report.cards))
    checks = [check for report in reports.values() for check in report.checks]
    passed = sum(check["ok"] for check in checks)
    print(f"{passed} passed, {len(checks) - passed} failed")
    return 0 if checks and passed == len(checks) else 1


if __name__ == "__main__":
    sys.exit(main())
