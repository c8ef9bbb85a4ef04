"""Engines of an owner, and runs of the command beside them."""

import asyncio
import subprocess
import sys
from pathlib import Path

import pytest
from deploy.external import OtherPostgres

from counterpoint.local.credentials import Credentials
from counterpoint.local.postgres import roles_sql
from counterpoint.local.stack import Stack
from counterpoint.proto.errors import Permanent

COMMAND = Path(sys.executable).with_name("counterpoint")


def prepare(postgres: OtherPostgres, credentials: Credentials) -> None:
    """Do what an administrator does with `counterpoint sql roles`."""
    postgres.run(roles_sql(credentials.postgres))


async def run(*arguments: str | Path) -> "subprocess.CompletedProcess[str]":
    """Run the command."""
    return await asyncio.to_thread(subprocess.run, [COMMAND, *arguments], capture_output=True, text=True, check=False)


async def refused(folder: Path) -> dict[str, str]:
    """The problems for which a start is refused, by check."""
    stack = Stack(folder, http_port=0)
    with pytest.raises(Permanent) as refusal:
        await stack.start()
    assert refusal.value.code == "engine_unfit", refusal.value
    assert not (folder / "postgres").exists()
    return {problem.field: problem.problem for problem in refusal.value.problems}
