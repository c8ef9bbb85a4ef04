"""`compose.yaml` is legal, and gives each container what the supervisor gives each process: its own secrets alone."""

import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from deploy.compose import FILE, ROOT, read, variables

from counterpoint.local.credentials import Credentials
from counterpoint.local.postgres import PostgresUrls
from counterpoint.local.service import NATS_USERS, SERVICES, JobName, ServiceName, ServiceParameters, environment

CHECKER = "check-jsonschema==0.39.0"
"""Brings the schema of the compose specification in its wheel."""
HOST_ONLY = {"PATH", "HOME", "LANG", "MALLOC_ARENA_MAX", "COUNTERPOINT_DATA_DIR", "COUNTERPOINT_INSTALLATION"}
"""Variables that a process beside others needs and a separate container does not."""
CONTAINER_ONLY = {
    "COUNTERPOINT_HTTP_HOST",
    "COUNTERPOINT_LINEAGE_HOST",
    "COUNTERPOINT_GATEWAY_HOST",
    "COUNTERPOINT_AUDIT_DIR",
}
SERVERS = ("nats", "postgres", "valkey")
JOBS: tuple[JobName, ...] = ("migrate", "index", "provision")


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


def test_it_is_legal_by_the_compose_specification() -> None:
    uv = ROOT / ".tools" / "bin" / "uv"
    told = subprocess.run(
        [uv, "tool", "run", "--python", sys.executable, "--from", CHECKER, "check-jsonschema",
         "--builtin-schema", "vendor.compose-spec", FILE],
        env=os.environ | {"UV_PYTHON_DOWNLOADS": "never"}, capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert told.returncode == 0, told.stdout + told.stderr


def test_it_holds_the_house_and_nothing_else(services: dict[str, Any]) -> None:
    assert set(services) == {*SERVERS, *JOBS, *SERVICES}


@pytest.mark.parametrize("name", [*JOBS, *SERVICES])
def test_each_container_gets_what_the_supervisor_gives(
    services: dict[str, Any], wiring: ServiceParameters, name: ServiceName | JobName
) -> None:
    kept = {"COUNTERPOINT_DATA_DIR"} if name == "memory" else set()
    wanted = environment(name, wiring).keys() - (HOST_ONLY - kept)
    assert services[name]["environment"].keys() - CONTAINER_ONLY == wanted - CONTAINER_ONLY


@pytest.mark.parametrize("name", SERVICES)
def test_no_service_knows_the_secret_of_another(services: dict[str, Any], name: str) -> None:
    own = variables(str(services[name]["environment"]))
    elsewhere = {each: variables(str(services[each]["environment"])) for each in (*JOBS, *SERVICES) if each != name}
    assert f"COUNTERPOINT_NATS_PASSWORD_{name.upper()}" in own
    assert {each for each, known in elsewhere.items() if known & own} == set()


def test_only_memory_and_the_jobs_of_its_database_reach_the_databases(services: dict[str, Any]) -> None:
    beside = {name for name, each in services.items() if "record" in each["networks"]}
    assert beside == {"postgres", "valkey", "migrate", "index", "memory"}
    assert read()["networks"]["record"] == {"internal": True}
    assert services["postgres"]["networks"] == services["valkey"]["networks"] == ["record"]


def test_everything_is_healthy_before_what_needs_it(services: dict[str, Any]) -> None:
    needs = {name: {on: how["condition"] for on, how in services[name]["depends_on"].items()} for name in
             (*JOBS, *SERVICES)}  # fmt: skip
    healthy, done = "service_healthy", "service_completed_successfully"
    assert needs["migrate"] == {"postgres": healthy}
    assert needs["provision"] == {"nats": healthy}
    assert needs["memory"] == {"migrate": done, "provision": done} | dict.fromkeys(SERVERS, healthy)
    for name in set(SERVICES) - {"memory"}:
        assert needs[name] == {"memory": healthy}
    for name in SERVERS:
        assert services[name]["healthcheck"]["test"][0] in ("CMD", "CMD-SHELL")
    for name in JOBS:
        assert services[name]["healthcheck"] == {"disable": True}


def test_what_memory_keeps_is_in_a_volume_that_its_user_may_write(services: dict[str, Any]) -> None:
    environment = services["memory"]["environment"]
    folders = {"memory": environment["COUNTERPOINT_DATA_DIR"], "audit": environment["COUNTERPOINT_AUDIT_DIR"]}
    assert services["memory"]["volumes"] == [f"{name}:{folder}" for name, folder in folders.items()]
    assert folders.keys() <= read()["volumes"].keys()
    text = (ROOT / "deploy" / "docker" / "Dockerfile").read_text()
    assert all(f"COPY --from=build-server --chown=10001:10001 /empty {folder}\n" in text for folder in folders.values())


def test_only_loopback_ports_are_published(services: dict[str, Any]) -> None:
    published = {name: each["ports"] for name, each in services.items() if "ports" in each}
    assert set(published) == {"nats", "router", "lineage"}
    assert all(port.startswith("127.0.0.1:") for ports in published.values() for port in ports)


def test_every_service_is_built_by_the_one_dockerfile(services: dict[str, Any]) -> None:
    for name in SERVICES:
        assert services[name]["build"] == {
            "context": ".",
            "dockerfile": "deploy/docker/Dockerfile",
            "args": {"SERVICE": name},
        }
    for name in JOBS:
        assert services[name]["image"] == services["memory"]["image"]


def test_every_file_it_mounts_is_there(services: dict[str, Any]) -> None:
    mounted = [mount for each in services.values() for mount in each.get("volumes", ()) if mount.startswith("./")]
    assert len(mounted) == 2
    for mount in mounted:
        assert (ROOT / Path(mount.split(":")[0])).is_file()


def test_the_env_file_gives_exactly_what_it_asks_for() -> None:
    made = subprocess.run(
        [sys.executable, ROOT / "deploy/docker/env_file.py"], capture_output=True, text=True, check=True
    ).stdout
    given = dict(line.split("=", 1) for line in made.splitlines())
    assert set(given) == variables(FILE.read_text())
    secrets = [value for name, value in given.items() if name != "COUNTERPOINT_SIGNING_KEYS"]
    assert len(set(secrets)) == len(secrets)
    assert all(len(secret) >= 32 for secret in secrets)
