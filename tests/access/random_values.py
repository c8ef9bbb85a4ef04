"""Plain values of random requests and of the records in the model."""

from dataclasses import dataclass


@dataclass
class Record:
    """As it stands: its version, the task it belongs to, whether it is there, and what it is worth."""

    version: int
    task: str | None
    live: bool
    integrity: int


@dataclass(frozen=True)
class Token:
    """One that came with a message of this type, for a service, project and task."""

    type: str
    service: str
    project: str
    task: str
    message: str
    versioned: bool
    late: bool


@dataclass(frozen=True)
class Ask:
    """One request: who asks, with what, about which project and task, and what for."""

    caller: str
    project: str
    task: str | None
    message: str
    token: Token | None = None
    principal: str | None = None
    lives_s: float = 60.0
    run: int = 0
    operation: str = "read"
    store: str = "attempts"
    id: str = "r"
    expect: int = 0
    about: str | None = None
    body: str = "whole"
    """`whole`, `malformed`, or `none` for a deletion."""
