"""Writes what the chart takes from the policy and from the settings of the services.

`files/house.yaml` has the connections, ports, consumers, settings and secrets of each service and job. In
`values.schema.json` the definitions of settings are replaced, the rest of it is written by hand.
"""

import json
from pathlib import Path
from typing import Any

import yaml
from pydantic_settings import NoDecode

from counterpoint.bus.permissions import HOUSE
from counterpoint.bus.settings import BusSettings, ProvisionSettings
from counterpoint.bus.streams import consumer_specs
from counterpoint.developer.settings import DeveloperSettings
from counterpoint.guard.policy import policy
from counterpoint.lineage.settings import LineageSettings
from counterpoint.manager.settings import ManagerSettings
from counterpoint.memory.settings import MemorySettings
from counterpoint.router.settings import RouterSettings

HERE = Path(__file__).parent
HOUSE_FILE, SCHEMA_FILE = HERE / "files" / "house.yaml", HERE / "values.schema.json"
PREFIX = "COUNTERPOINT_"
HEALTH_PORT = 8080
SETTINGS: dict[str, type[BusSettings]] = {
    "router": RouterSettings,
    "manager": ManagerSettings,
    "developer": DeveloperSettings,
    "lineage": LineageSettings,
    "memory": MemorySettings,
}
PORTS = {
    "router": {"http": RouterSettings.model_fields["http_port"].default},
    "manager": {"gateway": ManagerSettings.model_fields["gateway_port"].default},
    "lineage": {"http": LineageSettings.model_fields["lineage_port"].default},
}
BY_CHART = {
    "NATS_URL", "NATS_USER", "NATS_CA", "HEALTH_HOST", "HEALTH_PORT", "HTTP_HOST", "HTTP_PORT", "LINEAGE_HOST",
    "LINEAGE_PORT", "GATEWAY_HOST", "GATEWAY_PORT", "GATEWAY_URL", "TLS_CERT", "TLS_KEY", "DATA_DIR", "AUDIT_DIR",
    "MODEL_CACHE_DIR", "NOTIFY_FILE", "HOOKS_FILE",
}  # fmt: skip
"""Settings that the templates set; values do not."""
JOB_SECRETS = {
    "migrate": {"COUNTERPOINT_POSTGRES_OWNER_URL": True, "COUNTERPOINT_INSTALLATION": False},
    "index": {"COUNTERPOINT_POSTGRES_OWNER_URL": True},
    "provision": {"COUNTERPOINT_NATS_PASSWORD": True},
}
"""By job the variables that come from its Secret, and whether they are required."""
_KEPT = (
    "type", "enum", "minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum", "items", "additionalProperties",
)  # fmt: skip
_HEAD = "# Generated from the policy and the settings by `python deploy/chart/generate.py`; do not edit.\n"


def is_secret(schema: dict[str, Any]) -> bool:
    """Whether the JSON schema of a setting says that its value is a secret."""
    text = json.dumps(schema)
    return '"writeOnly": true' in text or "SigningKey" in text


def fields(settings: type[BusSettings]) -> dict[str, tuple[dict[str, Any], bool]]:
    """Return the JSON schema of each setting without a prefix, and whether it is required."""
    schema = settings.model_json_schema()
    required = set(schema.get("required", ()))
    return {name.upper(): (row, name in required) for name, row in schema["properties"].items()}


def value_schema(settings: type[BusSettings], name: str, schema: dict[str, Any]) -> dict[str, Any]:
    """Return what a value of a setting may be: its type and limits. Names separated by commas are a string."""
    if NoDecode in settings.model_fields[name.lower()].metadata:
        return {"type": "string"}
    (kind,) = (row for row in schema.get("anyOf", [schema]) if row.get("type") != "null")
    return {key: kind[key] for key in _KEPT if key in kind}


def house() -> dict[str, Any]:
    """Return what the templates know of the services."""
    rules = policy()
    consumers: dict[str, list[dict[str, str]]] = {}
    for spec in consumer_specs(rules):
        consumers.setdefault(spec.durable, []).append({"stream": spec.stream, "consumer": spec.durable})
    secrets = {
        name: {f"{PREFIX}{field}": required for field, (row, required) in fields(settings).items() if is_secret(row)}
        for name, settings in SETTINGS.items()
    }
    return {
        "account": HOUSE,
        "consumers": consumers,
        "network": {name: list(targets) for name, targets in rules.network.items()},
        "ports": {name: PORTS.get(name, {}) | {"health": HEALTH_PORT} for name in rules.services},
        "secrets": secrets | JOB_SECRETS,
        "settings": {name: sorted(settings_schema(settings)) for name, settings in SETTINGS.items()},
    }


def settings_schema(settings: type[BusSettings]) -> dict[str, dict[str, Any]]:
    """Return, by variable, what the value of a setting may be, without secrets and what the templates set."""
    return {
        f"{PREFIX}{name}": value_schema(settings, name, row)
        for name, (row, _) in sorted(fields(settings).items())
        if name not in BY_CHART and not is_secret(row)
    }


def definitions() -> dict[str, Any]:
    """Return the definitions of settings, of each service and of all together."""
    by_service = {name: settings_schema(settings) for name, settings in SETTINGS.items()}
    everything = {name: row for rows in by_service.values() for name, row in rows.items()}
    by_service["all"] = dict(sorted(everything.items()))
    streams = ProvisionSettings.model_json_schema()["properties"]["streams_bytes"]
    closed = {
        f"settings.{name}": {"type": "object", "additionalProperties": False, "properties": rows}
        for name, rows in by_service.items()
    }
    return closed | {"streamsBytes": {"type": "integer", "minimum": streams["minimum"]}}


def documents() -> dict[Path, str]:
    """Return the generated files and their texts."""
    schema = json.loads(SCHEMA_FILE.read_text())
    schema["definitions"] |= definitions()
    return {
        HOUSE_FILE: _HEAD + yaml.safe_dump(house(), width=120),
        SCHEMA_FILE: json.dumps(schema, indent=2) + "\n",
    }


if __name__ == "__main__":
    for path, text in documents().items():
        path.write_text(text)
