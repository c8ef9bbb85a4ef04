"""The streams and consumers that there are, as values; `provision` makes the server match them."""

from dataclasses import dataclass

from counterpoint.guard.policy import Policy
from counterpoint.proto import subjects
from counterpoint.proto.messages import MESSAGE_LIMIT_BYTES

STREAMS_BYTES = 512 * 1024**2
"""The least that all streams together have, and as much as they have where nothing else is said."""
MESSAGE_BYTES = 2 * MESSAGE_LIMIT_BYTES
"""The largest message of a stream, with headers. Of one above the contract's limit the router can still say so."""
UNREAD = 512
"""Most messages a project may have waiting in the intake, of each subject. Well below what a consumer holds at once:
those of others are handed out beside it, to be handled by turns."""
DUPLICATE_WINDOW_S = 120.0
ACK_WAIT_S = 4.0
MAX_DELIVER = 60
PULL_S = 2.0
"""How long a service's pull waits. One that the server forgot, because it was restarted, is repeated after this."""
_DAY_S = 86_400.0
_SHARES = {
    subjects.INTAKE: 20,
    subjects.TASKS: 4,
    subjects.CHANGES: 3,
    subjects.CHECKPOINTS: 2,
    subjects.DECISIONS: 1,
    subjects.DEAD: 1,
    subjects.ADVISORIES: 1,
}
"""Of every stream, in thirty-seconds of all bytes."""


@dataclass(frozen=True, slots=True)
class StreamSpec:
    """A stream: its subjects, how long it keeps messages, and where it is republished to be looked at.

    One that is `sealed` keeps its messages: nobody deletes any by a request. One with `unread` keeps its word: it
    holds each message until its consumer has it, however long that takes, at most so many of one subject, and refuses
    another. It takes every message for a new one: the bus knows a duplicate by its id alone, whichever project sent it.
    """

    name: str
    subjects: tuple[str, ...]
    max_age_s: float
    max_bytes: int
    live: bool
    sealed: bool = False
    unread: int | None = None


@dataclass(frozen=True, slots=True)
class ConsumerSpec:
    """A durable pull consumer: one per service and stream; `durable` is the service's name."""

    stream: str
    durable: str
    filters: tuple[str, ...]
    max_ack_pending: int = 1000
    ack_wait_s: float = ACK_WAIT_S
    max_deliver: int = MAX_DELIVER


def stream_specs(streams_bytes: int = STREAMS_BYTES) -> tuple[StreamSpec, ...]:
    """Every stream, all together of so many bytes.

    The record is elsewhere, so all of them may forget but the checkpoints, and the intake: what waits there is in no
    record yet.
    """
    return tuple(
        _intake(names, streams_bytes * _SHARES[name] // 32)
        if name == subjects.INTAKE
        else StreamSpec(
            name=name,
            subjects=names,
            max_age_s=0.0 if name == subjects.CHECKPOINTS else 7 * _DAY_S,
            max_bytes=streams_bytes * _SHARES[name] // 32,
            live=name in subjects.LIVE_STREAMS,
            sealed=name == subjects.CHECKPOINTS,
        )
        for name, names in subjects.STREAMS.items()
    )


def _intake(names: tuple[str, ...], max_bytes: int) -> StreamSpec:
    """The intake. A project that fills all its subjects with the largest messages leaves a quarter to the others."""
    unread = min(UNREAD, max(1, max_bytes * 3 // 4 // (len(names) * MESSAGE_BYTES)))
    return StreamSpec(
        name=subjects.INTAKE,
        subjects=names,
        max_age_s=0.0,
        max_bytes=max_bytes,
        live=False,
        unread=unread,
    )


def consumer_specs(policy: Policy) -> tuple[ConsumerSpec, ...]:
    """Every consumer: what the policy hands to each service, and the bus's own advisories for memory."""
    filters: dict[tuple[str, str], set[str]] = {
        (subjects.ADVISORIES, "memory"): set(subjects.STREAMS[subjects.ADVISORIES])
    }
    for service, row in policy.services.items():
        for message_type in policy.consumed(service):
            if message_type == "counterpoint.records.changed.v1":
                wanted = {subjects.of(message_type, "*", service=source) for source in row.changes_of}
            else:
                wanted = {subjects.of(message_type, "*")}
            for subject in wanted:
                filters.setdefault((subjects.stream_of(subject), service), set()).add(subject)
    return tuple(
        ConsumerSpec(stream, durable, tuple(sorted(names))) for (stream, durable), names in sorted(filters.items())
    )
