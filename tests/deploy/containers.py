"""The containers of the chart as processes of this machine: their environments, commands and probes."""

import sys
from collections.abc import Mapping
from pathlib import Path

from deploy.helm import Document

from counterpoint.bus.settings import SECRETS_DIR
from counterpoint.local.credentials import Credentials
from counterpoint.local.kubernetes import EngineUrls, secret_list
from counterpoint.local.nats import policy_authorization
from counterpoint.local.probe import http_ok
from counterpoint.local.process import ManagedProcess, Program
from counterpoint.local.service import base_environment
from counterpoint.local.state_file import StateFile

PORTS = ("HTTP_PORT", "LINEAGE_PORT", "GATEWAY_PORT", "HEALTH_PORT")
FOLDERS = ("DATA_DIR", "AUDIT_DIR", "MODEL_CACHE_DIR")
Secrets = Mapping[str, Mapping[str, str]]


def secrets(credentials: Credentials, engines: EngineUrls) -> dict[str, dict[str, str]]:
    """The Secrets that `counterpoint kubernetes secrets` prints, by name."""
    made = secret_list(credentials, engines, policy_authorization(credentials.nats), "counterpoint")
    return {each["metadata"]["name"]: each["stringData"] for each in made["items"]}


def variables(container: Document, known: Secrets) -> dict[str, str]:
    """The variables that the kubelet gives a container. Raises `KeyError` for a Secret or a key that is missing."""
    found: dict[str, str] = {}
    for each in container["env"]:
        assert each["name"] not in found, f"{each['name']} is given twice"
        if "value" in each:
            found[each["name"]] = each["value"]
        else:
            reference = each["valueFrom"]["secretKeyRef"]
            found[each["name"]] = known[reference["name"]][reference["key"]]
    return found


def references(spec: Document) -> dict[str, tuple[str, str, bool]]:
    """The Secret and the key behind each file of the folder of secrets, and whether it may be missing."""
    (volume,) = (each["projected"] for each in spec["volumes"] if each["name"] == "secrets")
    return {
        item["path"]: (secret["name"], item["key"], secret.get("optional", False))
        for source in volume["sources"]
        for secret in (source["secret"],)
        for item in secret["items"]
    }


def secret_files(spec: Document, known: Secrets) -> dict[str, str]:
    """The files of the folder of secrets. Raises `KeyError` for a Secret or a key that is missing."""
    return {
        path: known[secret][key]
        for path, (secret, key, optional) in references(spec).items()
        if not optional or key in known.get(secret, {})
    }


def environment(spec: Document, known: Secrets) -> dict[str, str]:
    """The settings of the container of a pod: its variables, and the files that are read like variables."""
    (container,) = spec["containers"]
    given = variables(container, known)
    folder = given.pop(SECRETS_DIR)
    assert {"name": "secrets", "mountPath": folder, "readOnly": True} in container["volumeMounts"]
    files = {name: text for name, text in secret_files(spec, known).items() if name.startswith("COUNTERPOINT_")}
    assert not files.keys() & given.keys()
    return given | files


class LocalMachine:
    """This machine in place of containers: free ports, folders, the services of others."""

    def __init__(self, folder: Path) -> None:
        folder.mkdir(exist_ok=True)
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
                folder.mkdir(parents=True, exist_ok=True)
                made[name] = str(folder)
        if "COUNTERPOINT_GATEWAY_URL" in made:
            assert made["COUNTERPOINT_GATEWAY_URL"] == "http://counterpoint-manager:8486"
            made["COUNTERPOINT_GATEWAY_URL"] = f"http://127.0.0.1:{self.port('manager', 'GATEWAY_PORT')}"
        return base_environment({}) | {"HOME": str(Path.home())} | made

    def program(self, name: str, spec: Document, known: Secrets) -> Program:
        """The command of a pod's container, or for a service that of its image."""
        (container,) = spec["containers"]
        words = container.get("command") or ["python", "-m", f"counterpoint.{name}.main"]
        folder = self.folder / "secrets" / name
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        for path, text in secret_files(spec, known).items():
            (folder / path).write_text(text)
        env = self.environment(name, variables(container, known)) | {SECRETS_DIR: str(folder)}
        return Program(argv=(sys.executable, *words[1:]), env=env, log=self.folder / f"{name}.log")


class ServiceContainer(ManagedProcess):
    """The container of a service, ready by the chart's own probe."""

    def __init__(self, name: str, spec: Document, known: Secrets, here: LocalMachine) -> None:
        super().__init__(name, here.state)
        self._spec, self._known, self._here = spec, known, here

    async def prepare(self) -> Program:
        return self._here.program(self.name, self._spec, self._known)

    @property
    def port(self) -> int:
        """Its health port."""
        return self._here.port(self.name, "HEALTH_PORT")

    async def answers(self) -> bool:
        return all([await http_ok(self.port, self.path(probe)) for probe in ("startup", "liveness", "readiness")])

    def path(self, probe: str) -> str:
        """The path of a probe."""
        get: dict[str, str] = self._spec["containers"][0][f"{probe}Probe"]["httpGet"]
        assert get["port"] == "health"
        return get["path"]
