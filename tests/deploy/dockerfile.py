"""`deploy/docker/Dockerfile` as values, and its build steps in a folder of this machine."""

import json
import os
import re
import shlex
import shutil
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from string import Template

from deploy.compose import ROOT

FILE = ROOT / "deploy" / "docker" / "Dockerfile"
MEMBERS = re.findall(r'^name = "(counterpoint-\w+)"$', (ROOT / "uv.lock").read_text(), re.MULTILINE)


@dataclass(frozen=True)
class Stage:
    """A stage: the one or the image that it builds on, and its instructions as (name, arguments)."""

    name: str
    base: str
    steps: tuple[tuple[str, str], ...]

    def arguments(self, instruction: str) -> list[str]:
        """The arguments of every instruction of this name."""
        return [arguments for name, arguments in self.steps if name == instruction]

    def only(self, instruction: str) -> str:
        """The arguments of the one instruction of this name."""
        (found,) = self.arguments(instruction)
        return found

    def pairs(self, instruction: str) -> dict[str, str]:
        """The names and values of an `ENV` or `LABEL` instruction."""
        words = [word for arguments in self.arguments(instruction) for word in shlex.split(arguments)]
        return dict(word.split("=", 1) for word in words)

    def health(self) -> list[str]:
        """The command of the health check."""
        command: list[str] = json.loads(self.only("HEALTHCHECK").partition(" CMD ")[2])
        return command


def stages() -> dict[str, Stage]:
    """The stages of the file, by name."""
    found: dict[str, Stage] = {}
    name, base, steps = "", "", list[tuple[str, str]]()
    text = "\n".join(line for line in FILE.read_text().splitlines() if not line.startswith("#"))
    for line in re.sub(r"\\\n\s*", " ", text).splitlines():
        instruction, _, arguments = line.strip().partition(" ")
        if instruction == "FROM":
            if name:
                found[name] = Stage(name, base, tuple(steps))
            base, _, name = arguments.partition(" AS ")
            steps = []
        elif instruction:
            steps.append((instruction, " ".join(arguments.split())))
    return found | {name: Stage(name, base, tuple(steps))}


def everyones_python() -> str | None:
    """The interpreter of this version that every user may run; None if there is none."""
    version = f"python{sys.version_info.major}.{sys.version_info.minor}"
    for found in (os.path.realpath(sys.executable), shutil.which(version, path="/usr/local/bin:/usr/bin")):
        if found and all(parent.stat().st_mode & 0o001 for parent in Path(found).parents):
            return found
    return None


_SETPRIV = shutil.which("setpriv")
AS_USER = os.geteuid() == 0 and bool(_SETPRIV and everyones_python())
"""Whether the programs of images run as the user of the images: root may become it, and it may run Python."""


@dataclass(frozen=True)
class Place:
    """A folder that stands for the root of an image."""

    folder: Path

    def here(self, text: str) -> str:
        """The text with the paths of the image in this folder, those of the sources in the checkout."""
        text = re.sub(r"(?<![\w./])/(app|empty|data|audit)\b", rf"{self.folder}/\1", text)
        return re.sub(r"(?<![\w./])/src\b", str(ROOT), text)

    def build(self, target: str, **arguments: str) -> None:
        """Run the steps of a build stage as the file has them, with the lock's packages from uv's cache."""
        stage, first = stages()[target], stages()["build"]
        given = {name: value for name, _, value in (each.partition("=") for each in stage.arguments("ARG"))} | arguments
        env = os.environ | {name: self.here(value) for name, value in first.pairs("ENV").items()} | given
        env |= {
            "UV_PYTHON": everyones_python() or sys.executable,
            "PATH": f"{ROOT / '.tools' / 'bin'}:{os.environ['PATH']}",
        }
        refreshed = "".join(f" --refresh-package {member}" for member in MEMBERS)
        for step in stage.arguments("RUN"):
            shell = self.here(step).replace(" --no-cache", refreshed).replace(" --compile-bytecode", " --quiet")
            done = subprocess.run(
                ["sh", "-euc", shell],
                cwd=ROOT,
                env={name: value for name, value in env.items() if name not in ("VIRTUAL_ENV", "PYTHONPATH")},
                capture_output=True,
                text=True,
                check=False,
            )
            assert done.returncode == 0, done.stdout + done.stderr
        for copied in stages()[target.removeprefix("build-")].arguments("COPY"):
            *options, source, folder = copied.split()
            if source == "/empty":
                shutil.copytree(self.here(source), self.here(folder))
                (owner,) = (each.removeprefix("--chown=") for each in options if each.startswith("--chown="))
                if AS_USER:
                    os.chown(self.here(folder), *map(int, owner.split(":")))

    def as_user(self, target: str, *words: str) -> tuple[str, ...]:
        """The words of a command that runs them as the user of an image, without any right of root's."""
        user, group = stages()[target].only("USER").split(":")
        rights = (f"--reuid={user}", f"--regid={group}", "--clear-groups", "--no-new-privs", "--bounding-set=-all")
        # A change of the user takes away the signal that ends a child with its parent.
        return (str(_SETPRIV), *rights, "--pdeathsig=KILL", *words) if AS_USER else words

    def command(self, service: str) -> tuple[str, ...]:
        """The command of a service's container, with the environment of the image before that of its start."""
        stage = stages()["server"]
        image = {
            name: self.here(Template(value).substitute(SERVICE=service)) for name, value in stage.pairs("ENV").items()
        }
        image["PATH"] = f"{image['PATH']}"
        port = "COUNTERPOINT_HEALTH_PORT"
        given = [f"{name}={value}" for name, value in image.items() if name != port]
        folders = {"DATA_DIR": self.folder / "data", "AUDIT_DIR": self.folder / "audit"} if service == "memory" else {}
        given += [f"COUNTERPOINT_{name}={path}" for name, path in folders.items()]
        program = (self.here(word) for word in json.loads(stage.only("CMD")))
        return self.as_user("server", "/usr/bin/env", *given, *program)

    def healthy(self, port: int) -> "subprocess.CompletedProcess[str]":
        """Run the health check of the image."""
        words = self.as_user("server", *(self.here(word) for word in stages()["server"].health()))
        env = {"COUNTERPOINT_HEALTH_PORT": str(port)}
        return subprocess.run(words, env=env, capture_output=True, text=True, check=False)

    def megabytes(self) -> float:
        """The size of everything in the folder, in MB."""
        return sum(path.lstat().st_size for path in self.folder.rglob("*") if not path.is_dir()) / 1e6
