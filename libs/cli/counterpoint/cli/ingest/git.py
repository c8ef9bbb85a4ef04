"""Git repositories, by the `git` program: tracked files and shallow clones."""

import os
import re
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path, PurePosixPath
from tempfile import TemporaryDirectory
from urllib.parse import urlsplit

from counterpoint.cli.errors import CommandError

CLONE_LIMIT_S = 600
_ELSEWHERE = re.compile(r"(?:git|ssh|git\+ssh)://.+|(?:https?|file)://.+\.git/?|[\w.-]+@[\w.-]+:.+")


_NAMING = frozenset(
    f"GIT_{name}"
    for name in (
        "DIR", "WORK_TREE", "INDEX_FILE", "COMMON_DIR", "OBJECT_DIRECTORY", "ALTERNATE_OBJECT_DIRECTORIES", "NAMESPACE",
        "PREFIX", "CEILING_DIRECTORIES", "CONFIG_PARAMETERS", "CONFIG_COUNT",
    )
)  # fmt: skip
"""Variables that select another repository, as in a git hook."""


class RepositoryError(CommandError):
    """A repository cannot be read."""


def is_repository_url(name: str) -> bool:
    """Return whether a name is the URL of a repository."""
    return _ELSEWHERE.fullmatch(name) is not None


def working_tree_root(path: Path) -> Path | None:
    """Return the root of the working tree of a path, or None."""
    path = path.resolve()
    return next((folder for folder in (path, *path.parents) if (folder / ".git").exists()), None)


def repository_name(address: str) -> str:
    """Return the name of a repository: the last part of its URL."""
    path = urlsplit(address).path if "://" in address else address.partition(":")[2]
    return PurePosixPath(path.rstrip("/")).name.removesuffix(".git") or "repository"


def tracked_files(top: Path) -> list[str]:
    """Return the tracked files, relative to the root. Raises `RepositoryError`."""
    # A repository may configure a program that watches its files; it must not run.
    output = _git("-C", str(top), "-c", "core.fsmonitor=false", "ls-files", "-z", "--cached")
    return sorted(dict.fromkeys(name for name in output.decode(errors="surrogateescape").split("\0") if name))


@contextmanager
def clone(address: str) -> Iterator[Path]:
    """Clone a repository without history into a temporary folder. Raises `RepositoryError`."""
    with TemporaryDirectory(prefix="counterpoint-") as folder:
        copy = Path(folder) / "copy"
        options = ("--quiet", "--depth", "1", "--single-branch", "--no-tags")
        _git("-c", "protocol.ext.allow=never", "clone", *options, "--", address, str(copy))
        yield copy


def _git(*words: str) -> bytes:
    inherited = {name: value for name, value in os.environ.items() if name not in _NAMING}
    environment = {**inherited, "GIT_TERMINAL_PROMPT": "0", "GIT_SSH_COMMAND": "ssh -o BatchMode=yes"}
    try:
        ended = subprocess.run(
            ["git", *words], capture_output=True, timeout=CLONE_LIMIT_S, env=environment, check=False
        )
    except FileNotFoundError:
        raise RepositoryError("git is not installed") from None
    except subprocess.TimeoutExpired:
        raise RepositoryError(f"git took longer than {CLONE_LIMIT_S} s") from None
    if ended.returncode:
        output = ended.stderr.decode(errors="replace").strip().splitlines()
        raise RepositoryError(output[-1] if output else f"git failed with exit code {ended.returncode}")
    return ended.stdout
