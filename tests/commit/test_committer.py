"""The committer: projects take turns, and what is asked of one is applied in the order it comes."""

import asyncio

from memory_service.house import House
from query.record_versions import version_of

from counterpoint.memory.commit.committer import BATCH


async def test_a_commit_behind_the_backlog_of_another_project_is_in_the_second_transaction(
    house: House, project: str
) -> None:
    done: list[str] = []

    async def one(place: str, n: int) -> None:
        await house.committer.apply(version_of(place, f"r-{n}", 1, "restarted"))
        done.append(place)

    places = [f"{project}-busy"] * 5 * BATCH + [f"{project}-other"]
    await asyncio.gather(*(one(place, n) for n, place in enumerate(places)))
    assert done.index(f"{project}-other") <= 2 * BATCH
