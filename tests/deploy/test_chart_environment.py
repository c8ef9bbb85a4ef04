"""Each container gets the variables that its program reads, all that are required, and no secret of another."""

import re
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any

import httpx
import pytest
import yaml
from deploy.containers import LocalMachine, Secrets, ServiceContainer, environment, references, secrets, variables
from deploy.external import other_postgres
from deploy.helm import CHART, EXAMPLES, documents, pods
from deploy.test_chart import JOBS, generator
from deploy.test_compose import HOST_ONLY

from counterpoint.bus import BusSettings
from counterpoint.bus.settings import ProcessSettings, ProvisionSettings
from counterpoint.guard.policy import policy
from counterpoint.local.credentials import Credentials
from counterpoint.local.kubernetes import EngineUrls
from counterpoint.local.nats import run_nats
from counterpoint.local.postgres import PostgresUrls, roles_sql
from counterpoint.local.probe import http_ok
from counterpoint.local.process import run
from counterpoint.local.service import NATS_USERS, SERVICES, JobName, ServiceName, ServiceParameters
from counterpoint.local.service import environment as supervised
from counterpoint.local.valkey import run_valkey
from counterpoint.memory.record.owner_settings import OwnerSettings

SETTINGS: dict[str, type[BusSettings]] = generator().SETTINGS
PLACE = {"HEALTH_HOST", "HEALTH_PORT", "HTTP_HOST", "LINEAGE_HOST", "GATEWAY_HOST", "AUDIT_DIR", "MODEL_CACHE_DIR",
         "MCP_URL", "MCP_HOSTS", "CONSOLE_URL"}  # fmt: skip
"""Settings of the place: a container has addresses, folders and a name of its own."""
MOUNTED = re.compile(r"^(?:/etc/counterpoint/|/data(?:/|$)|/audit$)")


@pytest.fixture(scope="module")
def credentials() -> Credentials:
    return Credentials.make().with_nats_users(NATS_USERS)


@pytest.fixture(scope="module")
def known_secrets(credentials: Credentials) -> Secrets:
    """The Secrets of an installation with every engine."""
    engines = EngineUrls("postgresql://pg:5432", "redis://valkey:6379/0", "http://qdrant:6333", "key")
    made = secrets(credentials, engines)
    theirs = {
        "model-providers": {"OPENAI_API_KEY": "key"},
        "bus-router": made["counterpoint-router"],
        "database-owner": made["counterpoint-migrate"],
    }
    return made | theirs


def specs(example: str, values: dict[str, Any] | None = None) -> dict[str, dict[str, Any]]:
    """The pod of each service and job."""
    return {name: template["spec"] for name, template in pods(documents(example, values)).items()}


@pytest.mark.parametrize("example", EXAMPLES)
@pytest.mark.parametrize("name", SERVICES)
def test_a_service_reads_every_variable_that_it_gets(
    name: str, example: str, known_secrets: Secrets, monkeypatch: pytest.MonkeyPatch
) -> None:
    given = environment(specs(example)[name], known_secrets)
    fields = {f"COUNTERPOINT_{field.upper()}" for field in SETTINGS[name].model_fields}
    providers = yaml.safe_load((CHART / "examples" / f"{example}.yaml").read_text()).get("manager", {})
    keys = set(providers.get("providers", {}).get("keys", ())) if name == "manager" else set()
    assert given.keys() - fields == keys
    for variable, value in given.items():
        monkeypatch.setenv(variable, value)
    made = SETTINGS[name]()  # type: ignore[call-arg]
    assert {f"COUNTERPOINT_{field.upper()}" for field in made.model_fields_set} == given.keys() - keys
    assert made.nats_user == name


@pytest.mark.parametrize("example", EXAMPLES)
def test_a_job_reads_every_variable_that_it_gets(
    example: str, known_secrets: Secrets, monkeypatch: pytest.MonkeyPatch
) -> None:
    found = specs(example, {"settings": {"COUNTERPOINT_LOG_LEVEL": "debug"}})
    for name in set(JOBS) & set(found):
        given = environment(found[name], known_secrets)
        with monkeypatch.context() as patch:
            for variable, value in given.items():
                patch.setenv(variable, value)
            made: ProcessSettings = ProvisionSettings() if name == "provision" else OwnerSettings()  # type: ignore[call-arg]
        unread = {"COUNTERPOINT_INSTALLATION"} if name == "index" else set()
        assert {f"COUNTERPOINT_{field.upper()}" for field in made.model_fields_set} == given.keys() - unread
        assert made.log_level == "debug"


@pytest.mark.parametrize(
    ("login", "files"),
    [
        ("creds", {"COUNTERPOINT_NATS_CREDS": "nats.creds"}),
        ("certificate", {"COUNTERPOINT_NATS_CERT": "nats.crt", "COUNTERPOINT_NATS_KEY": "nats.key"}),
    ],
)
def test_a_login_by_files_takes_them_from_the_own_secret(
    login: str, files: dict[str, str], known_secrets: Secrets
) -> None:
    found = specs("production", {"nats.login": login, "nats.accountId": "A" + "B" * 55})
    for name in (*SERVICES, "provision"):
        given = variables(found[name]["containers"][0], known_secrets)
        assert {each: given[each] for each in files} == {
            each: f"/etc/counterpoint/secrets/{file}" for each, file in files.items()
        }
        own = references(found[name])
        assert "COUNTERPOINT_NATS_PASSWORD" not in own
        assert {file: own[file] for file in files.values()} == {
            file: (f"counterpoint-{name}", file, False) for file in files.values()
        }
    assert references(found["migrate"]).keys() == {"COUNTERPOINT_POSTGRES_OWNER_URL", "COUNTERPOINT_INSTALLATION"}


@pytest.mark.parametrize("name", [*SERVICES, *JOBS])
def test_a_container_gets_the_variables_of_the_supervisor(
    name: ServiceName | JobName, known_secrets: Secrets, credentials: Credentials, tmp_path: Path
) -> None:
    wiring = ServiceParameters(
        data_dir=tmp_path,
        nats_url="nats://nats:4222",
        postgres=PostgresUrls.of("postgresql://pg:5432", credentials.postgres),
        valkey_url=f"redis://:{credentials.valkey}@valkey:6379/0",
        http_port=8484,
        lineage_port=5000,
        gateway_port=8486,
        credentials=credentials,
        inherited={},
        streams_bytes=1 << 30,
    )
    place = {f"COUNTERPOINT_{each}" for each in PLACE}
    other = HOST_ONLY - ({"COUNTERPOINT_DATA_DIR"} if name == "memory" else set())
    if name == "migrate":
        other -= {"COUNTERPOINT_INSTALLATION"}
    wanted = {variable: value for variable, value in supervised(name, wiring).items() if variable not in other | place}
    given = environment(specs("laptop")[name], known_secrets)
    assert given.keys() - place == wanted.keys()
    same = wanted.keys() - {"COUNTERPOINT_DATA_DIR", "COUNTERPOINT_GATEWAY_URL", "COUNTERPOINT_NATS_URL"}
    assert {each: given[each] for each in same} == {each: wanted[each] for each in same}


@pytest.mark.parametrize("example", EXAMPLES)
def test_no_container_gets_a_secret_of_another(example: str, known_secrets: Secrets) -> None:
    held = {
        name: {(secret, key) for secret, key, _ in references(spec).values()} for name, spec in specs(example).items()
    }
    owners = held.pop("migrate") | held.pop("index", set())
    assert all(key in ("COUNTERPOINT_POSTGRES_OWNER_URL", "COUNTERPOINT_INSTALLATION") for _, key in owners)
    for name, own in held.items():
        assert own
        assert not own & (owners | {each for other, theirs in held.items() if other != name for each in theirs})


@pytest.mark.parametrize("example", EXAMPLES)
def test_keys_of_providers_alone_are_variables(example: str) -> None:
    """LiteLLM reads them from the environment; every other secret is a file, which no child process inherits."""
    for name, spec in specs(example).items():
        given = [each["name"] for each in spec["containers"][0]["env"] if "valueFrom" in each]
        assert given == (["OPENAI_API_KEY"] if (example, name) == ("production", "manager") else [])


@pytest.mark.parametrize("example", EXAMPLES)
def test_files_that_variables_name_are_mounted(example: str, known_secrets: Secrets) -> None:
    for name, spec in specs(example).items():
        (container,) = spec["containers"]
        mounts = [mount["mountPath"] for mount in container["volumeMounts"]]
        for variable, value in variables(container, known_secrets).items():
            if MOUNTED.match(value):
                assert any(Path(value).is_relative_to(mount) for mount in mounts), (name, variable)


def test_the_ca_of_a_server_is_there_for_those_that_connect_to_it() -> None:
    given = {"postgres.ca": {"secret": "database-ca", "key": "root.pem"}, "nats.ca": {"secret": "bus-ca"}}
    network = policy().network
    for name, spec in specs("production", given).items():
        (container,) = spec["containers"]
        folders = {mount["name"]: mount["mountPath"] for mount in container["volumeMounts"]}
        files = {
            folders[volume["name"]]: (volume["secret"]["secretName"], volume["secret"]["items"])
            for volume in spec["volumes"]
            if volume["name"].endswith("-ca")
        }
        wanted = {
            f"/etc/counterpoint/{server}": (secret, [{"key": key, "path": "ca.crt"}])
            for server, secret, key in (("postgres", "database-ca", "root.pem"), ("nats", "bus-ca", "ca.crt"))
            if server in network[name]
        }
        assert files == wanted, name


@pytest.mark.slow
async def test_the_services_run_with_these_environments_on_real_engines(tmp_path: Path) -> None:
    credentials = Credentials.make().with_nats_users(NATS_USERS)
    here = LocalMachine(tmp_path)
    async with AsyncExitStack() as engines:
        postgres = await engines.enter_async_context(other_postgres(tmp_path / "postgres"))
        postgres.run(roles_sql(credentials.postgres))
        addresses = EngineUrls(postgres.server)
        accounts = secrets(credentials, addresses)["counterpoint-nats-accounts"]["accounts.conf"]
        bus = await engines.enter_async_context(run_nats(tmp_path / "nats", accounts))
        valkey = await engines.enter_async_context(run_valkey(tmp_path / "valkey", credentials.valkey))
        known = secrets(credentials, EngineUrls(postgres.server, f"redis://127.0.0.1:{valkey.port}/0"))
        found = specs("laptop", {"nats.url": bus.url})
        replicated = specs("production", {"nats": {"url": bus.url, "ca": {"secret": ""}, "monitoring": "m:1"}})
        for job in JOBS:
            await run(job, here.program(job, found[job], known))
        services = [ServiceContainer(name, found[name], known, here) for name in SERVICES]
        for each in services:
            engines.push_async_callback(each.stop)
            await each.spawn()
        for each in services:
            await each.until_ready(90)
        token = known["counterpoint-memory"]["COUNTERPOINT_ADMIN_TOKEN"]
        url = f"http://127.0.0.1:{here.port('router', 'HTTP_PORT')}"
        headers = {"Authorization": f"Bearer {token}", "Prefer": "wait=30"}
        async with httpx.AsyncClient(base_url=url, headers=headers, timeout=60) as http:
            asked = await http.post("/v1/tasks", json={"kind": "question", "description": "Which resolvers?"})
            assert asked.json()["waiting_for"] == "documents", asked.text
            assert (await http.get("/v1/audit/verify")).json()["ok"]
        assert list((tmp_path / "data").iterdir())
        # No Qdrant server can be had as a package, so the standby has an embedded one of its own.
        alone = {"counterpoint-memory": dict(known["counterpoint-memory"]) | {"COUNTERPOINT_QDRANT_URL": ""}}
        standby = ServiceContainer("memory", replicated["memory"], alone, LocalMachine(tmp_path / "standby"))
        engines.push_async_callback(standby.stop)
        await standby.start()
        assert not await http_ok(standby.port, "/readyz"), "only the active process has the lease"
