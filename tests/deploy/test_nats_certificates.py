"""Logins on the bus by certificates: what `counterpoint kubernetes secrets` prints for them is what the chart and a
NATS server with `verify_and_map` take."""

import json
import os
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import nats
import nats.errors
import pytest
from click.testing import Result
from cryptography import x509
from deploy.certificates import Certificates, certificates
from deploy.containers import references
from deploy.helm import documents, of_kind, pods
from deploy.schemas import problems
from typer.testing import CliRunner

from counterpoint.bus.preflight import examine
from counterpoint.bus.provision import provision
from counterpoint.bus.settings import ProvisionSettings
from counterpoint.cli.errors import Exit
from counterpoint.cli.main import app
from counterpoint.local.nats import run_nats
from counterpoint.local.service import SERVICES
from counterpoint.local.settings import local_settings
from counterpoint.proto import subjects

WORKLOADS = {"provision": "provisioner"} | {name: name for name in SERVICES}
CERTIFICATE = {"nats.login": "certificate"}
Command = Callable[..., Result]
pytestmark = pytest.mark.skipif(shutil.which("openssl") is None, reason="makes certificates with openssl")


@pytest.fixture
def command(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[Command]:
    """Run `counterpoint` with the addresses of the databases alone."""
    for name in [each for each in os.environ if each.startswith("COUNTERPOINT_")]:
        monkeypatch.delenv(name)

    def run(*words: str | Path, **env: str) -> Result:
        local_settings.cache_clear()
        urls = {"COUNTERPOINT_POSTGRES_URL": "postgresql://pg:5432", "COUNTERPOINT_VALKEY_URL": "redis://valkey:6379/0"}
        given = urls | {"COUNTERPOINT_DATA_DIR": str(tmp_path / "data")}
        return CliRunner().invoke(app, list(map(str, words)), env=given | env)

    yield run
    local_settings.cache_clear()


@pytest.fixture
def tls(tmp_path: Path) -> Certificates:
    """The CA of the bus, and certificates that it signed for other things."""
    return certificates(tmp_path / "tls", "server", "other")


def printed(done: Result) -> dict[str, dict[str, Any]]:
    """The objects that the command printed, by name without the prefix."""
    assert done.exit_code == 0, done.output
    return {each["metadata"]["name"].removeprefix("counterpoint-"): each for each in json.loads(done.stdout)["items"]}


def signed(command: Command, tls: Certificates) -> dict[str, dict[str, Any]]:
    """Return the printed certificates of a CA."""
    return printed(command("kubernetes", "secrets", "--nats-ca", tls.ca, "--nats-ca-key", tls.key("ca")))


def server(accounts: str, tls: Certificates, mapped: str = "verify_and_map: true") -> str:
    """The configuration of a server that takes certificates of that CA."""
    files = f'cert_file: "{tls.certificate("server")}", key_file: "{tls.key("server")}", ca_file: "{tls.ca}"'
    return f"{accounts}\ntls {{ {files}, {mapped} }}\n"


def settings(secret: dict[str, Any], folder: Path, url: str, tls: Certificates, user: str) -> ProvisionSettings:
    """The settings of a container with that Secret."""
    folder.mkdir(exist_ok=True)
    for name in ("nats.crt", "nats.key"):
        (folder / name).write_text(secret["stringData"][name])
    return ProvisionSettings(
        nats_url=url, nats_user=user, nats_ca=tls.ca, nats_cert=folder / "nats.crt", nats_key=folder / "nats.key"
    )


async def test_a_server_maps_the_certificates_to_the_users_of_the_policy(
    command: Command, tls: Certificates, tmp_path: Path
) -> None:
    made = signed(command, tls)
    accounts = made["nats-accounts"]["stringData"]["accounts.conf"]
    assert '"password"' not in accounts
    assert accounts == command("nats", "accounts", "--certificates").stdout
    async with run_nats(tmp_path / "nats", server(accounts, tls)) as bus:
        known = {name: settings(made[name], tmp_path / name, bus.url, tls, user) for name, user in WORKLOADS.items()}
        own = known["provision"]
        assert own.login() == {}
        await provision(own.nats_url, own.nats_user, own.login(), tls=own.tls())
        levels = {check.check: check.level for check in await examine(own)}
        assert levels["nats"] == levels["nats jetstream"] == "ok"
        for name, user in WORKLOADS.items():
            if name != "provision":
                assert await who(known[name]) == user
        # The name that a client gives itself does not count.
        assert await who(known["developer"], user="memory") == "developer"
        stranger = {"nats_cert": tls.certificate("other"), "nats_key": tls.key("other")}
        (refused,) = await examine(own.model_copy(update=stranger))
        assert refused.level == "failed"


async def test_a_server_that_does_not_map_certificates_is_refused(
    command: Command, tls: Certificates, tmp_path: Path
) -> None:
    made = signed(command, tls)
    accounts = made["nats-accounts"]["stringData"]["accounts.conf"]
    async with run_nats(tmp_path / "nats", server(accounts, tls, "verify: true")) as bus:
        (refused,) = await examine(settings(made["provision"], tmp_path / "own", bus.url, tls, "provisioner"))
    assert "verify_and_map" in refused.remedy


async def who(own: ProvisionSettings, **login: str) -> str:
    """The user that the server takes a client for, by what it may not do."""

    refusals = list[str]()

    async def refused(error: Exception) -> None:
        refusals.append(str(error))

    client = await nats.connect(own.nats_url, tls=own.tls(), error_cb=refused, max_reconnect_attempts=1, **login)
    allowed = []
    for name in SERVICES:
        await client.subscribe(f"{subjects.inbox_prefix(name)}.x")
        await client.flush()
        await client.flush()
        if not any(f"{subjects.inbox_prefix(name)}.x".lower() in each.lower() for each in refusals):
            allowed.append(name)
    await client.close()
    (user,) = allowed
    return user


def test_each_workload_has_a_certificate_of_its_own_in_the_secret_that_the_chart_reads(
    command: Command, tls: Certificates
) -> None:
    made, again = signed(command, tls), signed(command, tls)
    seen = set()
    templates = pods(documents("laptop", CERTIFICATE))
    for name, user in WORKLOADS.items():
        data = made[name]["stringData"]
        assert "COUNTERPOINT_NATS_PASSWORD" not in data
        (certificate,) = x509.load_pem_x509_certificates(data["nats.crt"].encode())
        names = certificate.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
        assert names.get_values_for_type(x509.DNSName) == [user]
        certificate.verify_directly_issued_by(x509.load_pem_x509_certificate(tls.ca.read_bytes()))
        ends = x509.load_pem_x509_certificate(tls.ca.read_bytes()).not_valid_after_utc
        assert certificate.not_valid_after_utc == ends, "the CA of the test ends first"
        seen |= {data["nats.key"], again[name]["stringData"]["nats.key"]}
        for secret, key, optional in references(templates[name]["spec"]).values():
            assert optional or key in made[secret.removeprefix("counterpoint-")]["stringData"]
    assert len(seen) == 2 * len(WORKLOADS), "each key is new"


@pytest.mark.parametrize(("issuer", "kind"), [("bus", "Issuer"), ("ClusterIssuer/bus", "ClusterIssuer")])
def test_an_issuer_gets_requests_whose_secrets_the_chart_reads(command: Command, issuer: str, kind: str) -> None:
    made = printed(command("kubernetes", "secrets", "--nats-issuer", issuer, "--namespace", "house"))
    assert [problem for each in made.values() for problem in problems(each)] == []
    requests = {name: each["spec"] for name, each in made.items() if each["kind"] == "Certificate"}
    assert {name: each["dnsNames"] for name, each in requests.items()} == {
        f"nats-{name}": [user] for name, user in WORKLOADS.items()
    }
    assert {(each["issuerRef"]["kind"], each["issuerRef"]["name"]) for each in requests.values()} == {(kind, "bus")}
    theirs = {
        each["secretName"].removeprefix("counterpoint-"): {"tls.crt": "", "tls.key": "", "ca.crt": ""}
        for each in requests.values()
    }
    known = {name: each["stringData"] for name, each in made.items() if each["kind"] == "Secret"} | theirs
    found = documents("laptop", CERTIFICATE | {"nats.certificatePrefix": "counterpoint-nats"})
    assert [problem for each in found for problem in problems(each)] == []
    for name, template in pods(found).items():
        keys = references(template["spec"])
        assert ("nats.crt" in keys) == ("nats.key" in keys) == (name in WORKLOADS)
        for secret, key, optional in keys.values():
            assert optional or key in known[secret.removeprefix("counterpoint-")]


def test_no_secret_without_a_key_is_fetched_from_a_vault() -> None:
    login = CERTIFICATE | {"nats.certificatePrefix": "bus"}
    fetched = of_kind(documents("production", login), "ExternalSecret")
    assert fetched.keys() == {"router", "memory", "migrate", "index"}
    for name, template in pods(documents("production", login)).items():
        for source in next(each["projected"]["sources"] for each in template["spec"]["volumes"] if "projected" in each):
            assert source["secret"]["items"], name


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("--nats-ca", "tls/ca.pem"), "give --nats-ca and --nats-ca-key together"),
        (("--nats-issuer", "bus", "--nats-ca", "tls/ca.pem", "--nats-ca-key", "tls/ca-key.pem"), "give one of them"),
        (("--nats-issuer", "Vault/bus"), "--nats-issuer: Vault/bus is neither NAME"),
        (("--nats-ca", "absent", "--nats-ca-key", "tls/ca-key.pem"), "No such file"),
        (("--nats-ca", "tls/ca-key.pem", "--nats-ca-key", "tls/ca-key.pem"), "is no PEM file of a certificate"),
        (("--nats-ca", "tls/ca.pem", "--nats-ca-key", "tls/ca.pem"), "is no PEM file of a private key"),
        (("--nats-ca", "tls/ca.pem", "--nats-ca-key", "tls/other-key.pem"), "is not the key of"),
        (("--nats-ca", "tls/other.pem", "--nats-ca-key", "tls/other-key.pem"), "is not the certificate of a CA"),
    ],
)
def test_an_invalid_ca_is_refused_with_the_command_to_make_one(
    words: tuple[str, ...], said: str, command: Command, tls: Certificates, tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:  # fmt: skip
    monkeypatch.chdir(tmp_path)
    refused = command("kubernetes", "secrets", *words)
    assert (refused.exit_code, refused.stdout) == (Exit.USAGE, "")
    assert said in refused.stderr
    if "is n" in said and "issuer" not in said:
        assert "openssl req -x509" in refused.stderr
