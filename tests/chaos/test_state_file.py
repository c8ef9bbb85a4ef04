"""The state file: ports that are chosen once and kept."""

import errno
import os
from pathlib import Path

import pytest

from counterpoint.local.state_file import EPHEMERAL_PORT, StateFile


def test_ports_are_kept_and_differ(tmp_path: Path) -> None:
    state = StateFile(tmp_path / "state.json")
    ports = {name: state.port(name) for name in ("nats", "postgres", "valkey")}
    assert len(set(ports.values())) == len(ports)
    again = StateFile(tmp_path / "state.json")
    assert {name: again.port(name) for name in ports} == ports


def test_a_port_is_none_that_an_outgoing_connection_can_take(tmp_path: Path) -> None:
    configured = Path("/proc/sys/net/ipv4/ip_local_port_range")
    if not configured.exists():
        pytest.skip("this system does not state its range")
    first = int(configured.read_text().split()[0])
    state = StateFile(tmp_path / "state.json")
    assert all(state.port(str(n)) < max(first, EPHEMERAL_PORT) for n in range(50))


def test_a_full_disk_leaves_the_last_state_and_no_draft(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    state = StateFile(tmp_path / "state.json")
    first = state.port("nats")
    before = (tmp_path / "state.json").read_text()

    def full(descriptor: int) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    with monkeypatch.context() as patch:
        patch.setattr(os, "fsync", full)
        second = state.port("postgres")
    assert [path.name for path in tmp_path.iterdir()] == ["state.json"]
    assert (tmp_path / "state.json").read_text() == before
    state.port("valkey")
    again = StateFile(tmp_path / "state.json")
    assert [again.port(name) for name in ("nats", "postgres")] == [first, second]
