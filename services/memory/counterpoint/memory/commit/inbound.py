"""The message that a request works on: its provenance, its task's version, whether that task has ended, and the
records that the request changes. All of it is read from the record, nothing from the request."""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from uuid import UUID

from cachetools import LRUCache
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
    """Inbound messages and their tasks, by the record; `origins` are the messages sent lately.

    Whether a task has ended is remembered from the commits that this process applies, as long as it is the only active
    one: `lease` returns the lease under which it is, or None while that is not certain.
    """

    def __init__(
        self, database: Database, policy: Policy, origins: OriginCache, lease: Callable[[], int | None]
    ) -> None:
        self._database = database
        self._policy = policy
        self._origins = origins
        self._versions: LRUCache[str, int | None] = LRUCache(_REMEMBERED)
        self._lease = lease
        self._ended: LRUCache[tuple[str, str], tuple[int, bool]] = LRUCache(_REMEMBERED)
        self._in_doubt: LRUCache[tuple[str, str], bool] = LRUCache(_REMEMBERED)
        self._changes = 0

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
        """Whether the task of a grant has ended or was erased; never of the gateway's, which settles.

        A task that was erased and submitted again has a submission.
        """
        if grant.task is None or diode.of_gateway(grant):
            return False
        key, lease, changes = (grant.project, grant.task), self._lease(), self._changes
        known = self._ended.get(key)
        if known is not None and known[0] == lease:
            return known[1]
        async with self._database.reading(grant.project) as connection:
            found = await connection.fetchval(_SQL["has_task_ended"], grant.project, grant.task, sorted(ENDED))
        ended = bool(found)
        if lease is not None and lease == self._lease() and changes == self._changes and key not in self._in_doubt:
            self._ended[key] = lease, ended
        return ended

    def begin(self, steps: Iterable[CommitPlan]) -> None:
        """Forget the tasks that commits are about to change, and remember nothing of them until a call of `applied`."""
        for step in steps:
            for row in step.writes:
                if row.store == "tasks":
                    self._changes += 1
                    self._ended.pop((step.project, row.id), None)
                    self._in_doubt[step.project, row.id] = True

    def applied(self, steps: Iterable[CommitPlan]) -> None:
        """Take note of the states that commits have given to tasks. A task that has just been submitted has none."""
        lease = self._lease()
        for step in steps:
            ended: dict[str, bool | None] = {
                message.task_id: False
                for message in step.messages
                if message.type == TaskSubmitted.TYPE and message.task_id is not None
            }
            for row in step.writes:
                if row.store == "tasks":
                    ended[row.id] = None if row.body is None else from_json(row.body).get("state") in ENDED
            self._changes += len(ended)
            for task, value in ended.items():
                self._in_doubt.pop((step.project, task), None)
                if value is None or lease is None:
                    self._ended.pop((step.project, task), None)
                else:
                    self._ended[step.project, task] = lease, value

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
