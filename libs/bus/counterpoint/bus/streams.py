"""Specs of all streams and consumers; `provision` makes the server match them."""

from dataclasses import dataclass

from counterpoint.guard.policy import Policy
from counterpoint.proto import subjects
from counterpoint.proto.messages import MESSAGE_LIMIT_BYTES

STREAMS_BYTES = 512 * 1024**2
"""Default and minimum size of all streams together."""
MESSAGE_BYTES = 2 * MESSAGE_LIMIT_BYTES
"""Maximum message size with headers, above the contract's limit so that the router can reject larger messages."""
UNREAD = 512
"""Maximum messages per intake subject of a project. Well below `max_ack_pending`: one project cannot fill it."""
DUPLICATE_WINDOW_S = 120.0
ACK_WAIT_S = 4.0
MAX_DELIVER = 60
PULL_S = 2.0
"""Expiry of a pull request in seconds, and so the delay until a pull is repeated after a restart of the server."""
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
"""The share of each stream, in thirty-seconds of all bytes."""


@dataclass(frozen=True, slots=True)
class StreamSpec:
    """A stream: its subjects, age and size limits, and whether it is republished on `live.` subjects.

    A `sealed` stream denies deletes and purges. One with `unread` uses interest retention: it holds each message until
    its consumer has it, at most `unread` per subject, and refuses further ones. It does not deduplicate, because the
    server compares message ids across projects.
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
    """A durable pull consumer, one per service and stream; `durable` is the service's name."""

    stream: str
    durable: str
    filters: tuple[str, ...]
    max_ack_pending: int = 1000
    ack_wait_s: float = ACK_WAIT_S
    max_deliver: int = MAX_DELIVER


def stream_specs(streams_bytes: int = STREAMS_BYTES) -> tuple[StreamSpec, ...]:
    """Return the specs of all streams, `streams_bytes` in total.

    Streams drop old messages, since PostgreSQL has the record; except the checkpoints, and the intake, whose messages
    are in no record yet.
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
    """Return the intake's spec. One project that fills its subjects with the largest messages leaves a quarter free."""
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
    """Return the specs of all consumers: the messages the policy routes to each service, and advisories for memory."""
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
