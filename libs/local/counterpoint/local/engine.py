"""The base of the three engines: a folder, a stable port, and a password."""

import shutil
from abc import abstractmethod
from pathlib import Path

from counterpoint.local.private_files import private_folder
from counterpoint.local.process import ManagedProcess
from counterpoint.local.state_file import StateFile


class Engine(ManagedProcess):
    """A server on 127.0.0.1 with its data in `directory`."""

    def __init__(self, name: str, directory: Path, state: StateFile | None, log: Path | None) -> None:
        self.directory = private_folder(directory)
        super().__init__(name, state or StateFile(self.directory / "state.json"))
        self.log = log or self.directory / f"{name}.log"
        self._port: int | None = None

    @property
    def port(self) -> int:
        """The port, chosen at first use and stored in the state file."""
        if self._port is None:
            self._port = self.state.port(self.name)
        return self._port

    @property
    @abstractmethod
    def data(self) -> Path:
        """The folder of its data alone."""

    def wipe(self) -> None:
        """Delete all data, simulating a lost disk. The engine must be stopped."""
        if self.running:
            raise RuntimeError(f"{self.name} runs: stop or kill it first")
        shutil.rmtree(self.data, ignore_errors=True)
