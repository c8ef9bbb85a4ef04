"""The one Dockerfile installs a whole service, and no other one."""

import json
import os
import re
import shlex
import subprocess
import tomllib
from pathlib import Path

import pytest
from deploy.compose import ROOT

from counterpoint.local.service import SERVICES

FILE = ROOT / "deploy" / "docker" / "Dockerfile"
STEPS = [line for line in FILE.read_text().replace("\\\n", " ").splitlines() if line and not line.startswith("#")]
MEMBERS = re.findall(r'^name = "(counterpoint-\w+)"$', (ROOT / "uv.lock").read_text(), re.MULTILINE)
_LOOK = """
import importlib, importlib.util, json, sys
importlib.import_module(f"counterpoint.{sys.argv[1]}.main")
print(json.dumps([name for name in sys.argv[2:] if importlib.util.find_spec(f"counterpoint.{name}")]))
"""


def _step(beginning: str) -> str:
    (found,) = (step for step in STEPS if beginning in step)
    return found


@pytest.mark.parametrize("service", SERVICES)
def test_what_it_installs_starts_one_service_and_holds_no_other(service: str, tmp_path: Path) -> None:
    sync = shlex.split(_step("uv sync").replace("$SERVICE", service))
    assert {"--no-cache", "--locked", "--no-dev", "--no-editable", "--package"} < set(sync)
    arguments = [each for each in sync[sync.index("uv") + 1 :] if each not in ("--no-cache", "--compile-bytecode")]
    for member in MEMBERS:
        arguments += ["--refresh-package", member]
    home = tmp_path / "venv"
    subprocess.run(
        [ROOT / ".tools/bin/uv", *arguments, "--quiet"],
        cwd=ROOT,
        env=os.environ | {"UV_PROJECT_ENVIRONMENT": str(home), "UV_PYTHON_DOWNLOADS": "never", "VIRTUAL_ENV": ""},
        check=True,
    )
    told = subprocess.run(
        [home / "bin" / "python", "-c", _LOOK, service, *SERVICES, "cli", "local"],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=False,
    )
    assert told.returncode == 0, told.stderr
    assert json.loads(told.stdout) == [service]
    assert str(ROOT) not in "".join(path.read_text() for path in home.rglob("*.pth"))


def test_it_runs_as_nobody_in_particular_and_says_whether_it_is_ready() -> None:
    assert len([step for step in STEPS if step.startswith("FROM ")]) == 2
    assert _step("USER ") == "USER 10001:10001"
    assert "--compile-bytecode" in _step("uv sync")
    command = json.loads(_step("HEALTHCHECK").split("CMD", 1)[1])
    assert command[:2] == ["python", "-c"]
    assert "/readyz" in command[2]
    compile(command[2], "HEALTHCHECK", "exec")
    assert STEPS[-1] == 'CMD ["sh", "-c", "exec python -m counterpoint.$SERVICE.main"]'


def test_the_build_sees_the_workspace_alone() -> None:
    lines = (FILE.parent / "Dockerfile.dockerignore").read_text().splitlines()
    wanted = {line.removeprefix("!") for line in lines if line.startswith("!")}
    assert "*" in lines
    assert wanted == {"pyproject.toml", "uv.lock", "README.md", "proto", "libs", "services"}
    members = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["uv"]["workspace"]["members"]
    assert {Path(member).parts[0] for member in members} <= wanted
