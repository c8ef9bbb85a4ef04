"""Programs of earlier releases, from the Git history.

A release is a tag `v1.2.3`. As long as there are fewer than two, one ends with each commit of the main line after which
the set of migrations changes: services and their database meet in the schema, and everything else may only add.
"""

import json
import shutil
import subprocess
import sys
from collections.abc import Mapping
from functools import cache
from pathlib import Path

import pytest

from counterpoint.local.service import JobName, ServiceName

ROOT = Path(__file__).parents[2]
MIGRATIONS = "services/memory/counterpoint/memory/record/migrations"

Commands = Mapping[ServiceName | JobName, tuple[str, ...]]


def git(*arguments: str) -> str | None:
    """Return the output of git on this checkout; None if it fails."""
    program = shutil.which("git")
    if program is None or not (ROOT / ".git").exists():
        return None
    done = subprocess.run([program, "-C", str(ROOT), *arguments], capture_output=True, text=True, check=False)
    return done.stdout.strip() if done.returncode == 0 else None


def earlier_releases(count: int) -> list[str]:
    """Return the commits of the last releases, newest first. Skips the test if the history has fewer."""
    if git("rev-parse", "--verify", "HEAD") is None:
        pytest.skip("this is no git checkout: there is no earlier release to run")
    tags = (git("tag", "--merged", "HEAD", "--sort=-version:refname", "--list", "v*") or "").split()
    found = [tag for tag in tags if git("rev-parse", f"{tag}^{{commit}}") != git("rev-parse", "HEAD")]
    if len(found) < count:
        found = _last_of_each_schema(count)
    if len(found) < count:
        pytest.skip(f"the history of this checkout has fewer than {count} earlier releases")
    return found[:count]


@cache
def _last_of_each_schema(count: int) -> list[str]:
    """Return the commits of the main line after which the set of migrations changed, newest first."""
    current = frozenset(path.name for path in (ROOT / MIGRATIONS).iterdir() if path.name[0].isdigit())
    changes = git("log", "--first-parent", "--diff-merges=first-parent", "--format=%H", "--", MIGRATIONS) or ""
    found = list[str]()
    for commit in ("HEAD", *(f"{change}^" for change in changes.split())):
        if len(found) == count:
            break
        listed = (git("ls-tree", "--name-only", commit, f"{MIGRATIONS}/") or "").split()
        names = frozenset(Path(name).name for name in listed if Path(name).name[0].isdigit())
        if names and names != current:
            found.append(commit)
            current = names
    return found


def checkout(commit: str, folder: Path) -> Path:
    """Extract the packages of a commit."""
    archive = folder.with_suffix(".zip")
    assert git("archive", "-o", str(archive), commit, "proto", "libs", "services") is not None
    shutil.unpack_archive(archive, folder)
    return folder


def commands_of(packages: Path) -> Commands:
    """Return the programs of these packages: PYTHONPATH goes before what is installed."""
    members = (packages / "proto", *(packages / "libs").iterdir(), *(packages / "services").iterdir())
    env = shutil.which("env")
    assert env is not None
    path = f"PYTHONPATH={':'.join(str(member) for member in members)}"
    asked = "import json; from counterpoint.local.service import COMMANDS; print(json.dumps(COMMANDS))"
    said = subprocess.run([env, path, sys.executable, "-c", asked], capture_output=True, check=True)
    return {name: (env, path, *command) for name, command in json.loads(said.stdout).items()}
