"""Commit subjects: `scope: imperative`, at most 72 characters."""

import re
import shutil
import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
SINCE = "a4635d44"
"""The last commit before the rule was held."""
SUBJECT = re.compile(r"[a-z][a-z0-9_-]*(, [a-z][a-z0-9_-]*)*: [a-z].*[^.]")
LONGEST = 72
TOO_LONG = {"bus: process deliveries in a room of their own, without private attributes"}
"""A subject that was published before this test had been run on it."""


def _subjects() -> list[str]:
    git = shutil.which("git")
    if git is None or not (ROOT / ".git").exists():
        pytest.skip("this is no git checkout")
    listed = subprocess.run(
        [git, "-C", str(ROOT), "log", "--no-merges", "--format=%s", f"{SINCE}..HEAD"],
        capture_output=True,
        text=True,
        check=False,
    )
    if listed.returncode != 0:
        pytest.skip(f"the history of this checkout does not reach back to {SINCE}")
    return listed.stdout.splitlines()


def test_every_subject_names_its_scope_and_is_short() -> None:
    assert not [each for each in set(_subjects()) - TOO_LONG if not SUBJECT.fullmatch(each) or len(each) > LONGEST]


@pytest.mark.parametrize(
    "subject",
    ["Memory: add a room", "memory add a room", "memory: Add a room", "memory: add a room.", f"memory: {'a' * 72}"],
)
def test_other_subjects_are_refused(subject: str) -> None:
    assert SUBJECT.fullmatch(subject) is None or len(subject) > LONGEST
