"""Writes `nats.conf`: the users and rights of the policy, each password left to the environment of the server.

With `NAME=PROJECT,PROJECT ...` prints one that also has publishers of these names, each of its projects alone.
"""

import sys
from collections.abc import Mapping
from pathlib import Path

from counterpoint.bus.permissions import Publishers, nats_config, users
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
    return f"COUNTERPOINT_NATS_PASSWORD_{user.upper().replace('-', '_')}"


def document(publishers: Publishers | None = None) -> str:
    """The whole configuration. A variable is replaced by the server only where it stands without quotes."""
    named = dict.fromkeys((*users(), *(publishers or {})))
    text = nats_config({user: f"${password_variable(user)}" for user in named}, publishers=publishers)
    for user in named:
        text = text.replace(f'"${password_variable(user)}"', f"${password_variable(user)}")
    return _HEAD + text


def given(words: list[str]) -> Mapping[str, list[str]]:
    """Publishers and their projects, as the command line names them."""
    return {name: projects.split(",") for name, _, projects in (word.partition("=") for word in words)}


if __name__ == "__main__":
    if len(sys.argv) > 1:
        print(document(given(sys.argv[1:])), end="")
    else:
        (HERE / "nats.conf").write_text(document())
