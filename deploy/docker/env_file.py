"""Prints an environment file with fresh secrets for `compose.yaml`: `python deploy/docker/env_file.py > FILE`."""

import json

from counterpoint.bus.permissions import users
from counterpoint.local.credentials import Credentials


def document() -> str:
    """One `NAME=value` a line. A password of the bus begins with a letter, as its server's configuration wants it."""
    made = Credentials.make().with_nats_users(users())
    keys = json.dumps([key.model_dump() for key in made.signing_keys])
    values = {f"COUNTERPOINT_NATS_PASSWORD_{user.upper()}": f"n{password}" for user, password in made.nats.items()} | {
        "COUNTERPOINT_NATS_STORE_KEY": f"n{made.nats_store_key}",
        "COUNTERPOINT_POSTGRES_PASSWORD": made.postgres.superuser,
        "COUNTERPOINT_OWNER_PASSWORD": made.postgres.owner,
        "COUNTERPOINT_MEMORY_PASSWORD": made.postgres.memory,
        "COUNTERPOINT_INSPECT_PASSWORD": made.postgres.inspect,
        "COUNTERPOINT_VALKEY_PASSWORD": made.valkey,
        "COUNTERPOINT_ADMIN_TOKEN": made.admin_token,
        "COUNTERPOINT_AUDIT_KEY": made.audit_key,
        "COUNTERPOINT_SIGNING_KEYS": f"'{keys}'",
    }
    return "".join(f"{name}={value}\n" for name, value in values.items())


if __name__ == "__main__":
    print(document(), end="")
