"""The demo plays on any incident: what is proposed comes from what is known, never from the program.

The default one is played by the test of the card in `tests/contract/test_docs.py`.
"""

import asyncio
import os
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
INCIDENTS = sorted(path for path in (ROOT / "examples" / "incidents").glob("*.yaml") if path.stem != "orders")
TIMEOUT_S = 240


@pytest.mark.slow
@pytest.mark.timeout(TIMEOUT_S + 30)
@pytest.mark.parametrize("incident", INCIDENTS, ids=lambda path: path.stem)
async def test_the_story_holds(incident: Path, tmp_path: Path) -> None:
    process = await asyncio.create_subprocess_exec(
        sys.executable,
        "-m",
        "counterpoint.cli.main",
        "demo",
        "--incident",
        str(incident),
        cwd=ROOT,
        env={**os.environ, "TMPDIR": str(tmp_path)},
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.STDOUT,
    )
    output, _ = await asyncio.wait_for(process.communicate(), TIMEOUT_S)
    told = output.decode()
    assert process.returncode == 0, told[-4000:]
    assert "checks passed" in told
