"""A NATS server with an operator, and what the commands of `nsc` do there: JSON web tokens signed by Ed25519 keys.

`nsc` is no package, so its commands are recorded from a shell and applied here by what its source says they do.
"""

import argparse
import asyncio
import base64
import json
import os
import subprocess
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import nkeys

from counterpoint.bus.nsc import contains

ISSUED_AT = 1_700_000_000
_STUB = r"""
nsc() {
    token=
    for word; do
        if [ "${last:-}" = --token ]; then token=$(cat "$word"); fi
        last=$word
    done
    last=
    case "$1 $2 $*" in
        "describe account "*--field*) shift 3; printf '"key of %s"\n' "$1"; return ;;
        "describe user "*) case " ${GONE:-} " in *" $6 "*) return 1 ;; esac; [ "$KNOWN" ]; return ;;
        "describe "*) [ "$KNOWN" ]; return ;;
        "delete user "*) GONE="${GONE:-} $6"; printf '%s\0' "$@" "token:" "" >> "$RECORD" ;;
        "delete "*) [ "$KNOWN" ] && printf '%s\0' "$@" "token:" "" >> "$RECORD"; return ;;
        "generate activation "*) shift 2; printf '%s\n' "$*" ;;
        "generate creds "*) shift 2; printf 'creds: %s\n' "$*" ;;
        *) printf '%s\0' "$@" "token:$token" "" >> "$RECORD" ;;
    esac
}
"""


def commands(script: str, folder: Path, *, repeated: bool = False) -> Iterator[list[str]]:
    """The commands of a script that change something, with the content of a token file as the last word.

    `repeated`: nsc knows every account and user already.
    """
    record = folder / "record"
    record.unlink(missing_ok=True)
    (folder / "accounts.sh").write_text(script)
    run = ["sh", "-c", f"{_STUB}\n. {folder / 'accounts.sh'}", "sh", str(folder / "creds")]
    done = subprocess.run(
        run,
        env=os.environ | {"RECORD": str(record), "KNOWN": "1" if repeated else ""},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    words = list[str]()
    for word in record.read_text().split("\0"):
        if word:
            words.append(word)
        elif words:
            yield words
            words = []


@dataclass
class Account:
    """An account with its key, as claims."""

    name: str
    key: nkeys.KeyPair
    exports: dict[str, dict[str, Any]] = field(default_factory=dict)
    imports: list[dict[str, Any]] = field(default_factory=list)
    users: dict[str, dict[str, Any]] = field(default_factory=dict)
    limits: dict[str, int] = field(default_factory=dict)
    user_keys: dict[str, nkeys.KeyPair] = field(default_factory=dict)
    revoked: dict[str, int] = field(default_factory=dict)

    @property
    def public(self) -> str:
        """The public key."""
        return str(self.key.public_key.decode())


_ADD = argparse.ArgumentParser(exit_on_error=False)
for _name in ("--account", "--name", "--subject", "--token", "--response-type", "--response-threshold"):
    _ADD.add_argument(_name)
for _name in ("--private", "--service", "--revoke", "--rm-nkey"):
    _ADD.add_argument(_name, action="store_true")
for _name in ("--allow-pub", "--deny-pub", "--allow-sub"):
    _ADD.add_argument(_name, action="append", default=[])
for _name in ("mem-storage", "disk-storage", "streams", "consumer"):
    _ADD.add_argument(f"--js-{_name}", type=int)
_ACTIVATE = argparse.ArgumentParser(exit_on_error=False)
for _name in ("--account", "--target-account", "--subject"):
    _ACTIVATE.add_argument(_name, nargs="+")


class Operator:
    """An operator with its accounts."""

    def __init__(self) -> None:
        self.key = _pair(nkeys.PREFIX_BYTE_OPERATOR)
        issuer = self.key.public_key.decode()
        # A running server takes new accounts, but no other operator.
        self.token = _sign(self.key, issuer, issuer, "operator", {"type": "operator", "version": 2})
        self.accounts: dict[str, Account] = {}
        self.add_account("SYS")

    def add_account(self, name: str) -> Account:
        """Make an account without anything."""
        assert name not in self.accounts
        return self.accounts.setdefault(name, Account(name, _pair(nkeys.PREFIX_BYTE_ACCOUNT)))

    def apply(self, command: list[str]) -> None:
        """Do what one command does. An option that nsc does not have is an error."""
        *words, token = command
        given = _ADD.parse_args(words[2:])
        match words[:2]:
            case ["add", "account"]:
                self.add_account(given.name)
            case ["edit", "account"]:
                limits = {"mem_storage": given.js_mem_storage, "disk_storage": given.js_disk_storage}
                limits |= {"streams": given.js_streams, "consumer": given.js_consumer}
                self.accounts[given.name].limits |= limits
            case ["add", "user"]:
                assert given.name not in self.accounts[given.account].users
                self.accounts[given.account].users[given.name] = {}
            case ["delete", "user"]:
                account = self.accounts[given.account]
                del account.users[given.name]
                key = account.user_keys.pop(given.name)
                assert given.rm_nkey
                if given.revoke:
                    account.revoked[key.public_key.decode()] = ISSUED_AT
            case ["delete", "export"]:
                del self.accounts[given.account].exports[given.subject]
            case ["delete", "import"]:
                account = self.accounts[given.account]
                account.imports = [each for each in account.imports if each["subject"] != given.subject]
            case ["edit", "user"]:
                publish = {"allow": given.allow_pub, "deny": given.deny_pub}
                self.accounts[given.account].users[given.name] = {"pub": publish, "sub": {"allow": given.allow_sub}}
            case ["add", "export"]:
                self.accounts[given.account].exports[given.subject] = _export(given)
            case ["add", "import"]:
                self.activate(self.accounts[given.account], token.removeprefix("token:"))
            case _:
                raise AssertionError(words)

    def activate(self, account: Account, activation: str) -> None:
        """Import what an activation is for, if it is for this account."""
        given = _ACTIVATE.parse_args(activation.split())
        assert " ".join(given.target_account) == f"key of {account.name}"
        exporter, (subject,) = self.accounts[given.account[0]], given.subject
        export = next(each for each in exporter.exports.values() if contains(each["subject"], subject))
        claims = {"subject": subject, "kind": export["type"], "type": "activation", "version": 2}
        token = _sign(exporter.key, exporter.public, account.public, subject, claims)
        self.import_subject(account, exporter, export | {"subject": subject}, token)

    def import_subject(self, account: Account, exporter: Account, export: dict[str, Any], token: str = "") -> None:
        """Add an import, with an activation or without one."""
        entry = {"name": export["subject"], "subject": export["subject"], "account": exporter.public}
        account.imports.append(entry | {"type": export["type"]} | ({"token": token} if token else {}))

    def configuration(self) -> str:
        """The configuration of a server that knows the operator's accounts."""
        preload = {each.public: self._account_token(each) for each in self.accounts.values()}
        lines = [f"operator: {self.token}", f"system_account: {self.accounts['SYS'].public}", "resolver: MEMORY"]
        return "\n".join([*lines, f"resolver_preload: {json.dumps(preload, indent=1)}"])

    def write_credentials(self, folder: Path) -> None:
        """Write `USER.creds` for each user, as `nsc generate creds` prints it."""
        folder.mkdir(exist_ok=True)
        for account in self.accounts.values():
            for name, rights in account.users.items():
                (folder / f"{name}.creds").write_text(self.credentials(account, name, rights))

    def credentials(self, account: Account, name: str, rights: dict[str, Any]) -> str:
        """A credentials file: the user's token and the seed of its key."""
        key = account.user_keys.setdefault(name, _pair(nkeys.PREFIX_BYTE_USER))
        claims = rights | {"subs": -1, "data": -1, "payload": -1, "type": "user", "version": 2}
        token = _sign(account.key, account.public, key.public_key.decode(), name, claims)
        return (
            f"-----BEGIN NATS USER JWT-----\n{token}\n------END NATS USER JWT------\n\n"
            f"-----BEGIN USER NKEY SEED-----\n{bytes(key.seed).decode()}\n------END USER NKEY SEED------\n"
        )

    def _account_token(self, account: Account) -> str:
        unlimited = dict.fromkeys(("subs", "data", "payload", "imports", "exports", "conn", "leaf"), -1)
        claims = {"imports": account.imports, "exports": list(account.exports.values())}
        claims |= {"revocations": account.revoked} if account.revoked else {}
        limits = {"limits": {**unlimited, "wildcards": True, **account.limits}, "type": "account", "version": 2}
        return _sign(self.key, self.key.public_key.decode(), account.public, account.name, claims | limits)


async def may_log_in(port: int, credentials: str) -> bool:
    """Whether a server takes a credentials file, by its protocol: a client that is refused leaves its socket open."""
    token, seed = credentials.splitlines()[1], credentials.splitlines()[-2]
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    nonce = json.loads((await reader.readline()).removeprefix(b"INFO "))["nonce"]
    signature = _encode(nkeys.from_seed(seed.encode()).sign(nonce.encode()))
    writer.write(f"CONNECT {json.dumps({'jwt': token, 'sig': signature, 'verbose': False})}\r\nPING\r\n".encode())
    answer = await reader.readline()
    writer.close()
    return answer.startswith(b"PONG")


def _export(given: argparse.Namespace) -> dict[str, Any]:
    found = {"name": given.name, "subject": given.subject, "token_req": given.private}
    found["type"] = "service" if given.service else "stream"
    if given.response_type:
        assert given.response_threshold.endswith("s")
        nanoseconds = int(float(given.response_threshold[:-1]) * 1e9)
        found |= {"response_type": given.response_type, "response_threshold": nanoseconds}
    return found


def _pair(prefix: int) -> nkeys.KeyPair:
    return nkeys.from_seed(nkeys.encode_seed(os.urandom(32), prefix))


def _sign(key: nkeys.KeyPair, issuer: str, subject: str, name: str, claims: dict[str, Any]) -> str:
    body = {"jti": os.urandom(8).hex(), "iat": ISSUED_AT, "iss": issuer, "sub": subject, "name": name, "nats": claims}
    parts = ({"typ": "JWT", "alg": "ed25519-nkey"}, body)
    text = ".".join(_encode(json.dumps(part, separators=(",", ":")).encode()) for part in parts)
    return f"{text}.{_encode(key.sign(text.encode()))}"


def _encode(data: bytes) -> str:
    return base64.urlsafe_b64encode(data).rstrip(b"=").decode()
