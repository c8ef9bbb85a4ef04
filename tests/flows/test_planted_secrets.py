"""A secret in any field, name or header of any door is kept nowhere: in no table, file, stream or log; no receiver of
notifications is sent one."""

import tempfile
from collections import Counter, defaultdict
from collections.abc import AsyncIterator, Iterable, Iterator
from contextlib import AsyncExitStack
from dataclasses import dataclass
from email import message_from_string
from email.policy import default
from pathlib import Path

import pytest
import pytest_asyncio
from agents.hook_receiver import HookReceiver, Reply, hook_receiver
from agents.mail_server import mail_server
from flows.found_secrets import Needles, Survivors, in_files, in_streams, in_tables, quiet
from flows.planting import PlantedSecrets, plant
from flows.planting_senders import HOOKS, RECEIVERS, hooks_file, receivers_file
from flows.valid_bodies import ACTS

from counterpoint.local.stack import Stack

pytestmark = pytest.mark.timeout(600)
CONTROL = "How long are orders kept?"
"""Something harmless that every place has, so that finding nothing means something."""


@dataclass(frozen=True)
class SecretSearch:
    """The planted secrets, and those that were found: in tables, streams and messages to receivers while the house ran,
    in files after it had stopped."""

    planted: PlantedSecrets
    tables: Survivors
    messages: Survivors
    streams: Survivors
    files: Survivors

    def report(self, found: Survivors) -> str:
        """Return the number of needles of each door, and where each of those that were found is."""
        found = {needle: at for needle, at in found.items() if needle != CONTROL}
        lines = sorted(f"{self.planted.places[needle]} -> {', '.join(sorted(at))}" for needle, at in found.items())
        doors = Counter(place.partition(":")[0] for place in self.planted.places.values())
        left = Counter(self.planted.places[needle].partition(":")[0] for needle in found)
        return "\n".join([*lines, *(f"{door}: {left[door]} of {number}" for door, number in sorted(doors.items()))])


@pytest_asyncio.fixture(scope="module")
async def search() -> AsyncIterator[SecretSearch]:
    """A house of its own, planted, searched while it runs and again when it has stopped."""
    async with AsyncExitStack() as receivers:
        folder = receivers.enter_context(tempfile.TemporaryDirectory(prefix="counterpoint-"))
        stack = Stack(Path(folder) / "data", http_port=0, inspect=True)
        hook, hub = [await receivers.enter_async_context(hook_receiver()) for _ in range(2)]
        hub.reply = Reply(body={"data": {"entityExists": True}})
        mails: list[str] = []
        server = await receivers.enter_async_context(mail_server(mails))
        urls = {name: f"{hook.url}/{name}" for name in RECEIVERS} | {"datahub": hub.url, "email": server.address}
        with hooks_file(Path(folder)), receivers_file(Path(folder), urls):
            await stack.start()
        try:
            planted = await plant(stack)
            needles = Needles((*planted.places, CONTROL))
            await quiet(stack)
            tables, streams = await in_tables(stack, needles), await in_streams(stack, needles)
        finally:
            await stack.stop()
        sent = [(path.split("/")[1], content) for path, content in requests_to(hook)]
        sent += [("datahub", content) for _, content in requests_to(hub)]
        sent += [("email", as_read(mail)) for mail in mails]
        messages = in_messages(sent, needles)
        yield SecretSearch(planted, tables, messages, streams, in_files(stack.data_dir, needles))


def in_messages(sent: Iterable[tuple[str, bytes]], needles: Needles) -> Survivors:
    """Find needles in messages, each with the name of its receiver."""
    found: Survivors = defaultdict(set)
    for name, content in sent:
        for needle in needles.within_decoded(content):
            found[needle].add(name)
    return found


def requests_to(receiver: HookReceiver) -> Iterator[tuple[str, bytes]]:
    """Each path, and the request with its headers."""
    for sent in receiver.received:
        yield sent.path, f"{sent.path}\n{sent.headers}\n".encode() + sent.content


def as_read(mail: str) -> bytes:
    """A mail as it came, and as a reader sees it."""
    read = message_from_string(mail, policy=default)
    return f"{mail}\n{read['Subject']}\n{read.get_content()}".encode()


def test_two_hundred_secrets_are_planted_and_doors_open(search: SecretSearch) -> None:
    assert len(search.planted.places) >= 200
    statuses = Counter(status // 100 for _, status in search.planted.statuses)
    assert statuses[2] > 100
    taken = {name for name, status in search.planted.statuses if status // 100 == 2}
    assert taken >= {"mcp", "slack", "teams", "lessons", "lesson page", *HOOKS, *ACTS}
    assert not [each for each in search.planted.statuses if each[1] == 500]


def test_none_is_in_the_database(search: SecretSearch) -> None:
    assert search.tables.keys() == {CONTROL}, search.report(search.tables)


def test_none_is_in_any_stream(search: SecretSearch) -> None:
    assert search.streams.keys() == {CONTROL}, search.report(search.streams)


def test_none_is_sent_to_a_receiver(search: SecretSearch) -> None:
    assert search.messages.keys() == {CONTROL}, search.report(search.messages)
    assert search.messages[CONTROL] == RECEIVERS


def test_none_is_in_any_file(search: SecretSearch) -> None:
    assert search.files.keys() == {CONTROL}, search.report(search.files)
