"""A bus with an operator: what `counterpoint nats accounts --nsc` prints has the meaning of the policy, and the house
runs there by credentials files, over TLS with client certificates."""

import json
import re
import shutil
from itertools import permutations
from pathlib import Path
from typing import Any

import httpx
import nats
import nats.errors
import pytest
from deploy.certificates import Certificates, certificates
from deploy.external import Configure
from deploy.nats_operator import Operator, commands
from deploy.test_external_engines import refused, run

from counterpoint.bus.nsc import account_name, contains, nsc_script
from counterpoint.bus.permissions import nats_config, users
from counterpoint.bus.provision import provision
from counterpoint.local.nats import run_nats
from counterpoint.local.private_files import private_folder
from counterpoint.local.stack import Stack
from counterpoint.proto import subjects

HOUSE = account_name("memory")
PUBLISHERS = {"airflow": ("orders", "billing")}
pytestmark = pytest.mark.skipif(shutil.which("openssl") is None, reason="makes certificates with openssl")


@pytest.fixture
def operator(tmp_path: Path) -> Operator:
    """An operator on whose machine the script was run."""
    made, folder = Operator(), private_folder(tmp_path / "nsc")
    for command in commands(nsc_script(PUBLISHERS), folder):
        made.apply(command)
    assert {path.name for path in (folder / "creds").iterdir()} == {f"{user}.creds" for user in (*users(), "airflow")}
    made.write_credentials(tmp_path / "creds")
    return made


@pytest.fixture
def tls(tmp_path: Path) -> Certificates:
    return certificates(tmp_path / "tls", "server", "client")


def mutual(operator: Operator, tls: Certificates) -> str:
    """The configuration of a server with that operator, which asks for certificates of that CA."""
    files = f'cert_file: "{tls.certificate("server")}", key_file: "{tls.key("server")}", ca_file: "{tls.ca}"'
    return f"{operator.configuration()}\ntls {{ {files}, verify: true }}\n"


def test_the_commands_mean_what_the_configuration_means(operator: Operator) -> None:
    text = nats_config(dict.fromkeys((*users(), "airflow"), "p"), publishers=PUBLISHERS)
    wanted = json.loads(text.removeprefix("accounts "))
    named = {name: operator.accounts[account_name("memory" if name == "HOUSE" else name)] for name in wanted}
    assert len(operator.accounts) == len(named) + 1
    house, importers = wanted["HOUSE"], dict[str, set[str]]()
    for name, account in named.items():
        assert set(account.users) == {each["user"] for each in wanted[name]["users"]}
        for each in wanted[name]["users"]:
            rights, given = each["permissions"], account.users[each["user"]]
            assert {key: value for key, value in given["pub"].items() if value} == rights["publish"]
            assert given["sub"] == rights["subscribe"]
        for each in account.imports:
            importers.setdefault(f"{each['type']} {each['subject']}", set()).add(name)
    exports = operator.accounts[HOUSE].exports
    assert not [pair for pair in permutations(exports, 2) if contains(*pair)]
    for each in house["exports"]:
        kind = "service" if "service" in each else "stream"
        (given,) = (export for subject, export in exports.items() if contains(subject, each[kind]))
        assert (given["type"], given["token_req"]) == (kind, True)
        assert importers.pop(f"{kind} {each[kind]}") == set(each["accounts"])
        assert given.get("response_type", "").lower() == each.get("response_type", "")
        assert f"{given.get('response_threshold', 0) / 1e9:g}s" == each.get("response_threshold", "0s")
    assert not importers


@pytest.mark.parametrize(
    ("wide", "narrow", "contained"),
    [
        ("a.>", "a.b", True), ("a.>", "a.b.>", True), ("a.>", "a", False), ("a.*", "a.b", True), ("a.*", "a.>", False),
        ("a.*", "a.*", True), ("a.b", "a.*", False), ("*.b", "a.b", True), ("a", "a.b", False), (">", "a.*.>", True),
    ],
)  # fmt: skip
def test_a_subject_contains_another(wide: str, narrow: str, contained: bool) -> None:
    assert contains(wide, narrow) is contained


@pytest.mark.slow
async def test_the_house_runs_by_credentials_files_and_client_certificates(
    operator: Operator, tls: Certificates, configure: Configure, tmp_path: Path
) -> None:
    async with run_nats(tmp_path / "nats", mutual(operator, tls)) as bus:
        given = {"NATS_URL": bus.url, "NATS_CREDS": tmp_path / "creds", "NATS_CA": tls.ca}
        for name, value in (given | {"NATS_CERT": tls.certificate("client"), "NATS_KEY": tls.key("client")}).items():
            configure(f"COUNTERPOINT_{name}", str(value))
        stack = Stack(tmp_path / "data", http_port=0)
        await stack.start()
        try:
            headers = {"Authorization": f"Bearer {stack.endpoints.token}", "Prefer": "wait=30"}
            async with httpx.AsyncClient(base_url=stack.endpoints.http, headers=headers, timeout=60) as http:
                asked = await http.post("/v1/tasks", json={"kind": "question", "description": "Which resolvers?"})
                assert asked.json()["waiting_for"] == "documents", asked.text
                assert (await http.get("/v1/audit/verify")).json()["ok"]
            checked = await run("doctor", "--json", "--data-dir", tmp_path / "data")
            levels = {check["check"]: check["level"] for check in json.loads(checked.stdout)["checks"]}
            assert levels["nats"] == levels["nats jetstream"] == "ok", checked.stdout
            assert stack.endpoints.users["publisher"].creds == str(tmp_path / "creds" / "publisher.creds")
        finally:
            await stack.stop()


async def test_a_login_that_does_not_fit_is_refused_with_what_to_do(
    operator: Operator, tls: Certificates, configure: Configure, tmp_path: Path
) -> None:
    configure("COUNTERPOINT_NATS_CREDS", str(tmp_path / "creds"))
    async with run_nats(tmp_path / "nats", mutual(operator, tls)) as bus:
        configure("COUNTERPOINT_NATS_URL", str(bus.url))
        configure("COUNTERPOINT_NATS_CA", str(tls.ca))
        assert "COUNTERPOINT_NATS_CERT" in (await refused(tmp_path / "data"))["nats"]
        configure("COUNTERPOINT_NATS_CERT", str(tls.certificate("client")))
        assert "COUNTERPOINT_NATS_KEY" in (await refused(tmp_path / "data"))["nats"]
        configure("COUNTERPOINT_NATS_KEY", str(tls.key("client")))
        (tmp_path / "creds" / "provisioner.creds").write_text("nothing of the kind")
        assert "COUNTERPOINT_NATS_CREDS" in (await refused(tmp_path / "data"))["nats"]
        (tmp_path / "creds" / "lineage.creds").unlink()
        assert "lacks lineage.creds" in (await refused(tmp_path / "data"))["nats credentials"]


async def test_an_account_without_an_activation_reaches_nothing(operator: Operator, tmp_path: Path) -> None:
    stranger, subject = operator.add_account("stranger"), subjects.REQUESTS[0]("router")
    operator.import_subject(stranger, operator.accounts[HOUSE], operator.accounts[HOUSE].exports[subject])
    (tmp_path / "stranger.creds").write_text(operator.credentials(stranger, "stranger", {}))
    async with run_nats(tmp_path / "nats", operator.configuration()) as bus:
        await provision(bus.url, "provisioner", {"user_credentials": str(tmp_path / "creds" / "provisioner.creds")})

        async def reply(message: Any) -> None:
            await message.respond(b"answer")

        memory = await _connect(bus.url, tmp_path / "creds" / "memory.creds", "memory")
        await memory.subscribe(subjects.REQUESTS[0]("*"), cb=reply)
        await memory.flush()
        router = await _connect(bus.url, tmp_path / "creds" / "router.creds", "router")
        assert (await router.request(subject, b"", timeout=5)).data == b"answer"
        outsider = await _connect(bus.url, tmp_path / "stranger.creds", "stranger")
        with pytest.raises(nats.errors.NoRespondersError):
            await outsider.request(subject, b"", timeout=5)
        for client in (memory, router, outsider):
            await client.close()


async def _connect(url: str, creds: Path, user: str) -> "nats.NATS":
    prefix = subjects.inbox_prefix(user).encode()
    return await nats.connect(url, user_credentials=str(creds), inbox_prefix=prefix, allow_reconnect=False)


async def test_the_script_holds_no_secret_and_is_written_as_it_is_printed(tmp_path: Path) -> None:
    printed = await run("nats", "accounts", "--nsc", "--data-dir", tmp_path / "data")
    assert printed.stdout == nsc_script()
    assert not re.search(r"password|\bS[AOU][A-Z2-7]{56}\b", printed.stdout)
    assert not (tmp_path / "data" / "secrets.json").exists()
