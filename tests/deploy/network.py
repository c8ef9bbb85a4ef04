"""An evaluation of NetworkPolicies: which connections they allow, by the rules of Kubernetes."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from ipaddress import ip_address, ip_network
from typing import Any

Document = Mapping[str, Any]
NAMESPACE_NAME = "kubernetes.io/metadata.name"


@dataclass(frozen=True)
class Place:
    """A pod, or an address outside the cluster if it has no namespace."""

    name: str
    namespace: str = ""
    labels: Mapping[str, str] = field(default_factory=dict)
    address: str = ""


def selects(selector: Document, labels: Mapping[str, str]) -> bool:
    """Whether a label selector selects something with these labels."""
    assert set(selector) <= {"matchLabels"}, "the evaluation knows no expressions"
    wanted: Mapping[str, str] = selector.get("matchLabels", {})
    return wanted.items() <= labels.items()


def is_peer(peer: Document, place: Place, own_namespace: str) -> bool:
    """Whether a place is the peer of a rule. A block of addresses never means a pod."""
    if "ipBlock" in peer:
        block = peer["ipBlock"]
        inside = [cidr for cidr in (block["cidr"], *block.get("except", ())) if _contains(cidr, place.address)]
        return inside == [block["cidr"]]
    if not place.namespace:
        return False
    if "namespaceSelector" in peer:
        if not selects(peer["namespaceSelector"], {NAMESPACE_NAME: place.namespace}):
            return False
    elif place.namespace != own_namespace:
        return False
    return selects(peer.get("podSelector", {}), place.labels)


def _contains(cidr: str, address: str) -> bool:
    return bool(address) and ip_address(address) in ip_network(cidr)


def _direction(policies: Sequence[Document], own: Place, other: Place, port: int, kind: str, protocol: str) -> bool:
    selecting = [
        each
        for each in policies
        if each["metadata"]["namespace"] == own.namespace
        and kind in each["spec"]["policyTypes"]
        and selects(each["spec"]["podSelector"], own.labels)
    ]
    if not selecting:
        return True
    peers, rules = ("to", "egress") if kind == "Egress" else ("from", "ingress")
    return any(
        any(is_peer(peer, other, own.namespace) for peer in rule[peers])
        and any(each["port"] == port and each.get("protocol", "TCP") == protocol for each in rule["ports"])
        for policy in selecting
        for rule in policy["spec"].get(rules, ())
    )


def allows(policies: Sequence[Document], source: Place, target: Place, port: int, protocol: str = "TCP") -> bool:
    """Whether the policies allow a connection: those of its source, and those of its target."""
    return _direction(policies, source, target, port, "Egress", protocol) and _direction(
        policies, target, source, port, "Ingress", protocol
    )


def inhabitant(name: str, peer: Document, own_namespace: str) -> Place:
    """Return a pod or an address that a peer means."""
    if "ipBlock" in peer:
        return Place(name, address=str(ip_network(peer["ipBlock"]["cidr"])[0]))
    selector = peer.get("namespaceSelector", {"matchLabels": {NAMESPACE_NAME: own_namespace}})
    return Place(name, selector["matchLabels"][NAMESPACE_NAME], peer.get("podSelector", {}).get("matchLabels", {}))
