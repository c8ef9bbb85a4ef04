"""Permissions on the bus: tables written by hand from the contract's subjects and the one rule.

They do not come from the policy, so that a test may compare the two.
"""

from collections.abc import Iterator
from itertools import product

MINE, OTHERS = "demo", "other"
SERVICES = ("router", "manager", "developer", "lineage", "memory")
USERS = (*SERVICES, "provisioner", "publisher", "observer")
STREAMS = ("INTAKE", "TASKS", "DECISIONS", "CHANGES", "DEAD", "ADVISORIES")
CONSUMERS = {
    "INTAKE": ("router", "lineage"),
    "TASKS": ("router", "manager", "developer"),
    "CHANGES": ("manager", "lineage"),
    "ADVISORIES": ("memory",),
}
EVENTS = (
    *("submitted", "rejected", "routed", "delegated", "worked", "proposed", "escalated", "overridden", "resumed"),
    *("approval_requested", "approval_decided", "outcome_reported", "completed", "failed", "cancelled"),
)
NOBODY: frozenset[str] = frozenset()
Row = tuple[str, frozenset[str]]


def only(*names: str) -> frozenset[str]:
    """These users and no other."""
    return frozenset(names)


def publications() -> Iterator[Row]:
    """Subject, and who may publish on it."""
    for kind in ("task", "outcome", "lineage"):
        yield f"intake.{MINE}.{kind}", only("memory", "publisher")
        yield f"intake.{OTHERS}.{kind}", only("memory")
        yield f"intake.{MINE}.{kind}.more", NOBODY
    yield from ((name, NOBODY) for name in ("intake", f"intake.{MINE}", "anything", "tasks", "_INBOX.x", "_GR_.x"))
    yield "_R_.x.y", only("memory")
    for project in (MINE, OTHERS):
        yield from ((f"tasks.{project}.{event}", only("memory")) for event in EVENTS)
        yield from ((f"decisions.{project}.{agent}", only("memory")) for agent in ("router", "coder-2"))
        yield from ((f"changes.{project}.{service}", only("memory")) for service in SERVICES)
        yield f"dead.{project}", only("memory")
        for stream, rest in (("tasks", "routed"), ("decisions", "judge"), ("changes", "memory"), ("dead", "x")):
            yield f"live.{stream}.{project}.{rest}", only("memory") if stream in ("changes", "decisions") else NOBODY
    for caller in USERS:
        asks = caller in SERVICES and caller != "memory"
        for request in ("query", "commit.0", "command", "ingest", "put"):
            yield f"memory.{caller}.{request}", only(caller) if asks else NOBODY
        for request in ("", ".commit", ".commit.1", ".other", ".query.more"):
            yield f"memory.{caller}{request}", NOBODY
        yield f"_INBOX_{caller}.x", NOBODY
    for stream in STREAMS:
        yield from ((f"$JS.API.STREAM.{verb}.{stream}", only("provisioner")) for verb in STREAM_VERBS)
        buries = only("memory") if stream == "INTAKE" else NOBODY
        yield f"$JS.API.STREAM.MSG.DELETE.{stream}", only("provisioner") | buries
        yield from ((f"$JS.API.STREAM.{verb}.{stream}", only("provisioner", "memory")) for verb in ("INFO", "MSG.GET"))
        yield from ((f"$JS.API.DIRECT.GET.{stream}{rest}", only("provisioner")) for rest in ("", ".tasks.demo.routed"))
        for consumer in (*USERS, "mine"):
            named = f"{stream}.{consumer}"
            yield from ((f"$JS.API.CONSUMER.{verb}.{named}", only("provisioner")) for verb in CONSUMER_VERBS)
            yield f"$JS.API.CONSUMER.CREATE.{named}.tasks.demo.routed", only("provisioner")
            known = consumer in CONSUMERS.get(stream, ())
            owner = only(consumer) if known else NOBODY
            yield f"$JS.API.CONSUMER.MSG.NEXT.{named}", owner | only("provisioner")
            yield f"$JS.API.CONSUMER.INFO.{named}", owner | only("provisioner") | (only("memory") if known else NOBODY)
            yield f"$JS.ACK.{named}.1.1.1.1.1", owner
        yield from ((f"$JS.API.CONSUMER.{verb}.{stream}", only("provisioner")) for verb in ("CREATE", "LIST", "NAMES"))
        yield f"$JS.EVENT.ADVISORY.CONSUMER.MAX_DELIVERIES.{stream}.manager", NOBODY
        yield f"$JS.FC.{stream}.x", NOBODY
    yield from ((f"$JS.API.{verb}", only("provisioner")) for verb in ("INFO", "STREAM.NAMES", "STREAM.LIST"))
    yield from ((name, NOBODY) for name in ("$SYS.REQ.SERVER.PING", "$SYS.REQ.USER.INFO.x", "$KV.x.y", "$JS.x"))


STREAM_VERBS = ("CREATE", "UPDATE", "DELETE", "PURGE", "SNAPSHOT", "RESTORE", "LEADER.STEPDOWN")
CONSUMER_VERBS = ("CREATE", "DURABLE.CREATE", "DELETE", "PAUSE", "LEADER.STEPDOWN", "UNPIN")


def subscriptions() -> Iterator[Row]:
    """Subject, and who may subscribe to it."""
    for user in USERS:
        yield from ((f"_INBOX_{user}.{rest}", only(user)) for rest in (">", "x", "*.y"))
    wild = (">", "*", "*.>", "*.*.>", "_INBOX.>", "_INBOX.x", "_INBOX_*.>", "_INBOX_developer", "_R_.>")
    yield from ((name, NOBODY) for name in wild)
    for stream, rest in product(
        ("intake", "tasks", "decisions", "changes", "dead"), (">", "*.>", f"{MINE}.>", f"{MINE}.*")
    ):
        yield f"{stream}.{rest}", NOBODY
    yield from ((f"live.{rest}", only("router")) for rest in (">", "*.>", "tasks.>", "*.*.>", f"tasks.{OTHERS}.>"))
    for rest in (">", "routed", "*"):
        yield f"live.tasks.{MINE}.{rest}", only("router", "publisher", "observer")
        for stream in ("decisions", "changes", "*"):
            yield f"live.{stream}.{MINE}.{rest}", only("router", "observer")
            yield f"live.{stream}.{OTHERS}.{rest}", only("router")
    for caller, request in product(("*", *SERVICES), ("query", "commit.0", "command", "ingest", "put")):
        yield f"memory.{caller}.{request}", only("memory")
    yield from (
        (name, NOBODY) for name in ("memory.>", "memory.*.>", "memory.*", "memory.developer.>", "memory.*.commit.*")
    )
    for name in ("$JS.EVENT.>", "$JS.EVENT.ADVISORY.>", "$JS.API.>", "$JS.ACK.>", "$JS.>", "$SYS.>", "$SYS.ACCOUNT.>"):
        yield name, NOBODY


def may_publish(user: str) -> list[str]:
    """The subjects on which a user may publish."""
    return [subject for subject, allowed in publications() if user in allowed]
