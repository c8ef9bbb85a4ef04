"""Dead letters: stored messages that could not be handled, and their retry under a new id."""

import hashlib
import json
import math
from datetime import datetime
from typing import Any

from counterpoint.bus.codec import STRUCTURED
from counterpoint.bus.dead_letter import is_cut
from counterpoint.guard.capabilities import Grant
from counterpoint.guard.patterns import REDACTED
from counterpoint.guard.policy import Policy
from counterpoint.memory.access.screening import Screen
from counterpoint.memory.record.canonical import NUL, canonical
from counterpoint.memory.record.database import Database
from counterpoint.memory.record.plan import PlannedMessage, PlannedWrite
from counterpoint.proto import subjects
from counterpoint.proto.errors import ErrorCode, Permanent, Problem
from counterpoint.proto.ids import derived_id
from counterpoint.proto.memory import Commit, DeadLetter, MessageDied, Origin, Outgoing, Write

STORE = "dead_letters"
DEAD, RETRY = "dead", "retry"
"""States of a dead letter."""
_UNNAMED = "publisher"
"""Source of intake messages without one, as the router records it."""

_LETTER = (
    "SELECT body, label FROM records WHERE project = $1 AND store = 'dead_letters' AND id = $2 AND body IS NOT NULL"
)
_VERSION = "SELECT version FROM records WHERE project = $1 AND store = 'tasks' AND id = $2"


class DeadLetters:
    """Reads dead letters and turns them back into messages for their consumers."""

    def __init__(self, database: Database, policy: Policy) -> None:
        self._database = database
        self._policy = policy

    async def retried(self, origin: Origin, letter_id: str, version: int, now: datetime) -> Commit:
        """Return the commit that marks a dead letter as retried by the principal. Raises `Permanent` `not_found`, or
        `conflict` if it was retried already or its body was cut."""
        async with self._database.reading(origin.project) as connection:
            row = await connection.fetchrow(_LETTER, origin.project, letter_id)
        if row is None:
            raise _unknown()
        body = row["body"]
        if body["state"] != DEAD:
            raise Permanent(ErrorCode.CONFLICT, (Problem(field="state", problem=f"is {body['state']}, not {DEAD}"),))
        if is_cut(body["problems"]):
            problem = "was cut when it was stored; have its sender send it again"
            raise Permanent(ErrorCode.CONFLICT, (Problem(field="body", problem=problem),))
        marked = {**body, "state": RETRY, "retried_by": origin.principal, "retried_at": now.isoformat()}
        return Commit(
            step=f"retry {letter_id}", writes=(Write(store=STORE, id=letter_id, body=marked, expect=version),)
        )

    async def message(self, project: str, letter_id: str, commit_id: str) -> PlannedMessage:
        """Return the message of a dead letter, under an id of the commit's. Raises `Permanent` `not_found`, or
        `conflict` if its task has changed since."""
        async with self._database.snapshot(project) as connection:
            row = await connection.fetchrow(_LETTER, project, letter_id)
            if row is None:
                raise _unknown()
            letter = row["body"]
            headers = {name.lower(): value for name, value in letter["headers"].items()}
            # A publisher may set any header; only those of our own messages say what they are.
            is_foreign = subjects.stream_of(letter["subject"]) == subjects.INTAKE
            task_id, version = letter.get("task_id"), None if is_foreign else headers.get("ce-taskversion")
            current = await connection.fetchval(_VERSION, project, task_id) if task_id else None
        if version is not None and int(version) != (current or 0):
            raise Permanent(ErrorCode.CONFLICT, (Problem(field="task_id", problem="the task has changed since"),))
        message_type = subjects.bare_type(letter["subject"]) if is_foreign else headers.get("ce-type")
        if message_type is None or message_type not in self._policy.messages:
            raise Permanent(ErrorCode.CONFLICT, (Problem(field="type", problem=f"no service handles {message_type}"),))
        message_id = derived_id(commit_id, "retry", letter_id)
        event = _event(headers, letter["body"], message_type, message_id) if is_foreign else None
        return PlannedMessage(
            id=message_id,
            type=message_type,
            subject=letter["subject"],
            task_id=task_id,
            versioned=version is not None,
            audience=(letter["consumer"],),
            body=letter["body"] if event is None else event,
            label=row["label"],
            integrity=0,
            due_at=None,
            timer=None,
            structured=event is not None,
        )


def _unknown() -> Permanent:
    return Permanent(ErrorCode.NOT_FOUND, (Problem(field="id", problem="is not a dead letter of this project"),))


def _event(headers: dict[str, str], body: str, message_type: str, message_id: str) -> str | None:
    """Return the body of an intake message as a structured CloudEvent with its sender's source and id, None if it is
    not valid JSON. The sender stays the same, and repeated retries count once."""
    try:
        data = json.loads(body)
    except (ValueError, RecursionError):
        return None
    if headers.get("content-type", "").lower().startswith(STRUCTURED) and isinstance(data, dict):
        event: dict[str, Any] = {**data}
    else:
        event = {"id": headers.get("ce-id"), "source": headers.get("ce-source"), "data": data}
    event |= {"id": _known(event.get("id"), message_id), "source": _known(event.get("source"), _UNNAMED)}
    text = json.dumps({"specversion": "1.0", "type": message_type, **event}, separators=(",", ":"), ensure_ascii=False)
    return text.encode(errors="replace").decode()


def _known(value: Any, default: str) -> Any:
    """Return a stored value, or the default if it is missing or redacted: redacted values of different messages may
    be equal."""
    return default if not value or REDACTED.search(str(value)) else value


def dead_rows(
    policy: Policy, screen: Screen, commit_id: str, origin: Origin, grant: Grant, letter: DeadLetter | None
) -> tuple[PlannedWrite, ...]:
    """Return the record of a message that could not be handled, without content that is blocked or redacted at the
    store's label; none without a dead letter.

    Quarantined content stays in its body: a person may release it and have the message retried. Of a secret only its
    kind is stored, so that the message is retried without it.
    """
    if letter is None:
        return ()
    label = policy.store_level("dead_letters")
    body = NUL.sub(
        "\\1\N{REPLACEMENT CHARACTER}",
        canonical(
            {
                **screen.names(letter.model_dump(mode="json", exclude={"body"}), ())[0],
                "body": _harmless(policy, screen, letter.body, label),
                "consumer": grant.audience,
                "message_id": origin.message_id,
                "task_id": origin.task_id,
                "state": "dead",
            }
        ),
    )
    row = PlannedWrite(
        "dead_letters", derived_id(commit_id, "dead"), 0, body, origin.task_id, grant.audience, label, 0,
        hashlib.sha256(body.encode()).digest(),
    )  # fmt: skip
    return (row,)


def _harmless(policy: Policy, screen: Screen, body: str, label: int) -> str:
    """Return a body redacted for storage, or a note about its length if it cannot be scanned."""

    def plain() -> str:
        return str(screen.judge(policy, {"body": body}, ("body",), label).body["body"])

    try:
        parsed = json.loads(body, parse_constant=str, parse_float=_finite)
        if not isinstance(parsed, dict):
            return plain()
        kept = screen.judge(policy, {"body": parsed}, ("body",), label).body["body"]
        return canonical(kept).encode(errors="replace").decode()
    except ValueError:
        return plain()
    except RecursionError:
        return f"[{len(body)} characters, nested too deeply to be scanned]"


def _finite(number: str) -> float | str:
    value = float(number)
    return value if math.isfinite(value) else number


def died(commit_id: str, grant: Grant, letter: DeadLetter) -> Outgoing:
    """Return the announcement of a dead letter, without its content."""
    died = MessageDied(
        dead_letter_id=derived_id(commit_id, "dead"),
        consumer=grant.audience,
        subject=letter.subject,
        code=letter.code,
        problems=letter.problems,
    )
    return Outgoing(type=MessageDied.TYPE, data=died.model_dump(mode="json"))
