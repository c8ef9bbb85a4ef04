"""Benchmarks that are also sections of the memory benchmark: the line of a task, and the audit log."""

from pathlib import Path

from counterpoint.bench import audit, line
from counterpoint.bench.report import BenchReport
from counterpoint.bench.sections.size import SectionSize


async def measure_line(folder: Path, size: SectionSize, report: BenchReport) -> None:
    """Add the rows of `counterpoint bench line`; its size is fixed."""
    _add(report, await line.run(folder))


async def measure_audit(folder: Path, size: SectionSize, report: BenchReport) -> None:
    """Add the rows of the audit benchmark. Its target is for a million leaves."""
    _add(report, await audit.run(folder, size.leaves, 10))


def _add(report: BenchReport, part: BenchReport) -> None:
    report.measures += part.measures
    report.loads += part.loads
