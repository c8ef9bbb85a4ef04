"""Writes `nats.conf`: the users and rights of the policy, each password left to the environment of the server."""

from pathlib import Path

from counterpoint.bus.permissions import nats_config, users
from counterpoint.local.nats import MAX_PAYLOAD_BYTES, jetstream

HERE = Path(__file__).parent
_HEAD = f"""\
# Generated from the policy by `python deploy/nats/generate.py`; do not edit.
# A password that begins with a digit may be read as a number: begin it with a letter.
listen: "0.0.0.0:4222"
http: "127.0.0.1:8222"
max_payload: {MAX_PAYLOAD_BYTES}
{jetstream("/data", "$COUNTERPOINT_NATS_STORE_KEY")}
"""


def password_variable(user: str) -> str:
    """The environment variable that holds the password of a user of the bus."""
    return f"COUNTERPOINT_NATS_PASSWORD_{user.upper()}"


def document() -> str:
    """The whole configuration. A variable is replaced by the server only where it stands without quotes."""
    text = nats_config({user: f"${password_variable(user)}" for user in users()})
    for user in users():
        text = text.replace(f'"${password_variable(user)}"', f"${password_variable(user)}")
    return _HEAD + text


if __name__ == "__main__":
    (HERE / "nats.conf").write_text(document())
