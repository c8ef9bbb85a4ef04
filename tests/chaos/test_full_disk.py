"""A full disk: nothing is written, everything can be read, and all goes on by itself when there is room again."""

import asyncio
import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from types import SimpleNamespace

import httpx
import pytest

if __name__ == "__main__":
    sys.path.insert(0, str(Path(__file__).parents[1]))
from chaos.faults import House

from counterpoint.bus.logs import LossyStream
from counterpoint.local.up import status
from counterpoint.memory.record.disk import DiskSpace
from counterpoint.proto.errors import Away

RESERVE = 1000


def test_writes_stop_below_the_reserve_until_half_as_much_again_is_free(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    free = iter((1000, 999, 1000, 1499, 1500, 1000))
    monkeypatch.setattr(shutil, "disk_usage", lambda folder: SimpleNamespace(free=next(free)))
    room, seen = DiskSpace(tmp_path, RESERVE), []
    for _ in range(6):
        room.check_space()
        seen.append(room.low)
    assert seen == [False, True, True, True, False, False]


def test_a_database_without_room_is_left_alone_for_a_while() -> None:
    room = DiskSpace()
    room.check()
    room.database_full()
    with pytest.raises(Away, match="the disk is full"):
        room.check()


def test_a_log_without_room_ends_nothing(tmp_path: Path) -> None:
    with open("/dev/full", "w", encoding="utf-8") as full:
        stream = LossyStream(full)
        stream.write("lost\n" * 10_000)
        stream.flush()
        os.dup2(os.open(tmp_path / "log", os.O_WRONLY | os.O_CREAT), full.fileno())


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    """A file system of its own, large at first. Skips where none may be mounted."""
    if subprocess.run(
        ["mount", "-t", "tmpfs", "-o", "size=22g,mode=755", "tmpfs", str(tmp_path)], check=False
    ).returncode:
        pytest.skip("mounting a file system needs a right that this user has not")
    yield tmp_path
    subprocess.run(["umount", "-l", str(tmp_path)], check=True)


def _fill(folder: Path) -> None:
    """Take away what is free, to the last byte."""
    _resize(folder, str(shutil.disk_usage(folder).used + (4 << 20)))
    with suppress(OSError), open(folder / "fill", "wb", buffering=0) as fill:
        while True:
            fill.write(bytes(4096))


def _resize(folder: Path, size: str) -> None:
    subprocess.run(["mount", "-o", f"remount,size={size}", str(folder)], check=True)


async def _answer(http: httpx.AsyncClient, url: str) -> httpx.Response:
    """The answer of a service, which may just be started again."""
    while True:
        try:
            return await http.get(url)
        except httpx.ConnectError:
            await asyncio.sleep(0.1)


@pytest.mark.slow
@pytest.mark.timeout(300)
async def test_the_house_outlives_a_full_disk_and_goes_on_by_itself(small_disk: Path) -> None:
    house = House(small_disk)
    await house.start()
    told = house.endpoints()
    headers = {"Authorization": f"Bearer {told.token}"}
    question = {"kind": "question", "description": "Who owns the orders?"}
    async with httpx.AsyncClient(base_url=told.http, headers=headers, timeout=30) as http:
        accepted = (await http.post("/v1/tasks", json=question)).json()["task_id"]
        _fill(small_disk)
        while (await http.post("/v1/tasks", json=question)).status_code != 503:  # noqa: ASYNC110 - nobody tells of it
            await asyncio.sleep(0.1)
        memory = await _answer(http, f"{told.services['memory'].health}/readyz")
        assert memory.status_code == 503
        assert "disk" in memory.json()["waiting_for"]
        assert "disk" in (await asyncio.to_thread(status, small_disk / "data")).waiting_for["memory"]
        for name in ("nats", "postgres", "memory", "manager"):
            await house.kill(name)
        (small_disk / "fill").unlink()
        _resize(small_disk, "22g")
        while True:
            try:
                again = await http.post("/v1/tasks", json=question)
                if again.status_code == 202:
                    break
            except httpx.TransportError:
                pass
            await asyncio.sleep(0.2)
        for task_id in (accepted, again.json()["task_id"]):
            shown: dict[str, str] = {}
            while shown.get("state") not in ("completed", "input_required"):
                shown = (await http.get(f"/v1/tasks/{task_id}", params={"wait": 10})).json()
    await house.stop()
