"""The accounts of the bus, on a real NATS: no answer, pull or import takes anything from one into another."""

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack
from itertools import product
from pathlib import Path

import pytest
from bus.lone_bus import CONFIG, Bus, answering, bind, drained, provisioned
from bus.plain import login
from bus.rights import CONSUMERS, MINE, OTHERS, SERVICES, USERS, may_publish, publications
from bus.small_house import eventually
from nats.aio.msg import Msg
from pydantic import SecretStr

from counterpoint.bus import BusSettings
from counterpoint.bus.connection import Connection
from counterpoint.local.settings import local_settings
from counterpoint.proto import subjects
from counterpoint.proto.errors import Away


@pytest.fixture(scope="session")
async def open_bus(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Bus]:
    """The same accounts, in which every user may do everything."""
    accounts = json.loads(CONFIG.removeprefix("accounts "))
    for account in accounts.values():
        for user in account["users"]:
            del user["permissions"]
    async with provisioned(tmp_path_factory.mktemp("lawless"), f"accounts {json.dumps(accounts)}") as server:
        yield server


ABROAD = tuple(user for user in USERS if user not in ("memory", "provisioner"))
"""The users that have an account of their own."""
LIVE = {"router": "live.>", "publisher": f"live.tasks.{MINE}.>", "observer": f"live.*.{MINE}.>"}
CHOSEN = (
    *(f"{stream}.{project}.x" for stream, project in product(("tasks", "decisions", "changes"), (MINE, OTHERS))),
    *(f"intake.{OTHERS}.{kind}" for kind in ("task", "outcome", "lineage")),
    *(f"live.tasks.{project}.routed" for project in (MINE, OTHERS)),
    *(
        f"memory.{caller}.{request}"
        for caller, request in product(SERVICES, ("query", "commit.0", "command", "ingest", "put"))
    ),
    *(f"_INBOX_{user}.x" for user in USERS),
    *(f"$JS.API.CONSUMER.MSG.NEXT.{stream}.{name}" for stream, names in CONSUMERS.items() for name in names),
    *(f"dead.{MINE}", "$JS.API.INFO", "$JS.API.STREAM.PURGE.TASKS", "$JS.API.CONSUMER.DELETE.TASKS.manager"),
    "$JS.EVENT.ADVISORY.CONSUMER.MAX_DELIVERIES.TASKS.manager",
)
RESERVED = ("_R_.x.y", "$JS.ACK.TASKS.manager.1.1.1.1.1", "_GR_.x.y")


def question(subject: str) -> bytes:
    """Requests with an immediate reply: information with an empty body, and `+NXT`, which acks and pulls the next."""
    if ".INFO." in subject:
        return b""
    pull = b'{"batch": 1, "no_wait": true}'
    return b"+NXT " + pull if subject.startswith("$JS.ACK.") else pull


@pytest.mark.parametrize("user", [user for user in ABROAD if user != "observer"])
async def test_no_user_receives_the_answer_of_another(bus: Bus, user: str) -> None:
    """The server, or memory, publishes to a reply subject without regard to the rights of the user that named it."""
    async with AsyncExitStack() as stack:
        memory = await stack.enter_async_context(answering(bus))
        for subject in (f"tasks.{MINE}.delegated", f"tasks.{MINE}.routed", f"intake.{MINE}.task"):
            await (await memory.connection.publish(subject, b"{}", {}))
        others = {}
        for other in {*ABROAD} - {user}:
            others[other] = await stack.enter_async_context(login(bus.port, other, bus.passwords[other]))
            for subject in (f"_INBOX_{other}.>", *([LIVE[other]] if other in LIVE else [])):
                await others[other].listen(subject)
        before, held = await bus.state(), await bus.held()
        plain = await stack.enter_async_context(login(bus.port, user, bus.passwords[user]))
        client = await stack.enter_async_context(await bus.client(user))
        for subject in may_publish(user):
            for reply in CHOSEN:
                assert await plain.may_publish(subject, question(subject), reply)
            if not subject.startswith("$JS.ACK."):
                await client.request(subject, question(subject), timeout=5)
        for other, listener in others.items():
            assert await listener.may_subscribe(f"_INBOX_{other}.last")
        assert {other: listener.received for other, listener in others.items() if listener.received} == {}
        assert {*memory.asked} <= {user}
        assert {subject for subject, count in (await bus.held()).items() if count != held.get(subject)} <= {
            *may_publish(user)
        }
        assert of_others(await bus.state(), user) == of_others(before, user)


def of_others(state: dict[tuple[str, ...], tuple[object, ...]], user: str) -> dict[tuple[str, ...], object]:
    """Return the streams and foreign consumers, and the number of their pending acknowledgements."""
    return {key: (value[0], value[2:]) for key, value in state.items() if key[-1] != user}


@pytest.mark.parametrize("user", ABROAD)
async def test_no_client_names_a_reply_subject_of_the_servers_making(bus: Bus, user: str) -> None:
    async with login(bus.port, user, bus.passwords[user]) as plain:
        for subject in may_publish(user):
            assert not any([await plain.may_publish(subject, b"{}", reply) for reply in RESERVED])


async def test_memory_publishes_on_no_reply_subject_but_those_of_the_servers_making(open_bus: Bus) -> None:
    """Nobody in its own account may ask memory; when somebody does all the same, it is not answered."""
    password = open_bus.passwords["provisioner"]
    async with answering(open_bus) as memory, login(open_bus.port, "provisioner", password) as plain:
        for reply in (f"tasks.{MINE}.routed", "_INBOX_developer.x", "memory.manager.query", ""):
            await plain.may_publish("memory.developer.query", b"{}", reply)
        async with await open_bus.client("developer") as developer:
            await developer.request("memory.developer.query", b"{}", timeout=5)
        assert memory.asked == ["developer"]


@pytest.mark.parametrize("user", ABROAD)
async def test_an_account_publishes_exactly_the_subjects_of_its_user(open_bus: Bus, user: str) -> None:
    """Even where a user is held by no rights, it reaches nothing else of the house.

    But `$JS.API.INFO`, which has to be imported for the server to leave the other requests to the house.
    """
    async with AsyncExitStack() as stack:
        home, plain = [
            await stack.enter_async_context(login(open_bus.port, each, open_bus.passwords[each]))
            for each in ("memory", user)
        ]
        await home.listen(">")
        for subject, _ in publications():
            await plain.may_publish(subject)
        await home.may_subscribe("last")
        reached = {*home.received} & {subject for subject, _ in publications()}
    assert reached == {*may_publish(user)} | ({"$JS.API.INFO"} if user in SERVICES else set())


@pytest.mark.parametrize("user", ABROAD)
async def test_an_account_receives_exactly_the_subjects_of_its_user(open_bus: Bus, user: str) -> None:
    def watched(subject: str) -> bool:
        match user, subject.split("."):
            case "router", ["live", *_]:
                return True
            case "publisher", ["live", "tasks", project, *_]:
                return project == MINE
            case "observer", ["live", _, project, *_]:
                return project == MINE
        return False

    said = {subject for subject, _ in publications() if not subject.startswith("$")}
    async with AsyncExitStack() as stack:
        home, plain = [
            await stack.enter_async_context(login(open_bus.port, each, open_bus.passwords[each]))
            for each in ("memory", user)
        ]
        await plain.listen(">")
        for subject in said:
            await home.may_publish(subject)
        await plain.may_subscribe("last")
    assert {subject for subject in said if watched(subject)} <= {*plain.received}
    assert [subject for subject in plain.received if not watched(subject)] == []


async def test_a_pull_from_another_account_gets_all_its_answers(tmp_path: Path) -> None:
    """Several messages, heartbeats and the end of the wait; each message as in the stream, with its own ack subject."""
    async with AsyncExitStack() as stack:
        bus = await stack.enter_async_context(provisioned(tmp_path, CONFIG))
        memory, developer, provisioner = [
            await stack.enter_async_context(await bus.client(user)) for user in ("memory", "developer", "provisioner")
        ]
        for number in range(3):
            await memory.jetstream().publish(f"tasks.{MINE}.delegated", b"%d" % number, headers={"n": str(number)})
        inbox = await developer.subscribe("_INBOX_developer.pull")
        pull = {"batch": 5, "expires": 700_000_000, "idle_heartbeat": 300_000_000}
        await developer.publish("$JS.API.CONSUMER.MSG.NEXT.TASKS.developer", json.dumps(pull).encode(), inbox.subject)
        got = [await inbox.next_msg(timeout=5) for _ in range(3)]
        assert [(each.subject, each.data, (each.headers or {})["n"]) for each in got] == [
            (f"tasks.{MINE}.delegated", b"%d" % number, str(number)) for number in range(3)
        ]
        statuses = []
        while "408" not in statuses:
            statuses.append(((await inbox.next_msg(timeout=5)).headers or {})["Status"])
        assert {*statuses} == {"100", "408"}
        await got[0].ack_sync(timeout=5)
        await got[1].in_progress()
        await got[1].nak(delay=0.01)
        await got[2].term()
        again = [message async for message in drained(await bind(developer.jetstream(), "developer"))]
        assert [(message.data, message.metadata.num_delivered) for message in again] == [(b"1", 2)]
        await again[0].ack_sync(timeout=5)
        left = await provisioner.jetstream().consumer_info("TASKS", "developer")
        assert (left.num_pending, left.num_ack_pending) == (0, 0)


async def test_an_abandoned_pull_from_another_account_takes_no_message(tmp_path: Path) -> None:
    """Otherwise what comes after a process has gone would be delivered to it, and again only after the ack wait.

    The server notices a moment after it has confirmed the end of the subscription.
    """
    async with AsyncExitStack() as stack:
        bus = await stack.enter_async_context(provisioned(tmp_path, CONFIG))
        memory, gone, other = [
            await stack.enter_async_context(await bus.client(user)) for user in ("memory", "developer", "developer")
        ]

        async def waiting(pulls: int) -> bool:
            return (await other.jetstream().consumer_info("TASKS", "developer")).num_waiting == pulls

        inbox = await gone.subscribe("_INBOX_developer.gone")
        pull = b'{"batch": 50, "expires": 60000000000}'
        await gone.publish("$JS.API.CONSUMER.MSG.NEXT.TASKS.developer", pull, inbox.subject)
        await eventually(lambda: waiting(1))
        await inbox.unsubscribe()
        await eventually(lambda: waiting(0))
        await memory.jetstream().publish(f"tasks.{MINE}.delegated", b"{}")
        (message,) = await (await bind(other.jetstream(), "developer")).fetch(1, timeout=30)
        assert message.metadata.num_delivered == 1


@pytest.mark.parametrize("user", ["manager", "developer", "observer"])
async def test_the_server_refuses_an_account_that_imports_subjects_of_another(user: str, tmp_path: Path) -> None:
    owned = json.loads(CONFIG.removeprefix("accounts "))
    theirs = {account: each.pop("imports") for account, each in owned.items() if account not in ("HOUSE", user)}
    mine = owned[user]["imports"]
    (tmp_path / "nats.conf").write_text(f"accounts {json.dumps(owned)}")
    assert await accepted(tmp_path / "nats.conf")
    for foreign in (row for rows in theirs.values() for row in rows if row not in mine):
        owned[user]["imports"] = [*mine, foreign]
        (tmp_path / "nats.conf").write_text(f"accounts {json.dumps(owned)}")
        assert not await accepted(tmp_path / "nats.conf"), foreign


async def accepted(config: Path) -> bool:
    """Whether the server would start with this configuration."""
    check = await asyncio.create_subprocess_exec(
        *(str(local_settings().nats_bin), "-t", "-c", str(config)),
        stdout=asyncio.subprocess.DEVNULL,
        stderr=asyncio.subprocess.PIPE,
    )
    _, said = await check.communicate()
    assert check.returncode == 0 or b"not authorized" in said, said
    return check.returncode == 0


async def test_requests_under_way_fail_at_once_when_memory_is_gone(bus: Bus) -> None:
    settings = BusSettings(nats_url=bus.url, nats_user="manager", nats_password=SecretStr(bus.passwords["manager"]))
    manager, came = Connection("manager", settings), asyncio.Event()
    await manager.open()

    async def never(message: Msg) -> None:
        came.set()

    async with await bus.client("memory") as memory:
        silent = await memory.subscribe(subjects.query("*"), cb=never)
        await memory.flush()
        waiting = asyncio.create_task(manager.request(subjects.query("manager"), b"{}", 60))
        await asyncio.wait_for(came.wait(), 30)
        await silent.unsubscribe()
        await memory.flush()
        with pytest.raises(Away, match="NoResponders"):
            await manager.request(subjects.query("manager"), b"{}", 60)
        with pytest.raises(Away, match="Timeout"):
            await asyncio.wait_for(waiting, 30)
    await manager.close()
