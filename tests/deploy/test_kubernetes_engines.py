"""The engines for Kubernetes are what the services expect, and the printed Secrets are what both of them refer to."""

import json
import os
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml
from click.testing import Result
from deploy.compose import ROOT
from deploy.containers import references as secrets_of
from deploy.external import OtherPostgres, other_postgres
from deploy.helm import EXAMPLES, documents, pods
from deploy.schemas import problems
from typer.testing import CliRunner

from counterpoint.bus.provision import provision
from counterpoint.cli.errors import Exit
from counterpoint.cli.main import app
from counterpoint.local.credentials import Credentials
from counterpoint.local.kubernetes import EngineUrls, secret_list
from counterpoint.local.nats import policy_authorization, run_nats
from counterpoint.local.postgres import roles_sql
from counterpoint.local.service import NATS_USERS, SERVICES
from counterpoint.local.settings import local_settings

FOLDER = ROOT / "deploy" / "kubernetes"
ROLES = """
SELECT rolname, rolsuper, rolcreaterole, rolcreatedb, rolcanlogin, rolbypassrls, rolreplication, setconfig,
    pg_has_role(rolname, 'pg_read_all_data', 'MEMBER'),
    has_database_privilege(rolname, 'counterpoint', 'CONNECT'),
    has_database_privilege(rolname, 'counterpoint', 'CREATE')
FROM pg_roles LEFT JOIN pg_db_role_setting ON setrole = pg_roles.oid AND setdatabase = 0
WHERE rolname LIKE 'counterpoint%' ORDER BY rolname;
SELECT pg_get_userbyid(datdba), pg_encoding_to_char(encoding), datlocprovider, datlocale, datcollate, datctype,
    has_database_privilege('public', 'counterpoint', 'CONNECT')
FROM pg_database WHERE datname = 'counterpoint';
\\connect counterpoint
SELECT extname FROM pg_extension ORDER BY extname;
"""
FORGET = """
DROP DATABASE IF EXISTS counterpoint WITH (FORCE);
SELECT format('DROP OWNED BY %I; DROP ROLE %I', rolname, rolname)
FROM pg_roles WHERE rolname LIKE 'counterpoint%' \\gexec
"""


@pytest.fixture(scope="module")
def credentials() -> Credentials:
    return Credentials.make().with_nats_users(NATS_USERS)


@pytest.fixture(scope="module")
def secret_items(credentials: Credentials) -> list[dict[str, Any]]:
    """The Secrets of an installation with every engine."""
    engines = EngineUrls("postgresql://pg:5432", "redis://valkey:6379/0", "http://qdrant:6333", "key")
    made = secret_list(credentials, engines, policy_authorization(credentials.nats), "counterpoint", "house")
    assert (made["kind"], made["apiVersion"]) == ("List", "v1")
    items: list[dict[str, Any]] = made["items"]
    return items


def values(name: str) -> Any:
    return yaml.safe_load((FOLDER / name).read_text())


def references(part: Any) -> set[tuple[str, str | None]]:
    """The names of Secrets in a document, each with the key that is read, if one is named."""
    if isinstance(part, list):
        return {found for each in part for found in references(each)}
    if not isinstance(part, dict):
        return set()
    found = {found for each in part.values() for found in references(each)}
    for name, each in part.items():
        match name:
            case "secretKeyRef":
                found.add((each["name"], each["key"]))
            case "secretName" | "usersExistingSecret":
                found.add((each, None))
            case "secret" | "passwordSecret" if isinstance(each, dict) and "name" in each:
                found.add((each["name"], None))
    return found


def test_every_secret_is_legal_and_named_once(secret_items: list[dict[str, Any]]) -> None:
    assert [problem for each in secret_items for problem in problems(each)] == []
    names = [each["metadata"]["name"] for each in secret_items]
    assert len(set(names)) == len(names)
    assert {each["metadata"]["namespace"] for each in secret_items} == {"house"}


@pytest.mark.parametrize("name", sorted(path.name for path in FOLDER.iterdir()))
def test_engines_refer_to_secrets_that_are_printed(name: str, secret_items: list[dict[str, Any]]) -> None:
    known = {each["metadata"]["name"]: each for each in secret_items}
    found = references(values(name))
    assert found
    for secret, key in found:
        assert secret in known
        assert key is None or key in known[secret]["stringData"]


@pytest.mark.parametrize("example", ["laptop", "airgapped"])
def test_the_chart_refers_to_secrets_that_are_printed(example: str, secret_items: list[dict[str, Any]]) -> None:
    known = {each["metadata"]["name"]: each["stringData"] for each in secret_items}
    assert example in EXAMPLES
    for template in pods(documents(example)).values():
        for secret, key, optional in secrets_of(template["spec"]).values():
            assert optional or key in known[secret]


def test_postgres_is_a_legal_cluster_with_the_roles_of_the_secrets(secret_items: list[dict[str, Any]]) -> None:
    cluster = values("postgres.yaml")
    assert problems(cluster) == []
    logins = {each["metadata"]["name"]: each["stringData"].get("username") for each in secret_items}
    initdb, roles = cluster["spec"]["bootstrap"]["initdb"], cluster["spec"]["managed"]["roles"]
    assert logins[initdb["secret"]["name"]] == initdb["owner"] == "counterpoint_owner"
    assert {role["name"]: logins[role["passwordSecret"]["name"]] for role in roles} == {
        f"counterpoint_{name}": f"counterpoint_{name}" for name in ("memory", "inspect", "backup")
    }


def create(postgres: OtherPostgres, cluster: dict[str, Any]) -> None:
    """Do what the operator does: owner, database, SQL of the application, then the attributes of managed roles."""
    initdb = cluster["spec"]["bootstrap"]["initdb"]
    postgres.run(
        f"CREATE ROLE {initdb['owner']} LOGIN;"
        f"CREATE DATABASE {initdb['database']} OWNER {initdb['owner']} TEMPLATE template0"
        f" ENCODING '{initdb['encoding']}' LOCALE_PROVIDER {initdb['localeProvider']}"
        f" BUILTIN_LOCALE '{initdb['builtinLocale']}' LC_COLLATE '{initdb['localeCollate']}'"
        f" LC_CTYPE '{initdb['localeCType']}';\\connect {initdb['database']}\n"
        + ";".join(initdb["postInitApplicationSQL"])
    )
    for role in cluster["spec"]["managed"]["roles"]:
        attributes = "LOGIN" if role.get("login") else "NOLOGIN"
        postgres.run(
            f"ALTER ROLE {role['name']} {attributes} {'BYPASSRLS' if role.get('bypassrls') else 'NOBYPASSRLS'}"
        )
        for group in role.get("inRoles", ()):
            postgres.run(f"GRANT {group} TO {role['name']}")


@pytest.mark.slow
async def test_its_database_is_that_of_the_printed_sql(credentials: Credentials, tmp_path: Path) -> None:
    async with other_postgres(tmp_path / "postgres") as postgres:
        postgres.run(roles_sql(credentials.postgres))
        wanted = postgres.run(ROLES)
        postgres.run(FORGET)
        create(postgres, values("postgres.yaml"))
        assert postgres.run(ROLES) == wanted
        assert "counterpoint_memory|f|f|f|t|f|f||f|t|f" in wanted
        assert wanted.endswith("plpgsql\nvector")


async def test_a_nats_server_takes_the_accounts_of_the_secret(
    secret_items: list[dict[str, Any]], credentials: Credentials, tmp_path: Path
) -> None:
    (secret,) = (
        each["stringData"] for each in secret_items if each["metadata"]["name"] == "counterpoint-nats-accounts"
    )
    merged = values("nats.values.yaml")
    config = merged["config"]
    (mount,) = merged["container"]["merge"]["volumeMounts"]
    volumes = {each["name"]: each["secret"] for each in merged["podTemplate"]["merge"]["spec"]["volumes"]}
    (item,) = volumes[mount["name"]]["items"]
    included = Path("/etc/nats-config") / config["merge"]["00$include"]
    assert included.resolve() == Path(mount["mountPath"]) / item["path"]
    async with run_nats(tmp_path, secret[item["key"]], config["merge"]["max_payload"]) as bus:
        await provision(bus.url, "provisioner", credentials.nats["provisioner"])


@pytest.fixture
def run_command(monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[..., Result]]:
    """Run the command with these variables alone."""
    for name in [each for each in os.environ if each.startswith("COUNTERPOINT_")]:
        monkeypatch.delenv(name)

    def run(*arguments: str | Path, **env: str) -> Result:
        local_settings.cache_clear()
        return CliRunner().invoke(app, ["kubernetes", "secrets", *map(str, arguments)], env=env)

    yield run
    local_settings.cache_clear()


def test_the_command_prints_them_or_writes_them_for_its_user_alone(
    run_command: Callable[..., Result], tmp_path: Path
) -> None:
    env = {"COUNTERPOINT_POSTGRES_URL": "postgresql://pg:5432?sslmode=require"}
    env["COUNTERPOINT_VALKEY_URL"] = "redis://:own@valkey:6379/0"
    data = ("--data-dir", tmp_path / "data")
    first = run_command(*data, **env)
    again = run_command("--fullname", "house", *data, "--output", tmp_path / "secrets.json", **env)
    assert (first.exit_code, again.exit_code) == (0, 0), first.output + again.output
    assert (tmp_path / "secrets.json").stat().st_mode & 0o777 == 0o600
    printed, written = json.loads(first.stdout)["items"], json.loads((tmp_path / "secrets.json").read_text())["items"]
    assert [each["stringData"] for each in printed] == [each["stringData"] for each in written], "kept in secrets.json"
    assert {each["metadata"]["name"].partition("-")[0] for each in written} == {"house"}
    assert not [each for each in written if "namespace" in each["metadata"]]
    memory = next(each["stringData"] for each in printed if each["metadata"]["name"] == "counterpoint-memory")
    assert memory["COUNTERPOINT_VALKEY_URL"] == "redis://:own@valkey:6379/0"
    assert memory["COUNTERPOINT_POSTGRES_URL"].endswith("@pg:5432/counterpoint?sslmode=require")
    assert "COUNTERPOINT_QDRANT_URL" not in memory


def test_credentials_files_take_the_place_of_passwords(run_command: Callable[..., Result], tmp_path: Path) -> None:
    users = ("provisioner", *SERVICES)
    env = {"COUNTERPOINT_POSTGRES_URL": "postgresql://pg:5432", "COUNTERPOINT_NATS_CREDS": str(tmp_path)}
    refused = run_command("--data-dir", tmp_path / "data", **env)
    assert refused.exit_code == Exit.USAGE
    assert "COUNTERPOINT_NATS_CREDS: " in refused.stderr
    for user in users:
        (tmp_path / f"{user}.creds").write_text(f"of {user}")
    made = {
        each["metadata"]["name"].removeprefix("counterpoint-"): each["stringData"]
        for each in json.loads(run_command("--data-dir", tmp_path / "data", **env).stdout)["items"]
    }
    for user in users:
        own = made["provision" if user == "provisioner" else user]
        assert own["nats.creds"] == f"of {user}"
        assert "COUNTERPOINT_NATS_PASSWORD" not in own


def test_without_an_address_of_the_database_it_says_which_variable_to_set(
    run_command: Callable[..., Result], tmp_path: Path
) -> None:
    refused = run_command("--data-dir", tmp_path)
    assert refused.exit_code == Exit.USAGE
    assert "set COUNTERPOINT_POSTGRES_URL" in refused.stderr
    assert not (tmp_path / "secrets.json").exists()
