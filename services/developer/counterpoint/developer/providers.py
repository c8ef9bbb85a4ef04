"""Providers: the official package for an external system, or a stop. Never a stand-in (row A4)."""

import re
from collections.abc import Sequence
from dataclasses import dataclass

from counterpoint.proto.providers import Provider
from counterpoint.proto.tasks import Need


@dataclass(frozen=True)
class Lookup:
    """What the index says about the systems of a task: those with a provider, those without."""

    found: tuple[tuple[str, Provider], ...] = ()
    missing: tuple[str, ...] = ()

    @property
    def exists(self) -> bool | None:
        """Whether every system has a provider; None when the task names no system."""
        if self.missing:
            return False
        return True if self.found else None


def look_up(systems: Sequence[str], text: str, index: Sequence[Provider]) -> Lookup:
    """The providers of the systems a task names; of those its text mentions when it names none."""
    if systems:
        pairs = [(system, match(system, index)) for system in systems]
        return Lookup(
            found=tuple((system, provider) for system, provider in pairs if provider is not None),
            missing=tuple(system for system, provider in pairs if provider is None),
        )
    words = f" {_plain(text)} "
    named = ((name, provider) for provider in index for name in (provider.name, *provider.aliases))
    mentioned = {provider.package: (name, provider) for name, provider in named if f" {_plain(name)} " in words}
    return Lookup(found=tuple(mentioned.values()))


def match(system: str, index: Sequence[Provider]) -> Provider | None:
    """The provider whose name or alias the system is, whatever its case and punctuation."""
    wanted = _plain(system)
    for provider in index:
        if wanted in {_plain(name) for name in (provider.name, *provider.aliases)}:
            return provider
    return None


def needs(missing: Sequence[str], project: str) -> tuple[Need, ...]:
    """What would let work on systems without a provider go on."""
    return tuple(
        need
        for system in missing
        for need in (
            Need(
                kind="provider",
                what=f"an official provider package for {system}, or the name under which the index knows it",
                how="submit the task again with that name in `systems`",
            ),
            Need(
                kind="document",
                what=f"a provider plan for {system}: connections, operators, alternatives",
                how=f"counterpoint ingest PATH --project {project}",
            ),
        )
    )


def _plain(name: str) -> str:
    return " ".join(re.findall(r"[a-z0-9]+", name.lower()))
