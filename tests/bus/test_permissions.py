"""Who may do what on the bus, on a real NATS: exactly what the contract says works, and everything else is denied.

The tables are written by hand from the contract's subjects and the house's one rule, not from the policy.
"""

import asyncio
import json
from collections.abc import AsyncIterator, Iterator
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, field
from itertools import product
from pathlib import Path

import nats
import pytest
from bus.plain import login
from nats.js.api import ConsumerConfig
from nats.js.client import JetStreamContext
from pydantic import SecretStr

from counterpoint.bus import BusSettings
from counterpoint.bus.connection import Connection
from counterpoint.bus.permissions import nats_config, users
from counterpoint.bus.provision import provision
from counterpoint.local.nats import run_nats
from counterpoint.local.settings import local_settings
from counterpoint.proto import subjects

MINE, OTHERS = "demo", "other"
SERVICES = ("router", "manager", "developer", "lineage", "memory")
USERS = (*SERVICES, "provisioner", "publisher", "observer")
STREAMS = ("INTAKE", "TASKS", "DECISIONS", "CHANGES", "DEAD", "ADVISORIES")
CONSUMERS = {
    "INTAKE": ("router", "lineage"),
    "TASKS": ("manager", "developer"),
    "CHANGES": ("manager", "lineage"),
    "ADVISORIES": ("memory",),
}
EVENTS = (
    *("submitted", "rejected", "routed", "delegated", "worked", "proposed", "escalated", "overridden", "resumed"),
    *("approval_requested", "approval_decided", "outcome_reported", "completed", "failed", "cancelled"),
)
NOBODY: frozenset[str] = frozenset()
Row = tuple[str, frozenset[str]]


def only(*names: str) -> frozenset[str]:
    """These users and no other."""
    return frozenset(names)


def publications() -> Iterator[Row]:
    """Subject, and who may publish on it."""
    for kind in ("task", "outcome", "lineage"):
        yield f"intake.{MINE}.{kind}", only("memory", "publisher")
        yield f"intake.{OTHERS}.{kind}", only("memory")
        yield f"intake.{MINE}.{kind}.more", NOBODY
    yield from ((name, NOBODY) for name in ("intake", f"intake.{MINE}", "anything", "tasks", "_INBOX.x", "_GR_.x"))
    yield "_R_.x.y", only("memory")
    for project in (MINE, OTHERS):
        yield from ((f"tasks.{project}.{event}", only("memory")) for event in EVENTS)
        yield from ((f"decisions.{project}.{agent}", only("memory")) for agent in ("router", "coder-2"))
        yield from ((f"changes.{project}.{service}", only("memory")) for service in SERVICES)
        yield f"dead.{project}", only("memory")
        for stream, rest in (("tasks", "routed"), ("decisions", "judge"), ("changes", "memory"), ("dead", "x")):
            yield f"live.{stream}.{project}.{rest}", NOBODY
    for caller in USERS:
        asks = caller in SERVICES and caller != "memory"
        for request in ("query", "commit.0", "ingest", "put"):
            yield f"memory.{caller}.{request}", only(caller) if asks else NOBODY
        for request in ("", ".commit", ".commit.1", ".other", ".query.more"):
            yield f"memory.{caller}{request}", NOBODY
        yield f"_INBOX_{caller}.x", NOBODY
    for stream in STREAMS:
        yield from ((f"$JS.API.STREAM.{verb}.{stream}", only("provisioner")) for verb in STREAM_VERBS)
        yield from ((f"$JS.API.STREAM.{verb}.{stream}", only("provisioner", "memory")) for verb in ("INFO", "MSG.GET"))
        yield from ((f"$JS.API.DIRECT.GET.{stream}{rest}", only("provisioner")) for rest in ("", ".tasks.demo.routed"))
        for consumer in (*USERS, "mine"):
            named = f"{stream}.{consumer}"
            yield from ((f"$JS.API.CONSUMER.{verb}.{named}", only("provisioner")) for verb in CONSUMER_VERBS)
            yield f"$JS.API.CONSUMER.CREATE.{named}.tasks.demo.routed", only("provisioner")
            known = consumer in CONSUMERS.get(stream, ())
            owner = only(consumer) if known else NOBODY
            yield f"$JS.API.CONSUMER.MSG.NEXT.{named}", owner | only("provisioner")
            yield f"$JS.API.CONSUMER.INFO.{named}", owner | only("provisioner") | (only("memory") if known else NOBODY)
            yield f"$JS.ACK.{named}.1.1.1.1.1", owner
        yield from ((f"$JS.API.CONSUMER.{verb}.{stream}", only("provisioner")) for verb in ("CREATE", "LIST", "NAMES"))
        yield f"$JS.EVENT.ADVISORY.CONSUMER.MAX_DELIVERIES.{stream}.manager", NOBODY
        yield f"$JS.FC.{stream}.x", NOBODY
    yield from ((f"$JS.API.{verb}", only("provisioner")) for verb in ("INFO", "STREAM.NAMES", "STREAM.LIST"))
    yield from ((name, NOBODY) for name in ("$SYS.REQ.SERVER.PING", "$SYS.REQ.USER.INFO.x", "$KV.x.y", "$JS.x"))


STREAM_VERBS = ("CREATE", "UPDATE", "DELETE", "PURGE", "SNAPSHOT", "RESTORE", "MSG.DELETE", "LEADER.STEPDOWN")
CONSUMER_VERBS = ("CREATE", "DURABLE.CREATE", "DELETE", "PAUSE", "LEADER.STEPDOWN", "UNPIN")


def subscriptions() -> Iterator[Row]:
    """Subject, and who may subscribe to it."""
    for user in USERS:
        yield from ((f"_INBOX_{user}.{rest}", only(user)) for rest in (">", "x", "*.y"))
    wild = (">", "*", "*.>", "*.*.>", "_INBOX.>", "_INBOX.x", "_INBOX_*.>", "_INBOX_developer", "_R_.>")
    yield from ((name, NOBODY) for name in wild)
    for stream, rest in product(
        ("intake", "tasks", "decisions", "changes", "dead"), (">", "*.>", f"{MINE}.>", f"{MINE}.*")
    ):
        yield f"{stream}.{rest}", NOBODY
    yield from ((f"live.{rest}", only("router")) for rest in (">", "*.>", "tasks.>", "*.*.>", f"tasks.{OTHERS}.>"))
    for rest in (">", "routed", "*"):
        yield f"live.tasks.{MINE}.{rest}", only("router", "publisher", "observer")
        for stream in ("decisions", "changes", "*"):
            yield f"live.{stream}.{MINE}.{rest}", only("router", "observer")
            yield f"live.{stream}.{OTHERS}.{rest}", only("router")
    for caller, request in product(("*", *SERVICES), ("query", "commit.0", "ingest", "put")):
        yield f"memory.{caller}.{request}", only("memory")
    yield from (
        (name, NOBODY) for name in ("memory.>", "memory.*.>", "memory.*", "memory.developer.>", "memory.*.commit.*")
    )
    for name in ("$JS.EVENT.>", "$JS.EVENT.ADVISORY.>", "$JS.API.>", "$JS.ACK.>", "$JS.>", "$SYS.>", "$SYS.ACCOUNT.>"):
        yield name, NOBODY


@dataclass(frozen=True)
class Bus:
    """A server with nobody behind it."""

    url: str
    port: int
    passwords: dict[str, str]

    async def state(self) -> dict[tuple[str, ...], tuple[object, ...]]:
        """What the streams and consumers are, and how much they hold."""
        async with await self.client("provisioner") as client:
            js = client.jetstream()
            streams = {(info.config.name,): (info.config, info.state.last_seq) for info in await js.streams_info()}
            consumers = {
                (name, info.name): (info.config, info.num_pending, info.num_ack_pending)
                for (name,) in streams
                for info in await js.consumers_info(name)
            }
        return {**streams, **consumers}

    async def held(self) -> dict[str, int]:
        """How many messages the streams hold, by subject."""
        async with await self.client("provisioner") as client:
            infos = [await client.jetstream().stream_info(stream, subjects_filter=">") for stream in STREAMS]
        return {name: count for info in infos for name, count in (info.state.subjects or {}).items()}

    async def client(self, user: str) -> nats.NATS:
        """The usual client library, logged in as a user."""
        inbox, password = f"_INBOX_{user}".encode(), self.passwords[user]
        return await nats.connect(self.url, user=user, password=password, inbox_prefix=inbox, error_cb=_ignore)


async def _ignore(error: Exception) -> None:
    """A refusal shows in what does not happen."""


PASSWORDS = {user: f"{user}-of-a-test" for user in users()}
CONFIG = nats_config(PASSWORDS, (MINE,))
"""The publisher and the observer belong to one project."""


@asynccontextmanager
async def provisioned(folder: Path, config: str) -> AsyncIterator[Bus]:
    """A server with the streams and consumers of the policy."""
    async with run_nats(folder, config) as server:
        await provision(server.url, "provisioner", PASSWORDS["provisioner"])
        yield Bus(server.url, server.port, PASSWORDS)


@pytest.fixture(scope="session")
async def bus(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Bus]:
    """The bus as it is."""
    async with provisioned(tmp_path_factory.mktemp("permissions"), CONFIG) as server:
        yield server


@pytest.fixture(scope="session")
async def lawless(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Bus]:
    """The same accounts, in which every user may do everything."""
    accounts = json.loads(CONFIG.removeprefix("accounts "))
    for account in accounts.values():
        for user in account["users"]:
            del user["permissions"]
    async with provisioned(tmp_path_factory.mktemp("lawless"), f"accounts {json.dumps(accounts)}") as server:
        yield server


@dataclass
class Memory:
    """The bus as memory has it, and the callers that it has answered, by saying what they said."""

    connection: Connection
    asked: list[str] = field(default_factory=list)

    async def answer(self, caller: str, body: bytes) -> bytes:
        """The answer to a request."""
        self.asked.append(caller)
        return body


@asynccontextmanager
async def answering(bus: Bus) -> AsyncIterator[Memory]:
    """Memory answers, by the bus library."""
    settings = BusSettings(nats_url=bus.url, nats_user="memory", nats_password=SecretStr(bus.passwords["memory"]))
    memory = Memory(Connection("memory", settings))
    await memory.connection.open()
    try:
        for subject in (subjects.query("*"), subjects.commit("*"), subjects.ingest("*"), subjects.put("*")):
            await memory.connection.respond(subject, memory.answer)
        await memory.connection.client.flush()
        yield memory
    finally:
        await memory.connection.close()


def test_the_tables_name_every_user_there_is() -> None:
    assert sorted(users()) == sorted(USERS)


@pytest.mark.parametrize("user", USERS)
async def test_a_user_publishes_exactly_what_the_contract_says(bus: Bus, user: str) -> None:
    async with login(bus.port, user, bus.passwords[user]) as plain:
        wrong = [
            (subject, f"{user} is in {sorted(allowed)}: {user in allowed}")
            for subject, allowed in publications()
            if await plain.may_publish(subject) != (user in allowed)
        ]
    assert wrong == []


@pytest.mark.parametrize("queue", ["", "workers"])
@pytest.mark.parametrize("user", USERS)
async def test_a_user_subscribes_exactly_to_what_the_contract_says(bus: Bus, user: str, queue: str) -> None:
    async with login(bus.port, user, bus.passwords[user]) as plain:
        wrong = [
            (subject, f"{user} is in {sorted(allowed)}: {user in allowed}")
            for subject, allowed in subscriptions()
            if await plain.may_subscribe(subject, queue) != (user in allowed)
        ]
    assert wrong == []


@pytest.mark.parametrize("user", [user for user in USERS if user not in ("memory", "publisher", "provisioner")])
async def test_whatever_a_user_tries_no_stream_or_consumer_changes(bus: Bus, user: str) -> None:
    before = await bus.state()
    async with login(bus.port, user, bus.passwords[user]) as plain:
        for subject, _ in publications():
            await plain.may_publish(subject, b"{}")
    assert await bus.state() == before


@pytest.mark.parametrize("user", ["router", "manager", "developer", "lineage", "publisher", "observer"])
@pytest.mark.parametrize("deliver", [None, "tasks.demo.routed", "_INBOX_{user}.stolen"])
async def test_nobody_makes_a_consumer_wherever_it_delivers(bus: Bus, user: str, deliver: str | None) -> None:
    to = deliver and deliver.format(user=user)
    config = ConsumerConfig(durable_name="mine", deliver_subject=to, filter_subject="tasks.demo.routed")
    body = json.dumps({"stream_name": "TASKS", "config": config.as_dict()}).encode()
    before = await bus.state()
    async with await bus.client(user) as client:
        for subject in (
            "CREATE.TASKS",
            "CREATE.TASKS.mine",
            "CREATE.TASKS.mine.tasks.demo.routed",
            "DURABLE.CREATE.TASKS.mine",
        ):
            with pytest.raises(TimeoutError):
                await client.request(f"$JS.API.CONSUMER.{subject}", body, timeout=0.1)
    assert await bus.state() == before


async def test_a_service_gets_its_own_deliveries_and_no_others(bus: Bus) -> None:
    async with await bus.client("memory") as memory:
        for event in ("delegated", "routed"):
            await memory.jetstream().publish(f"tasks.{MINE}.{event}", event.encode(), stream="TASKS")
    async with await bus.client("developer") as developer:
        subscription = await bind(developer.jetstream(), "developer")
        got = [message async for message in drained(subscription)]
        assert {message.subject for message in got} == {f"tasks.{MINE}.delegated"}
        for message in got:
            await message.ack_sync()
        theirs = await bind(developer.jetstream(), "manager")
        with pytest.raises(TimeoutError):
            await theirs.fetch(1, timeout=0.5)
        request = json.dumps({"last_by_subj": f"tasks.{MINE}.routed"}).encode()
        for subject in ("STREAM.MSG.GET.TASKS", "DIRECT.GET.TASKS"):
            with pytest.raises(TimeoutError):
                await developer.request(f"$JS.API.{subject}", request, timeout=0.2)


async def bind(js: JetStreamContext, durable: str) -> JetStreamContext.PullSubscription:
    """A pull subscription to a consumer of TASKS."""
    return await js.pull_subscribe_bind(durable, "TASKS", inbox_prefix=b"_INBOX_developer.")


async def drained(subscription: JetStreamContext.PullSubscription) -> AsyncIterator[nats.aio.msg.Msg]:
    """All that waits."""
    while True:
        try:
            batch = await subscription.fetch(50, timeout=0.5)
        except TimeoutError:
            return
        for message in batch:
            yield message


async def test_one_may_look_at_ones_project_as_it_happens_and_at_no_other(bus: Bus) -> None:
    async with login(bus.port, "observer", bus.passwords["observer"]) as observer:
        await observer.listen(f"live.*.{MINE}.>")
        async with await bus.client("memory") as memory:
            for project, subject in product((MINE, OTHERS), ("tasks.{}.routed", "decisions.{}.judge", "dead.{}")):
                await memory.jetstream().publish(subject.format(project), b"{}")
            await memory.jetstream().publish(f"intake.{MINE}.task", b"{}")
        assert await observer.may_subscribe(f"live.tasks.{MINE}.>")
    assert observer.received == [f"live.tasks.{MINE}.routed", f"live.decisions.{MINE}.judge"]


ABROAD = tuple(user for user in USERS if user not in ("memory", "provisioner"))
"""The users that have an account of their own."""
LIVE = {"router": "live.>", "publisher": f"live.tasks.{MINE}.>", "observer": f"live.*.{MINE}.>"}
CHOSEN = (
    *(f"{stream}.{project}.x" for stream, project in product(("tasks", "decisions", "changes"), (MINE, OTHERS))),
    *(f"intake.{OTHERS}.{kind}" for kind in ("task", "outcome", "lineage")),
    *(f"live.tasks.{project}.routed" for project in (MINE, OTHERS)),
    *(f"memory.{caller}.{request}" for caller, request in product(SERVICES, ("query", "commit.0", "ingest", "put"))),
    *(f"_INBOX_{user}.x" for user in USERS),
    *(f"$JS.API.CONSUMER.MSG.NEXT.{stream}.{name}" for stream, names in CONSUMERS.items() for name in names),
    *(f"dead.{MINE}", "$JS.API.INFO", "$JS.API.STREAM.PURGE.TASKS", "$JS.API.CONSUMER.DELETE.TASKS.manager"),
    "$JS.EVENT.ADVISORY.CONSUMER.MAX_DELIVERIES.TASKS.manager",
)
RESERVED = ("_R_.x.y", "$JS.ACK.TASKS.manager.1.1.1.1.1", "_GR_.x.y")


def may_publish(user: str) -> list[str]:
    """The subjects on which a user may publish."""
    return [subject for subject, allowed in publications() if user in allowed]


def question(subject: str) -> bytes:
    """What is answered at once: information needs an empty body, and `+NXT` acks and pulls the next."""
    if ".INFO." in subject:
        return b""
    pull = b'{"batch": 1, "no_wait": true}'
    return b"+NXT " + pull if subject.startswith("$JS.ACK.") else pull


@pytest.mark.parametrize("user", [user for user in ABROAD if user != "observer"])
async def test_an_answer_comes_to_nobody_else(bus: Bus, user: str) -> None:
    """Whoever names a reply subject has the server, or memory, publish there, with no regard to its own rights."""
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
    """What streams and the consumers of others are, and how many acknowledgements these wait for."""
    return {key: (value[0], value[2:]) for key, value in state.items() if key[-1] != user}


@pytest.mark.parametrize("user", ABROAD)
async def test_no_client_names_a_reply_subject_of_the_servers_making(bus: Bus, user: str) -> None:
    async with login(bus.port, user, bus.passwords[user]) as plain:
        for subject in may_publish(user):
            assert not any([await plain.may_publish(subject, b"{}", reply) for reply in RESERVED])


async def test_memory_publishes_on_no_reply_subject_but_those_of_the_servers_making(lawless: Bus) -> None:
    """Nobody in its own account may ask memory; when somebody does all the same, it is not answered."""
    password = lawless.passwords["provisioner"]
    async with answering(lawless) as memory, login(lawless.port, "provisioner", password) as plain:
        for reply in (f"tasks.{MINE}.routed", "_INBOX_developer.x", "memory.manager.query", ""):
            await plain.may_publish("memory.developer.query", b"{}", reply)
        async with await lawless.client("developer") as developer:
            await developer.request("memory.developer.query", b"{}", timeout=5)
        assert memory.asked == ["developer"]


@pytest.mark.parametrize("user", ABROAD)
async def test_an_account_reaches_exactly_what_its_user_may_publish(lawless: Bus, user: str) -> None:
    """Even where a user is held by no rights, it reaches nothing else of the house.

    But `$JS.API.INFO`, which has to be imported for the server to leave the other requests to the house.
    """
    async with AsyncExitStack() as stack:
        home, plain = [
            await stack.enter_async_context(login(lawless.port, each, lawless.passwords[each]))
            for each in ("memory", user)
        ]
        await home.listen(">")
        for subject, _ in publications():
            await plain.may_publish(subject)
        await home.may_subscribe("last")
        reached = {*home.received} & {subject for subject, _ in publications()}
    assert reached == {*may_publish(user)} | ({"$JS.API.INFO"} if user in SERVICES else set())


@pytest.mark.parametrize("user", ABROAD)
async def test_an_account_hears_exactly_what_its_user_may_watch(lawless: Bus, user: str) -> None:
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
            await stack.enter_async_context(login(lawless.port, each, lawless.passwords[each]))
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


async def test_a_pull_from_another_account_that_nobody_waits_for_any_more_takes_no_message(tmp_path: Path) -> None:
    """Otherwise what comes after a process has gone would be delivered to it, and again only after the ack wait."""
    async with AsyncExitStack() as stack:
        bus = await stack.enter_async_context(provisioned(tmp_path, CONFIG))
        memory, gone, other = [
            await stack.enter_async_context(await bus.client(user)) for user in ("memory", "developer", "developer")
        ]
        inbox = await gone.subscribe("_INBOX_developer.gone")
        pull = b'{"batch": 50, "expires": 60000000000}'
        await gone.publish("$JS.API.CONSUMER.MSG.NEXT.TASKS.developer", pull, inbox.subject)
        assert await gone.jetstream().consumer_info("TASKS", "developer")
        await inbox.unsubscribe()
        await gone.flush()
        await memory.jetstream().publish(f"tasks.{MINE}.delegated", b"{}")
        (message,) = await (await bind(other.jetstream(), "developer")).fetch(1, timeout=30)
        assert message.metadata.num_delivered == 1
        await message.ack_sync(timeout=5)


@pytest.mark.parametrize("user", ["manager", "developer", "observer"])
async def test_the_server_refuses_to_start_with_an_account_that_imports_what_is_anothers(
    user: str, tmp_path: Path
) -> None:
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
