"""A bus with an operator: what `counterpoint nats accounts --nsc` prints has the meaning of the policy, and the house
runs there by credentials files, over TLS with client certificates."""

import asyncio
import json
import re
import shutil
from itertools import permutations
from pathlib import Path
from typing import Any

import nats
import nats.errors
import pytest
from deploy.black_box import works
from deploy.certificates import Certificates, certificates
from deploy.external import Configure
from deploy.external_engines import refused, run
from deploy.nats_operator import Operator, commands, may_log_in
from flows.test_rotation import under_traffic
from flows.test_upgrade import more

from counterpoint.bus.nsc import account_name, contains, nsc_script
from counterpoint.bus.permissions import nats_config, users
from counterpoint.bus.provision import provision
from counterpoint.cli.errors import Exit
from counterpoint.local.listen_addresses import ListenAddresses
from counterpoint.local.nats import run_nats
from counterpoint.local.private_files import private_folder
from counterpoint.local.service import SERVICES
from counterpoint.local.stack import Stack
from counterpoint.local.up import down, up
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


def test_the_commands_grant_the_rights_of_the_configuration(operator: Operator) -> None:
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
            await works(stack)
            checked = await run("doctor", "--json", "--data-dir", tmp_path / "data")
            levels = {check["check"]: check["level"] for check in json.loads(checked.stdout)["checks"]}
            assert levels["nats"] == levels["nats jetstream"] == "ok", checked.stdout
            assert stack.endpoints.users["publisher"].creds == str(tmp_path / "creds" / "publisher.creds")
        finally:
            await stack.stop()


async def test_a_login_that_does_not_fit_is_refused_with_a_remedy(
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


async def _connect(url: str, creds: Path, user: str, lost: asyncio.Event | None = None) -> "nats.NATS":
    async def on_lost() -> None:
        if lost is not None:
            lost.set()

    async def quiet(_: Exception) -> None:
        return

    prefix = subjects.inbox_prefix(user).encode()
    return await nats.connect(
        url, user_credentials=str(creds), inbox_prefix=prefix, allow_reconnect=False, disconnected_cb=on_lost,
        error_cb=quiet,
    )  # fmt: skip


def renewed(operator: Operator, folder: Path, *users: str) -> None:
    """Do what the script with new keys does on the operator's machine, and replace the credentials files."""
    for command in commands(nsc_script(PUBLISHERS, users), private_folder(folder / "again"), repeated=True):
        operator.apply(command)
    operator.write_credentials(folder / "creds")


async def test_a_repeated_script_keeps_keys_and_one_with_new_keys_revokes_those_it_replaces(
    operator: Operator, tmp_path: Path
) -> None:
    creds = {user: tmp_path / "creds" / f"{user}.creds" for user in (*users(), "airflow")}
    keys = {user: path.read_text().splitlines()[-2] for user, path in creds.items()}
    renewed(operator, tmp_path)
    assert {user: path.read_text().splitlines()[-2] for user, path in creds.items()} == keys
    async with run_nats(tmp_path / "nats", operator.configuration()) as bus:
        staying = await _connect(bus.url, creds["observer"], "observer")
        lost = asyncio.Event()
        leaving = await _connect(bus.url, creds["memory"], "memory", lost)
        stolen = creds["memory"].read_text()
        renewed(operator, tmp_path, "memory")
        assert await may_log_in(bus.port, stolen), "until the accounts are published"
        early = await _connect(bus.url, creds["memory"], "memory")
        bus.reload(operator.configuration())
        await lost.wait()
        assert staying.is_connected
        assert early.is_connected
        assert not await may_log_in(bus.port, stolen)
        for client in (staying, leaving, early):
            await client.close()


@pytest.mark.slow
@pytest.mark.timeout(600)
async def test_the_keys_of_an_operators_users_are_replaced_under_traffic(
    operator: Operator, configure: Configure, tmp_path: Path
) -> None:
    data_dir, creds = tmp_path / "data", tmp_path / "creds"
    async with run_nats(tmp_path / "nats", operator.configuration()) as bus:
        configure("COUNTERPOINT_NATS_URL", str(bus.url))
        configure("COUNTERPOINT_NATS_CREDS", str(creds))
        await asyncio.to_thread(up, data_dir, addresses=ListenAddresses(http_port=0), detach=True)
        try:
            async with under_traffic(data_dir) as tasks:
                told = await run("rotate", "bus", "--data-dir", data_dir)
                assert told.returncode == Exit.USAGE
                assert "counterpoint nats accounts --nsc --new-keys" in told.stderr
                stolen = (creds / "memory.creds").read_text()
                renewed(operator, tmp_path, "provisioner", *SERVICES)
                await more(tasks)
                applied = await run("rotate", "bus", "--apply", "--json", "--data-dir", data_dir)
                assert json.loads(applied.stdout) == {"users": [], "in_force": True}, applied.stderr
                bus.reload(operator.configuration())
                await more(tasks)
            assert not await may_log_in(bus.port, stolen)
            assert await may_log_in(bus.port, (creds / "memory.creds").read_text())
        finally:
            await asyncio.to_thread(down, data_dir)


async def test_new_keys_are_for_an_operator_and_for_users_that_exist(tmp_path: Path) -> None:
    data = ("--data-dir", tmp_path / "data")
    printed = await run("nats", "accounts", "--nsc", "--new-keys", "--user", "publisher", *data)
    lines = {line for line in printed.stdout.splitlines() if line.startswith("renew ")}
    assert lines == {f"renew {account_name(user)} {user}" for user in ("provisioner", "publisher", *SERVICES)}
    for words, said in (
        (("--new-keys",), "--new-keys needs --nsc"),
        (("--nsc", "--user", "publisher"), "--user needs --new-keys"),
        (("--nsc", "--new-keys", "--user", "nobody"), "unknown user nobody; there are developer"),
    ):
        refused = await run("nats", "accounts", *words, *data)
        assert (refused.returncode, refused.stdout) == (Exit.USAGE, "")
        assert said in refused.stderr
    assert not (tmp_path / "data").exists()


async def test_the_script_holds_no_secret_and_is_written_as_it_is_printed(tmp_path: Path) -> None:
    printed = await run("nats", "accounts", "--nsc", "--data-dir", tmp_path / "data")
    assert printed.stdout == nsc_script()
    assert not re.search(r"password|\bS[AOU][A-Z2-7]{56}\b", printed.stdout)
    assert not (tmp_path / "data" / "secrets.json").exists()
