"""Print the changelog in Markdown, from the subjects of the commits: `python deploy/changelog.py`.

A release is a tag `v1.2.3`. A subject is `scope: change`; tests, merges and corrections of a commit are left out.
"""

import re
import subprocess
import tomllib
from collections import defaultdict
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
_SUBJECT = re.compile(r"(?P<scope>[a-z][a-z0-9_, -]*): (?P<change>.+)")
_TAG = re.compile(r"tag: v(\d+(?:\.\d+)*)")
_LEFT_OUT = frozenset({"tests"})


@dataclass
class Release:
    """A release with its changes by scope, newest first."""

    title: str
    changes: dict[str, list[str]] = field(default_factory=lambda: defaultdict(list))


def commits(root: Path) -> Iterator[tuple[str, str, str]]:
    """Yield day, tags and subject of each commit, newest first."""
    command = ["git", "log", "--no-merges", "--date=short", "--format=%cd%x09%D%x09%s"]
    for line in subprocess.run(command, cwd=root, capture_output=True, text=True, check=True).stdout.splitlines():
        day, names, subject = line.split("\t", 2)
        yield day, names, subject


def releases(history: Iterable[tuple[str, str, str]], next_version: str) -> list[Release]:
    """Group the commits by release and scope. Those after the last tag belong to `next_version`."""
    found = [Release(f"{next_version} (not released)")]
    for day, names, subject in history:
        if tag := _TAG.search(names):
            found.append(Release(f"{tag[1]} ({day})"))
        match = _SUBJECT.fullmatch(subject)
        if match and not _LEFT_OUT & {scope.strip() for scope in match["scope"].split(",")}:
            found[-1].changes[match["scope"]].append(match["change"])
    return [release for release in found if release.changes]


def markdown(found: Iterable[Release]) -> str:
    """Return the changelog."""
    lines = ["# Changelog"]
    for release in found:
        lines += ["", f"## {release.title}"]
        for scope in sorted(release.changes):
            lines += ["", f"### {scope}", "", *(f"- {change}" for change in release.changes[scope])]
    return "\n".join(lines) + "\n"


def changelog(root: Path = ROOT) -> str:
    """Return the changelog of a checkout."""
    version = tomllib.loads((root / "pyproject.toml").read_text())["project"]["version"]
    return markdown(releases(commits(root), version))


if __name__ == "__main__":
    print(changelog(), end="")
