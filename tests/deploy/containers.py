"""The containers of the chart as processes of this machine: their environments, commands and probes."""

import sys
from collections.abc import Mapping
from pathlib import Path

from deploy.helm import Document

from counterpoint.local.credentials import Credentials
from counterpoint.local.kubernetes import EngineUrls, secret_list
from counterpoint.local.nats import policy_authorization
from counterpoint.local.probe import http_ok
from counterpoint.local.process import ManagedProcess, Program
from counterpoint.local.service import base_environment
from counterpoint.local.state_file import StateFile

PORTS = ("HTTP_PORT", "LINEAGE_PORT", "GATEWAY_PORT", "HEALTH_PORT")
IMAGE_DIRS = ("MODEL_CACHE_DIR",)
"""Settings that name folders of the image, which this machine has elsewhere."""
FOLDERS = ("DATA_DIR", "AUDIT_DIR")
Secrets = Mapping[str, Mapping[str, str]]


def secrets(credentials: Credentials, engines: EngineUrls) -> dict[str, dict[str, str]]:
    """The Secrets that `counterpoint kubernetes secrets` prints, by name."""
    made = secret_list(credentials, engines, policy_authorization(credentials.nats), "counterpoint")
    return {each["metadata"]["name"]: each["stringData"] for each in made["items"]}


def environment(container: Document, known: Secrets) -> dict[str, str]:
    """The variables that the kubelet gives a container. Raises `KeyError` for a Secret or a key that is missing."""
    found: dict[str, str] = {}
    for each in container["env"]:
        assert each["name"] not in found, f"{each['name']} is given twice"
        if "value" in each:
            found[each["name"]] = each["value"]
            continue
        reference = each["valueFrom"]["secretKeyRef"]
        secret = known.get(reference["name"], {})
        if reference.get("optional") and reference["key"] not in secret:
            continue
        found[each["name"]] = known[reference["name"]][reference["key"]]
    return found


class Here:
    """Where this machine has what a container has: free ports, folders, the services of others."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.state = StateFile(folder / "state.json")
        self._ports: dict[str, int] = {}

    def port(self, service: str, setting: str) -> int:
        """A free port in place of one that a container listens on."""
        name = f"{service}.{setting}"
        if name not in self._ports:
            self._ports[name] = self.state.port(name)
        return self._ports[name]

    def environment(self, service: str, given: Mapping[str, str]) -> dict[str, str]:
        """The environment of a container, with this machine's addresses and folders in place of the container's."""
        made = dict(given)
        for setting in PORTS:
            if (name := f"COUNTERPOINT_{setting}") in made:
                made[name] = str(self.port(service, setting))
                made[name.replace("PORT", "HOST")] = "127.0.0.1"
        for setting in FOLDERS:
            if (name := f"COUNTERPOINT_{setting}") in made:
                folder = self.folder / made[name].strip("/")
                folder.mkdir(exist_ok=True)
                made[name] = str(folder)
        for setting in IMAGE_DIRS:
            made.pop(f"COUNTERPOINT_{setting}", None)
        if "COUNTERPOINT_GATEWAY_URL" in made:
            assert made["COUNTERPOINT_GATEWAY_URL"] == "http://counterpoint-manager:8486"
            made["COUNTERPOINT_GATEWAY_URL"] = f"http://127.0.0.1:{self.port('manager', 'GATEWAY_PORT')}"
        return base_environment({}) | {"HOME": str(Path.home())} | made

    def program(self, name: str, container: Document, known: Secrets) -> Program:
        """The container's command, or for a service that of its image."""
        words = container.get("command") or ["python", "-m", f"counterpoint.{name}.main"]
        env = self.environment(name, environment(container, known))
        return Program(argv=(sys.executable, *words[1:]), env=env, log=self.folder / f"{name}.log")


class ServiceContainer(ManagedProcess):
    """The container of a service, ready by the chart's own probe."""

    def __init__(self, name: str, container: Document, known: Secrets, here: Here) -> None:
        super().__init__(name, here.state)
        self._container, self._known, self._here = container, known, here

    async def prepare(self) -> Program:
        return self._here.program(self.name, self._container, self._known)

    async def answers(self) -> bool:
        port = self._here.port(self.name, "HEALTH_PORT")
        return all([await http_ok(port, self.path(probe)) for probe in ("startup", "liveness", "readiness")])

    def path(self, probe: str) -> str:
        """The path of a probe."""
        get: dict[str, str] = self._container[f"{probe}Probe"]["httpGet"]
        assert get["port"] == "health"
        return get["path"]
