"""The policy file and its reader. Default deny: what the file does not say is refused."""

import re
from collections.abc import Mapping
from functools import cached_property, lru_cache
from importlib.resources import files
from pathlib import Path
from typing import Any, Literal, Self, get_args

import yaml
from pydantic import BaseModel, ConfigDict, Field, model_validator

from counterpoint.guard.kinds import CLASSES, Class
from counterpoint.proto import subjects

Tier = Literal["record", "vector", "episodic", "graph", "cache"]
StoreRight = Literal["read", "write"]
Verdict = Literal["allow", "redact", "quarantine", "block"]
"""What becomes of a text with something sensitive in it, rising: kept as it is, kept without it, refused but kept for a
person to look at, refused."""
VERDICTS: tuple[Verdict, ...] = get_args(Verdict)


class _Row(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid")


class ServiceRow(_Row):
    """A service: the agents it may sign as, how high it may read, whether it may work without a capability,

    whether it may watch the live subjects or have tokens of the gateway, and the services whose changes it is handed.
    """

    agents: tuple[str, ...]
    clearance: str
    grant: bool
    live: bool = False
    gateway: bool = False
    changes_of: tuple[str, ...] = ()

    def signs(self, agent: str) -> bool:
        """Whether this service may sign as `agent`; `*` in a name stands for a number."""
        return self._signers.fullmatch(agent) is not None

    @cached_property
    def _signers(self) -> re.Pattern[str]:
        return re.compile("|".join(re.escape(name).replace(r"\*", "[0-9]{1,4}") for name in self.agents))


class StoreRow(_Row):
    """A store: where it is kept, who owns, appends to and reads it, its label and its free-text fields."""

    tier: Tier
    also: tuple[Tier, ...] = ()
    owner: str
    authors: tuple[str, ...] = ()
    readers: tuple[str, ...]
    label: str
    text: tuple[str, ...]
    unsearched: tuple[str, ...] = ()
    unsearched_while: dict[str, str] = Field(default_factory=dict)
    own_task: tuple[str, ...] = ()
    shared: bool = False
    ended: bool = False
    settles: bool = False
    common: bool = False
    system: bool = False
    learned: bool = False
    keep_days: int | None = Field(default=None, ge=1)
    persons: bool = False

    def hidden(self, body: Mapping[str, Any]) -> bool:
        """Whether a record is not found by searches, as it stands."""
        return any(body.get(name) == value for name, value in self.unsearched_while.items())

    def read_by(self, service: str) -> bool:
        """Owner, authors and readers may read."""
        return service == self.owner or service in self.readers or service in self.authors

    def written_by(self, service: str) -> bool:
        """Owner and authors may write."""
        return service == self.owner or service in self.authors


class MessageRow(_Row):
    """A message type: who may send it, who consumes it, and what memory does with it on the way."""

    senders: tuple[str, ...]
    consumer: str | None = None
    consumers: tuple[str, ...] = ()
    text: tuple[str, ...]
    workflow: bool = False
    keep: str | None = None
    ended: bool = False
    result: bool = False
    late: bool = False

    @property
    def audience(self) -> tuple[str, ...]:
        """Every service it is delivered to."""
        return (self.consumer,) if self.consumer else self.consumers


class RoleRow(_Row):
    """What a principal's role lets a service do on its behalf."""

    messages: tuple[str, ...] = ()
    stores: dict[str, StoreRight] = Field(default_factory=dict)
    ingest: bool = False


class NatsRow(_Row):
    """Subjects that a bus user which is no service may publish and subscribe; `{project}` is one of its projects.

    `never` are subjects that it may not publish whatever its projects are.
    """

    publish: tuple[str, ...]
    subscribe: tuple[str, ...]
    never: tuple[str, ...] = ()


class SensitiveRow(_Row):
    """What becomes of a text by the class of what is in it and the label of where it goes.

    `messages` is the label that a message is judged by at least, whatever it is based on: it stays in its project.
    `counters` is the label from which on a number is let pass that neither its form nor a word near it names.
    """

    messages: str
    counters: str
    verdicts: dict[Class, dict[str, Verdict]]


class Policy(_Row):
    """The whole policy. It never changes, so what follows from it may be remembered by it."""

    __hash__ = object.__hash__

    version: Literal[1]
    labels: tuple[str, ...]
    services: dict[str, ServiceRow]
    stores: dict[str, StoreRow]
    messages: dict[str, MessageRow]
    principals: dict[str, RoleRow]
    nats: dict[str, NatsRow]
    sensitive: SensitiveRow

    @model_validator(mode="after")
    def _names_are_known(self) -> Self:
        known = set(self.services)
        for name, store in self.stores.items():
            _check(f"stores.{name}", {store.owner, *store.authors, *store.readers} - known)
            _check(f"stores.{name}.label", {store.label} - set(self.labels))
        for name, message in self.messages.items():
            _check(f"messages.{name}", {*message.senders, *message.audience} - known)
            _check(f"messages.{name}.keep", {message.keep} - {None, *self.stores})
        for name, service in self.services.items():
            _check(f"services.{name}.clearance", {service.clearance} - set(self.labels))
        for name, role in self.principals.items():
            _check(f"principals.{name}", ({*role.stores} - set(self.stores)) | ({*role.messages} - set(self.messages)))
        _check("sensitive.messages", {self.sensitive.messages} - set(self.labels))
        _check("sensitive.counters", {self.sensitive.counters} - set(self.labels))
        _check("sensitive.verdicts", {*map(str, self.sensitive.verdicts)} ^ {*CLASSES})
        for name, verdicts in self.sensitive.verdicts.items():
            _check(f"sensitive.verdicts.{name}", set(verdicts) ^ set(self.labels))
        _check("messages", set(self.messages) ^ set(subjects.message_types()))
        return self

    def level(self, label: str) -> int:
        """A label as a number: reading is allowed up to one's own."""
        return self.labels.index(label)

    def clearance(self, service: str) -> int:
        """The highest label a service may read."""
        return self.level(self.services[service].clearance)

    def kept_in(self, tier: Tier) -> tuple[str, ...]:
        """The stores that a tier keeps, or keeps a projection of."""
        return tuple(name for name, row in self.stores.items() if tier in (row.tier, *row.also))

    def store_level(self, store: str) -> int:
        """The label of a store as a number."""
        return self.level(self.stores[store].label)

    def message_level(self, label: int) -> int:
        """The label as a number that a message is judged by whose content has `label`."""
        return max(label, self.level(self.sensitive.messages))

    def verdict(self, kind: Class, label: int, named: bool = True) -> Verdict:
        """Return the verdict on a text that holds something of this class, named or not, at the label `label`."""
        if not named and label >= self.level(self.sensitive.counters):
            return "allow"
        return self.sensitive.verdicts[kind][self.labels[label]]

    def readable(self, service: str) -> frozenset[str]:
        """The stores a service may read."""
        return frozenset(name for name, row in self.stores.items() if row.read_by(service))

    def writable(self, service: str) -> frozenset[str]:
        """The stores a service may write."""
        return frozenset(name for name, row in self.stores.items() if row.written_by(service))

    def sendable(self, service: str) -> frozenset[str]:
        """The message types a service may have memory publish."""
        return frozenset(name for name, row in self.messages.items() if service in row.senders)

    def consumed(self, service: str) -> frozenset[str]:
        """The message types a service is handed."""
        return frozenset(name for name, row in self.messages.items() if service in row.audience)


def _check(where: str, unknown: set[str] | set[str | None]) -> None:
    if unknown:
        raise ValueError(f"{where}: unknown {', '.join(sorted(map(str, unknown)))}")


def read_policy(path: Path) -> Policy:
    """A policy from a file. Raises `ValidationError` naming what is wrong."""
    return Policy.model_validate(yaml.safe_load(path.read_text()))


@lru_cache(maxsize=1)
def policy() -> Policy:
    """The policy this build was made with."""
    return Policy.model_validate(yaml.safe_load(files("counterpoint.guard").joinpath("policy.yaml").read_text()))
