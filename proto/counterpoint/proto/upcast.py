"""Upcasting: a stored body of an older schema version is converted to the current one, step by step.

Every record and logged message has the version it was written with. An upcaster is a pure function from version v to
v+1 of one shape, and is never removed, since old versions stay readable.
"""

from collections.abc import Callable
from typing import Any

from counterpoint.proto.errors import ErrorCode, Permanent, Problem

Body = dict[str, Any]
Upcaster = Callable[[Body], Body]

FIRST_VERSION = 1


class Upcasters:
    """The upcasters of every shape, by the name of its store or message type. A shape without any is at version 1."""

    def __init__(self) -> None:
        self._steps: dict[str, list[Upcaster]] = {}

    def current(self, name: str) -> int:
        """Return the current version."""
        return FIRST_VERSION + len(self._steps.get(name, ()))

    def register(self, name: str, version: int) -> Callable[[Upcaster], Upcaster]:
        """Register the decorated step from `version` to the next.

        Raises `ValueError` unless it follows the last one.
        """

        def keep(step: Upcaster) -> Upcaster:
            if version != self.current(name):
                raise ValueError(f"the next upcaster of {name} starts at version {self.current(name)}, not {version}")
            self._steps.setdefault(name, []).append(step)
            return step

        return keep

    def upcast(self, name: str, version: int, body: Body) -> tuple[int, Body]:
        """Return the current version and the body at it; a body of a newer release is returned unchanged.

        Raises `Permanent` `bad_version` for a version below the first.
        """
        if version < FIRST_VERSION:
            raise Permanent(
                ErrorCode.BAD_VERSION, (Problem(field="version", problem=f"{name} has no version {version}"),)
            )
        for step in self._steps.get(name, ())[version - FIRST_VERSION :]:
            body = step(body)
        return max(version, self.current(name)), body

    def check_writer(self, name: str, writer_version: int, stored_version: int) -> None:
        """Raise `Permanent` `old_writer` if the writer is older than the stored version.

        An older writer would drop fields that it does not know.
        """
        if writer_version < stored_version:
            problem = f"{name} is stored at version {stored_version}, but the writer has version {writer_version}"
            raise Permanent(ErrorCode.OLD_WRITER, (Problem(field="version", problem=problem),))


UPCASTERS = Upcasters()
"""The upcasters of this release; decorate a new one with `UPCASTERS.register`."""

upcast = UPCASTERS.upcast
check_writer = UPCASTERS.check_writer
current_version = UPCASTERS.current
