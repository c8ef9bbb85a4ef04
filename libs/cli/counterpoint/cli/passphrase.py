"""The passphrase of a backup: from the environment, or asked for."""

import os
import sys
from getpass import getpass

from counterpoint.cli.errors import UsageError

VARIABLE = "COUNTERPOINT_BACKUP_PASSPHRASE"
SHORTEST = 8
"""Minimum number of characters of a new passphrase."""


def known_passphrase() -> str:
    """Return the passphrase of an existing backup. Raises `UsageError` if there is nobody to ask."""
    return os.environ.get("COUNTERPOINT_BACKUP_PASSPHRASE") or _ask("Passphrase of the backup: ")


def new_passphrase() -> str:
    """Return the passphrase of a new backup, asked for twice. Raises `UsageError`, also for a short one."""
    passphrase = os.environ.get("COUNTERPOINT_BACKUP_PASSPHRASE")
    if not passphrase:
        passphrase = _ask("New passphrase of the backup: ")
        if _ask("The same again: ") != passphrase:
            raise UsageError("the passphrases differ")
    if len(passphrase) < SHORTEST:
        raise UsageError(f"a passphrase has at least {SHORTEST} characters")
    return passphrase


def _ask(prompt: str) -> str:
    if not sys.stdin.isatty():
        raise UsageError(f"set {VARIABLE}: there is no terminal to ask for the passphrase")
    return getpass(prompt)
