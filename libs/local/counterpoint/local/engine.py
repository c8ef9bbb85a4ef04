"""What the three engines share: a folder, a kept port, and a password."""

import shutil
from abc import abstractmethod
from pathlib import Path

from counterpoint.local.child import Child
from counterpoint.local.private import private_folder
from counterpoint.local.state import State


class Engine(Child):
    """A server on 127.0.0.1 with its data in `directory`."""

    def __init__(self, name: str, directory: Path, state: State | None, log: Path | None) -> None:
        self.directory = private_folder(directory)
        super().__init__(name, state or State(self.directory / "state.json"))
        self.log = log or self.directory / f"{name}.log"
        self._port: int | None = None

    @property
    def port(self) -> int:
        """The port, chosen at the first use and then kept, in this process and on disk."""
        if self._port is None:
            self._port = self.state.port(self.name)
        return self._port

    @property
    @abstractmethod
    def data(self) -> Path:
        """The folder that holds its records and nothing else."""

    def wipe(self) -> None:
        """Lose all data, as a lost disk would. It must not run."""
        if self.running:
            raise RuntimeError(f"{self.name} runs: stop or kill it first")
        shutil.rmtree(self.data, ignore_errors=True)
