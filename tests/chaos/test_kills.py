"""The whole house under fire: nothing is lost, nothing happens twice, what was learned stays learned."""

from pathlib import Path

import pytest
from chaos.harness import run, table
from chaos.house import AWAITS


@pytest.mark.timeout(900)
async def test_tasks_survive_a_kill_at_every_await(tmp_path: Path) -> None:
    result = await run(tmp_path, seed=1, tasks=60, kills=len(AWAITS) + 10)
    told = table([result])
    assert result.lost == [], told
    assert result.doubled == [], told
    assert result.unlearned == [], told
    assert result.dead == [], told
    assert result.verified, told
    assert set(AWAITS) <= set(result.kills), f"not reached: {result.unreached}"
