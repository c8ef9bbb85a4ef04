"""Providers: the official Airflow packages for external systems, as in the provider index."""

import re
from collections.abc import Callable, Sequence
from functools import lru_cache
from typing import Annotated

from pydantic import Field, StringConstraints

from counterpoint.proto.messages import Shape

SystemName = Annotated[str, StringConstraints(min_length=1, max_length=200)]
ClassName = Annotated[str, StringConstraints(pattern=r"^[A-Za-z_][A-Za-z0-9_]{0,199}$")]


class Provider(Shape):
    """A provider package: its names and contents.

    A system is recognised by its `name`, `aliases` and `terms`. Terms are words that mean something else in prose
    ("batch", "http"): they count only where a system is named. `package_version` is the version the row was read from;
    None for a manual row.
    """

    name: SystemName
    aliases: tuple[SystemName, ...] = Field(default=(), max_length=500)
    terms: tuple[SystemName, ...] = Field(default=(), max_length=500)
    package: Annotated[str, StringConstraints(pattern=r"^[a-z0-9]([a-z0-9-]{0,198}[a-z0-9])?$")]
    package_version: Annotated[str, StringConstraints(pattern=r"^[0-9A-Za-z.+!_-]{1,50}$")] | None = None
    operators: tuple[ClassName, ...] = Field(default=(), max_length=2_000)
    sensors: tuple[ClassName, ...] = Field(default=(), max_length=2_000)
    hooks: tuple[ClassName, ...] = Field(default=(), max_length=2_000)
    connection_types: tuple[SystemName, ...] = Field(default=(), max_length=500)


def provider_of(system: str, index: Sequence[Provider]) -> Provider | None:
    """Return the provider of a system name, ignoring case and punctuation: by name, else by alias, else by term."""
    wanted = plain_name(system)
    by_rank: tuple[Callable[[Provider], tuple[str, ...]], ...] = (
        lambda provider: (provider.name,),
        lambda provider: provider.aliases,
        lambda provider: provider.terms,
    )
    for names in by_rank:
        for provider in index:
            if wanted and wanted in map(plain_name, names(provider)):
                return provider
    return None


@lru_cache(maxsize=4_000)
def plain_name(name: str) -> str:
    """Return a name without case and punctuation."""
    return plain_text(name)


def plain_text(text: str) -> str:
    """Return a text without case and punctuation."""
    return " ".join(re.findall(r"[a-z0-9]+", text.lower()))
