"""Limits of the organisation, over several projects: on memory's request server and through the real LiteLLM."""

import asyncio
from collections.abc import AsyncIterator
from datetime import UTC, datetime
from decimal import Decimal
from typing import Any

import pytest
from agents.gateway_calls import killed_at, pass_deadline
from agents.gateway_world import PRICED, UNPRICED, Door, World, client, developer, gateway
from agents.limited_calls import generated, spent, working
from agents.limited_calls import limit as project_limit
from memory_service.house import PERSON, House

from counterpoint.client import Gateway
from counterpoint.manager.gateway.provider_limits import ProviderLimits
from counterpoint.proto.errors import Denied, Permanent, Transient
from counterpoint.proto.ids import new_id
from counterpoint.proto.limits import ORGANISATION_STORE, StoredOrganisationLimit
from counterpoint.proto.memory import Get, List, OrganisationLimits, OrganisationReport, Write
from counterpoint.proto.messages import utc_now
from counterpoint.proto.principals import Principal

pytestmark = pytest.mark.xdist_group("litellm")
OUTSIDE = ProviderLimits(models=(PRICED, UNPRICED))


@pytest.fixture
async def model_client(door: Door, outside: World) -> AsyncIterator[Gateway]:
    """The developer's client of a gateway to the world outside."""
    async with gateway(door, OUTSIDE) as (url, _):
        made = client(url)
        yield made
        await made.close()


@pytest.fixture
async def projects(house: House) -> AsyncIterator[list[str]]:
    """Four new projects. No limit of the organisation is left when the test ends."""
    yield [f"p-{new_id()[-12:]}-{n}" for n in range(4)]
    for item in (await house.answer("router", administrator(house), List(store=ORGANISATION_STORE))).items:
        write = Write(store=ORGANISATION_STORE, id=item.id, expect=item.version)
        await house.apply("router", administrator(house), writes=(write,))
    async with house.superuser() as connection:
        await connection.execute("TRUNCATE organisation_spending, organisation_reservations")


def administrator(house: House) -> Any:
    return house.standing("default", principal=PERSON)


async def limit(house: House, projects: list[str] = [], **fields: Any) -> StoredOrganisationLimit:  # noqa: B006
    """Set a limit of the organisation as an administrator does."""
    name = "some" if projects else None
    made = StoredOrganisationLimit(name=name, projects=tuple(projects), by=PERSON, at=utc_now(), **fields)
    known = (await house.answer("router", administrator(house), Get(store=ORGANISATION_STORE, id=made.record_id))).items
    body, expect = made.model_dump(mode="json", exclude_none=True), known[0].version if known else 0
    write = Write(store=ORGANISATION_STORE, id=made.record_id, body=body, expect=expect)
    await house.apply("router", administrator(house), writes=(write,))
    return made


async def use(house: House, project: str = "default", name: str = PERSON) -> OrganisationReport:
    """The limits as a principal sees them."""
    found = await house.answer("router", house.standing(project, principal=name), OrganisationLimits())
    return OrganisationReport.model_validate(found.report)


async def counters(house: House) -> list[tuple[Decimal, Decimal, int, int]]:
    """Return spent and reserved dollars and tokens of each counter."""
    async with house.superuser() as connection:
        rows = await connection.fetch(
            "SELECT usd, reserved_usd, tokens, reserved_tokens FROM organisation_spending ORDER BY limit_id, since"
        )
    return [tuple(row) for row in rows]


async def test_parallel_calls_of_several_projects_never_exceed_a_limit_of_the_organisation(
    model_client: Gateway, door: Door, outside: World, projects: list[str]
) -> None:
    most = Decimal("0.001")
    outside.output_tokens = 100
    await limit(door.house, projects[:3], usd=most, period="month")
    works = [await working(door, each, f"t-{n}") for n, each in enumerate(projects)]
    async with gateway(door, OUTSIDE) as (url, _):
        beside = client(url)
        made = await asyncio.gather(
            *(generated(model_client if n % 2 else beside, works[n % 3], f"k{n}", max_tokens=100) for n in range(64)),
            return_exceptions=True,
        )
        await beside.close()
    done = [each for each in made if not isinstance(each, BaseException)]
    refused = [each for each in made if isinstance(each, Denied)]
    assert [each for each in made if each not in done and each not in refused] == []
    assert {each.rule for each in refused} == {"budget"}
    assert all("less of the limit of the organisation some for a month, until " in str(each) for each in refused)
    assert 8 < len(done) < 64
    cost = sum(each.usage.cost_usd for each in done)
    assert cost <= most
    ((usd, reserved, _, reserved_tokens),) = await counters(door.house)
    assert (usd, reserved, reserved_tokens) == (cost, 0, 0)
    assert len(outside.seen) == len(done)
    await generated(model_client, works[3], "k", max_tokens=100)
    (shown,) = (await use(door.house)).limits
    assert {each.project for each in shown.uses} == set(projects[:3])
    assert sum(each.usd for each in shown.uses) == cost
    assert shown.reached


async def test_a_refusal_leaves_nothing_at_any_level(model_client: Gateway, door: Door, projects: list[str]) -> None:
    project = projects[0]
    memory = await working(door, project, "t-1")
    await project_limit(door.house, project, tokens=10**6)
    await limit(door.house, projects, tokens=30)
    with pytest.raises(
        Denied, match="tokens at most for this call; less of the limit of the organisation some is left"
    ):
        await generated(model_client, memory, "k")
    assert await spent(door.house, project) == {}
    assert await door.house.body(project, "spend", "t-1") is None
    ((_, _, before, reserved),) = await counters(door.house)
    assert reserved == 0
    await limit(door.house, projects, tokens=10**6)
    await generated(model_client, memory, "k")
    (of_project,) = (await spent(door.house, project)).values()
    ((_, _, tokens, reserved),) = await counters(door.house)
    assert (tokens - before, reserved) == (of_project["spent_tokens"], 0)


async def test_a_limit_counts_the_calls_before_it_and_those_under_way(
    model_client: Gateway, door: Door, outside: World, projects: list[str]
) -> None:
    memory, other = [await working(door, each, "t-1") for each in projects[:2]]
    before = await generated(model_client, memory, "before", max_tokens=20)
    used = before.usage.input_tokens + before.usage.output_tokens
    outside.hold.clear()
    outside.arrived.clear()
    outside.expected = 2
    under_way = asyncio.create_task(generated(model_client, memory, "under way", max_tokens=500))
    await outside.arrived.wait()
    await limit(door.house, projects[:2], tokens=used + 550, period="day")
    with pytest.raises(Denied):
        await generated(model_client, other, "k", max_tokens=20)
    ((_, _, tokens, reserved),) = await counters(door.house)
    assert (tokens, reserved > 500) == (used, True)
    outside.hold.set()
    ended = await under_way
    await generated(model_client, other, "k", max_tokens=20)
    ((_, _, tokens, reserved),) = await counters(door.house)
    assert (tokens, reserved) == (used + 2 * (ended.usage.input_tokens + ended.usage.output_tokens), 0)


async def test_a_limit_of_named_projects_leaves_the_others_alone_and_counts_anew_when_they_change(
    model_client: Gateway, door: Door, projects: list[str]
) -> None:
    first, second, _, _ = [await working(door, each, "t-1") for each in projects]
    await generated(model_client, first, "k", max_tokens=20)
    await limit(door.house, projects[1:3], tokens=120)
    await generated(model_client, first, "l", max_tokens=20)
    await generated(model_client, second, "k", max_tokens=20)
    await limit(door.house, projects[:2], tokens=120)
    with pytest.raises(Denied, match="the limit of the organisation some is left"):
        await generated(model_client, second, "l", max_tokens=20)
    await limit(door.house, projects[2:], tokens=120)
    await generated(model_client, second, "l", max_tokens=20)


async def test_a_limit_in_dollars_refuses_a_model_without_a_price(
    door: Door, outside: World, projects: list[str]
) -> None:
    memory = await working(door, projects[0], "t-1")
    await limit(door.house, usd=Decimal(10), period="day")
    async with gateway(door, OUTSIDE) as (url, _):
        unpriced = client(url, UNPRICED)
        with pytest.raises(Denied, match="price is known, because the limit of the organisation for a day, until"):
            await generated(unpriced, memory, "k")
        await unpriced.close()
    assert not outside.seen


async def test_a_new_period_begins_at_zero(model_client: Gateway, door: Door, projects: list[str]) -> None:
    memory = await working(door, projects[0], "t-1")
    await limit(door.house, projects, tokens=10**6, period="day")
    await generated(model_client, memory, "k", max_tokens=20)
    async with door.house.superuser() as connection:
        # Yesterday's counter, of a limit that was set the day before.
        await connection.execute("UPDATE organisation_spending SET since = since - interval '1 day'")
        await connection.execute(
            "UPDATE records SET at = at - interval '2 days' WHERE store = $1 AND body IS NOT NULL", ORGANISATION_STORE
        )
    await generated(model_client, memory, "l", max_tokens=20)
    ((_, _, tokens, reserved),) = await counters(door.house)
    assert (0 < tokens < 60, reserved) == (True, 0)


async def test_a_gateway_that_dies_leaves_its_reservation_and_a_repeated_key_ends_it(
    model_client: Gateway, door: Door, outside: World, projects: list[str]
) -> None:
    memory = await working(door, projects[0], "t-1")
    await limit(door.house, projects, tokens=10**5)
    await killed_at(door, memory, "settle")
    ((_, _, tokens, reserved),) = await counters(door.house)
    assert (tokens, reserved > 500) == (0, True)
    await pass_deadline(door.house, memory, "k")
    with pytest.raises(Permanent, match="unknown_outcome"):
        await generated(model_client, developer(door, memory.origin.message_id), "k")
    ((_, _, tokens, left),) = await counters(door.house)
    assert (tokens, left) == (reserved, 0), "a call of unknown outcome counts at its estimate"
    assert len(outside.seen) == 1


@pytest.mark.parametrize("step", ["reserve", pytest.param("settle", marks=pytest.mark.slow)])
async def test_a_commit_whose_reply_is_lost_is_counted_once(
    door: Door, outside: World, projects: list[str], step: str
) -> None:
    memory = await working(door, projects[0], "t-1")
    await limit(door.house, projects, tokens=10**5)
    lost = list[bytes]()

    class LossyDoor(Door):
        async def __call__(self, subject: str, body: bytes, timeout_s: float) -> bytes:
            reply = await super().__call__(subject, body, timeout_s)
            if f'"step":"{step} '.encode() in body and not lost:
                lost.append(body)
                raise Transient("the reply is lost")
            return reply

    async with gateway(LossyDoor(door.house), OUTSIDE) as (url, _):
        asking = client(url)
        made = await asyncio.gather(generated(asking, memory, "k", max_tokens=20), return_exceptions=True)
        await generated(asking, memory, "l", max_tokens=20)
        await asking.close()
    assert len(lost) == 1
    assert isinstance(made[0], Transient) == (step == "reserve")
    ((_, _, tokens, reserved),) = await counters(door.house)
    (shown,) = (await use(door.house)).limits
    assert sum(each.tokens for each in shown.uses) == tokens + reserved


async def principal(house: House, project: str, *roles: Any, kind: Any = "person") -> str:
    """A principal of one project."""
    name = f"{'-'.join(roles)}-{project}-{kind}"
    made = Principal(name=name, kind=kind, projects=(project,), roles=roles)
    write = Write(store="principals", id=f"id-{name}", body=made.model_dump(mode="json", exclude_none=True))
    await house.apply("router", house.standing("default", principal=PERSON), writes=(write,))
    return name


async def test_a_reader_of_a_project_sees_its_own_use_and_nothing_of_others(
    model_client: Gateway, door: Door, projects: list[str]
) -> None:
    own, other = projects[:2]
    reader = await principal(door.house, own, "read")
    works = [await working(door, each, "t-1") for each in (own, other)]
    for memory in works:
        await generated(model_client, memory, "k", max_tokens=20)
    await generated(model_client, works[1], "l", max_tokens=20)
    await limit(door.house, [own, other], tokens=10**6)
    report = await use(door.house, own, reader)
    (shown,) = report.limits
    assert (report.everywhere, shown.reached, shown.limit.projects) == (False, False, (own,))
    assert [each.project for each in shown.uses] == [own]
    (seen_by_all,) = (await use(door.house)).limits
    assert {each.project: each.tokens > shown.uses[0].tokens for each in seen_by_all.uses} == {own: False, other: True}
    await limit(door.house, [own, other], tokens=1)
    assert (await use(door.house, own, reader)).limits[0].reached
    await limit(door.house, [other], tokens=1)
    assert (await use(door.house, own, reader)).limits == ()


async def test_only_an_administrator_of_all_projects_sets_a_limit(door: Door, projects: list[str]) -> None:
    house, project = door.house, projects[0]
    made = StoredOrganisationLimit(usd=Decimal(1), by="x", at=datetime(2026, 3, 1, tzinfo=UTC))
    write = Write(store=ORGANISATION_STORE, id=made.record_id, body=made.model_dump(mode="json", exclude_none=True))
    for name in (
        await principal(house, project, "admin", "operate", "read"),
        await principal(house, project, "operate"),
        await principal(house, project, "admin", kind="agent"),
    ):
        await house.refusal("router", house.standing(project, principal=name), "store", writes=(write,))
    await house.refusal("manager", house.delivery(await house.routed(project, "t-1")), "store", writes=(write,))


async def test_the_role_of_memory_and_of_the_inspector_reads_no_counter(house: House) -> None:
    async with house.superuser() as connection:
        for role in ("counterpoint_memory", "counterpoint_inspect"):
            for table in ("organisation_spending", "organisation_reservations"):
                asked = "SELECT has_table_privilege($1, $2, 'SELECT, INSERT, UPDATE, DELETE')"
                assert not await connection.fetchval(asked, role, table)
        rows = await connection.fetch(
            "SELECT proname, has_function_privilege('counterpoint_inspect', oid, 'EXECUTE') AS open"
            " FROM pg_proc WHERE proname LIKE '%organisation%' OR proname = 'note_refused_call'"
        )
    assert len(rows) == 6
    assert not [row["proname"] for row in rows if row["open"]]


@pytest.mark.parametrize(
    ("fields", "problem"),
    [
        ({"usd": "1", "projects": ["a"]}, "name and projects must be given together"),
        ({"usd": "1", "name": "team"}, "name and projects must be given together"),
        ({"name": "team", "projects": ["a"]}, "usd or tokens must be given"),
        ({"usd": "1", "name": "team", "projects": ["Not A Project"]}, "projects"),
    ],
)
def test_a_limit_without_sense_is_refused(fields: dict[str, Any], problem: str) -> None:
    with pytest.raises(ValueError, match=problem):
        StoredOrganisationLimit.model_validate(fields | {"by": "ana", "at": "2026-03-01T00:00:00Z"})
