"""Wait for the end of processes that are not children."""

import os
import select
from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def watched(pids: set[int]) -> Iterator[dict[int, int]]:
    """A descriptor per process, which becomes readable when that very process ends."""
    descriptors = {pid: os.pidfd_open(pid) for pid in pids}
    try:
        yield descriptors
    finally:
        for descriptor in descriptors.values():
            os.close(descriptor)


def wait_ended(descriptors: dict[int, int], timeout_s: float) -> set[int]:
    """The processes that still live after `timeout_s`."""
    living = dict(descriptors)
    poll = select.poll()
    for descriptor in living.values():
        poll.register(descriptor, select.POLLIN)
    while living:
        ended = {descriptor for descriptor, _ in poll.poll(timeout_s * 1000)}
        if not ended:
            break
        for descriptor in ended:
            poll.unregister(descriptor)
        living = {pid: descriptor for pid, descriptor in living.items() if descriptor not in ended}
    return set(living)
