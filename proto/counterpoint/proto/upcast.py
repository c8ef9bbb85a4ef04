"""Upcasting: a stored body of an older schema version is brought to the present one, step by step.

Every record and message in the log carries the version it was written with. An upcaster is a pure function from
version v to v+1 of one shape; it is kept for ever, for what was written once may be read at any time.
"""

from collections.abc import Callable
from typing import Any

from counterpoint.proto.errors import Permanent, Problem

Body = dict[str, Any]
Upcaster = Callable[[Body], Body]

FIRST_VERSION = 1


class Upcasters:
    """The upcasters of every shape, by the name of its store or message type. A shape without any is at version 1."""

    def __init__(self) -> None:
        self._steps: dict[str, list[Upcaster]] = {}

    def current(self, name: str) -> int:
        """The version that is written today."""
        return FIRST_VERSION + len(self._steps.get(name, ()))

    def register(self, name: str, version: int) -> Callable[[Upcaster], Upcaster]:
        """Decorate the step from `version` to the next. `ValueError` unless it follows the last one registered."""

        def keep(step: Upcaster) -> Upcaster:
            if version != self.current(name):
                raise ValueError(f"the next upcaster of {name} starts at version {self.current(name)}, not {version}")
            self._steps.setdefault(name, []).append(step)
            return step

        return keep

    def upcast(self, name: str, version: int, body: Body) -> tuple[int, Body]:
        """The body at today's version.

        A body that a newer release wrote comes back as it is: readers leave out what they do not know. Raises
        `Permanent("bad_version")` for a version that never was.
        """
        if version < FIRST_VERSION:
            raise Permanent("bad_version", (Problem(field="version", problem=f"{name} has no version {version}"),))
        for step in self._steps.get(name, ())[version - FIRST_VERSION :]:
            body = step(body)
        return max(version, self.current(name)), body

    def check_writer(self, name: str, writer_version: int, stored_version: int) -> None:
        """Refuse a writer that is older than what is stored: it would drop fields that it does not know.

        Raises `Permanent("old_writer")`.
        """
        if writer_version < stored_version:
            problem = f"{name} is stored at version {stored_version}, the writer knows {writer_version}"
            raise Permanent("old_writer", (Problem(field="version", problem=problem),))


UPCASTERS = Upcasters()
"""The upcasters of this release."""

upcaster = UPCASTERS.register
upcast = UPCASTERS.upcast
check_writer = UPCASTERS.check_writer
current_version = UPCASTERS.current
