"""The cache of answers: never an older value than was acknowledged, never another's, and what was read is noted."""

import asyncio
import random
import socket
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any
from unittest.mock import patch

import pytest
from memory_service.house import PERSON, House
from query.record_versions import attempt, version_of
from redis import Redis

from counterpoint.guard.policy import policy
from counterpoint.local.valkey import ValkeyServer as Server
from counterpoint.local.valkey import run_valkey
from counterpoint.memory.cache.cache import ENTRY_BYTES, HITS, L1_BYTES, L1_ITEMS, Cache
from counterpoint.memory.cache.valkey import Valkey
from counterpoint.memory.query.epochs import Epoch, Epochs
from counterpoint.memory.record.plan import CommitPlan, PlannedWrite, canonical
from counterpoint.proto.errors import Transient
from counterpoint.proto.ids import new_id
from counterpoint.proto.memory import Get, HybridSearch, Item, Line, List, MemoryQuery, QueryResult, VectorSearch, Write

SEARCH = VectorSearch(store="attempts", text="the database is away", k=5)
WAITING = """
SELECT pid FROM pg_stat_activity WHERE wait_event_type = 'Lock' AND query LIKE '%commit_steps%'
"""
SECRET = b"a secret of this test"


async def put(
    house: House, project: str, record: str, version: int, says: str | None, *, label: int = 1, store: str = "attempts"
) -> None:
    """A version of a record, by the committer."""
    await house.commits.apply(version_of(project, record, version, says, label=label, store=store))


def hits(level: str) -> float:
    return HITS.labels(level)._value.get()


async def ask(house: House, project: str, query: MemoryQuery = SEARCH) -> QueryResult:
    return await house.answer("router", house.standing(project), query)


def ids_and_versions(found: QueryResult) -> list[tuple[str, int]]:
    return sorted((item.id, item.version) for item in found.items)


@asynccontextmanager
async def second_level(house: House, server: Server, rested_s: float = 0.0, **settings: Any) -> AsyncIterator[Valkey]:
    """The house with this server as its second level, and an empty first one."""
    house.far = Valkey(server.url, SECRET, **settings)
    try:
        with patch("counterpoint.memory.query.epochs.RESTED_S", rested_s):
            house.restart()
            yield house.far
    finally:
        await house.far.close()
        house.far = None
        house.restart()


@pytest.mark.parametrize(
    "query",
    [
        SEARCH,
        HybridSearch(store="attempts", text="the database is away"),
        Get(store="attempts", id="a"),
        List(store="attempts"),
    ],
    ids=lambda query: query.op,
)
async def test_a_second_answer_is_the_same_and_says_so(house: House, project: str, query: MemoryQuery) -> None:
    await put(house, project, "a", 1, "restarted the database")
    first, again = await ask(house, project, query), await ask(house, project, query)
    assert (first.cache, again.cache) == ("miss", "hit")
    same = {"cache": "off", "took_us": 0}
    assert again.model_copy(update=same) == first.model_copy(update=same)
    await put(house, project, "a", 2, "waited")
    changed = await ask(house, project, query)
    assert (changed.cache, ids_and_versions(changed)) == ("miss", [("a", 2)])


async def test_uncached_queries_say_off(house: House, project: str) -> None:
    await put(house, project, "a", 1, "restarted")
    for query in (Line(task_id="none"), SEARCH.model_copy(update={"as_of": "2100-01-01T00:00:00Z"})):
        for _ in range(2):
            assert (await ask(house, project, query)).cache == "off"


async def test_requests_that_are_there_in_part_are_answered_anew(house: House, project: str) -> None:
    await put(house, project, "a", 1, "restarted")
    await ask(house, project)
    origin = house.standing(project)
    reply = await house.query("router", origin, SEARCH, Get(store="attempts", id="a"))
    assert [found.cache for found in reply.found] == ["miss", "miss"]
    reply = await house.query("router", origin, SEARCH, Get(store="attempts", id="a"))
    assert [found.cache for found in reply.found] == ["hit", "hit"]


async def test_another_project_clearance_or_task_has_answers_of_its_own(house: House, project: str) -> None:
    await put(house, project, "a", 1, "restarted", label=2)
    await put(house, project, "b", 1, "restarted", label=1)
    grant, _ = await house.authority.authorise("router", house.standing(project))
    low = grant.model_copy(update={"clearance": 1})
    other = grant.model_copy(update={"project": f"{project}-x"})

    async def keys(asked: Any, query: MemoryQuery) -> tuple[bytes, ...]:
        return (await house.answers.lookup(asked, (query,))).keys

    assert len({await keys(each, SEARCH) for each in (grant, low, other)}) == 3
    task = Get(store="tasks", id="t-1")
    developer = grant.model_copy(update={"audience": "developer"})
    owned = [developer.model_copy(update={"task": name}) for name in ("t-1", "t-2", None)]
    assert len({await keys(each, task) for each in (grant, *owned)}) == 4
    # Where the task makes no difference they share one.
    assert len({await keys(each, SEARCH) for each in owned}) == 1
    assert ids_and_versions(await ask(house, project)) == [("a", 1), ("b", 1)]
    answers = house.answers
    looked = await answers.lookup(low, (SEARCH,))
    assert not looked.answers
    found = await house.queries.answer(low, (SEARCH,))
    answers.keep(looked, (SEARCH,), found)
    assert ids_and_versions(found[0]) == [("b", 1)]


async def test_reads_from_the_cache_are_in_the_read_set(house: House) -> None:
    """Label, integrity, scores and sources of what a delivery is shown count, wherever it came from."""
    project = f"p-{new_id()}"
    await put(house, project, "a", 1, "restarted", label=2)
    memories = []
    for cache in ("miss", "hit"):
        origin = house.standing(project)
        found = await house.answer("router", origin, SEARCH)
        assert found.cache == cache
        memories.append(house.authority.reads.of(("router", origin.message_id, origin.fence, origin.run), 1))
    assert memories[0] == memories[1]
    assert (memories[1].provenance.label, memories[1].provenance.integrity) == (2, 1)
    assert len(memories[1].scores) == 1


async def test_a_shared_record_moves_the_answers_of_all(house: House, project: str) -> None:
    query = Get(store="providers", id=f"x-{new_id()}")
    assert (await ask(house, project, query)).items == ()
    assert (await ask(house, project, query)).cache == "hit"
    await put(house, "shared", query.id, 1, "a provider", store="providers")
    assert ids_and_versions(await ask(house, project, query)) == [(query.id, 1)]


async def test_an_answer_read_before_a_commit_is_never_served_after_it(house: House, project: str) -> None:
    await put(house, project, "a", 1, "restarted")
    grant, _ = await house.authority.authorise("router", house.standing(project))
    answers = house.answers
    looked = await answers.lookup(grant, (SEARCH,))
    before = await house.queries.answer(grant, (SEARCH,))
    await put(house, project, "a", 2, "waited")
    answers.keep(looked, (SEARCH,), before)
    for _ in range(2):
        assert ids_and_versions(await ask(house, project)) == [("a", 2)]


async def test_answers_are_not_cached_while_a_commit_is_under_way(house: House, project: str) -> None:
    await put(house, project, "a", 1, "restarted")
    step = CommitPlan(
        project=project, commit_id=new_id(), consumer="test", message_id=new_id(), step="done", last=True, fence=1,
        task_id=None, task_version=None, ended_ok=True, audit="{}", salt=b"s" * 16, reads=None,
        writes=(PlannedWrite("attempts", "b", 0, "{}", None, "developer", 1, 1, b"x" * 32),),
    )  # fmt: skip
    await ask(house, project)
    house.epochs.begin((step,))
    asked = SEARCH.model_copy(update={"k": 3})
    for query in (SEARCH, asked):
        assert [(await ask(house, project, query)).cache for _ in range(3)] == ["off"] * 3
    # Nobody heard how it ended, and it was applied all the same: the record knows.
    async with house.superuser() as record:
        await record.execute(
            "UPDATE records SET version = 2, commit_id = gen_random_uuid(), seq = seq + 1000 WHERE project = $1",
            project,
        )
    assert ids_and_versions(await ask(house, project)) == [("a", 2)]


async def test_without_a_confirmed_lease_the_record_is_asked(house: House, project: str) -> None:
    """Another process may be the active one: what this one knows of its own commits is not all there is."""
    await put(house, project, "a", 1, "restarted")
    sure: list[int | None] = [1]
    epochs = Epochs(house.database, policy(), lambda: sure[0])

    async def present() -> Epoch:
        epoch = await epochs.of(project, ["attempts"])
        assert epoch is not None
        return epoch

    assert (await present()).commits != ("",)
    known = await present()
    assert known.certain
    await put(house, project, "a", 2, "waited")
    assert await present() == known
    sure[0] = None
    moved = await present()
    assert moved.commits != known.commits
    assert not moved.certain
    assert not epochs.is_current(known)
    sure[0] = 2
    assert (await present()).commits == moved.commits


async def test_readers_and_writers_at_once_see_no_value_older_than_was_acknowledged(house: House, project: str) -> None:
    """Many interleavings: whoever asks after a commit was acknowledged is shown that version or a later one."""
    choose = random.Random(7)
    acknowledged = dict.fromkeys(("a", "b"), 1)
    queries: tuple[MemoryQuery, ...] = (SEARCH, List(store="attempts"), *(Get(store="attempts", id=i) for i in "ab"))
    for record in acknowledged:
        await put(house, project, record, 1, "version 1")
    shown, writing = [0, 0], True

    async def write(record: str) -> None:
        for version in range(2, 40):
            await put(house, project, record, version, f"version {version}")
            acknowledged[record] = version
            for _ in range(choose.randrange(8)):
                await asyncio.sleep(0)

    async def read() -> None:
        while writing:
            # A hit waits for nothing.
            await asyncio.sleep(0)
            query = choose.choice(queries)
            least = dict(acknowledged)
            found = await ask(house, project, query)
            shown[found.cache == "hit"] += 1
            wanted = [query.id] if isinstance(query, Get) else list(least)
            versions = {item.id: item.version for item in found.items}
            assert all(versions[record] >= least[record] for record in wanted), (query, versions, least)

    async with asyncio.TaskGroup() as group:
        for _ in range(6):
            group.create_task(read())
        await asyncio.gather(*(write(record) for record in acknowledged))
        for cache in ("", "hit"):
            for query in queries:
                assert (await ask(house, project, query)).cache.endswith(cache)
        writing = False
    assert shown[0] > 0


async def test_a_quarantined_item_is_served_by_neither_level(house: House, tmp_path: Path) -> None:
    project = f"p-{new_id()}"
    async with run_valkey(tmp_path) as server, second_level(house, server) as far:
        await put(house, project, "a", 1, "restarted")
        await ask(house, project)
        await far.written()
        house.restart()
        assert (await ask(house, project)).cache == "hit"
        wish = {"kind": "quarantine", "reason": "it was wrong", "store": "attempts", "id": "a"}
        origin = house.standing(project, principal=PERSON)
        await house.apply("router", origin, writes=(Write(store="quarantines", id=new_id(), body=wish),))
        assert (await ask(house, project)).items == ()
        house.restart()
        assert (await ask(house, project)).items == ()


async def test_the_second_level_answers_another_process_and_fills_its_first(
    house: House, project: str, tmp_path: Path
) -> None:
    async with run_valkey(tmp_path) as server, second_level(house, server) as far:
        await put(house, project, "a", 1, "restarted")
        first = await ask(house, project)
        await far.written()
        house.restart()
        before = hits("l1"), hits("l2")
        second, third = await ask(house, project), await ask(house, project)
        assert (second.cache, third.cache) == ("hit", "hit")
        assert (hits("l1") - before[0], hits("l2") - before[1]) == (1, 1)
        assert second.items == first.items


async def test_answers_from_a_store_that_is_being_changed_stay_in_the_first_level(
    house: House, project: str, tmp_path: Path
) -> None:
    async with run_valkey(tmp_path) as server, second_level(house, server, rested_s=600) as far:
        with Redis.from_url(server.url) as raw:
            await put(house, project, "a", 1, "restarted")
            assert [(await ask(house, project)).cache for _ in range(2)] == ["miss", "hit"]
            await far.written()
            assert raw.keys("answer:*") == []
            house.restart()
            assert (await ask(house, project)).cache == "miss"
            await far.written()
            assert len(raw.keys("answer:*")) == 1  # type: ignore[arg-type]


async def test_cached_answers_can_neither_be_read_nor_changed_in_valkey(
    house: House, project: str, tmp_path: Path
) -> None:
    async with run_valkey(tmp_path) as server, second_level(house, server) as far:
        await put(house, project, "a", 1, "restarted the telescope")
        await put(house, project, "b", 1, "waited")
        wide = SEARCH.model_copy(update={"k": 1})
        await ask(house, project)
        await ask(house, project, wide)
        await far.written()
        with Redis.from_url(server.url) as raw:
            keys = raw.keys("answer:*")
            assert isinstance(keys, list)
            entries = {key: raw.get(key) for key in keys}
            assert len(entries) == 2
            assert all(b"telescope" not in value and 0 < raw.ttl(key) <= 3600 for key, value in entries.items())
            (one, other) = entries
            for wrong in (entries[other], b"", b"x", entries[one][:-1], entries[one][:40] + b"!" + entries[one][41:]):
                raw.set(one, wrong)
                raw.set(other, wrong if wrong != entries[other] else entries[one])
                house.restart()
                assert ids_and_versions(await ask(house, project)) == [("a", 1), ("b", 1)]
                assert len((await ask(house, project, wide)).items) == 1
                assert far is house.far
                await far.written()
                raw.flushall()


async def test_valkey_killed_while_running_is_a_miss_and_is_used_again_when_it_is_back(
    house: House, project: str, tmp_path: Path
) -> None:
    async with run_valkey(tmp_path) as server, second_level(house, server, retry_after_s=0) as far:
        await put(house, project, "a", 1, "restarted")
        await ask(house, project)
        await far.written()
        await server.kill()
        house.restart()
        assert ids_and_versions(await ask(house, project)) == [("a", 1)]
        await far.written()
        await server.start()
        house.restart()
        await ask(house, project)
        await far.written()
        house.restart()
        before = hits("l2")
        assert (await ask(house, project)).cache == "hit"
        assert hits("l2") == before + 1


async def test_a_full_valkey_is_still_read(house: House, project: str, tmp_path: Path) -> None:
    async with run_valkey(tmp_path) as server, second_level(house, server, retry_after_s=0) as far:
        await put(house, project, "a", 1, "restarted")
        await ask(house, project)
        await far.written()
        with Redis.from_url(server.url) as raw:
            raw.config_set("maxmemory-policy", "noeviction")
            raw.config_set("maxmemory", 1)
            more = SEARCH.model_copy(update={"k": 2})
            assert ids_and_versions(await ask(house, project, more)) == [("a", 1)]
            await far.written()
            house.restart()
            assert (await ask(house, project)).cache == "hit"
            assert (await ask(house, project, more)).cache == "miss"


async def test_a_valkey_that_does_not_answer_is_left_alone() -> None:
    """Somebody listens and never says a word."""
    with socket.create_server(("127.0.0.1", 0)) as silent:
        far = Valkey(f"redis://127.0.0.1:{silent.getsockname()[1]}/0", SECRET)
        assert await far.get(b"a key") is None
        far.put(b"a key", b"a value")
        assert not far._writing
        await far.close()


async def test_a_commit_with_a_lost_reply_is_read_from_the_record(house: House, project: str) -> None:
    """The connection breaks while it is applied; asked again, it is answered from the record, and so is who reads."""
    await put(house, project, "a", 1, "restarted")
    await ask(house, project)
    step = CommitPlan(
        project=project, commit_id=new_id(), consumer="test", message_id=new_id(), step="done", last=True, fence=1,
        task_id=None, task_version=None, ended_ok=True, audit="{}", salt=b"s" * 16, reads=None,
        writes=(PlannedWrite("attempts", "a", 1, canonical(attempt("waited")), None, "developer", 1, 1, b"x" * 32),),
    )  # fmt: skip
    # It waits for a row, until its connection is cut: on the server it might have been applied all the same.
    async with house.superuser() as record, record.transaction():
        await record.execute("SELECT 1 FROM projects WHERE project = $1 FOR UPDATE", project)
        applying = asyncio.create_task(house.commits.apply(step))
        async with asyncio.timeout(60):
            while not (pid := await record.fetchval(WAITING)):  # noqa: ASYNC110 - a lock of the database has no event
                await asyncio.sleep(0.01)
        await record.execute("SELECT pg_terminate_backend($1)", pid)
        with pytest.raises(Transient):
            await applying
    assert await house.epochs.of(project, ["attempts"]) is None
    reply = await house.commits.apply(step)
    assert reply.status in ("done", "replayed")
    assert ids_and_versions(await ask(house, project)) == [("a", 2)]


async def test_items_equal_validated_ones(house: House, project: str) -> None:
    """They are made without being validated: each is of the types that the contract says."""
    await put(house, project, "a", 1, "restarted")
    async with house.superuser() as record:
        await record.execute(
            """UPDATE records SET body = '{"n": 1.5, "i": 123456789012345678901, "t": "é\\u2028", "x": [null]}'
            WHERE project = $1""",
            project,
        )
    for query in (Get(store="attempts", id="a"), List(store="attempts"), SEARCH):
        (found,) = await house.queries.answer(
            (await house.authority.authorise("router", house.standing(project)))[0], (query,)
        )
        (shown,) = found.items
        assert Item.model_validate(shown.model_dump()) == shown
        assert Item.model_validate_json(shown.model_dump_json()) == shown
        assert shown.body == {"n": 1.5, "i": 123456789012345678901, "t": "é\u2028", "x": [None]}
        assert shown.model_fields_set == set(Item.model_fields)


async def test_the_first_level_keeps_recently_used_answers_within_its_limits() -> None:
    kept: Cache[bytes] = Cache(None, bytes, bytes, len)
    small, large = b"x", b"x" * ENTRY_BYTES
    for n in range(L1_ITEMS):
        kept.put(b"%d" % n, small)
    assert await kept.get(b"0") == small
    kept.put(b"one more", small)
    assert await kept.get(b"0") == small
    assert await kept.get(b"1") is None
    for n in range(L1_ITEMS):
        kept.put(b"large %d" % n, large)
    assert len([n for n in range(L1_ITEMS) if await kept.get(b"large %d" % n)]) == L1_BYTES // ENTRY_BYTES
    kept.put(b"one more", large + b"x")
    assert await kept.get(b"one more") is None
