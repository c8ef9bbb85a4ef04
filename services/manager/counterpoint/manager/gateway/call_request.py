"""Requests for calls: a call, its key, and the gateway token that authorises it."""

from dataclasses import dataclass
from datetime import UTC, datetime

from counterpoint.guard.capabilities import Grant
from counterpoint.manager.gateway.calls import DeltaSink, ProviderCall, call_digest

_NEVER = datetime.min.replace(tzinfo=UTC)


@dataclass(frozen=True, slots=True)
class CallRequest:
    """A call with the gateway token that authorises it; `deadline` by the clock of the loop.

    `others` are calls under the same key that may be made instead of it: by another model; `deferrable` if one of them
    is cheaper. `deltas` receives a completion in parts.
    """

    token: str
    grant: Grant
    key: str
    call: ProviderCall
    deadline: float
    others: tuple[ProviderCall, ...] = ()
    deltas: DeltaSink | None = None
    deferrable: bool = False

    @property
    def digests(self) -> frozenset[str]:
        """Digests of the calls under the key, of which one is made."""
        return frozenset(map(call_digest, (self.call, *self.others)))

    @property
    def scope(self) -> str:
        """Id of the task or job whose budget pays for the call."""
        return self.grant.task or self.grant.message

    @property
    def identity(self) -> tuple[str, str, str]:
        """Project, message and key: they identify one call."""
        return self.grant.project, self.grant.message, self.key

    @property
    def authority(self) -> Grant:
        """The grant of the token without its expiry. Requests with the same may share a commit, under one of their
        tokens."""
        return self.grant.model_copy(update={"expires_at": _NEVER})
