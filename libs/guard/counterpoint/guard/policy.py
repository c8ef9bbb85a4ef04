"""The policy file and its reader. Default deny: accesses that the file does not grant are refused."""

import re
from collections.abc import Mapping
from functools import cached_property, lru_cache
from importlib.resources import files
from itertools import pairwise
from typing import Annotated, Any, Literal, Self, get_args

import yaml
from pydantic import BaseModel, ConfigDict, Field, model_validator

from counterpoint.guard.kinds import CLASSES, Class
from counterpoint.proto import subjects
from counterpoint.proto.approvals import Category, LargeAct
from counterpoint.proto.replays import sandbox_project
from counterpoint.proto.tasks import Autonomy

Tier = Literal["record", "vector", "episodic", "graph", "cache"]
StoreRight = Literal["read", "write"]
Verdict = Literal["allow", "redact", "quarantine", "block"]
"""The verdict on a text, in rising order: kept, kept redacted, kept hidden until reviewed, refused."""
VERDICTS: tuple[Verdict, ...] = get_args(Verdict)

ActRule = Literal["ask", "refuse", "allow"]
_ACT_RULES: dict[Category, frozenset[str]] = {
    "spend": frozenset({"ask", "refuse"}),
    "proposal": frozenset({"ask", "allow"}),
    "document": frozenset({"ask", "refuse", "allow"}),
    "web": frozenset({"ask", "refuse", "allow"}),
}

JOBS = ("migrate", "index", "provision")
CALLERS = ("clients", "metrics")
"""Callers that are no service: clients of the APIs, and what scrapes the health ports."""
ENGINES = ("nats", "postgres", "valkey", "qdrant")
OUTSIDE = "outside"
_PORTS = ("http", "gateway", "health")


class _Row(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid")


class ServicePolicy(_Row):
    """A service: its agents, clearance, standing grant, rights to live subjects and gateway tokens.

    `changes_of` are the services whose changes it consumes, each with the stores that it acts on; changes of `tasks` it
    consumes only when a task ends.
    """

    agents: tuple[str, ...]
    clearance: str
    grant: bool
    live: bool = False
    gateway: bool = False
    changes_of: dict[str, tuple[str, ...]] = Field(default_factory=dict)

    def signs(self, agent: str) -> bool:
        """Whether this service may sign as `agent`; `*` in a name matches a number."""
        return self._signers.fullmatch(agent) is not None

    @cached_property
    def _signers(self) -> re.Pattern[str]:
        return re.compile("|".join(re.escape(name).replace(r"\*", "[0-9]{1,4}") for name in self.agents))


class StorePolicy(_Row):
    """A store: its tier, owner, authors, readers, label and free-text fields."""

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
    outcomes: tuple[str, ...] = ()

    def hidden(self, body: Mapping[str, Any]) -> bool:
        """Whether searches skip a record with this body."""
        return any(body.get(name) == value for name, value in self.unsearched_while.items())

    def states_outcome(self, service: str, body: Mapping[str, Any]) -> bool:
        """Whether a service may write a record with the outcome in this body."""
        return not self.outcomes or service in self.outcomes or body.get("outcome", "unknown") == "unknown"

    def read_by(self, service: str) -> bool:
        """Whether a service may read: owner, authors and readers."""
        return service == self.owner or service in self.readers or service in self.authors

    def written_by(self, service: str) -> bool:
        """Whether a service may write: owner and authors."""
        return service == self.owner or service in self.authors


class MessagePolicy(_Row):
    """A message type: its senders, consumers, and memory's handling of it."""

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
        """The services it is delivered to."""
        return (self.consumer,) if self.consumer else self.consumers


class RolePolicy(_Row):
    """A role: what it lets a service do on a principal's behalf."""

    messages: tuple[str, ...] = ()
    stores: dict[str, StoreRight] = Field(default_factory=dict)
    ingest: bool = False


class ApprovalPolicy(_Row):
    """The acts that wait for a person, by category and autonomy; `projects` may differ.

    `expires_s` is the time they wait, `remind_s` the times of the reminders, in seconds from the request. `over` are
    the sizes, in records, over which acts of persons need a second person; `over_in` may differ by project.
    """

    expires_s: int = Field(ge=60)
    remind_s: tuple[Annotated[int, Field(ge=60)], ...] = ()
    acts: dict[Category, dict[Autonomy, ActRule]]
    projects: dict[str, dict[Category, dict[Autonomy, ActRule]]] = Field(default_factory=dict)
    over: dict[LargeAct, Annotated[int, Field(ge=0)]]
    over_in: dict[str, dict[LargeAct, Annotated[int, Field(ge=0)]]] = Field(default_factory=dict)

    @model_validator(mode="after")
    def _is_complete(self) -> Self:
        _check("approvals.over", {*map(str, self.over)} ^ {*get_args(LargeAct)})
        if any(before >= after for before, after in pairwise((*self.remind_s, self.expires_s))):
            raise ValueError("approvals.remind_s: must rise, and end before expires_s")
        _check("approvals.acts", {*map(str, self.acts)} ^ {*get_args(Category)})
        for acts in (self.acts, *self.projects.values()):
            for category, rules in acts.items():
                _check(f"approvals.acts.{category}", {*map(str, rules)} ^ {*get_args(Autonomy)})
                _check(f"approvals.acts.{category}", {*map(str, rules.values())} - _ACT_RULES[category])
        return self

    def act(self, category: Category, autonomy: str, project: str) -> ActRule:
        """Return the rule for an act; an unknown autonomy is supervised."""
        rules = self.projects.get(project, {}).get(category) or self.acts[category]
        return rules[autonomy] if autonomy in rules else rules["supervised"]

    def size(self, act: LargeAct, project: str) -> int:
        """Return the number of records up to which a person acts alone."""
        return self.over_in.get(project, {}).get(act, self.over[act])


class NatsUserPolicy(_Row):
    """The subjects that a bus user other than a service may publish and subscribe; `{project}` is one of its projects.

    `never` are subjects that it must not publish in any project.
    """

    publish: tuple[str, ...]
    subscribe: tuple[str, ...]
    never: tuple[str, ...] = ()


class SensitivePolicy(_Row):
    """The verdict on a text by the class of its findings and the label of its destination.

    `messages` is the minimum label at which a message is judged, since it stays in its project. `counters` is the label
    from which unconfirmed numbers are allowed.
    """

    messages: str
    counters: str
    verdicts: dict[Class, dict[str, Verdict]]


class ModelPolicy(_Row):
    """The models for text that projects may call; a project without a row may call all that are configured."""

    projects: dict[str, tuple[str, ...]] = Field(default_factory=dict)

    def permits(self, project: str, model: str) -> bool:
        """Whether a project, or the sandbox of one, may call a model."""
        allowed = self._rows.get(project)
        return allowed is None or model in allowed

    @cached_property
    def _rows(self) -> dict[str, tuple[str, ...]]:
        sandboxes = {sandbox_project(project): models for project, models in self.projects.items()}
        return sandboxes | self.projects


class Policy(_Row):
    """The whole policy. It is immutable, so that results derived from it may be cached."""

    __hash__ = object.__hash__

    version: Literal[1]
    labels: tuple[str, ...]
    services: dict[str, ServicePolicy]
    stores: dict[str, StorePolicy]
    messages: dict[str, MessagePolicy]
    principals: dict[str, RolePolicy]
    nats: dict[str, NatsUserPolicy]
    approvals: ApprovalPolicy
    models: ModelPolicy
    sensitive: SensitivePolicy
    network: dict[str, tuple[str, ...]]
    """By service, job or caller, the engines, ports of services (`manager.gateway`) and `outside` that it connects to.
    """

    @model_validator(mode="after")
    def _names_are_known(self) -> Self:
        known = set(self.services)
        for name, store in self.stores.items():
            _check(f"stores.{name}", {store.owner, *store.authors, *store.readers, *store.outcomes} - known)
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
        self._check_network()
        _check("messages", set(self.messages) ^ set(subjects.message_types()))
        return self

    def _check_network(self) -> None:
        _check("network", set(self.network) ^ {*self.services, *JOBS, *CALLERS})
        ports = {f"{service}.{port}" for service in self.services for port in _PORTS}
        for name, targets in self.network.items():
            _check(f"network.{name}", set(targets) - {*ENGINES, OUTSIDE, *ports})

    def level(self, label: str) -> int:
        """Return the level of a label; reading is allowed up to the own clearance."""
        return self.labels.index(label)

    def clearance(self, service: str) -> int:
        """Return the highest label level a service may read."""
        return self.level(self.services[service].clearance)

    def stores_in(self, tier: Tier) -> tuple[str, ...]:
        """Return the stores kept or projected in a tier."""
        return tuple(name for name, row in self.stores.items() if tier in (row.tier, *row.also))

    def store_level(self, store: str) -> int:
        """Return the label level of a store."""
        return self.level(self.stores[store].label)

    def message_level(self, label: int) -> int:
        """Return the label level at which a message with content of level `label` is judged."""
        return max(label, self.level(self.sensitive.messages))

    def verdict(self, kind: Class, label: int, confirmed: bool = True) -> Verdict:
        """Return the verdict on a finding of this class, confirmed or not, at a label level."""
        if not confirmed and label >= self.level(self.sensitive.counters):
            return "allow"
        return self.sensitive.verdicts[kind][self.labels[label]]

    def readable(self, service: str) -> frozenset[str]:
        """Return the stores a service may read."""
        return frozenset(name for name, row in self.stores.items() if row.read_by(service))

    def writable(self, service: str) -> frozenset[str]:
        """Return the stores a service may write."""
        return frozenset(name for name, row in self.stores.items() if row.written_by(service))

    def sendable(self, service: str) -> frozenset[str]:
        """Return the message types a service may send."""
        return frozenset(name for name, row in self.messages.items() if service in row.senders)

    def consumed(self, service: str) -> frozenset[str]:
        """Return the message types a service consumes."""
        return frozenset(name for name, row in self.messages.items() if service in row.audience)


def _check(where: str, unknown: set[str] | set[str | None]) -> None:
    if unknown:
        raise ValueError(f"{where}: unknown {', '.join(sorted(map(str, unknown)))}")


@lru_cache(maxsize=1)
def policy() -> Policy:
    """Return the policy of this build."""
    return Policy.model_validate(yaml.safe_load(files("counterpoint.guard").joinpath("policy.yaml").read_text()))
