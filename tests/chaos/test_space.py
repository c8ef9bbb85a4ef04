"""Disk space: a stack says how much it needs before it starts, and the streams get a share of what there is."""

import json
import shutil
from collections import namedtuple
from pathlib import Path

import pytest

from counterpoint.local.credentials import Credentials, load_credentials
from counterpoint.local.disk_space import MIB, RECORD_BYTES, reserve_streams, streams_bytes
from counterpoint.local.stack import Stack
from counterpoint.proto.errors import Permanent

Usage = namedtuple("Usage", ("total", "used", "free"))
GIB = 1024 * MIB


@pytest.mark.parametrize(
    ("free", "given", "streams"),
    [
        (0, None, 512 * MIB),
        (7 * GIB, None, 512 * MIB),
        (8 * GIB, None, GIB),
        (15 * GIB, None, GIB),
        (40 * GIB, None, 4 * GIB),
        (900 * GIB, None, 8 * GIB),
        (900 * GIB, 64 * MIB, 64 * MIB),
    ],
)
def test_the_streams_get_a_share_of_the_disk_or_the_given_size(free: int, given: int | None, streams: int) -> None:
    assert streams_bytes(free, given) == streams


def _disk(monkeypatch: pytest.MonkeyPatch, free: int) -> None:
    monkeypatch.setattr(shutil, "disk_usage", lambda path: Usage(100 * GIB, 100 * GIB - free, free))


async def test_a_stack_without_room_states_the_need_before_anything_starts(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    _disk(monkeypatch, 767 * MIB)
    with pytest.raises(Permanent, match="its disk has 767 MiB free and needs 768 MiB: 512 MiB for the streams"):
        await Stack(tmp_path / "data", http_port=0).start()
    assert not (tmp_path / "data" / "postgres").exists()
    _disk(monkeypatch, 768 * MIB)
    assert reserve_streams(tmp_path, None) == 512 * MIB


def test_space_that_the_streams_hold_counts_as_theirs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "nats").mkdir()
    (tmp_path / "nats" / "1.blk").write_bytes(b"0" * 8 * MIB)
    _disk(monkeypatch, RECORD_BYTES)
    assert reserve_streams(tmp_path, 8 * MIB) == 8 * MIB
    with pytest.raises(Permanent, match="needs 257 MiB"):
        reserve_streams(tmp_path, 9 * MIB)


def test_an_older_file_of_secrets_gets_a_key_for_the_streams(tmp_path: Path) -> None:
    older = json.loads(Credentials.make().model_dump_json())
    del older["nats_store_key"]
    (tmp_path / "secrets.json").write_text(json.dumps(older))
    made = load_credentials(tmp_path / "secrets.json", ())
    assert len(made.nats_store_key) == 64
    assert load_credentials(tmp_path / "secrets.json", ()) == made
    assert made.admin_token == older["admin_token"]
