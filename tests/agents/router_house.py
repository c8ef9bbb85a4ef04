"""The router on a fake memory: intake messages are delivered as the bus does, principals have tokens."""

import asyncio
import itertools
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import Any

from memory_service.fake import FakeMemory
from pydantic import SecretStr

from counterpoint.bus.codec import Inbound
from counterpoint.bus.fair_limiter import FairLimiter
from counterpoint.client import Memory, records
from counterpoint.guard.capabilities import Grant
from counterpoint.guard.policy import policy
from counterpoint.memory.access import diode
from counterpoint.proto import subjects
from counterpoint.proto.commands import CommandReply, CommandRequest, FinishMessages, RetryDeadLetter
from counterpoint.proto.errors import Conflict, Denied, Permanent, Problem
from counterpoint.proto.ids import derived_id, new_id
from counterpoint.proto.line import Action
from counterpoint.proto.memory import Commit, CostReport, Costs, Get, OrganisationReport, QueryResult
from counterpoint.proto.messages import Message
from counterpoint.proto.validation import parse
from counterpoint.router import task_events
from counterpoint.router.authentication import token_id
from counterpoint.router.finished_messages import FinishedMessages
from counterpoint.router.handlers import register
from counterpoint.router.issues import wiring as issues
from counterpoint.router.notify import wiring as notifications
from counterpoint.router.settings import RouterSettings

NOW = datetime(2026, 3, 2, 3, 0, 1, tzinfo=UTC)
PROJECT = "orders"
OPERATED = ("cypher", "rebuild", "reembed", "health")
ROLES = ("submit", "report", "read", "ingest", "override", "approve", "operate", "audit", "admin")


@dataclass
class House(FakeMemory):
    """Projects with a router in front. `looked_at` is set when a task's record is read; `report` answers operators and
    auditors, whose requests are in `asked`."""

    caller: str = "router"
    project: str = PROJECT
    now: datetime = NOW
    handlers: dict[str, Any] = field(default_factory=dict)
    finished: FinishedMessages = field(default_factory=FinishedMessages)
    announce: Any = None
    looked_at: asyncio.Event = field(default_factory=asyncio.Event)
    report: dict[str, Any] = field(default_factory=dict)
    costs: Callable[[Costs], CostReport] = lambda query: CostReport(by=query.by)
    organisation: OrganisationReport = field(default_factory=lambda: OrganisationReport(everywhere=False))
    asked: list[Any] = field(default_factory=list)

    def __post_init__(self) -> None:
        register(self, timedelta(days=1), FairLimiter(1000))  # type: ignore[arg-type]
        settings = RouterSettings(nats_user="router", nats_password=SecretStr("x"))
        notifications.attach(self, settings, self.finished)  # type: ignore[arg-type]
        issues.attach(self, settings, self.finished)  # type: ignore[arg-type]
        task_events.attach(self, (), self.finished)  # type: ignore[arg-type]

    # the service that the handlers are registered with

    def on(self, message_type: type[Message]) -> Any:
        assert message_type.TYPE in policy().consumed("router")
        return lambda handler: self.handlers.setdefault(message_type.TYPE, handler)

    def limit_intake(self, message_type: type[Message], limiter: FairLimiter, urgency_of: Any) -> None:
        assert message_type.TYPE in self.handlers

    def on_rejected(self, announce: Any) -> None:
        self.announce = announce

    def of_principal(self, project: str, principal: str | None, message_id: str | None = None) -> Memory:
        return self.memory(message_id, project=project, principal=principal)

    async def deliver(
        self,
        message_type: type[Message],
        body: Any,
        *,
        sequence: int = 1,
        event: tuple[str, str] | None = None,
        project: str = PROJECT,
        delivered: int = 1,
    ) -> str:
        """An intake message as the bus hands it on for the `delivered`-th time: `done`, or the code of its dead letter.

        Raises `Transient` when it is to be delivered again.
        """
        source, event_id = event or (None, None)
        inbound = Inbound(
            id=derived_id(new_id(lambda: int(NOW.timestamp() * 1e9)), "intake", sequence)
            if event is None
            else derived_id("intake", sequence),
            type=message_type.TYPE,
            project=project,
            subject=subjects.of(message_type.TYPE, project),
            body=body,
            time=self.now,
            trusted=False,
            source=source,
            event_id=event_id,
            fence=delivered,
            stream_sequence=sequence,
        )
        try:
            message = parse(message_type.TYPE, body)
            for run in itertools.count():
                memory = self.memory(
                    inbound.id, project=project, fence=delivered, run=run, now=inbound.time, inbound=inbound
                )
                commit = await self.handlers[message_type.TYPE](message, memory)
                try:
                    if commit.writes or commit.messages:
                        await memory.step(commit)
                    return "done"
                except Conflict:
                    continue
        except Permanent as error:
            await self.bury(inbound, error)
            return error.code
        raise AssertionError

    async def bury(self, inbound: Inbound, error: Permanent) -> None:
        """Announce a dead letter under the router's own standing."""
        await self.memory(inbound.id, project=inbound.project, run=99).step(
            Commit(step="dead", messages=tuple(self.announce(inbound, error)))
        )

    # what the tests look at and set up

    def token_of(self, name: str, *roles: str, kind: str = "person", projects: Sequence[str] = ("*",)) -> str:
        """A principal with these roles, all of them when none is named; returns its token."""
        token = f"token-of-{name}"
        self.principal(token_id(token), name=name, kind=kind, projects=tuple(projects), roles=roles or ROLES)
        return token

    def of_type(self, message_type: type[Message], project: str = PROJECT) -> list[Any]:
        """The messages of a type that were sent, oldest first."""
        sent = [*self.log, *self.timers]
        return [one.message for one in sent if one.type == message_type.TYPE and one.project == project]

    def line(self, task_id: str, project: str = PROJECT) -> list[Action]:
        return [one for one in records(self.items("actions", project), Action) if one.task_id == task_id]

    # the service, as far as the router alone needs it

    async def _result(self, grant: Grant, query: Any) -> QueryResult:
        if isinstance(query, Get) and query.store == "tasks":
            self.looked_at.set()
        return await super()._result(grant, query)

    def reported(self, grant: Grant, query: Any) -> QueryResult:
        """Answer a query of an operator or auditor with `report`."""
        if query.op == "organisation_limits":
            return self._organisation(grant)
        store = "projections" if query.op in OPERATED else "spend" if query.op == "costs" else "actions"
        rule = diode.read(policy(), grant, store)
        if rule is not None:
            raise Denied(rule, f"the right to read {store}")
        if store == "projections":
            self.asked.append(query)
        report = self.costs(query).model_dump(mode="json") if query.op == "costs" else self.report
        return QueryResult(tier="graph", plan=query.op, took_us=7, report=report)

    def _organisation(self, grant: Grant) -> QueryResult:
        rule = diode.read(policy(), grant, "limits")
        if rule is not None:
            raise Denied(rule, "the right to read limits")
        report = self.organisation.model_dump(mode="json", exclude_none=True)
        return QueryResult(tier="record", plan="aggregate", took_us=7, report=report)

    def command(self, request: CommandRequest) -> CommandReply:
        """Retry a dead letter, or note the command and answer with `report` where it has one."""
        grant, command = self.grant(request.origin), request.command
        self.asked.append(command)
        if isinstance(command, FinishMessages):
            return CommandReply()
        if not isinstance(command, RetryDeadLetter):
            rule = diode.read(policy(), grant, "projections")
            if rule is not None:
                raise Denied(rule, "the right to read projections")
            return CommandReply(report=self.report)
        rule = diode.write(policy(), grant, "dead_letters", "router", None, 1)
        if rule is not None:
            raise Denied(rule, "the right to write dead_letters")
        body = self.kept("dead_letters", grant.project)[command.id]
        if body["state"] != "dead":
            raise Permanent("conflict", (Problem(field="state", problem=f"is {body['state']}, not dead"),))
        marked = {"state": "retry", "retried_by": request.origin.principal, "retried_at": datetime.now(UTC).isoformat()}
        self.put("dead_letters", command.id, {**body, **marked}, grant.project)
        return CommandReply()
