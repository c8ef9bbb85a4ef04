"""Principals for tests of access."""

from memory_service.house import PERSON, House

from counterpoint.proto.ids import new_id
from counterpoint.proto.memory import Write


async def principal(house: House, projects: tuple[str, ...], *roles: str) -> str:
    """A new principal's name."""
    name = new_id()
    body = {"name": name, "kind": "person", "projects": projects, "roles": roles}
    await house.apply(
        "router", house.standing("default", principal=PERSON), writes=(Write(store="principals", id=name, body=body),)
    )
    return name
