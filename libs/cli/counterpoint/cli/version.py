"""The version of the command, with the commit that it was built from."""

import subprocess
from importlib.metadata import PackageNotFoundError, metadata
from importlib.resources import files
from pathlib import Path

DISTRIBUTION, MEMBER = "counterpoint", "counterpoint-cli"
"""The distribution of an installation, and the member of the workspace of a checkout."""


def release() -> str:
    """Return the number of the release."""
    try:
        return metadata(DISTRIBUTION)["Version"]
    except PackageNotFoundError:
        return metadata(MEMBER)["Version"]


def version() -> str:
    """Return release and commit, `0.1.0 (1a2b3c4d5e6f)`; without the commit if there is neither a wheel nor git."""
    commit = _built_from() or _checked_out()
    return f"{release()} ({commit})" if commit else release()


def _built_from() -> str | None:
    written = files("counterpoint.cli").joinpath("commit.txt")
    return written.read_text().strip() if written.is_file() else None


def _checked_out() -> str | None:
    """Return the commit of the checkout that this file is part of."""
    root = Path(__file__).resolve().parents[4]
    if not (root / ".git").exists():
        return None
    command = ["git", "-C", str(root), "rev-parse", "--short=12", "HEAD"]
    try:
        done = subprocess.run(command, capture_output=True, text=True, check=False)
    except FileNotFoundError:
        return None
    return done.stdout.strip() if done.returncode == 0 else None
