"""Commit subjects: `scope: imperative`, at most 72 characters."""

import re
import shutil
import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
SINCE = "920ffd6"
"""The last commit before the rule."""
SUBJECT = re.compile(r"[a-z][a-z0-9_-]*(, [a-z][a-z0-9_-]*)*: [a-z].*[^.]")
LONGEST = 72
BEFORE_THE_CHECK = {
    "bench,local: name arguments and results",
    "bus: import public names at first use, collect tests without garbage collection",
    "bus: process deliveries in a room of their own, without private attributes",
    "developer,manager: plain English docstrings, names for results",
    "fixup! docs: write the page on operations in the field's terms",
    "guard,graph,client: name functions after their results",
    "lineage,developer,tests: name values for what they are, delete dead code",
    "tests: share one stack among files that use it, and one with outside models",
}
"""Subjects that were published before this check ran on them."""


def _run(git: str, *arguments: str) -> str:
    return subprocess.run([git, "-C", str(ROOT), *arguments], capture_output=True, text=True, check=True).stdout


def _subjects() -> list[str]:
    git = shutil.which("git")
    if git is None or not (ROOT / ".git").exists():
        pytest.skip("this is no git checkout")
    known = subprocess.run([git, "-C", str(ROOT), "cat-file", "-e", f"{SINCE}^{{commit}}"], capture_output=True)
    if known.returncode:
        pytest.skip(f"this checkout does not reach back to {SINCE}")
    return _run(git, "log", "--no-merges", "--format=%s", f"{SINCE}..HEAD").splitlines()


def test_every_subject_names_its_scope_and_is_short() -> None:
    assert not [
        each for each in set(_subjects()) - BEFORE_THE_CHECK if not SUBJECT.fullmatch(each) or len(each) > LONGEST
    ]


@pytest.mark.parametrize(
    "subject",
    ["Memory: add a room", "memory add a room", "memory: Add a room", "memory: add a room.", f"memory: {'a' * 72}"],
)
def test_other_subjects_are_refused(subject: str) -> None:
    assert SUBJECT.fullmatch(subject) is None or len(subject) > LONGEST
