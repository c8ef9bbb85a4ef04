"""The developer, killed by itself where it is told to: `python dying_developer.py ORDERS`.

An order is an empty file in the folder ORDERS named `before-NODE` or `after-NODE`: the commit of that node, or of
`end`. It is gone when it has been obeyed.
"""

import os
import signal
import sys
from pathlib import Path

from counterpoint.client import Memory
from counterpoint.developer.main import run
from counterpoint.proto.memory import Commit, CommitReply

ORDERS = Path(sys.argv[1])
_step = Memory.step


async def step(self: Memory, commit: Commit) -> CommitReply:
    """A commit, before or after which this may be the end."""
    node = "end" if commit.last else commit.step.partition("-")[2]
    _passed(f"before-{node}")
    reply = await _step(self, commit)
    _passed(f"after-{node}")
    return reply


def _passed(place: str) -> None:
    order = ORDERS / place
    if order.exists():
        order.unlink()
        os.kill(os.getpid(), signal.SIGKILL)


if __name__ == "__main__":
    Memory.step = step  # type: ignore[method-assign]
    run()
