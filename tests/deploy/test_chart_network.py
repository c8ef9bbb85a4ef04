"""The rendered NetworkPolicies allow the connections of the policy file, and no other."""

from itertools import product
from pathlib import Path
from typing import Any

import pytest
import yaml
from deploy.compose import ROOT
from deploy.helm import CHART, EXAMPLES, documents, of_kind, pods
from deploy.network import Place, allows, inhabitant

from counterpoint.local.service import SERVICES

NETWORK: dict[str, list[str]] = yaml.safe_load(
    (ROOT / "libs/guard/counterpoint/guard/policy.yaml").read_text()
)["network"]  # fmt: skip
PORTS = {"router.http": 8484, "lineage.http": 5000, "manager.gateway": 8486}
INTERNET, PRIVATE, METADATA = "198.51.100.7", "10.1.2.3", "169.254.169.254"
STRANGERS = (
    Place("a pod beside", "house", {"app": "shell"}),
    Place("a pod of another release", "house", {"app.kubernetes.io/name": "counterpoint"}),
    Place("a pod elsewhere", "batch", {"app.kubernetes.io/component": "router"}),
    Place("the internet", address=INTERNET),
    Place("a private address", address=PRIVATE),
    Place("the metadata of a cloud", address=METADATA),
)


class World:
    """The pods of a release, its engines and its callers, as an example names them."""

    def __init__(self, example: str) -> None:
        found = documents(example)
        self.policies = list(of_kind(found, "NetworkPolicy").values())
        self.own = {
            name: Place(name, "house", template["metadata"]["labels"]) for name, template in pods(found).items()
        }
        values = yaml.safe_load(Path(CHART / "examples" / f"{example}.yaml").read_text())
        defaults = yaml.safe_load((CHART / "values.yaml").read_text())["networkPolicy"]
        given: dict[str, Any] = values["networkPolicy"]
        engines = {name: defaults["engines"][name] | row for name, row in given["engines"].items()}
        self.engines = {name: inhabitant(name, row["peers"][0], "house") for name, row in engines.items()}
        self.ports = {name: row["port"] for name, row in engines.items()}
        self.callers = {
            name: [inhabitant(name, peer, "house") for peer in given.get(name, ())] for name in ("clients", "metrics")
        }
        self.outside = {name for name, row in given.get("outside", {}).items() if row["peers"]}
        (dns,) = defaults["dns"]
        self.dns = inhabitant("dns", dns, "house")

    def allows(self, source: Place, target: Place, port: int, protocol: str = "TCP") -> bool:
        return allows(self.policies, source, target, port, protocol)


@pytest.fixture(params=EXAMPLES)
def world(request: pytest.FixtureRequest) -> World:
    return World(request.param)


def served(target: str) -> tuple[str, int]:
    """The service and the number of a port that the policy names."""
    service, port = target.split(".")
    return service, 8080 if port == "health" else PORTS[target]


def test_every_service_and_job_is_confined(world: World) -> None:
    assert set(world.own) - {"index"} == {*SERVICES, "migrate", "provision"}
    for place, stranger in product(world.own.values(), STRANGERS):
        for port in (22, 80, 4222, 5432, 8080):
            assert not world.allows(place, stranger, port), (place.name, stranger.name, port)
    for stranger, place in product(STRANGERS, world.own.values()):
        for port in (8080, *PORTS.values()):
            assert not world.allows(stranger, place, port), (stranger.name, place.name, port)


def test_engines_are_reached_by_those_of_the_policy_alone(world: World) -> None:
    for (name, place), (engine, there) in product(world.own.items(), world.engines.items()):
        for port in {*world.ports.values(), 22}:
            shared = [each for each, other in world.engines.items() if other.labels == there.labels
                      and (other.namespace, other.address) == (there.namespace, there.address)]  # fmt: skip
            wanted = any(each in NETWORK[name] and world.ports[each] == port for each in shared)
            assert world.allows(place, there, port) == wanted, (name, engine, port)


def test_services_are_reached_by_those_of_the_policy_alone(world: World) -> None:
    targets = [*PORTS, *(f"{name}.health" for name in SERVICES)]
    for (name, place), target in product(world.own.items(), targets):
        service, port = served(target)
        wanted = target in NETWORK[name]
        assert world.allows(place, world.own[service], port) == wanted, (name, target)
    for name, places in world.callers.items():
        for caller, target in product(places, targets):
            service, port = served(target)
            assert world.allows(caller, world.own[service], port) == (target in NETWORK[name]), (name, target)


def test_the_outside_is_reached_where_the_values_name_it(world: World) -> None:
    for name, place in world.own.items():
        wanted = "outside" in NETWORK[name] and name in world.outside
        assert world.allows(place, Place("internet", address=INTERNET), 443) == wanted, name
        for address in (PRIVATE, METADATA):
            assert not world.allows(place, Place(address, address=address), 443), (name, address)


def test_dns_is_reached_by_all(world: World) -> None:
    for place in world.own.values():
        assert world.allows(place, world.dns, 53, "UDP")
        assert world.allows(place, world.dns, 53, "TCP")
        assert not world.allows(place, world.dns, 443)


def test_the_examples_cover_all_of_the_policy() -> None:
    worlds = [World(example) for example in EXAMPLES]
    assert set().union(*(each.engines for each in worlds)) == {"nats", "postgres", "valkey", "qdrant"}
    assert {name for each in worlds for name, places in each.callers.items() if places} == {"clients", "metrics"}
    assert set().union(*(each.outside for each in worlds)) == {name for name in NETWORK if "outside" in NETWORK[name]}


@pytest.mark.parametrize(
    ("name", "target", "port"), [("router", "postgres", 5432), ("developer", "valkey", 6379), ("index", "nats", 4222)]
)
def test_a_wider_policy_is_noticed(name: str, target: str, port: int) -> None:
    world = World("laptop")
    (own,) = (each for each in world.policies if each["metadata"]["name"] == f"counterpoint-{name}")
    assert not world.allows(world.own[name], world.engines[target], port)
    own["spec"]["egress"].append({"to": [{"namespaceSelector": {}}], "ports": [{"port": port}]})
    try:
        with pytest.raises(AssertionError):
            test_engines_are_reached_by_those_of_the_policy_alone(world)
    finally:
        own["spec"]["egress"].pop()
