"""Attenuation of a capability by its holder, which needs no key; the product only verifies attenuated tokens."""

from collections.abc import Collection
from datetime import datetime

from biscuit_auth import BlockBuilder, PublicKey

from counterpoint.guard.capabilities import _NAME, _ROOT_KEY, _parsed


def attenuate(
    token: str,
    *,
    stores: Collection[str] | None = None,
    operations: Collection[str] | None = None,
    agents: Collection[str] | None = None,
    expires_at: datetime | None = None,
) -> str:
    """Return the token narrowed to the given stores, operations, signing agents and end; None leaves as it is."""
    checks: list[str] = []
    parameters: dict[str, object] = {}
    for fact, names in (("store", stores), ("operation", operations), ("agent", agents)):
        if names is not None:
            if not all(map(_NAME.fullmatch, names)):
                raise ValueError(f"not the name of a {fact} among {sorted(names)}")
            checks.append(f"check if {fact}(${fact}), {{{fact}}}.contains(${fact});")
            parameters[fact] = {"", *names} if fact == "agent" else set(names)
    if expires_at is not None:
        checks.append("check if time($time), $time < {time};")
        parameters["time"] = int(expires_at.timestamp())
    parsed = _parsed(token)
    root = _ROOT_KEY.match(parsed.block_source(0))
    assert root is not None
    biscuit = parsed.verify(PublicKey(f"ed25519/{root[1]}"))
    return biscuit.append(BlockBuilder("".join(checks), parameters)).to_base64()
