"""Providers: the official packages of external systems. A task without one stops; there is no substitute."""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from counterpoint.proto.providers import Provider, plain_name, plain_text, provider_of
from counterpoint.proto.tasks import Need

_DOTTED = re.compile(r"\.[A-Za-z]")


@dataclass(frozen=True)
class ProviderLookup:
    """The systems of a task with a provider, and those without, in an index; of a failure in that part of it which
    `text_with_names` selects."""

    found: tuple[tuple[str, Provider], ...] = ()
    missing: tuple[str, ...] = ()
    index: tuple[Provider, ...] = ()

    @property
    def exists(self) -> bool | None:
        """Whether every system has a provider; None without systems."""
        if self.missing:
            return False
        return True if self.found else None


def look_up_providers(systems: Sequence[str], text: str, index: Sequence[Provider]) -> ProviderLookup:
    """Look up the providers of the systems of a task, or without systems of those that its text mentions."""
    if systems:
        pairs = [(system, provider_of(system, index)) for system in systems]
        return ProviderLookup(
            found=tuple((system, provider) for system, provider in pairs if provider is not None),
            missing=tuple(system for system, provider in pairs if provider is None),
            index=tuple(index),
        )
    words = f" {plain_text(text_with_names(systems, text))} "
    mentioned: dict[str, tuple[str, Provider]] = {}
    for provider in index:
        for name in _prose_names(provider):
            if f" {plain_name(name)} " in words:
                mentioned.setdefault(provider.package, (name, provider))
    return ProviderLookup(found=tuple(mentioned.values()), index=tuple(index))


def text_with_names(systems: Sequence[str], text: str) -> str:
    """Return the text in which a provider of a task is named: its systems, or without systems the prose of its text."""
    return "\n".join(systems) or _without_locations(text)


def _prose_names(provider: Provider) -> tuple[str, ...]:
    """Return the names of a provider that are unambiguous in prose."""
    terms = set(map(plain_name, provider.terms))
    return tuple(name for name in (provider.name, *provider.aliases) if plain_name(name) not in terms)


def provider_needs(missing: Mapping[str, str], project: str) -> tuple[Need, ...]:
    """Return the needs that stop work on systems without a provider, each with the path of its plan."""
    return tuple(
        need
        for system, path in missing.items()
        for need in (
            Need(
                kind="provider",
                what=f"an official provider package for {system}, or the name under which the index knows it",
                how="submit the task again with that name in `systems`",
            ),
            Need(
                kind="document",
                what=f"the provider plan for {system}, completed: connections, operators, alternatives",
                how=f"counterpoint ingest {path} --project {project}",
            ),
        )
    )


def _without_locations(text: str) -> str:
    """Return the text without URLs (except schemes), hosts, paths, mail addresses and settings, whose names are
    locations."""
    kept = []
    for token in text.split():
        scheme, colon, _ = token.partition("://")
        if colon:
            kept.append(scheme)
        elif not ("@" in token or _DOTTED.search(token) or sum(map(token.count, "/\\=")) > 1):
            kept.append(token)
    return " ".join(kept)
