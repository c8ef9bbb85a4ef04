"""`counterpoint bench memory`: its sections run, and what they find is what they say."""

from pathlib import Path

import pytest

from counterpoint.bench.memory import SECTIONS, run
from counterpoint.bench.sections.size import SectionSize

TINY = SectionSize(runs=1, samples=5, adds=5, batches=1, searched=(2_000,), past=500, leaves=2_000, commits=40)
"""Enough to check that each section works. Its figures mean nothing."""


@pytest.mark.slow
@pytest.mark.parametrize(("section", "rows"), [("policy", 4), ("search", 4), ("take-back", 2)])
async def test_a_section_measures_each_of_its_rows(section: str, rows: int, tmp_path: Path) -> None:
    report = await run(tmp_path, [section], TINY)
    assert len(report.measures) == rows
    assert all(len(row.runs) == TINY.runs for row in report.measures)
    assert len(report.loads) == TINY.runs
    for row in report.measures:
        if "recall" in row.name:
            assert row.value == 1


def test_every_section_is_described() -> None:
    page = (Path(__file__).parents[2] / "docs" / "operations.md").read_text()
    (line,) = [line for line in page.splitlines() if line.startswith("`counterpoint bench memory` has sections: ")]
    assert [name.strip() for name in line.split(": ")[1].split(".")[0].split(",")] == list(SECTIONS)
