"""Expand first, contract a release later: the services before the last migration run on the database after it.

What came before is taken from the history of the checkout; where there is none, nothing can be proved.
"""

import json
import shutil
import subprocess
import sys
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import httpx
import pytest

from counterpoint.local.service import COMMANDS, SERVICES, JobName, ServiceName
from counterpoint.local.stack import Stack

ROOT = Path(__file__).parents[2]
MIGRATIONS = "services/memory/counterpoint/memory/record/migrations"
PROJECT = "upgrade"
YEARS = ("three", "seven", "nine")

Commands = Mapping[ServiceName | JobName, tuple[str, ...]]


def _git(*arguments: str) -> bytes | None:
    """What git says about this checkout; None when it has no answer."""
    git = shutil.which("git")
    if git is None or not (ROOT / ".git").exists():
        return None
    done = subprocess.run([git, "-C", str(ROOT), *arguments], capture_output=True, check=False)
    return done.stdout.strip() if done.returncode == 0 else None


def _before_the_last_migration() -> str:
    """The commit before the one that added the newest migration; the last one while that is not committed yet."""
    if _git("rev-parse", "--verify", "HEAD") is None:
        pytest.skip("this is no git checkout: there is no previous commit to run")
    newest = max(path.name for path in (ROOT / MIGRATIONS).iterdir() if path.name[0].isdigit())
    log = _git("log", "--follow", "--diff-filter=A", "--format=%H", "--", f"{MIGRATIONS}/{newest}") or b""
    added = log.decode().splitlines()[-1:]
    before = f"{added[0]}^" if added else "HEAD"
    if _git("cat-file", "-e", f"{before}:services") is None:
        pytest.skip(f"the history of this checkout does not reach back to before {newest}")
    return before


@pytest.fixture(scope="module")
def previous(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The packages as they were before the last migration."""
    folder = tmp_path_factory.mktemp("previous")
    archive = folder / "previous.zip"
    assert _git("archive", "-o", str(archive), _before_the_last_migration(), "proto", "libs", "services") is not None
    shutil.unpack_archive(archive, folder)
    return folder


def _of(checkout: Path) -> Commands:
    """The programs of another checkout: PYTHONPATH goes before what is installed."""
    members = (checkout / "proto", *(checkout / "libs").iterdir(), *(checkout / "services").iterdir())
    env = shutil.which("env")
    assert env is not None
    path = f"PYTHONPATH={':'.join(str(member) for member in members)}"
    asked = "import json; from counterpoint.local.service import COMMANDS; print(json.dumps(COMMANDS))"
    said = subprocess.run([env, path, sys.executable, "-c", asked], capture_output=True, check=True)
    return {name: (env, path, *command) for name, command in json.loads(said.stdout).items()}


@asynccontextmanager
async def _running(data_dir: Path, commands: Commands) -> AsyncIterator[httpx.AsyncClient]:
    stack = Stack(data_dir, http_port=0, commands=commands)
    await stack.start()
    try:
        headers = {"Authorization": f"Bearer {stack.endpoints.token}"}
        async with httpx.AsyncClient(base_url=stack.endpoints.http, headers=headers, timeout=60) as client:
            yield client
    finally:
        await stack.stop()


async def _answered(http: httpx.AsyncClient, years: str) -> str:
    """Ingest a document and ask about it; returns the task's id."""
    text = f"# Archive {years}\n\nPapers of floor {years} are kept for {years} years, by decision of finance.\n"
    documents = [{"source": f"{years}.md", "text": text}]
    response = await http.post("/v1/documents", json={"project": PROJECT, "documents": documents})
    assert response.status_code == 200, response.text
    assert [document["status"] for document in response.json()["documents"]] == ["added"]
    question = f"For how many years are papers of floor {years} kept?"
    body = {"project": PROJECT, "kind": "question", "description": question}
    response = await http.post("/v1/tasks", json=body, headers={"Prefer": "wait=30"})
    assert response.status_code == 200, response.text
    task: dict[str, Any] = response.json()
    assert (task["state"], f"{years} years" in task["result"]) == ("completed", True), task
    return str(task["task_id"])


async def _whole(http: httpx.AsyncClient, task_ids: list[str]) -> None:
    """All that was done is there, nothing is dead, and the audit log verifies."""
    params = {"project": PROJECT}
    listed = (await http.get("/v1/tasks", params=params)).json()["items"]
    assert {task["task_id"]: task["state"] for task in listed} == dict.fromkeys(task_ids, "completed")
    assert (await http.get("/v1/dead-letters", params=params)).json()["items"] == []
    report = (await http.get("/v1/audit/verify", params=params)).json()
    assert report["ok"], report


def test_another_checkout_goes_before_what_is_installed(previous: Path) -> None:
    command = _of(previous)["memory"]
    told = "import counterpoint.{0} as it; print(it.__file__)"
    for name in (*SERVICES, "proto", "bus", "guard"):
        said = subprocess.run([*command[:2], sys.executable, "-c", told.format(name)], capture_output=True, check=True)
        assert Path(said.stdout.decode().strip()).is_relative_to(previous)


@pytest.mark.timeout(300)
async def test_the_services_before_the_last_migration_run_on_the_database_after_it(
    previous: Path, tmp_path: Path
) -> None:
    before, data_dir = _of(previous), tmp_path / "data"
    expanded = {**before, "migrate": COMMANDS["migrate"], "provision": COMMANDS["provision"]}
    done: list[str] = []
    for commands, years in zip((before, expanded, COMMANDS), YEARS, strict=True):
        async with _running(data_dir, commands) as http:
            done.append(await _answered(http, years))
            await _whole(http, done)
