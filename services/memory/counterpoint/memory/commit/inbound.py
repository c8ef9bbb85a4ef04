"""The message that a request works on: its provenance, its task's version, whether that task has ended, and the
records that the request changes. All of it is read from the record, nothing from the request."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from uuid import UUID

from cachetools import LRUCache, TTLCache
from pydantic_core import from_json

from counterpoint.guard.capabilities import Grant
from counterpoint.guard.policy import Policy
from counterpoint.memory.access import diode
from counterpoint.memory.audit.packed_leaf import leaf_text
from counterpoint.memory.provenance.read_sets import COMMITS_USED, OriginCache
from counterpoint.memory.record.database import Database
from counterpoint.memory.record.plan import CommitPlan
from counterpoint.memory.record.sql_files import load_statements
from counterpoint.memory.record.stamps import DERIVED, Provenance
from counterpoint.proto.errors import Denied, ErrorCode
from counterpoint.proto.memory import Origin, Ref
from counterpoint.proto.tasks import ENDED, TaskSubmitted

ENDED_WITHIN_S = 1.0
"""Seconds after the end of a task until every process of memory refuses its capabilities."""

_REMEMBERED = 10_000

_SQL = load_statements(__package__)


@dataclass(frozen=True, slots=True)
class RecordedTask:
    """State and label of a task, and whether it has a budget."""

    state: str
    label: int
    has_budget: bool


@dataclass(frozen=True, slots=True)
class LoggedHead:
    """A message of the log without its body: its id, its task, and its label and integrity."""

    id: str
    task_id: str | None
    provenance: Provenance


class InboundMessages:
    """Inbound messages and their tasks, by the record; `origins` are the messages sent lately."""

    def __init__(self, database: Database, policy: Policy, origins: OriginCache) -> None:
        self._database = database
        self._policy = policy
        self._origins = origins
        self._versions: LRUCache[str, int | None] = LRUCache(_REMEMBERED)
        self._ended: TTLCache[tuple[str, str], bool] = TTLCache(maxsize=_REMEMBERED, ttl=ENDED_WITHIN_S)

    async def of(self, origin: Origin) -> tuple[Provenance, int | None]:
        """The provenance of the inbound message and its task version. Raises `Denied` `message` for none."""
        if origin.capability is None or origin.message_id.startswith(diode.JOB):
            return Provenance(), None
        editing = diode.editing_principal(origin.message_id)
        if editing is not None:
            task = await self.task(origin.project, origin.task_id or "")
            # Without the task its label is not known.
            if task is None:
                raise Denied(ErrorCode.TASK, "a task that is in the record")
            return Provenance(task.label, DERIVED, principal=editing), None
        known = self._origins.get(origin.message_id)
        if known is not None and origin.message_id in self._versions:
            return known, self._versions[origin.message_id]
        async with self._database.reading(origin.project) as connection:
            row = await connection.fetchrow(_SQL["inbound_message"], origin.message_id)
        if row is None:
            raise Denied(ErrorCode.MESSAGE, "an inbound message that is in the log")
        reads = (read for read in row["reads"] or () if read[0] != COMMITS_USED)
        refs = frozenset(Ref(store=read[0], id=read[1], version=read[2]) for read in reads)
        sort = self._policy.messages.get(row["type"])
        result = sort is not None and sort.result
        leaf = leaf_text(row["leaf"], row["packed"])
        principal = from_json(leaf).get("principal") if leaf else None
        found = Provenance(row["label"], row["integrity"], refs, str(row["commit_id"]), result, principal, row["type"])
        self._origins.remember(origin.message_id, found)
        self.sent_version(origin.message_id, row["task_version"])
        return found, row["task_version"]

    async def task(self, project: str, task_id: str) -> RecordedTask | None:
        """Return a task of a project, None if there is none."""
        async with self._database.reading(project) as connection:
            row = await connection.fetchrow(_SQL["recorded_task"], project, task_id)
        return None if row is None else RecordedTask(row["state"], row["label"], row["has_budget"])

    def sent_version(self, message_id: str, version: int | None) -> None:
        """Remember the task version of a message that was just sent."""
        self._versions[message_id] = version

    async def has_ended(self, grant: Grant) -> bool:
        """Whether the task of a grant has ended or was erased, known to within a second; never of the gateway's, which
        settles.

        A task that was erased and submitted again has a submission."""
        if grant.task is None or diode.of_gateway(grant):
            return False
        known = self._ended.get((grant.project, grant.task))
        if known is None:
            async with self._database.reading(grant.project) as connection:
                ended = await connection.fetchval(_SQL["has_task_ended"], grant.project, grant.task, sorted(ENDED))
            known = bool(ended)
            self._ended[grant.project, grant.task] = known
        return known

    def applied(self, steps: Iterable[CommitPlan]) -> None:
        """Take note of the states that commits have given to tasks. A task that has just been submitted has none."""
        for step in steps:
            for message in step.messages:
                if message.type == TaskSubmitted.TYPE and message.task_id is not None:
                    self._ended[step.project, message.task_id] = False
            for row in step.writes:
                if row.store != "tasks":
                    continue
                if row.body is None:
                    self._ended.pop((step.project, row.id), None)
                else:
                    self._ended[step.project, row.id] = from_json(row.body).get("state") in ENDED

    async def to(self, grant: Grant, message_ids: Sequence[UUID]) -> list[LoggedHead]:
        """Return those of some messages that are for the holder of a grant."""
        async with self._database.reading(grant.project) as connection:
            rows = await connection.fetch(_SQL["messages_to"], grant.project, grant.audience, message_ids)
        return [LoggedHead(row["id"], row["task_id"], Provenance(row["label"], row["integrity"])) for row in rows]

    async def changed_records(
        self, project: str, owned: Sequence[tuple[str, str]], unread: Sequence[Ref]
    ) -> tuple[dict[tuple[str, str], str], Provenance]:
        """The tasks of records that must belong to one, deleted ones too, as far as they do; and the provenance of a
        commit that replaces `unread` versions."""
        keys = list({*owned, *((ref.store, ref.id) for ref in unread)})
        if not keys:
            return {}, Provenance()
        async with self._database.reading(project) as connection:
            rows = await connection.fetch(
                _SQL["stamps_of_records"], project, [store for store, _ in keys], [each for _, each in keys]
            )
        tasks, provenance = dict[tuple[str, str], str](), Provenance(refs=frozenset(unread))
        for row in rows:
            key = row["store"], row["id"]
            if key in owned and row["task_id"] is not None:
                tasks[key] = row["task_id"]
            if any(key == (ref.store, ref.id) for ref in unread):
                provenance = provenance.with_(Provenance(row["label"], row["integrity"]))
        return tasks, provenance
