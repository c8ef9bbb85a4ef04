"""All services killed again and again: nothing is lost, nothing happens twice, what was learned stays learned."""

from pathlib import Path

import pytest
from chaos.counts import Result, row
from chaos.harness import run
from chaos.house import AWAITS


def assert_whole(result: Result) -> None:
    """Assert that the kills of a run have done no harm."""
    figures = row(result)
    assert result.lost == [], figures
    assert result.doubled == [], figures
    assert result.unlearned == [], figures
    assert result.dead == [], figures
    assert result.verified, figures
    assert result.unreached == [], figures


@pytest.mark.timeout(600)
async def test_tasks_survive_kills_at_some_awaits(tmp_path: Path) -> None:
    assert_whole(await run(tmp_path, seed=1, tasks=12, kills=7))


@pytest.mark.slow
@pytest.mark.timeout(1800)
async def test_tasks_survive_a_kill_at_every_await(tmp_path: Path) -> None:
    result = await run(tmp_path, seed=1, tasks=60, kills=len(AWAITS) + 10)
    assert_whole(result)
    assert set(AWAITS) <= set(result.kills)
