"""The streams and consumers that there are, as values; `provision` makes the server match them."""

from dataclasses import dataclass

from counterpoint.guard.policy import Policy
from counterpoint.proto import subjects

DUPLICATE_WINDOW_S = 120.0
ACK_WAIT_S = 4.0
MAX_DELIVER = 60
PULL_S = 2.0
"""How long a service's pull waits. One that the server forgot, because it was restarted, is repeated after this."""
_DAY_S = 86_400.0


@dataclass(frozen=True, slots=True)
class StreamSpec:
    """A stream: its subjects, how long it keeps messages, and where it is republished to be looked at.

    One that is `sealed` keeps its messages: nobody deletes any by a request.
    """

    name: str
    subjects: tuple[str, ...]
    max_age_s: float
    max_bytes: int
    live: bool
    sealed: bool = False


@dataclass(frozen=True, slots=True)
class ConsumerSpec:
    """A durable pull consumer: one per service and stream; `durable` is the service's name."""

    stream: str
    durable: str
    filters: tuple[str, ...]
    max_ack_pending: int = 1000
    ack_wait_s: float = ACK_WAIT_S
    max_deliver: int = MAX_DELIVER


def stream_specs() -> tuple[StreamSpec, ...]:
    """Every stream. The record is elsewhere, so all of them may forget but the checkpoints."""
    return tuple(
        StreamSpec(
            name=name,
            subjects=names,
            max_age_s=0.0 if name == subjects.CHECKPOINTS else 7 * _DAY_S,
            max_bytes=2 * 1024**3,
            live=name in subjects.LIVE_STREAMS,
            sealed=name == subjects.CHECKPOINTS,
        )
        for name, names in subjects.STREAMS.items()
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
