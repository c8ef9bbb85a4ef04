"""Other processes of the same user cannot read memory's memory."""

import subprocess
import sys

import pytest

_RUN = """
import ctypes
from counterpoint.memory import main
main.serve = main.MemorySettings = main.bus.run = lambda *_: None
main.run()
print(ctypes.CDLL(None).prctl(3, 0, 0, 0, 0))
"""
"""Ends with what the kernel says: 1 if others may read the process, as at its beginning."""


@pytest.mark.skipif(sys.platform != "linux", reason="a property of Linux")
def test_memory_cannot_be_read_by_processes_of_its_user() -> None:
    ended = subprocess.run([sys.executable, "-c", _RUN], capture_output=True, text=True, check=True)
    assert ended.stdout == "0\n"
