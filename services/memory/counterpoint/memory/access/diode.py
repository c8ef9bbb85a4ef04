"""The diode: the pure decision over one access, in front of every store and every outgoing message.

Its input is a `Grant`: from a capability of a message, or from the service's own standing in the policy narrowed to one
project. Its result is the one rule that refuses, or None.
"""

from collections.abc import Iterable
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from functools import lru_cache

from counterpoint.guard.capabilities import Grant
from counterpoint.guard.policy import Policy
from counterpoint.guard.rights import service_rights
from counterpoint.proto.decisions import DecisionMade
from counterpoint.proto.errors import Denied, ErrorCode
from counterpoint.proto.memory import TokenPurpose
from counterpoint.proto.principals import Principal
from counterpoint.proto.subjects import PROJECT_PATTERN, SHARED_PROJECT
from counterpoint.proto.tasks import Budget, TaskDue

JOB = "job:"
"""Prefix of the message id of a gateway token for a job of memory's own, which has no message."""
EDITOR = "editor:"
"""Prefix of the message id of a gateway token for a tool of a principal, which is followed by the principal's name,
the task, and when the principal was created: a later one of the same name has another token."""
_APPROVALS = "approvals"
_CALL = "call"
_LEDGER = frozenset((store, right) for store in ("spend", "model_calls") for right in ("read", "write"))
ALWAYS = frozenset({"decisions", "actions"})
"""Stores that every request of a principal may write, whatever its roles: its own trace."""


@dataclass(frozen=True, slots=True)
class AccessRequest:
    """Subject of one access: caller (the token in the subject), project, task, inbound message, and time."""

    caller: str
    project: str
    task: str | None
    message: str
    now: datetime


def holder(grant: Grant, request: AccessRequest) -> ErrorCode | None:
    """Return the reason why this caller may not use this grant here, or None."""
    if grant.audience != request.caller:
        return ErrorCode.AUDIENCE
    if request.now >= grant.expires_at:
        return ErrorCode.EXPIRED
    if grant.message != request.message:
        return ErrorCode.MESSAGE
    if grant.project != request.project or not PROJECT_PATTERN.fullmatch(request.project):
        return ErrorCode.PROJECT
    if grant.task is not None and grant.task != request.task:
        return ErrorCode.TASK
    return None


def read(policy: Policy, grant: Grant, store: str) -> ErrorCode | None:
    """Return the reason why a store may not be read, or None."""
    return None if (store, "read") in grant.rights and store in policy.stores else ErrorCode.STORE


def visible(policy: Policy, grant: Grant, store: str, record_id: str, project: str, label: int) -> bool:
    """Whether a record is visible: of this project or shared, not above the clearance, and of the own task if bound to
    it."""
    row = policy.stores[store]
    if project != grant.project and not (project == SHARED_PROJECT and row.shared):
        return False
    if label > grant.clearance:
        return False
    return not (grant.audience in row.own_task and record_id != grant.task)


def write(policy: Policy, grant: Grant, store: str, agent: str, task: str | None, label: int) -> ErrorCode | None:
    """Return the reason why this record may not be written, or None. `agent` is its author, `task` its task."""
    if (store, "write") not in grant.rights or store not in policy.stores:
        return ErrorCode.STORE
    if not policy.services[grant.audience].signs(agent):
        return ErrorCode.AGENT
    if grant.task is not None and task is not None and task != grant.task:
        return ErrorCode.TASK
    if label > grant.clearance:
        return ErrorCode.LABEL
    return None


def send(policy: Policy, grant: Grant, message_type: str, task: str | None) -> ErrorCode | None:
    """Return the reason why this message may not be sent, or None."""
    if message_type not in grant.sends or message_type not in policy.messages:
        return ErrorCode.SEND
    if grant.task is not None and task is not None and task != grant.task:
        return ErrorCode.TASK
    return None


def gateway(
    policy: Policy, grant: Grant, purpose: TokenPurpose, label: int, clearance: int, expires_at: datetime
) -> Grant:
    """Return the grant of a gateway token for a task: reserve and settle calls of one purpose, nothing else.

    `label` is the highest of everything that the prompt may contain, `clearance` that of the providers. Raises `Denied`
    with rule `gateway`, `task` or `label`.
    """
    if not policy.services[grant.audience].gateway:
        raise Denied(ErrorCode.GATEWAY, "a service that may use the gateway")
    if grant.task is None:
        raise Denied(ErrorCode.TASK, "the capability of a task")
    if label > clearance:
        raise Denied(ErrorCode.LABEL, f"nothing read above {policy.labels[clearance]}, the highest label for providers")
    return _of_gateway(policy, grant, purpose, clearance, min(expires_at, grant.expires_at))


def gateway_of_job(
    policy: Policy,
    project: str,
    job: str,
    clearance: int,
    expires_at: datetime,
    *,
    service: str = "memory",
    budget: Budget | None = None,
) -> Grant:
    """Return the grant of a gateway token for a job of memory's own, which has neither task nor message: see `JOB`.

    A replay of a `service` is one too, with a `budget`."""
    grant = _without_rights(service, project, None, f"{JOB}{job}", clearance, expires_at)
    return _of_gateway(policy, grant, "model", clearance, expires_at).model_copy(update={"budget": budget})


def gateway_of_editor(
    policy: Policy, project: str, task: str, principal: Principal, clearance: int, expires_at: datetime
) -> Grant:
    """Return the grant of a gateway token for the tools of a principal that works on a task: see `EDITOR`.

    The gateway may tell the manager that a limit refused a call: no result of the developer does.
    """
    message = f"{EDITOR}{principal.name} {task} {_created(principal)}"
    grant = _without_rights(principal.name, project, task, message, clearance, expires_at)
    made = _of_gateway(policy, grant, "model", clearance, expires_at)
    return made.model_copy(update={"sends": frozenset({TaskDue.TYPE})})


def _without_rights(
    audience: str, project: str, task: str | None, message: str, clearance: int, expires_at: datetime
) -> Grant:
    """Return a grant that reads, writes and sends nothing."""
    return Grant(
        audience=audience,
        project=project,
        task=task,
        message=message,
        rights=frozenset(),
        sends=frozenset(),
        clearance=clearance,
        agents=frozenset(),
        expires_at=expires_at,
    )


def editing_principal(message_id: str) -> str | None:
    """Return the principal of a message id of a token of `gateway_of_editor`, None for another message."""
    return message_id.removeprefix(EDITOR).partition(" ")[0] if message_id.startswith(EDITOR) else None


def is_editing(message_id: str, principal: Principal) -> bool:
    """Whether a token of `gateway_of_editor` with this message id was issued to a principal, and not to an earlier one
    of the same name."""
    return message_id.rpartition(" ")[2] == _created(principal)


def _created(principal: Principal) -> str:
    return principal.created_at.strftime("%Y%m%dT%H%M%S.%fZ") if principal.created_at else "first"


def of_gateway(grant: Grant) -> bool:
    """Whether a grant is that of a gateway token."""
    return any(right == _CALL for _, right in grant.rights)


def after_end(policy: Policy, inbound: str | None, stores: Iterable[str], messages: Iterable[str]) -> bool:
    """Whether a commit of these stores and messages, on a message of the type `inbound`, is still allowed when the task
    has ended."""
    stores, messages = set(stores), set(messages)
    if not _is_late(policy, inbound):
        return stores <= ALWAYS and messages <= {DecisionMade.TYPE}
    return all(policy.stores[name].ended for name in stores) and all(policy.messages[name].ended for name in messages)


def read_after_end(policy: Policy, inbound: str | None, store: str) -> ErrorCode | None:
    """Return the reason why a store may not be read on a message of the type `inbound` after the end of the task, or
    None."""
    return None if _is_late(policy, inbound) and policy.stores[store].ended else ErrorCode.ENDED


def _is_late(policy: Policy, inbound: str | None) -> bool:
    # A release that knew another type may have sent the message.
    return inbound in policy.messages and policy.messages[inbound].late


def capability(
    policy: Policy, message_type: str, service: str, project: str, task: str | None, message: str, expires_at: datetime
) -> Grant:
    """Return the grant of a service for one message that it consumes, by the policy. Raises `Denied` `audience`."""
    row = policy.messages[message_type]
    if service not in row.audience:
        raise Denied(ErrorCode.AUDIENCE, f"{service} to consume {message_type}")
    return _standing(policy, service, project, task, message, expires_at)


def standing(policy: Policy, request: AccessRequest, principal: Principal | None) -> Grant:
    """Return the grant of a service without a capability, in one project; a principal's roles narrow it.

    Only administrators of `shared` write there, and only administrators of all projects write a system store. Raises
    `Denied` with rule `grant` if the policy gives the service no standing, `project` for an illegal name, `role` if the
    principal has no role there.
    """
    row = policy.services.get(request.caller)
    if row is None or not row.grant:
        raise Denied(ErrorCode.GRANT, "a capability")
    if not PROJECT_PATTERN.fullmatch(request.project):
        raise Denied(ErrorCode.PROJECT, "a project name")
    grant = _standing(
        policy, request.caller, request.project, None, request.message, request.now + timedelta(minutes=5)
    )
    admin = principal is not None and principal.may("admin", request.project)
    everywhere = principal is not None and "*" in principal.projects
    closed = _closed(policy, request.project == SHARED_PROJECT, admin, everywhere)
    if principal is None:
        return grant.model_copy(update={"rights": grant.rights - closed})
    if principal.kind == "person":
        grant = grant.model_copy(update={"rights": grant.rights | _of_persons(policy, request.caller)})
    roles = tuple(name for name in policy.principals if principal.may(name, request.project))  # type: ignore[arg-type]
    if not roles:
        raise Denied(ErrorCode.ROLE, f"a role in project {request.project}")
    rights, sends = _allowed(policy, request.caller, roles)
    return grant.model_copy(update={"rights": (grant.rights - closed) & rights, "sends": grant.sends & sends})


def own(policy: Policy, project: str, message: str, now: datetime) -> Grant:
    """Return the grant of memory's own work: ingest, seeds, dead letters. Its callers are authorised before."""
    return _standing(policy, "memory", project, None, message, now + timedelta(minutes=5))


def taking_back(policy: Policy, project: str, message: str, now: datetime) -> Grant:
    """Return the grant of a take-back: memory may also delete and restore all learned records, and asks for its
    approval."""
    grant = own(policy, project, message, now)
    learned = frozenset((name, "write") for name, row in policy.stores.items() if row.learned)
    return grant.model_copy(update={"rights": grant.rights | learned | {(_APPROVALS, "write")}})


def erasing(policy: Policy, project: str, message: str, now: datetime) -> Grant:
    """Return the grant of an erasure: memory may delete every record of a project."""
    grant = own(policy, project, message, now)
    stores = frozenset((name, "write") for name, row in policy.stores.items() if not row.system)
    return grant.model_copy(update={"rights": grant.rights | stores})


def _of_gateway(policy: Policy, grant: Grant, purpose: TokenPurpose, clearance: int, end: datetime) -> Grant:
    """Return a grant of the ledger alone; its agent is the service that calls the gateway."""
    return Grant(
        audience="manager",
        project=grant.project,
        task=grant.task,
        message=grant.message,
        rights=_LEDGER | {("tasks", "read"), ("limits", "read"), (purpose, _CALL)},
        sends=frozenset(),
        clearance=min(clearance, policy.clearance("manager")),
        agents=frozenset({grant.audience}),
        expires_at=end,
    )


@lru_cache(maxsize=64)
def _closed(policy: Policy, shared: bool, admin: bool, everywhere: bool) -> frozenset[tuple[str, str]]:
    """Stores that need more than the right to write, in the shared project or another."""
    return frozenset(
        (name, "write")
        for name, row in policy.stores.items()
        if (row.system or shared) and not (admin and (not row.system or everywhere))
    )


@lru_cache(maxsize=64)
def _of_persons(policy: Policy, service: str) -> frozenset[tuple[str, str]]:
    """Return the rights of a service that it has only on behalf of a person."""
    return frozenset((name, "write") for name, row in policy.stores.items() if row.persons and row.written_by(service))


@lru_cache(maxsize=1024)
def _allowed(policy: Policy, service: str, roles: tuple[str, ...]) -> tuple[frozenset[tuple[str, str]], frozenset[str]]:
    """Return the rights and messages that roles give a service on their holder's behalf."""
    own = {(name, right) for name, row in policy.stores.items() if row.owner == service for right in ("read", "write")}
    rights = own | {(name, "write") for name in ALWAYS} | {("actions", "read")}
    sends = {DecisionMade.TYPE}
    for role in roles:
        sends.update(policy.principals[role].messages)
        for name, right in policy.principals[role].stores.items():
            rights |= {(name, "read"), (name, right)}
    return frozenset(rights), frozenset(sends)


def _standing(
    policy: Policy, service: str, project: str, task: str | None, message: str, expires_at: datetime
) -> Grant:
    return _service(policy, service).model_copy(
        update={"project": project, "task": task, "message": message, "expires_at": expires_at}
    )


@lru_cache(maxsize=64)
def _service(policy: Policy, service: str) -> Grant:
    """Return everything that the policy allows a service; the caller adds project, task, message and expiry."""
    never = datetime.min.replace(tzinfo=UTC)
    binding = {"audience": service, "project": "_", "task": None, "message": "_", "expires_at": never}
    return Grant(**binding, **service_rights(policy, service))
