"""The rights that the policy gives a service, whatever it works on."""

from collections.abc import Mapping
from functools import lru_cache
from typing import Any

from counterpoint.guard.policy import Policy


@lru_cache(maxsize=64)
def service_rights(policy: Policy, service: str) -> Mapping[str, Any]:
    """Return `rights`, `sends`, `clearance` and `agents` of a service. Raises `KeyError` for an unknown one."""
    may_stand = policy.services[service].grant
    rights = {(name, "read") for name in policy.readable(service)} | {
        (name, "write") for name in policy.writable(service) if not (policy.stores[name].persons and may_stand)
    }
    return {
        "rights": frozenset(rights),
        "sends": policy.sendable(service),
        "clearance": policy.clearance(service),
        "agents": frozenset(policy.services[service].agents),
    }
