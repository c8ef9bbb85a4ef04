"""NATS accounts, users and permissions, generated from the policy and the stream specs. Default deny.

A server publishes a reply on whatever subject the requester names, even one where the requester may not publish, but
within the requester's account. So the streams and memory are in the account `HOUSE`, and every other user has its own
account, which imports only the subjects that the user may publish. A reply directed to another subject is not
delivered, or is a request that the user may make anyway.
"""

import json
from collections.abc import Mapping, Sequence
from typing import Any

from counterpoint.bus.streams import PULL_S, consumer_specs
from counterpoint.guard.policy import Policy, policy
from counterpoint.proto import subjects
from counterpoint.proto.errors import ErrorCode, Permanent, Problem

PROVISIONER, MEMORY, PUBLISHER = "provisioner", "memory", "publisher"
Publishers = Mapping[str, Sequence[str]]
"""Names of users who may publish to intakes, and the projects of each."""
HOUSE = "HOUSE"
ANSWERS_S = 5 * PULL_S
"""Seconds after the last reply during which the server keeps a cross-account pull open."""
_MAPPED = "# These users have no passwords: the server needs `tls { verify_and_map: true }`, or anybody is any user.\n"
_PULL = "$JS.API.CONSUMER.MSG.NEXT."
_JETSTREAM_INFO = "$JS.API.INFO"


def users() -> tuple[str, ...]:
    """Return all users of the bus: the services, and the other users of the policy."""
    rules = policy()
    return (*rules.services, *rules.nats)


def permissions(
    rules: Policy, projects: Sequence[str] = ("*",), publishers: Publishers | None = None
) -> dict[str, dict[str, list[str]]]:
    """Return, by user, the subjects it may `publish` and `subscribe`, and must `never` publish.

    `projects` apply to the users that are not services, unless `publishers` names others; those are users too.
    Raises `Permanent` `publishers_invalid`.
    """
    table: dict[str, dict[str, list[str]]] = {}
    for user in rules.services:
        publish = [request(user) for request in subjects.REQUESTS]
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
        *(subjects.live(subjects.STREAMS[stream][0]) for stream in (subjects.CHANGES, subjects.DECISIONS)),
        *(f"$JS.API.STREAM.INFO.{stream}" for stream in subjects.STREAMS),
        *(f"$JS.API.STREAM.MSG.GET.{stream}" for stream in subjects.STREAMS),
        *(f"$JS.API.CONSUMER.INFO.{spec.stream}.{spec.durable}" for spec in consumer_specs(rules)),
        f"$JS.API.STREAM.MSG.DELETE.{subjects.INTAKE}",
        f"{_PULL}{subjects.ADVISORIES}.{MEMORY}",
        f"$JS.ACK.{subjects.ADVISORIES}.{MEMORY}.>",
    ]
    table[MEMORY]["subscribe"] += [request("*") for request in subjects.REQUESTS]
    named = check_publishers(publishers or {})
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


def check_publishers(publishers: Publishers) -> Publishers:
    """Return `publishers`. Raises `Permanent` `publishers_invalid` for an illegal name or project.

    Nobody may publish to the shared project.
    """
    taken = set(users()) - {PUBLISHER}
    problems = [
        Problem(field=name, problem="is not a publisher name: [a-z0-9][a-z0-9-]{0,62}, and not another user of the bus")
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
        raise Permanent(ErrorCode.PUBLISHERS_INVALID, tuple(problems))
    return publishers


def nats_config(
    passwords: Mapping[str, str] | None, projects: Sequence[str] = ("*",), publishers: Publishers | None = None
) -> str:
    """Return the `accounts` block of the server configuration. Raises `KeyError` for a user without a password.

    Without `passwords` it is for a server with `verify_and_map`, which takes the user from a client certificate.
    """
    table = permissions(policy(), projects, publishers)
    accounts: dict[str, dict[str, Any]] = {HOUSE: {"jetstream": "enabled", "users": []}}
    for user, rights in sorted(table.items()):
        accounts.setdefault(account(user), {"users": []})["users"].append(_entry(user, passwords, rights))
        if account(user) != HOUSE:
            accounts[user]["imports"] = [
                {kind: {"account": HOUSE, "subject": subject}} for kind, subject in _imports(rights)
            ]
    accounts[HOUSE]["exports"] = [_export(kind, subject, names) for (kind, subject), names in shares(table).items()]
    return (_MAPPED if passwords is None else "") + "accounts " + json.dumps(accounts, indent=2) + "\n"


def shares(table: Mapping[str, Mapping[str, list[str]]]) -> dict[tuple[str, str], list[str]]:
    """Return the exports of `HOUSE` as (`service` or `stream`, subject), sorted, with the accounts that import each."""
    found: dict[tuple[str, str], list[str]] = {}
    for user, rights in sorted(table.items()):
        if account(user) != HOUSE:
            for each in _imports(rights):
                found.setdefault(each, []).append(user)
    return dict(sorted(found.items()))


def is_pull(subject: str) -> bool:
    """Whether requests on this subject have many replies."""
    return subject.startswith(_PULL)


def account(user: str) -> str:
    """Return the account of a user: `HOUSE`, or one of the user's own name."""
    return HOUSE if user in (MEMORY, PROVISIONER) else user


def _entry(user: str, passwords: Mapping[str, str] | None, rights: Mapping[str, list[str]]) -> dict[str, Any]:
    publish, subscribe = sorted(set(rights["publish"])), sorted(set(rights["subscribe"]))
    never = {"deny": sorted(rights["never"])} if rights.get("never") else {}
    return {
        "user": user,
        **({} if passwords is None else {"password": passwords[user]}),
        "permissions": {
            "publish": {"allow": publish, **never} if publish else {"deny": [">"]},
            "subscribe": {"allow": subscribe},
        },
    }


def _imports(rights: Mapping[str, list[str]]) -> list[tuple[str, str]]:
    """Return an account's imports: the subjects its user may publish as services, those it may watch as streams.

    An account that pulls from another's JetStream also needs `$JS.API.INFO`, though its user may not publish there:
    without it the server itself answers every API request with "JetStream not enabled".
    """
    services = set(rights["publish"])
    if any(is_pull(subject) for subject in services):
        services.add(_JETSTREAM_INFO)
    watched = {subject for subject in rights["subscribe"] if subject.startswith(subjects.live(""))}
    return [*(("service", subject) for subject in sorted(services)), *(("stream", name) for name in sorted(watched))]


def _export(kind: str, subject: str, accounts: Sequence[str]) -> dict[str, Any]:
    """Return an export to the named accounts. A pull has many replies, other requests one."""
    pull = {"response_type": "stream", "response_threshold": f"{ANSWERS_S:g}s"} if is_pull(subject) else {}
    return {kind: subject, "accounts": accounts, **pull}
