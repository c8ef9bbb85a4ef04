"""Secrets and logins that the supervisor gives to each process."""

from pathlib import Path

import nats
import pytest
from chaos.small_stack import commands, environ_of, stack_of, started
from service_parameters import service_parameters

from counterpoint.local.credentials import load_credentials
from counterpoint.local.nats import policy_authorization
from counterpoint.local.service import COMMANDS, NATS_USERS, SERVICES, environment
from counterpoint.local.settings import local_settings


def arguments_of(pid: int | None) -> str:
    return Path(f"/proc/{pid}/cmdline").read_text()


async def test_without_inspect_no_database_login_is_told(tmp_path: Path) -> None:
    async with started(stack_of(tmp_path)) as stack:
        assert stack.endpoints.engines["postgres"].dsn is None


async def test_a_process_has_no_secret_of_another(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SOME_API_KEY", "the-person's-own")
    async with started(stack_of(tmp_path)) as stack:
        kept = load_credentials(tmp_path / "secrets.json", NATS_USERS)
        secrets = {
            **{f"nats {user}": password for user, password in kept.nats.items()},
            **{f"postgres {role}": password for role, password in kept.postgres.model_dump().items()},
            **{f"key {key.id}": key.private for key in kept.signing_keys},
            "valkey": kept.valkey,
            "token": kept.admin_token,
        }
        assert len(set(secrets.values())) == len(NATS_USERS) + 5 + 2 + 2
        own = {name: {f"nats {name}"} for name in SERVICES}
        own["memory"] |= {"postgres memory", "valkey", "token", "key 1", "key 2"}
        for name, service in stack.endpoints.services.items():
            environ = environ_of(service.pid)
            assert {label for label, secret in secrets.items() if secret in environ} == own[name], name
            assert "the-person's-own" not in environ
            assert not [label for label, secret in secrets.items() if secret in arguments_of(service.pid)]
        for engine in stack.endpoints.engines.values():
            shown = environ_of(engine.pid) + arguments_of(engine.pid)
            assert not [label for label, secret in secrets.items() if secret in shown]


def test_the_jobs_get_their_own_login_alone() -> None:
    wiring = service_parameters({"PATH": "/bin", "AWS_SECRET": "x"})
    basics = {"PATH", "HOME", "LANG", "MALLOC_ARENA_MAX"}
    owner = {"COUNTERPOINT_POSTGRES_OWNER_URL", "COUNTERPOINT_INSTALLATION"}
    assert set(environment("migrate", wiring)) == basics | owner
    provision = environment("provision", wiring)
    assert set(provision) == basics | {f"COUNTERPOINT_NATS_{name}" for name in ("URL", "USER", "PASSWORD")}
    assert provision["COUNTERPOINT_NATS_PASSWORD"] == wiring.credentials.nats["provisioner"]


def test_keys_of_providers_are_the_managers_alone_and_only_where_it_has_a_use_for_them() -> None:
    def given(**inherited: str) -> dict[str, dict[str, str]]:
        wiring = service_parameters(inherited)
        return {name: environment(name, wiring) for name in SERVICES}

    keys = {"OPENAI_API_KEY": "x", "OPENAI_API_BASE": "x", "AWS_REGION_NAME": "x", "HTTPS_PROXY": "x"}
    assert not [name for name, env in given(**keys, DISPLAY=":0").items() if {*keys, "DISPLAY"} & {*env}]
    env = given(**keys, COUNTERPOINT_MODEL="m", COUNTERPOINT_SEARCH_URL="s", COUNTERPOINT_API_KEY="x")
    assert [name for name in SERVICES if keys.keys() <= env[name].keys()] == ["manager"]
    assert [name for name in SERVICES if {*keys} & {*env[name]}] == ["manager"]
    assert [name for name in SERVICES if "COUNTERPOINT_MODEL" in env[name]] == ["memory", "manager", "developer"]
    assert not [name for name in SERVICES if "COUNTERPOINT_API_KEY" in env[name]]
    assert env["developer"]["COUNTERPOINT_GATEWAY_URL"] == "http://127.0.0.1:6"
    assert env["manager"]["COUNTERPOINT_GATEWAY_PORT"] == "6"


async def _quiet(error: Exception) -> None:
    """A refusal shows in what does not happen."""


async def test_publishers_have_logins_of_their_own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COUNTERPOINT_PUBLISHERS", '{"airflow": ["orders"]}')
    local_settings.cache_clear()
    try:
        given = {"commands": commands() | {"provision": COMMANDS["provision"]}, "authorization": policy_authorization}
        async with started(stack_of(tmp_path, **given)) as stack:
            assert set(stack.endpoints.users) == {"publisher", "observer", "airflow"}
            airflow = stack.endpoints.users["airflow"]
            login = {"user": airflow.user, "password": airflow.password}
            inbox = airflow.inbox_prefix.encode()
            async with await nats.connect(stack.endpoints.nats, inbox_prefix=inbox, error_cb=_quiet, **login) as client:
                assert (await client.jetstream().publish("intake.orders.task", b"{}")).stream == "INTAKE"
                with pytest.raises(nats.errors.TimeoutError):
                    await client.jetstream().publish("intake.finance.task", b"{}", timeout=0.5)
    finally:
        local_settings.cache_clear()
