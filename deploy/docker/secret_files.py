"""Write the secrets of `compose.yaml`: `python deploy/docker/secret_files.py FOLDER`.

The secrets are generated once, into `FOLDER/secrets.json`; a second run writes the same files again, with what a newer
release adds. Compose mounts each file into the containers that name it, whose users are others than the owner of the
files: so the folder is for its owner alone, and the files in it are readable.
"""

import argparse
import json
import secrets
from pathlib import Path
from urllib.parse import urlsplit

from counterpoint.bus.permissions import nats_config
from counterpoint.local.credentials import Credentials, load_credentials
from counterpoint.local.postgres import PostgresUrls, roles_sql
from counterpoint.local.private_files import private_folder
from counterpoint.local.service import NATS_USERS, SERVICES
from counterpoint.local.settings import local_settings

ROOT = Path(__file__).resolve().parents[2]
GRAFANA = "grafana_password"
"""The password of Grafana's administrator, generated once: it is none of the house's secrets."""
_POSTGRES, _VALKEY = "postgresql://postgres:5432", "valkey:6379"


def files(credentials: Credentials, postgres: str = _POSTGRES, valkey: str = _VALKEY) -> dict[str, str]:
    """Return the content of each file. `postgres` is the URL of the server without a login, `valkey` host and port."""
    parts = urlsplit(postgres)
    urls = PostgresUrls.of(
        parts._replace(netloc=f"postgres:{credentials.postgres.superuser}@{parts.netloc}").geturl(),
        credentials.postgres,
    )
    return {
        **{f"{user}_nats_password": credentials.nats[user] for user in (*SERVICES, "provisioner")},
        "nats.conf": nats_conf(credentials),
        "roles.sql": roles_sql(credentials.postgres),
        "postgres_password": credentials.postgres.superuser,
        "postgres_owner_url": urls.owner,
        "postgres_url": urls.memory,
        "valkey.conf": f"requirepass {credentials.valkey}\n",
        "valkey_password": credentials.valkey,
        "valkey_url": f"redis://:{credentials.valkey}@{valkey}/0",
        "signing_keys": json.dumps([key.model_dump() for key in credentials.signing_keys]),
        "audit_key": credentials.audit_key,
        "admin_token": credentials.admin_token,
        "installation": credentials.installation,
    }


def nats_conf(credentials: Credentials) -> str:
    """Return `deploy/nats/nats.conf` with the passwords, the key of the streams, and `COUNTERPOINT_PUBLISHERS`."""
    head = (ROOT / "deploy" / "nats" / "nats.conf").read_text().partition("\naccounts ")[0]
    key = json.dumps(credentials.nats_store_key)
    accounts = nats_config(credentials.nats, publishers=local_settings().publishers)
    return head.replace("$COUNTERPOINT_NATS_STORE_KEY", key) + "\n" + accounts


def write(folder: Path) -> None:
    """Write every file."""
    private_folder(folder)
    if not (folder / GRAFANA).exists():
        _put(folder / GRAFANA, secrets.token_hex(24))
    users = tuple(dict.fromkeys((*NATS_USERS, *local_settings().publishers)))
    for name, content in files(load_credentials(folder / "secrets.json", users)).items():
        _put(folder / name, content)


def _put(path: Path, content: str) -> None:
    draft = path.with_name(f".{path.name}")
    draft.unlink(missing_ok=True)
    draft.write_text(content)
    draft.chmod(0o444)
    draft.replace(path)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description="Write the secrets of compose.yaml.")
    parser.add_argument("folder", type=Path)
    write(parser.parse_args().folder)
