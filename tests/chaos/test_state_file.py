"""The state file: ports that are chosen once and kept."""

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
