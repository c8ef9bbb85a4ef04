"""The accounts, users and permissions of the bus as commands of `nsc`, for a NATS server with an operator.

An export names no accounts there: it is private, and each account that imports from it needs an activation, a token of
the exporting account for one subject. Exports may not overlap, so an account exports the widest subjects, and the
activations are as narrow as the rights. Every command may be repeated.
"""

import shlex
from collections.abc import Collection, Iterable, Mapping

from counterpoint.bus.permissions import ANSWERS_S, MEMORY, Publishers, account, is_pull, permissions, shares
from counterpoint.guard.policy import policy

_HEAD = """\
#!/bin/sh
# Accounts, users and permissions of Counterpoint. Run it where nsc has the operator and its key, with the folder for
# the credentials files: sh accounts.sh FOLDER. Then publish the accounts to the servers: nsc push --all
# It may be repeated: accounts, users and their keys stay. A share or right that a release gave up is not removed.
set -eu
house=@HOUSE@
folder=${1:?give the folder for the credentials files}
umask 077
mkdir -p "$folder"
activation=$(mktemp)
trap 'rm -f "$activation"' EXIT

account() {
    nsc describe account --name "$1" > /dev/null 2>&1 || nsc add account --name "$1"
}

# user ACCOUNT USER RIGHTS...
user() {
    in=$1 name=$2
    shift 2
    nsc describe user --account "$in" --name "$name" > /dev/null 2>&1 || nsc add user --account "$in" --name "$name"
    nsc edit user --account "$in" --name "$name" "$@"
    nsc generate creds --account "$in" --name "$name" > "$folder/.$name.creds"
    mv "$folder/.$name.creds" "$folder/$name.creds"
}

# renew ACCOUNT USER: give it another key. Servers refuse the one that it had, once the accounts are published
renew() {
    nsc describe user --account "$1" --name "$2" > /dev/null 2>&1 || return 0
    nsc delete user --account "$1" --name "$2" --revoke --rm-nkey
}

# share SUBJECT OPTIONS...: what the account of memory exports
share() {
    subject=$1
    shift
    nsc delete export --account "$house" --subject "$subject" > /dev/null 2>&1 || true
    nsc add export --account "$house" --name "$subject" --subject "$subject" --private "$@"
}

# import ACCOUNT SUBJECT
import() {
    key=$(nsc describe account --name "$1" --field sub | tr -d '"')
    nsc generate activation --account "$house" --target-account "$key" --subject "$2" > "$activation"
    nsc delete import --account "$1" --subject "$2" > /dev/null 2>&1 || true
    nsc add import --account "$1" --name "$2" --token "$activation"
}
"""


def account_name(user: str) -> str:
    """Return the name of a user's account at the operator, who has other accounts too."""
    return f"counterpoint-{account(user).lower()}"


def nsc_script(publishers: Publishers | None = None, new_keys: Collection[str] = ()) -> str:
    """Return the script. It gives the users of `new_keys` other keys. Raises `Permanent` `publishers_invalid`."""
    table = permissions(policy(), publishers=publishers)
    limits = "--js-mem-storage 0 --js-disk-storage -1 --js-streams -1 --js-consumer -1"
    lines = [f"account {name}" for name in sorted({account_name(user) for user in table})]
    lines.append(f'nsc edit account --name "$house" {limits}')
    lines += [f"renew {account_name(user)} {user}" for user in sorted(new_keys)]
    lines += [f"user {account_name(user)} {user} {_rights(rights)}" for user, rights in sorted(table.items())]
    shared = shares(table)
    lines += [
        _command("share", subject, *_export(kind, subject))
        for kind, subject in shared
        if _is_widest(kind, subject, shared)
    ]
    lines += [
        _command("import", account_name(name), subject) for (_, subject), names in shared.items() for name in names
    ]
    return _HEAD.replace("@HOUSE@", account_name(MEMORY)) + "\n" + "\n".join(lines) + "\n"


def contains(wide: str, narrow: str) -> bool:
    """Whether every subject that matches `narrow` also matches `wide`."""
    theirs, ours = wide.split("."), narrow.split(".")
    for place, token in enumerate(theirs):
        if token == ">":
            return len(ours) > place
        if place >= len(ours) or ours[place] == ">" or (token != "*" and token != ours[place]):
            return False
    return len(theirs) == len(ours)


def _is_widest(kind: str, subject: str, shared: Iterable[tuple[str, str]]) -> bool:
    others = (name for other, name in shared if other == kind and name != subject)
    return not any(contains(name, subject) for name in others)


def _export(kind: str, subject: str) -> tuple[str, ...]:
    """Return the options of an export. A pull has many replies, other requests one."""
    if kind == "stream":
        return ()
    pull = ("--response-type", "Stream", "--response-threshold", f"{ANSWERS_S:g}s") if is_pull(subject) else ()
    return ("--service", *pull)


def _rights(rights: Mapping[str, list[str]]) -> str:
    """Return the permissions of a user. No publish right at all is said by denying everything."""
    options = [("--allow-pub", name) for name in sorted(set(rights["publish"]))] or [("--deny-pub", ">")]
    options += [("--deny-pub", name) for name in sorted(rights.get("never", ()))]
    options += [("--allow-sub", name) for name in sorted(set(rights["subscribe"]))]
    return _command(*(word for option in options for word in option))


def _command(*words: str) -> str:
    return " ".join(shlex.quote(word) for word in words)
