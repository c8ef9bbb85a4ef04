"""Records older than the term of their store are erased."""

from datetime import UTC, datetime, timedelta

import pytest
from memory_service.house import PERSON, House
from memory_service.learning_project import there
from operations.erasures import MARK, everywhere

from counterpoint.guard.policy import policy
from counterpoint.memory.operations.erasure import Erasures
from counterpoint.memory.operations.large_acts import LargeActs
from counterpoint.memory.provenance.influence import Influence
from counterpoint.proto.ids import new_id
from counterpoint.proto.memory import Write


async def test_a_store_forgets_records_older_than_its_term(house: House, project: str) -> None:
    rules = policy()
    days = rules.stores["webhook_deliveries"].keep_days
    assert days
    for name in ("old", "new"):
        origin = house.standing(project, principal=PERSON)
        await house.apply(
            "router", origin, writes=(Write(store="webhook_deliveries", id=name, body={"n": MARK + name}),)
        )
    async with house.superuser() as connection:
        await connection.execute(
            "UPDATE records SET at = $2 WHERE project = $1 AND id = 'old'",
            project,
            datetime.now(UTC) - timedelta(days=days + 1),
        )
    await house.erasures.age()
    assert await everywhere(house, project, f"{MARK}old") == []
    assert "records" in await everywhere(house, project, f"{MARK}new")
    assert (await house.verify(project))["ok"]


async def test_more_than_one_portion_is_erased_in_one_run_after_the_other(
    house: House, project: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("counterpoint.memory.operations.erasure._AGED_AT_ONCE", 2)
    for name in ("a", "b", "c"):
        write = Write(store="webhook_deliveries", id=name, body={"n": MARK})
        await house.apply("router", house.standing(project, principal=PERSON), writes=(write,))
    async with house.superuser() as connection:
        await connection.execute("UPDATE records SET at = at - interval '999 days' WHERE project = $1", project)
    assert [await house.erasures.age() for _ in range(2)] == [True, False]
    assert await there(house, project, *(("webhook_deliveries", name) for name in ("a", "b", "c"))) == [False] * 3


async def test_a_record_that_changes_during_erasure_by_age_is_kept(house: House, project: str) -> None:
    """An erasure by age is nobody's request: whatever stands in its way must not end the process."""
    write = Write(store="webhook_deliveries", id="old", body={"n": MARK})
    await house.apply("router", house.standing(project, principal=PERSON), writes=(write,))
    async with house.superuser() as connection:
        await connection.execute("UPDATE records SET at = at - interval '999 days' WHERE project = $1", project)

    async def changed() -> None:
        again = Write(store="webhook_deliveries", id="old", body={"n": new_id()}, expect=1)
        await house.apply("router", house.standing(project, principal=PERSON), writes=(again,))

    large = LargeActs(house.database, policy(), house.committer)
    await Erasures(house.database, policy(), house.committer, Influence(house.database), changed, large).age()
    assert await there(house, project, ("webhook_deliveries", "old")) == [True]
