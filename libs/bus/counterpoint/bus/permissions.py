"""NATS accounts and users and what each may do, made from the policy and the stream spec. Least rights, default deny.

A server publishes its answer on whatever reply subject the asker names, also on one where the asker may not publish.
But it does so in the asker's account. So the streams and memory are in the account `HOUSE`, and every other user is in
an account of its own, in which nothing is but itself and, imported one by one, the subjects that it may publish. An
answer that it has placed elsewhere than in its inbox is heard by nobody, or is one more request that it may make.
"""

import json
from collections.abc import Mapping, Sequence
from typing import Any

from counterpoint.bus.streams import PULL_S, consumer_specs
from counterpoint.guard.policy import Policy, policy
from counterpoint.proto import subjects
from counterpoint.proto.errors import Permanent, Problem

PROVISIONER, MEMORY, PUBLISHER = "provisioner", "memory", "publisher"
Publishers = Mapping[str, Sequence[str]]
"""Users who may publish to intakes, by name, and the projects of each."""
HOUSE = "HOUSE"
ANSWERS_S = 5 * PULL_S
"""How long after its last answer the server still takes a pull from another account to be waiting."""
_PULL = "$JS.API.CONSUMER.MSG.NEXT."
_JETSTREAM_INFO = "$JS.API.INFO"


def users() -> tuple[str, ...]:
    """Every user of the bus: the services, and those the policy names besides."""
    rules = policy()
    return (*rules.services, *rules.nats)


def permissions(
    rules: Policy, projects: Sequence[str] = ("*",), publishers: Publishers | None = None
) -> dict[str, dict[str, list[str]]]:
    """User to the subjects it may `publish` and `subscribe`, and may `never` publish.

    `projects` are those of the users that are no service, unless `publishers` names others; these are users, too.
    Raises `Permanent` `publishers_invalid`.
    """
    table: dict[str, dict[str, list[str]]] = {}
    for user in rules.services:
        publish = [subjects.query(user), subjects.commit(user), subjects.ingest(user), subjects.put(user)]
        for spec in consumer_specs(rules):
            if spec.durable == user:
                publish += [
                    f"{_PULL}{spec.stream}.{user}",
                    f"$JS.API.CONSUMER.INFO.{spec.stream}.{user}",
                    f"$JS.ACK.{spec.stream}.{user}.>",
                ]
        table[user] = {"publish": publish, "subscribe": [f"{subjects.inbox_prefix(user)}.>"]}
        if rules.services[user].live:
            table[user]["subscribe"].append(subjects.live(">"))
    table[MEMORY]["publish"] = [
        *(name for names in subjects.STREAMS.values() for name in names if not name.startswith("$")),
        f"{subjects.ANSWER_PREFIX}>",
        *(f"$JS.API.STREAM.INFO.{stream}" for stream in subjects.STREAMS),
        *(f"$JS.API.STREAM.MSG.GET.{stream}" for stream in subjects.STREAMS),
        *(f"$JS.API.CONSUMER.INFO.{spec.stream}.{spec.durable}" for spec in consumer_specs(rules)),
        f"$JS.API.STREAM.MSG.DELETE.{subjects.INTAKE}",
        f"{_PULL}{subjects.ADVISORIES}.{MEMORY}",
        f"$JS.ACK.{subjects.ADVISORIES}.{MEMORY}.>",
    ]
    table[MEMORY]["subscribe"] += [subjects.query("*"), subjects.commit("*"), subjects.ingest("*"), subjects.put("*")]
    named = checked(publishers or {})
    for user in dict.fromkeys((*rules.nats, *named)):
        row, own = rules.nats.get(user, rules.nats[PUBLISHER]), named.get(user, projects)
        table[user] = {
            "publish": [name.format(project=project) for name in row.publish for project in own],
            "subscribe": [
                *(name.format(project=project) for name in row.subscribe for project in own),
                f"{subjects.inbox_prefix(user)}.>",
            ],
            "never": list(row.never),
        }
    return table


def checked(publishers: Publishers) -> Publishers:
    """Publishers whose names and projects are legal. Raises `Permanent` `publishers_invalid`.

    Nobody publishes to the project that all may read.
    """
    taken = set(users()) - {PUBLISHER}
    problems = [
        Problem(field=name, problem="is no name for a publisher: [a-z0-9][a-z0-9-]{0,62}, and no user of the bus")
        for name in publishers
        if name in taken or not subjects.PROJECT_PATTERN.fullmatch(name)
    ]
    for name, projects in publishers.items():
        illegal = [each for each in projects if each != "*" and not subjects.PROJECT_PATTERN.fullmatch(each)]
        illegal += [each for each in projects if each == subjects.SHARED_PROJECT]
        problems += [Problem(field=name, problem=f"may not publish to {each!r}") for each in illegal]
        if not projects:
            problems.append(Problem(field=name, problem="has no project"))
    if problems:
        raise Permanent("publishers_invalid", tuple(problems))
    return publishers


def nats_config(
    passwords: Mapping[str, str], projects: Sequence[str] = ("*",), publishers: Publishers | None = None
) -> str:
    """The `accounts` block of the server's configuration. Raises `KeyError` for a user without a password."""
    accounts: dict[str, dict[str, Any]] = {HOUSE: {"jetstream": "enabled", "users": []}}
    shared: dict[tuple[str, str], list[str]] = {}
    for user, rights in sorted(permissions(policy(), projects, publishers).items()):
        name = account(user)
        accounts.setdefault(name, {"users": []})["users"].append(_entry(user, passwords[user], rights))
        if name != HOUSE:
            imports = _imports(rights)
            accounts[name]["imports"] = [{kind: {"account": HOUSE, "subject": subject}} for kind, subject in imports]
            for each in imports:
                shared.setdefault(each, []).append(name)
    accounts[HOUSE]["exports"] = [_export(kind, subject, names) for (kind, subject), names in sorted(shared.items())]
    return "accounts " + json.dumps(accounts, indent=2) + "\n"


def account(user: str) -> str:
    """The account that a user is in: the house, or the one of its own name."""
    return HOUSE if user in (MEMORY, PROVISIONER) else user


def _entry(user: str, password: str, rights: Mapping[str, list[str]]) -> dict[str, Any]:
    publish, subscribe = sorted(set(rights["publish"])), sorted(set(rights["subscribe"]))
    never = {"deny": sorted(rights["never"])} if rights.get("never") else {}
    return {
        "user": user,
        "password": password,
        "permissions": {
            "publish": {"allow": publish, **never} if publish else {"deny": [">"]},
            "subscribe": {"allow": subscribe},
        },
    }


def _imports(rights: Mapping[str, list[str]]) -> list[tuple[str, str]]:
    """What an account has of the house: what its user may publish, as services, and may watch, as streams.

    An account without JetStream that asks another's needs `$JS.API.INFO` besides, though its user may not publish on
    it: otherwise the server also answers every request there by itself, that JetStream is not enabled.
    """
    services = set(rights["publish"])
    if any(subject.startswith(_PULL) for subject in services):
        services.add(_JETSTREAM_INFO)
    watched = {subject for subject in rights["subscribe"] if subject.startswith(subjects.live(""))}
    return [*(("service", subject) for subject in sorted(services)), *(("stream", name) for name in sorted(watched))]


def _export(kind: str, subject: str, accounts: Sequence[str]) -> dict[str, Any]:
    """A part of the house for the accounts named alone. A pull has many answers, anything else one."""
    pull = {"response_type": "stream", "response_threshold": f"{ANSWERS_S:g}s"} if subject.startswith(_PULL) else {}
    return {kind: subject, "accounts": accounts, **pull}
