"""Every documented setting, set in the environment of `up`, is in force in the service that reads it."""

import json
import os
import socket
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from importlib.resources import files
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import httpx
import pytest
from search.local_models import overlap

from counterpoint.local.endpoints import Endpoints, read_endpoints
from counterpoint.local.forwarded import COMMON, FORWARDED
from counterpoint.memory.embedding.files import ModelSettings

COMMAND = Path(sys.executable).with_name("counterpoint")
OUTSIDE = {"NATS_CA", "NATS_CERT", "NATS_KEY", "QDRANT_URL", "QDRANT_API_KEY"}
"""For servers that run elsewhere: tests/contract/test_forwarded.py sees that they are passed on."""


def free_ports(count: int) -> list[int]:
    """Ports that were free a moment ago, all different."""
    with ExitStack() as held:
        sockets = [held.enter_context(socket.socket()) for _ in range(count)]
        for each in sockets:
            each.bind(("127.0.0.1", 0))
        return [each.getsockname()[1] for each in sockets]


def other_values(folder: Path) -> dict[str, tuple[str, Any]]:
    """A value for every setting that is not its default, and what the service then says of it."""
    models = folder / "models"
    models.symlink_to(ModelSettings().model_cache_dir.expanduser())
    fitted = folder / "calibration.json"
    fitted.write_text(files("counterpoint.developer.evidence").joinpath("calibration.json").read_text())
    receivers = folder / "receivers.toml"
    receivers.touch(0o600)
    ports = free_ports(3)
    numbers = {
        "RPC_TIMEOUT_S": 3.5, "DRAIN_S": 9.5, "POSTGRES_TIMEOUT_S": 6.5, "LEASE_RETRY_S": 0.25, "SWEEP_AGE_S": 2.5,
        "CAPABILITY_LIFE_S": 700_000.5, "RECONCILE_EVERY_S": 61.5, "RETENTION_S": 600_000.5, "RECALL_SHARE": 0.5,
        "PRINCIPAL_CACHE_S": 1.5, "POLL_S": 1.5, "HEARTBEAT_S": 14.5, "WAIT_LIMIT_S": 45.5, "IDEMPOTENCY_S": 80_000.5,
        "OUTCOME_WAIT_S": 4000.5, "REASSESS_S": 6.5, "GATEWAY_CALL_S": 60.5, "ANSWER_DEADLINE_S": 15.5,
        "INVESTIGATION_DEADLINE_S": 90.5,
        "RETRY_GRACE_S": 30.5, "PART_GRACE_S": 20.5,
        "WORKERS": 40, "POSTGRES_POOL": 9, "COMMIT_QUEUE": 1500, "READ_SET_ITEMS": 150_000,
        "EMBEDDING_DIMENSIONS": 256, "DOCUMENTS_LIMIT_BYTES": 8_000_000, "INGEST_REQUEST_BYTES": 400_000,
        "MAX_ATTEMPTS": 4, "MAX_SAME_FAILURES": 3, "MAX_RESUMES": 2, "GATEWAY_CALLS": 7, "GATEWAY_TRIES": 2,
        "GATEWAY_MAX_TOKENS": 4096, "RELATIONS_TOKENS": 900_000, "INCIDENTS_PER_HOUR": 7,
        "DISK_RESERVE_BYTES": 1_000_001, "TASKS_UNDER_WAY": 9,
        "HTTP_PORT": ports[0], "LINEAGE_PORT": ports[1], "GATEWAY_PORT": ports[2],
    }  # fmt: skip
    texts = {
        "LOG_LEVEL": "debug", "HEALTH_HOST": "127.0.0.5", "AUDIT_DIR": str(folder / "audit"),
        "MODEL_CACHE_DIR": str(models), "EMBEDDING_MODEL": "minilm-l6-v2", "PROVIDER_CLEARANCE": "public",
        "MODEL": "openai/one", "MODEL_MANAGER": "openai/two", "MODEL_DEVELOPER": "openai/three",
        "MODEL_ROUTER": "openai/seven", "MODEL_JUDGE": "openai/eleven", "MODEL_SESSIONS": "openai/eight",
        "RERANKER": f"file:{overlap(folder / 'reranker')}", "SEARCH_URL": "http://127.0.0.1:1",
        "CALIBRATION_FILE": str(fitted), "MCP_URL": "https://counterpoint.example.com/mcp",
        "CONSOLE_URL": "https://counterpoint.example.com",
        "HTTP_HOST": "127.0.0.2", "LINEAGE_HOST": "127.0.0.3", "GATEWAY_HOST": "127.0.0.4",
    }  # fmt: skip
    lists = {
        "EMBEDDING_MODELS": ("openai/four", ["openai/four"]),
        "REPLAY_MODELS": ("openai/nine, openai/ten", ["openai/nine", "openai/ten"]),
        "MODEL_FALLBACKS": ("openai/five, openai/six", ["openai/five", "openai/six"]),
        "MCP_AUTHORIZATION_SERVERS": ('["https://id.example.com"]', ["https://id.example.com"]),
        "MCP_HOSTS": ('["counterpoint.example.com"]', ["counterpoint.example.com"]),
        "NOTIFY_URL": ("https://hooks.example.com/x", "**********"),
        "NOTIFY_SECRET": ("whsec_c2VjcmV0", "**********"),
        "NOTIFY_PRIVATE": ("true", True),
        "NOTIFY_FILE": (str(receivers), str(receivers)),
        "NOTIFY_TIMEOUT_S": ("9.5", 9.5),
        "HOOKS_FILE": (str(receivers), str(receivers)),
        "ISSUES_FILE": (str(receivers), str(receivers)),
        "ISSUES_TIMEOUT_S": ("9.5", 9.5),
        "PROJECT_WEIGHTS": ('{"orders": 3}', {"orders": 3}),
    }
    return {name: (str(value), value) for name, value in (numbers | texts).items()} | lists


@contextmanager
def up(folder: Path, values: dict[str, str], *options: str) -> Iterator[Endpoints]:
    """`counterpoint up --detach` with these variables, until the end of the block."""
    environment = {name: value for name, value in os.environ.items() if not name.startswith("COUNTERPOINT_")}
    data = folder / "data"
    started = subprocess.run(
        [COMMAND, "up", "--detach", "--data-dir", data, *options],
        env=environment | values, capture_output=True, text=True, check=False,
    )  # fmt: skip
    try:
        assert started.returncode == 0, started.stdout + started.stderr
        yield read_endpoints(data)
    finally:
        subprocess.run([COMMAND, "down", "--data-dir", data], capture_output=True, check=False)


@pytest.mark.timeout(240)
def test_every_setting_in_the_environment_of_up_is_in_force_in_its_service() -> None:
    with tempfile.TemporaryDirectory(prefix="counterpoint-") as name:
        folder = Path(name)
        others = other_values(folder)
        forwarded = {each for names in (COMMON, *FORWARDED.values()) for each in names}
        assert forwarded - OUTSIDE <= others.keys()
        with up(folder, {f"COUNTERPOINT_{name}": text for name, (text, _) in others.items()}) as endpoints:
            shown = subprocess.run(
                [COMMAND, "status", "--settings", "--json", "--data-dir", folder / "data"],
                capture_output=True, text=True, check=False,
            )  # fmt: skip
            assert shown.returncode == 0, shown.stdout + shown.stderr
            in_force = json.loads(shown.stdout)["settings"]
            for service, names in FORWARDED.items():
                for name in {*names, *COMMON} - OUTSIDE:
                    assert in_force[service][f"COUNTERPOINT_{name}"] == others[name][1], (service, name)
            for service, server in (("router", "HTTP"), ("lineage", "LINEAGE"), ("manager", "GATEWAY")):
                for name in (f"{server}_HOST", f"{server}_PORT"):
                    assert in_force[service][f"COUNTERPOINT_{name}"] == others[name][1], name
            _listens_where_it_was_told(endpoints, {name: value for name, (_, value) in others.items()})
            _keeps_its_secrets(endpoints, shown.stdout)


def _listens_where_it_was_told(endpoints: Endpoints, others: dict[str, Any]) -> None:
    for url, server in ((endpoints.http, "HTTP"), (endpoints.lineage, "LINEAGE")):
        at = urlsplit(url)
        assert (at.hostname, at.port) == (others[f"{server}_HOST"], others[f"{server}_PORT"])
    assert httpx.get(f"{endpoints.http}/openapi.json", trust_env=False).status_code == 200
    assert httpx.post(f"{endpoints.lineage}/api/v1/lineage", json={}, trust_env=False).status_code == 401
    with socket.create_connection((others["GATEWAY_HOST"], others["GATEWAY_PORT"]), timeout=5):
        pass
    for port in (others["HTTP_PORT"], others["LINEAGE_PORT"]):
        with pytest.raises(OSError, match="refused"):
            socket.create_connection(("127.0.0.1", port), timeout=5)


def _keeps_its_secrets(endpoints: Endpoints, shown: str) -> None:
    """Assert that `/settings` without a token shows none of the stack's secrets."""
    assert endpoints.token not in shown
    for user in endpoints.users.values():
        assert user.password not in shown
