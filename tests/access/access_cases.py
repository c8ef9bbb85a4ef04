"""Accesses to judge: all that are beside an allowed one, a seeded sample of the whole product, and the real judge."""

import random
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from functools import cache
from itertools import product
from types import ModuleType
from typing import Any

from access.policy_reference import MESSAGES, SERVICES, STORES, Asker, Case, refusals

from counterpoint.guard.capabilities import Grant
from counterpoint.guard.policy import policy
from counterpoint.proto.errors import Denied
from counterpoint.proto.principals import Principal

NOW = datetime(2026, 1, 2, 3, 4, 5, tzinfo=UTC)
HIDDEN = "hidden"
"""The real judge's answer to a record that is not shown, whatever the reason."""

ASKERS = (
    Asker(("*",), ("submit", "report", "read", "ingest", "override", "approve", "operate", "audit", "admin")),
    Asker(("demo",), ("admin", "read")),
    Asker(("*",), ("read",)),
    Asker(("demo",), ("submit",)),
    Asker(("other", "demo"), ("report", "operate")),
    Asker(("other",), ("read", "override", "admin")),
    Asker(("demo",), ("audit",)),
    Asker(("demo",), ("operate",), kind="system"),
    Asker(("demo",), ()),
    Asker(("*",), ("admin", "read"), revoked=True),
)
CONSUMED = {
    name: [row["consumer"]] if "consumer" in row else row.get("consumers", []) for name, row in MESSAGES.items()
}
PROJECTS = (
    "demo",
    "other",
    "shared",
    "",
    "*",
    ">",
    "dem",
    "demo-",
    "demo.x",
    "Demo",
    "d\u0435mo",
    "demo\n",
    "-demo",
    "a" * 64,
)
AGENTS = ("router", "human", "calling_llm", "manager", "developer", "judge", "lineage", "memory")
NO_AGENTS = ("coder-1", "coder-1234", "coder-12345", "coder-", "coder-*", "coder-2x", "Router", "", "judge ", "human\n")
EVERYONES = ("decisions", "counterpoint.decision.made.v1")
"""The store and the message type that every service may write and send, where only a project's name can be wrong."""
DOMAINS: dict[str, tuple[Any, ...]] = {
    "service": (*SERVICES, "stranger", "develope", "developer.x"),
    "operation": ("read", "write", "send"),
    "target": (*STORES, *MESSAGES, "nothing"),
    "token": (True, False),
    "asker": (None, *ASKERS),
    "inbound": tuple(CONSUMED),
    "audience": tuple(SERVICES),
    "token_project": tuple(name for name in PROJECTS if name),
    "project": PROJECTS,
    "record_project": ("demo", "other", "shared"),
    "token_task": ("t-1", "t-2", None),
    "task": ("t-1", "t-2", None),
    "about": ("t-1", "t-2", None, "t-10", "t-", "T-1", "t-1 ", "t-*", ">", "", "t\u20111", "\uff54-1"),
    "token_message": ("m-1", "m-2"),
    "message": ("m-1", "m-2"),
    "lives_s": (60.0, 0.001, 0.0, -1.0),
    "agent": (*AGENTS, *NO_AGENTS),
    "label": (0, 1, 2, 3),
    "ended": (False, True),
    "work": ("", "own", "taking_back", "erasing"),
}
KIND = ("service", "operation", "target", "token", "audience", "work")
"""The fields by which accesses are of one kind."""
REACH = 12
"""Steps of a walk before it begins elsewhere."""


def plain() -> Iterator[Case]:
    """For every service, operation, target and way to be entitled: the plain access."""
    for service, row in SERVICES.items():
        signer = row["agents"][0]
        holds: list[dict[str, Any]] = [
            {"token": True, "inbound": name, "audience": service} for name, to in CONSUMED.items() if service in to
        ]
        none: dict[str, Any] = {"token": False, "inbound": "counterpoint.task.submit.v1", "audience": "router"}
        holds += [{**none, "asker": asker} for asker in DOMAINS["asker"]]
        holds += [{**none, "work": work} for work in DOMAINS["work"] if work and service == "memory"]
        for hold in holds:
            for operation, targets in (("read", STORES), ("write", STORES), ("send", MESSAGES)):
                yield from (Case(service, operation, target, agent=signer, **hold) for target in targets)


def enumerated() -> Iterator[Case]:
    """Every plain access, and all that differ from it in a field."""
    for case in plain():
        yield case
        for field, values in DOMAINS.items():
            if field not in ("operation", "target", "asker"):
                others = (value for value in values if value != getattr(case, field))
                yield from (case._replace(**{field: value}) for value in others)
        if case.target in EVERYONES:
            yield from (case._replace(token_project=name, project=name) for name in PROJECTS if name)
        if case.operation == "read" and "own_task" in STORES[case.target]:
            bound = (("t-1", "t-1"), ("t-2", "t-2"), (None, "t-1"), (None, None))
            for (token_task, task), about, label in product(bound, DOMAINS["about"], DOMAINS["label"]):
                yield case._replace(token_task=token_task, task=task, about=about, label=label)


def sampled(count: int, seed: int) -> Iterator[tuple[Case, set[str], Case | None]]:
    """Yield `count` different accesses, each with the rules that refuse it.

    Every other one is drawn from the whole product. The rest are the steps of walks over what is allowed: each differs
    in one field alone from the allowed access beside it, and is where the walk goes on if it is allowed too.
    """
    draw, seen, left = random.Random(seed), dict[Case, set[str]](), 0
    fields = list(DOMAINS)
    often = [field for field in DOMAINS if field not in KIND] + ["about"] * 6
    others = {field: {one: [v for v in values if v != one] for one in values} for field, values in DOMAINS.items()}
    starts = [case for case in plain() if not refusals(case)]
    bound = [
        case for case in starts if case.operation == "read" and case.service in STORES[case.target].get("own_task", ())
    ]
    here, stepped = starts[0], fields
    while len(seen) < count:
        beside = None
        if len(seen) % 2:
            case = Case(**{field: draw.choice(values) for field, values in DOMAINS.items()})
        else:
            if left == 0:
                # What one's own task hides is rare among all that is refused.
                rare = draw.random() < 0.1
                here, stepped, left = draw.choice(bound if rare else starts), often if rare else fields, REACH
            beside, left = here, left - 1
            field = draw.choice(stepped)
            case = here._replace(**{field: draw.choice(others[field][getattr(here, field)])})
        new = case not in seen
        rules = seen[case] = refusals(case) if new else seen[case]
        if beside is not None and not rules:
            here = case
        if new:
            yield case, rules, beside


@cache
def principal(asker: Asker) -> Principal:
    """An asker as memory knows it."""
    revoked_at = NOW - timedelta(days=1) if asker.revoked else None
    return Principal(name="asker", kind=asker.kind, projects=asker.projects, roles=asker.roles, revoked_at=revoked_at)


@cache
def granted(diode: ModuleType, *made_for: Any) -> Grant:
    """Return the grant that memory would put into a token. Raises `Denied`."""
    *names, lives_s = made_for
    grant: Grant = diode.capability(policy(), *names, NOW + timedelta(seconds=lives_s))
    return grant


@cache
def standing_grant(diode: ModuleType, asked: Any, asker: Asker | None) -> Grant:
    """Return the grant that a service has without a token. Raises `Denied`."""
    grant: Grant = diode.standing(policy(), asked, principal(asker) if asker else None)
    return grant


def judged(diode: ModuleType, case: Case) -> str | None:
    """Return the verdict of the real diode, asked as the door asks it: the rule that refuses, `HIDDEN`, or None."""
    asked = diode.AccessRequest(case.service, case.project, case.task, case.message, NOW)
    try:
        if case.work:
            grant = getattr(diode, case.work)(policy(), case.project, case.message, NOW)
        elif case.token:
            made_for = (case.inbound, case.audience, case.token_project, case.token_task, case.token_message)
            grant = granted(diode, *made_for, case.lives_s)
        else:
            grant = standing_grant(diode, asked, case.asker)
    except Denied as denied:
        return denied.rule
    rule: str | None = diode.holder(grant, asked)
    if rule is not None:
        return rule
    stores = policy().stores
    touched: tuple[tuple[str, ...], tuple[str, ...]]
    match case.operation:
        case "read":
            rule = diode.read(policy(), grant, case.target)
            if rule is None and case.ended and grant.task is not None:
                rule = diode.read_after_end(policy(), case.inbound, case.target)
            if rule is not None:
                return rule
            if stores[case.target].system:
                return HIDDEN if case.label > grant.clearance else None
            record = (case.target, case.about, case.record_project, case.label)
            return None if diode.visible(policy(), grant, *record) else HIDDEN
        case "write":
            label = max(case.label, policy().store_level(case.target)) if case.target in stores else case.label
            rule = diode.write(policy(), grant, case.target, case.agent, case.about, label)
            touched = ((case.target,), ())
        case _:
            rule = diode.send(policy(), grant, case.target, case.about)
            touched = ((), (case.target,))
    if rule is None and case.ended and grant.task is not None and not diode.after_end(policy(), case.inbound, *touched):
        return "ended"
    return rule


def agree(answer: str | None, rules: set[str]) -> bool:
    """Whether the real answer is the reference's: both allow, or the rule it names is one that refuses."""
    if answer == HIDDEN:
        return bool(rules & {"foreign", "label", "own"})
    return answer in rules if rules else answer is None
