"""`compose.yaml` is legal, gives each container what the supervisor gives each process, and starts the house."""

import asyncio
import os
import re
import subprocess
import sys
from collections.abc import Iterator, Mapping
from contextlib import AsyncExitStack
from pathlib import Path
from types import ModuleType
from typing import Any

import httpx
import pytest
from bus.small_house import eventually
from deploy.compose import FILE, ROOT, read, secrets, settings
from deploy.external import Configure
from flows.test_settings import free_ports
from scripts import load_script

from counterpoint.local.credentials import Credentials, load_credentials
from counterpoint.local.nats import run_nats
from counterpoint.local.postgres import PostgresServer, PostgresUrls
from counterpoint.local.probe import http_ok
from counterpoint.local.process import running
from counterpoint.local.service import NATS_USERS, SERVICES, JobName, ServiceName, ServiceParameters, environment
from counterpoint.local.valkey import run_valkey

CHECKER = "check-jsonschema==0.39.0"
"""Brings the schema of the compose specification in its wheel."""
HOST_ONLY = {"PATH", "HOME", "LANG", "MALLOC_ARENA_MAX", "COUNTERPOINT_DATA_DIR"}
"""Variables that a process beside others needs and a separate container does not."""
CONTAINER_ONLY = {
    "COUNTERPOINT_SECRETS_DIR",
    "COUNTERPOINT_HTTP_HOST",
    "COUNTERPOINT_LINEAGE_HOST",
    "COUNTERPOINT_GATEWAY_HOST",
    "COUNTERPOINT_AUDIT_DIR",
}
SERVERS = ("nats", "postgres", "valkey")
JOBS: tuple[JobName, ...] = ("migrate", "index", "provision")
SHARED = {"postgres_owner_url": {"migrate", "index"}}
"""Secrets that more than one container has."""


@pytest.fixture(scope="module")
def services() -> dict[str, Any]:
    """The services of the file."""
    found: dict[str, Any] = read()["services"]
    return found


@pytest.fixture(scope="module")
def wiring(tmp_path_factory: pytest.TempPathFactory) -> ServiceParameters:
    """Addresses and secrets as a supervisor has them."""
    credentials = Credentials.make().with_nats_users(NATS_USERS)
    admin = "postgresql://postgres:p@127.0.0.1:5432/postgres"
    return ServiceParameters(
        data_dir=tmp_path_factory.mktemp("data"),
        nats_url="nats://127.0.0.1:4222",
        postgres=PostgresUrls.of(admin, credentials.postgres),
        valkey_url="redis://:p@127.0.0.1:6379/0",
        http_port=8484,
        lineage_port=8485,
        gateway_port=8486,
        credentials=credentials,
        inherited={},
        streams_bytes=1 << 30,
    )


@pytest.fixture(scope="module")
def generator() -> ModuleType:
    """The program that writes the secrets."""
    return load_script(ROOT / "deploy" / "docker" / "secret_files.py")


@pytest.fixture
def folder(tmp_path: Path, generator: ModuleType) -> Path:
    """The folder of the secrets."""
    generator.write(tmp_path / "secrets")
    return tmp_path / "secrets"


def test_it_is_legal_by_the_compose_specification() -> None:
    uv = ROOT / ".tools" / "bin" / "uv"
    told = subprocess.run(
        [uv, "tool", "run", "--python", sys.executable, "--from", CHECKER, "check-jsonschema",
         "--builtin-schema", "vendor.compose-spec", FILE],
        env=os.environ | {"UV_PYTHON_DOWNLOADS": "never"}, capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert told.returncode == 0, told.stdout + told.stderr


def test_it_holds_the_house_and_nothing_else(services: dict[str, Any]) -> None:
    profiles: dict[str, set[str]] = {}
    for name, each in services.items():
        (profile,) = each["profiles"]
        profiles.setdefault(profile, set()).add(name)
    assert profiles["core"] == {*SERVERS, "migrate", "provision"}
    assert profiles["app"] == set(SERVICES)
    assert profiles["jobs"] == {"index"}
    assert profiles["obs"] == {"prometheus", "grafana"}
    assert profiles.keys() == {"core", "app", "jobs", "obs"}


@pytest.mark.parametrize("name", [*JOBS, *SERVICES])
def test_each_container_gets_the_variables_of_the_supervisor(
    services: dict[str, Any], wiring: ServiceParameters, name: ServiceName | JobName
) -> None:
    kept = {"COUNTERPOINT_DATA_DIR"} if name == "memory" else set()
    wanted = environment(name, wiring).keys() - (HOST_ONLY - kept)
    assert settings(services[name]) - CONTAINER_ONLY == wanted - CONTAINER_ONLY
    assert services[name]["environment"]["COUNTERPOINT_SECRETS_DIR"] == "/run/secrets"


def test_no_secret_is_in_a_variable(services: dict[str, Any], wiring: ServiceParameters) -> None:
    secret = {name for each in services.values() for name in map(str.upper, secrets(each))}
    for each in services.values():
        assert not secret & {name.removeprefix("COUNTERPOINT_") for name in each.get("environment", ())}
    assert "${" not in FILE.read_text()


def test_no_container_has_the_secret_of_another(services: dict[str, Any]) -> None:
    holders: dict[str, set[str]] = {}
    for name, each in services.items():
        for secret in secrets(each):
            holders.setdefault(secret, set()).add(name)
    assert {secret: names for secret, names in holders.items() if len(names) > 1} == SHARED
    for name in SERVICES:
        assert holders[f"{name}_nats_password"] == {name}


def test_only_memory_and_the_jobs_of_its_database_reach_the_databases(services: dict[str, Any]) -> None:
    beside = {name for name, each in services.items() if "record" in each["networks"]}
    assert beside == {"postgres", "valkey", "migrate", "index", "memory"}
    assert read()["networks"]["record"] == {"internal": True}
    assert services["postgres"]["networks"] == services["valkey"]["networks"] == ["record"]


def test_services_start_after_their_dependencies_are_healthy(services: dict[str, Any]) -> None:
    needs = {name: {on: how["condition"] for on, how in services[name].get("depends_on", {}).items()}
             for name in (*JOBS, *SERVICES)}  # fmt: skip
    healthy, done = "service_healthy", "service_completed_successfully"
    assert needs["migrate"] == {"postgres": healthy}
    assert needs["provision"] == {"nats": healthy}
    assert needs["memory"] == {"migrate": done, "provision": done} | dict.fromkeys(SERVERS, healthy)
    assert not any(how["required"] for how in services["memory"]["depends_on"].values())
    for name in set(SERVICES) - {"memory"}:
        assert needs[name] == {"memory": healthy}
    for name in SERVERS:
        assert services[name]["healthcheck"]["test"][0] in ("CMD", "CMD-SHELL")
    for name in JOBS:
        assert services[name]["healthcheck"] == {"disable": True}


def test_data_of_memory_is_in_volumes_that_its_user_may_write(services: dict[str, Any]) -> None:
    environment = services["memory"]["environment"]
    folders = {"memory": environment["COUNTERPOINT_DATA_DIR"], "audit": environment["COUNTERPOINT_AUDIT_DIR"]}
    assert services["memory"]["volumes"] == [f"{name}:{folder}" for name, folder in folders.items()]
    assert folders.keys() <= read()["volumes"].keys()
    text = (ROOT / "deploy" / "docker" / "Dockerfile").read_text()
    assert all(f"COPY --from=build-server --chown=10001:10001 /empty {folder}\n" in text for folder in folders.values())


def test_only_loopback_ports_are_published(services: dict[str, Any]) -> None:
    published = {name: each["ports"] for name, each in services.items() if "ports" in each}
    assert set(published) == {"nats", "router", "lineage", "prometheus", "grafana"}
    assert all(port.startswith("127.0.0.1:") for ports in published.values() for port in ports)


@pytest.mark.parametrize("name", [*JOBS, *SERVICES])
def test_our_containers_may_write_only_their_volumes(services: dict[str, Any], name: str) -> None:
    each = services[name]
    assert (each["read_only"], each["tmpfs"], each["cap_drop"]) == (True, ["/tmp"], ["ALL"])
    assert each["security_opt"] == ["no-new-privileges:true"]


def test_every_service_is_built_by_the_one_dockerfile(services: dict[str, Any]) -> None:
    for name in SERVICES:
        assert services[name]["build"] == {
            "context": ".",
            "dockerfile": "deploy/docker/Dockerfile",
            "target": "server",
            "args": {"SERVICE": name},
        }
    for name in JOBS:
        assert services[name]["image"] == services["memory"]["image"]


def test_the_generator_writes_exactly_the_secrets_that_are_mounted(services: dict[str, Any], folder: Path) -> None:
    declared = {name: Path(each["file"]) for name, each in read()["secrets"].items()}
    assert set(declared) == {name for each in services.values() for name in secrets(each)}
    assert {str(path.parent) for path in declared.values()} == {".counterpoint/compose"}
    assert {path.name for path in folder.iterdir()} == {*declared, "secrets.json"}
    assert folder.stat().st_mode & 0o077 == 0, "the files are for every user of the containers, the folder is not"
    assert all((folder / name).stat().st_mode & 0o777 == 0o444 for name in declared)


def test_a_second_run_writes_the_same_secrets(folder: Path, generator: ModuleType) -> None:
    before = {path.name: path.read_text() for path in folder.iterdir()}
    generator.write(folder)
    assert {path.name: path.read_text() for path in folder.iterdir()} == before


def test_the_bus_has_the_publishers_that_the_variable_names(
    folder: Path, generator: ModuleType, configure: Configure
) -> None:
    before = (folder / "nats.conf").read_text()
    assert "$" not in before.partition("accounts")[0]
    assert before.partition("accounts")[0].count("key: ") == 1
    configure("COUNTERPOINT_PUBLISHERS", '{"airflow": ["orders"]}')
    generator.write(folder)
    after = (folder / "nats.conf").read_text()
    assert load_credentials(folder / "secrets.json", NATS_USERS).nats["airflow"] in after
    assert '"airflow"' not in before
    assert '"intake.orders.task"' in after or '"intake.orders.*"' in after


def process(service: dict[str, Any], folder: Path, run: Path, places: Mapping[str, str]) -> dict[str, str]:
    """The environment of a container's process on this machine, with its secrets in a folder of its own."""
    (run / "secrets").mkdir(parents=True)
    for name, path in secrets(service).items():
        text = (folder / name).read_text()
        (run / "secrets" / Path(path).name).write_text(_here(text, places))
    given = {name: _here(str(value), places) for name, value in service["environment"].items()}
    kept = {name: str(run / value.lstrip("/")) for name, value in given.items() if value in ("/data", "/audit")}
    for each in kept.values():
        Path(each).mkdir()
    return given | kept | {"COUNTERPOINT_SECRETS_DIR": str(run / "secrets"), "PATH": os.environ["PATH"]}


def _here(text: str, places: Mapping[str, str]) -> str:
    return re.sub("|".join(map(re.escape, places)), lambda name: places[name[0]], text)


@pytest.fixture
def processes() -> Iterator[list["subprocess.Popen[bytes]"]]:
    """Processes that end with the test."""
    started: list[subprocess.Popen[bytes]] = []
    yield started
    for each in started:
        each.terminate()
    for each in started:
        each.wait(30)


def _start(name: str, env: Mapping[str, str]) -> "subprocess.Popen[bytes]":
    return subprocess.Popen([sys.executable, "-m", f"counterpoint.{name}.main"], env=env, cwd="/")


@pytest.mark.slow
async def test_the_house_starts_with_the_environments_and_secrets_of_the_file(
    services: dict[str, Any], folder: Path, tmp_path: Path, processes: list["subprocess.Popen[bytes]"]
) -> None:
    credentials = load_credentials(folder / "secrets.json", NATS_USERS)
    configuration = (folder / "nats.conf").read_text()
    accounts = configuration[configuration.index("accounts ") :]
    async with AsyncExitStack() as engines:
        bus = await engines.enter_async_context(run_nats(tmp_path / "nats", accounts))
        postgres = PostgresServer(tmp_path / "postgres", credentials.postgres)
        await engines.enter_async_context(running(postgres))
        valkey = await engines.enter_async_context(run_valkey(tmp_path / "valkey", credentials.valkey))
        ports = dict(zip(("http", "openlineage", "gateway", *SERVICES), free_ports(3 + len(SERVICES)), strict=True))
        places = {
            "nats:4222": f"127.0.0.1:{bus.port}", "postgres:5432": f"127.0.0.1:{postgres.port}",
            "valkey:6379": f"127.0.0.1:{valkey.port}", "manager:8486": f"127.0.0.1:{ports['gateway']}",
        }  # fmt: skip
        own = {"COUNTERPOINT_HTTP_PORT": "http", "COUNTERPOINT_LINEAGE_PORT": "openlineage",
               "COUNTERPOINT_GATEWAY_PORT": "gateway"}  # fmt: skip
        for name in ("migrate", "provision", "index"):
            job = services[name]["command"]
            env = process(services[name], folder, tmp_path / name, places)
            run = [sys.executable, *job[1:]]
            done = await asyncio.to_thread(subprocess.run, run, env=env, capture_output=True, text=True, check=False)
            assert done.returncode == 0, done.stdout + done.stderr
        for name in SERVICES:
            env = process(services[name], folder, tmp_path / name, places)
            env |= {variable: str(ports[server]) for variable, server in own.items() if variable in env}
            env["COUNTERPOINT_HEALTH_PORT"] = str(ports[name])
            processes.append(_start(name, env))
        for name in SERVICES:
            await eventually(lambda name=name: http_ok(ports[name], "/readyz"), name, 120)
        headers = {"Authorization": f"Bearer {credentials.admin_token}", "Prefer": "wait=30"}
        async with httpx.AsyncClient(base_url=f"http://127.0.0.1:{ports['http']}", headers=headers, timeout=60) as http:
            asked = await http.post("/v1/tasks", json={"kind": "question", "description": "Which resolvers?"})
            assert asked.json()["waiting_for"] == "documents", asked.text
        for each in processes:
            each.terminate()
        for each in processes:
            await asyncio.to_thread(each.wait, 30)
