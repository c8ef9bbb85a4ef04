"""Every setting in the table of docs/settings.md is passed on to its service, and nothing else is."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from contract.pages import ROOT, table
from hypothesis import given
from hypothesis import strategies as st
from service_parameters import service_parameters

from counterpoint.local.forwarded import COMMON, FORWARDED
from counterpoint.local.listen_addresses import (
    HTTP_PORT,
    LOCALHOST,
    ListenAddresses,
    exposure,
    listen_addresses,
    origin,
    reachable,
)
from counterpoint.local.service import SERVICES, ServiceName, ServiceParameters, environment
from counterpoint.proto.errors import Permanent

PREFIX = "COUNTERPOINT_"
ROWS = [row[:2] for row in table((ROOT / "docs" / "settings.md").read_text(), "## Environment")]
DOCUMENTED = {
    service: {name for name, reader in ROWS if reader in (service, "all services")} for service in SERVICES
}  # fmt: skip
SUPERVISED = {
    f"{PREFIX}{name}"
    for name in ("NATS_URL", "NATS_USER", "NATS_PASSWORD", "HEALTH_PORT", "POSTGRES_URL", "VALKEY_URL", "DATA_DIR")
} | {f"{PREFIX}{name}" for name in ("SIGNING_KEYS", "AUDIT_KEY", "ADMIN_TOKEN", "GATEWAY_URL")}
"""Values that only the supervisor knows: it runs the engines, holds the secrets and chooses the ports."""
CREDENTIALS = f"{PREFIX}NATS_CREDS"
"""For the supervisor a folder, for a service a file in it."""
LISTENED = {f"{PREFIX}{server}_{part}" for server in ("HTTP", "LINEAGE", "GATEWAY") for part in ("HOST", "PORT")} | {
    f"{PREFIX}{name}" for name in ("TLS_CERT", "TLS_KEY", "HTTP_FD", "LINEAGE_FD")
}
"""Read by `up` itself, which hands the address that it settled on to the service."""


def _wiring(inherited: dict[str, str]) -> ServiceParameters:
    return service_parameters(
        inherited,
        http_host="10.0.0.1",
        lineage_host="10.0.0.2",
        gateway_host="10.0.0.3",
        tls_cert="/cert.pem",
        tls_key="/key.pem",
        listeners={"router": 7, "lineage": 8},
    )


@pytest.mark.parametrize("service", SERVICES)
def test_every_documented_setting_is_passed_to_its_service_and_no_other_is(service: ServiceName) -> None:
    everything = {name: f"given-{name}" for name, _ in ROWS} | {f"{PREFIX}UNHEARD_OF": "x"}
    passed = {name for name, value in environment(service, _wiring(everything)).items() if value == f"given-{name}"}
    assert passed == DOCUMENTED[service] - SUPERVISED - LISTENED - {CREDENTIALS}
    assert passed == {f"{PREFIX}{name}" for name in (*COMMON, *FORWARDED[service])}


@pytest.mark.parametrize("service", SERVICES)
def test_settings_of_the_supervisor_cannot_be_overridden(service: ServiceName) -> None:
    everything = {name: f"given-{name}" for name, _ in ROWS}
    decided = environment(service, _wiring(everything))
    for name in DOCUMENTED[service] & (SUPERVISED | LISTENED) - {f"{PREFIX}HEALTH_PORT"}:
        assert decided[name] not in ("", f"given-{name}"), name


def test_a_service_gets_its_own_credentials_file_instead_of_a_password() -> None:
    wiring = replace(_wiring({CREDENTIALS: "/elsewhere"}), nats_creds=Path("/etc/creds"))
    for name in (*SERVICES, "provision"):
        given = environment(name, wiring)
        user = "provisioner" if name == "provision" else name
        assert given[CREDENTIALS] == f"/etc/creds/{user}.creds"
        assert f"{PREFIX}NATS_PASSWORD" not in given


def test_each_address_reaches_the_service_that_listens_there_and_those_that_call_it() -> None:
    wiring = _wiring({})
    router, lineage, manager, developer = (
        environment(name, wiring) for name in ("router", "lineage", "manager", "developer")
    )  # fmt: skip
    assert (router["COUNTERPOINT_HTTP_HOST"], router["COUNTERPOINT_HTTP_PORT"]) == ("10.0.0.1", "4")
    assert (lineage["COUNTERPOINT_LINEAGE_HOST"], lineage["COUNTERPOINT_LINEAGE_PORT"]) == ("10.0.0.2", "5")
    assert (manager["COUNTERPOINT_GATEWAY_HOST"], manager["COUNTERPOINT_GATEWAY_PORT"]) == ("10.0.0.3", "6")
    assert developer["COUNTERPOINT_GATEWAY_URL"] == "http://10.0.0.3:6"


def test_an_option_comes_before_its_variable_and_a_variable_before_the_default() -> None:
    environ = {
        "COUNTERPOINT_HTTP_HOST": "10.1.1.1", "COUNTERPOINT_HTTP_PORT": "81", "COUNTERPOINT_LINEAGE_HOST": "10.1.1.2",
        "COUNTERPOINT_LINEAGE_PORT": "82", "COUNTERPOINT_GATEWAY_HOST": "10.1.1.3", "COUNTERPOINT_GATEWAY_PORT": "83",
    }  # fmt: skip
    assert listen_addresses({}) == ListenAddresses(HTTP_PORT, LOCALHOST, 0, LOCALHOST, 0, LOCALHOST)
    assert listen_addresses(environ) == ListenAddresses(81, "10.1.1.1", 82, "10.1.1.2", 83, "10.1.1.3")
    given_by_option = listen_addresses(environ, host="0.0.0.0", http_port=0, lineage_port=5000)
    assert given_by_option == ListenAddresses(0, "0.0.0.0", 5000, "0.0.0.0", 83, "10.1.1.3")


@pytest.mark.parametrize("text", ["x", "-1", "65536", "8484.0", "٣"])
def test_an_invalid_port_is_refused_by_the_name_of_its_variable(text: str) -> None:
    with pytest.raises(Permanent, match="COUNTERPOINT_LINEAGE_PORT"):
        listen_addresses({"COUNTERPOINT_LINEAGE_PORT": text})


@pytest.mark.parametrize(
    ("host", "here"),
    [
        ("0.0.0.0", "127.0.0.1"),
        ("::", "::1"),
        ("127.0.0.2", "127.0.0.2"),
        ("localhost", "localhost"),
        ("", "127.0.0.1"),
    ],
)
def test_a_wildcard_is_reached_by_the_loopback_address(host: str, here: str) -> None:
    assert reachable(host) == here


@given(st.ip_addresses().map(str), st.integers(1, 65535))
def test_an_origin_is_a_url_of_that_port(host: str, port: int) -> None:
    assert origin(host, port).endswith(f":{port}")
    assert ("[" in origin(host, port)) == (":" in host)


TLS = Path(__file__).parents[1] / "data" / "tls"
CERTIFICATE: dict[str, Any] = {"tls_cert": str(TLS / "cert.pem"), "tls_key": str(TLS / "key.pem")}


def test_a_certificate_goes_to_both_apis_and_to_no_other_service() -> None:
    given = {service for service in SERVICES if f"{PREFIX}TLS_CERT" in environment(service, _wiring({}))}
    assert given == {"router", "lineage"}
    assert f"{PREFIX}TLS_CERT" not in environment("router", replace(_wiring({}), tls_cert="", tls_key=""))
    assert origin("0.0.0.0", 1, tls=True) == "https://127.0.0.1:1"


@pytest.mark.parametrize(
    "files",
    [
        {"tls_cert": str(TLS / "cert.pem")},
        {"tls_cert": str(TLS / "other.pem"), "tls_key": str(TLS / "key.pem")},
        {"tls_cert": "/nowhere", "tls_key": "/nowhere"},
    ],
)
def test_a_certificate_without_its_key_is_refused(files: dict[str, Any]) -> None:
    with pytest.raises(Permanent, match="TLS_KEY"):
        listen_addresses({}, **files)


@pytest.mark.parametrize("host", ["127.0.0.1", "127.0.0.9", "::1", "localhost"])
def test_addresses_of_this_machine_are_no_exposure(host: str) -> None:
    assert exposure(listen_addresses({}, host=host)) is None


@pytest.mark.parametrize("host", ["0.0.0.0", "::", "10.0.0.1", "counterpoint.example.com"])
def test_an_exposed_api_is_a_warning_with_a_remedy(host: str) -> None:
    plain = exposure(listen_addresses({}, host=host))
    assert plain is not None
    assert host in plain[0]
    assert "counterpoint principal create" in plain[1]
    assert "--tls-cert" in plain[1]
    encrypted = exposure(listen_addresses({}, host=host, **CERTIFICATE))
    assert encrypted is not None
    assert "--tls-cert" not in encrypted[1]
