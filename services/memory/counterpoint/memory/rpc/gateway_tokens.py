"""Gateway tokens, each limited by the read set of its delivery."""

from counterpoint.memory.access.tokens import Tokens
from counterpoint.memory.record.stamps import UNTRUSTED
from counterpoint.memory.rpc.authority import Authority, key_of, require_read_set
from counterpoint.proto.errors import Denied, ErrorCode
from counterpoint.proto.memory import GatewayToken, Origin


class GatewayTokens:
    """Issues gateway tokens."""

    def __init__(self, authority: Authority, tokens: Tokens) -> None:
        self._authority = authority
        self._tokens = tokens

    async def of(self, caller: str, origin: Origin, request: GatewayToken) -> str:
        """Issue a token for the reads of this delivery so far; one for the web makes the delivery untrusted."""
        grant, _ = await self._authority.authorise(caller, origin)
        if await self._authority.causes.has_ended(grant):
            raise Denied(ErrorCode.ENDED, "a task that has not ended")
        self._authority.newest(grant, caller, origin)
        cause, _ = await self._authority.causes.of(origin)
        read = require_read_set(lambda: self._authority.reads.so_far(key_of(caller, origin), request.reads))
        label = cause.with_(read.provenance).label
        token = self._tokens.of_task(grant, request.purpose, label, request.life_s)
        if request.purpose == "web":
            self._authority.reads.note(key_of(caller, origin), [], UNTRUSTED)
        return token
