"""A NATS server answers the question of KEDA about the lag of each consumer that the chart names.

KEDA itself was not run: the question and where the number is are those of its scaler `nats-jetstream`.
"""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import nats
import pytest
from deploy.helm import documents, of_kind
from deploy.nats_operator import Operator, commands
from deploy.tls_engines import free_port

from counterpoint.bus.nsc import account_name, nsc_script
from counterpoint.bus.provision import provision
from counterpoint.local.credentials import Credentials
from counterpoint.local.nats import policy_authorization, run_nats
from counterpoint.local.private_files import private_folder
from counterpoint.local.service import NATS_USERS
from counterpoint.proto import subjects
from counterpoint.proto.tasks import TaskDelegated


def triggers(values: dict[str, Any]) -> Iterator[dict[str, str]]:
    """The metadata of each trigger of NATS."""
    for each in of_kind(documents("production", values), "ScaledObject").values():
        yield from (row["metadata"] for row in each["spec"]["triggers"] if row["type"] == "nats-jetstream")


async def lag(trigger: dict[str, str]) -> int:
    """The lag that KEDA takes from the server's answer. Raises `StopIteration` if the consumer is not in it."""
    params = {"acc": trigger.get("accountID", trigger["account"]), "consumers": "true", "config": "true"}
    async with httpx.AsyncClient(trust_env=False) as http:
        answer = await http.get(f"http://{trigger['natsServerMonitoringEndpoint']}/jsz", params=params)
    account = next(each for each in answer.json()["account_details"] if each["name"] == trigger["account"])
    stream = next(each for each in account["stream_detail"] if each["name"] == trigger["stream"])
    found = next(each for each in stream["consumer_detail"] if each["name"] == trigger["consumer"])
    return int(found["num_pending"] + found["num_ack_pending"])


@pytest.mark.parametrize("login", ["password", "creds"])
async def test_the_lag_of_every_consumer_is_found(login: str, tmp_path: Path) -> None:
    monitoring = f"127.0.0.1:{free_port()}"
    values: dict[str, Any] = {"nats.login": login, "nats.monitoring": monitoring}
    provisioner: str | dict[str, str]
    if login == "creds":
        operator = Operator()
        for command in commands(nsc_script(), private_folder(tmp_path / "nsc")):
            operator.apply(command)
        operator.write_credentials(tmp_path / "creds")
        authorization = operator.configuration()
        values["nats.accountId"] = operator.accounts[account_name("memory")].public
        provisioner = {"user_credentials": str(tmp_path / "creds" / "provisioner.creds")}
        memory = {"user_credentials": str(tmp_path / "creds" / "memory.creds")}
    else:
        passwords = Credentials.make().with_nats_users(NATS_USERS).nats
        authorization, provisioner = policy_authorization(passwords), passwords["provisioner"]
        memory = {"user": "memory", "password": passwords["memory"]}
    async with run_nats(tmp_path / "nats", f'{authorization}\nhttp: "{monitoring}"') as bus:
        await provision(bus.url, "provisioner", provisioner)
        asked = list(triggers(values))
        assert {each["consumer"] for each in asked} == {"router", "manager", "developer", "lineage"}
        assert [await lag(each) for each in asked] == [0] * len(asked)
        client = await nats.connect(bus.url, inbox_prefix=subjects.inbox_prefix("memory").encode(), **memory)
        await client.jetstream().publish(subjects.of(TaskDelegated.TYPE, "orders"), b"{}")
        await client.close()
        (developer,) = (each for each in asked if each["consumer"] == "developer")
        assert await lag(developer) == 1
