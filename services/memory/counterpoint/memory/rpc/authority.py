"""Authority: the grant of a caller for an inbound message, by its capability or its principal."""

from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime

from counterpoint.guard.capabilities import Access, Grant, Keyring, verify
from counterpoint.guard.names import is_project
from counterpoint.guard.policy import Policy
from counterpoint.memory.access import diode
from counterpoint.memory.access.principals import Principals
from counterpoint.memory.access.revocations import Revocations
from counterpoint.memory.commit.inbound import InboundMessages
from counterpoint.memory.provenance.read_sets import Key, ReadSet, ReadSetLost, ReadSets
from counterpoint.memory.record.plan import CommitPlan
from counterpoint.memory.record.stamps import DERIVED, VOUCHED
from counterpoint.proto.errors import Denied, ErrorCode, Transient
from counterpoint.proto.memory import Origin
from counterpoint.proto.principals import Principal


@dataclass(frozen=True, slots=True)
class Authority:
    """Capabilities, principals, revocations, and the read sets of open deliveries."""

    policy: Policy
    keyring: Keyring
    principals: Principals
    revocations: Revocations
    causes: InboundMessages
    reads: ReadSets

    async def authorise(self, caller: str, origin: Origin, accesses: tuple[Access, ...] = ()) -> tuple[Grant, int]:
        """Return the grant of a caller for an origin, and the integrity of its work. Raises `Denied`."""
        if not is_project(origin.project):
            raise Denied(ErrorCode.PROJECT, "a valid project name that does not look like a secret")
        request = diode.AccessRequest(caller, origin.project, origin.task_id, origin.message_id, datetime.now(UTC))
        if origin.capability is not None:
            revoked = await self.revocations.of(self.keyring.verified(origin.capability).grant.project)
            grant = verify(self.keyring, origin.capability, accesses, now=request.now, revoked=revoked)
            integrity = VOUCHED
            name = diode.editing_principal(grant.message)
            if name is not None:
                principal = await self.principals.of(name)
                self.works_with_models(principal, grant.project)
                if principal is None or not diode.is_editing(grant.message, principal):
                    raise Denied(ErrorCode.PRINCIPAL, "a token of the principal that now has this name")
        else:
            principal = await self.principals.acting(origin.principal, origin.project)
            grant = diode.standing(self.policy, request, principal)
            integrity = VOUCHED if principal is not None and principal.kind != "agent" else DERIVED
        rule = diode.holder(grant, request)
        if rule is not None:
            raise Denied(rule, f"a capability of {caller} for this message, project and task")
        return grant, integrity

    async def asker(self, origin: Origin) -> Principal | None:
        """Return the principal of a request without a capability; None for a request with one, whatever name it
        contains."""
        return None if origin.capability is not None else await self.principals.of(origin.principal)

    async def operates_all(self, origin: Origin) -> None:
        """Refuse a principal that does not operate every project, because all projects share one model. Raises
        `Denied`."""
        principal = await self.asker(origin)
        if principal is None or not principal.may("operate", origin.project) or "*" not in principal.projects:
            raise Denied(ErrorCode.ROLE, "the role operate in all projects")

    async def administers_all(self, origin: Origin) -> bool:
        """Return whether the principal of a request is an administrator of every project."""
        principal = await self.asker(origin)
        return principal is not None and principal.may("admin", origin.project) and "*" in principal.projects

    def works_with_models(self, principal: Principal | None, project: str) -> None:
        """Refuse a principal whose tools may not call models for the tasks of a project. Raises `Denied`."""
        if principal is None or not (principal.may("submit", project) and principal.may("read", project)):
            raise Denied(ErrorCode.ROLE, f"the roles submit and read in project {project}")

    async def ingests(self, caller: str, origin: Origin) -> int:
        """Return the integrity of a caller's ingest. Raises `Denied`."""
        _, integrity = await self.authorise(caller, origin)
        principal = await self.asker(origin)
        if principal is None or not principal.may("ingest", origin.project):
            raise Denied(ErrorCode.ROLE, f"the role ingest in project {origin.project}")
        return integrity

    def newest(self, grant: Grant, caller: str, origin: Origin) -> None:
        """Refuse an older delivery of a message. Raises `Denied` `fence`.

        A gateway token is used by no delivery, even if its holder is the manager, as whom the gateway works.
        """
        if not diode.of_gateway(grant) and not self.reads.fence(caller, origin.message_id, origin.fence):
            raise Denied(ErrorCode.FENCE, "the newest delivery of the message")

    def changed(self, plan: CommitPlan) -> None:
        """Invalidate principals with their delegations, and revocations, that a commit changes."""
        if any(row.store in ("principals", "delegations") for row in plan.writes):
            self.principals.clear()
        self.revocations.changed(plan)


def require_read_set(lookup: Callable[[], ReadSet]) -> ReadSet:
    """Return the read set of a delivery. Raises `Transient` if it is no longer in RAM."""
    try:
        return lookup()
    except ReadSetLost as error:
        raise Transient("the read set of this delivery was lost") from error


def key_of(caller: str, origin: Origin) -> Key:
    """Return the key of a delivery's read set."""
    return caller, origin.message_id, origin.fence, origin.run
