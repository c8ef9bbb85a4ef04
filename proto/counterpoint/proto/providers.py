"""Providers: the official Airflow packages for external systems, as the provider index holds them (row A4)."""

from typing import Annotated

from pydantic import Field, StringConstraints

from counterpoint.proto.messages import Shape

SystemName = Annotated[str, StringConstraints(min_length=1, max_length=200)]
ClassName = Annotated[str, StringConstraints(pattern=r"^[A-Za-z_][A-Za-z0-9_]{0,199}$")]


class Provider(Shape):
    """A provider package: what it is called, and what it brings.

    A system is known by its `name`, its `aliases` and its `terms`. The terms are words that mean something else in
    prose ("batch", "http"): they count only where somebody names a system. `package_version` is that of the package the
    row was read from; None for a row that was written by hand.
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
