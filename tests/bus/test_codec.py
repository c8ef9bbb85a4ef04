"""The codec: three forms in, one out, and nothing but `Permanent` when it cannot read."""

import json
from datetime import UTC, datetime
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from counterpoint.bus.codec import STRUCTURED, DeliveryInfo, Inbound, decode, envelope, headers
from counterpoint.bus.dead_letter import BODY_LIMIT_CHARS, dead_letter
from counterpoint.proto import subjects
from counterpoint.proto.errors import Permanent, Problem
from counterpoint.proto.messages import MESSAGE_LIMIT_BYTES
from counterpoint.proto.tasks import SubmitTask

NOON = datetime(2026, 11, 20, 12, 0, tzinfo=UTC)
TASK = subjects.of(SubmitTask.TYPE, "acme")
BODY = {"kind": "question", "description": "why?"}
EVENT = {"specversion": "1.0", "id": "e1", "source": "ci", "type": SubmitTask.TYPE}
BINARY = {f"ce-{name}": value for name, value in EVENT.items()}
TRACE = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01"


def read(
    data: bytes | object, said: dict[str, str] | None = None, subject: str = TASK, stream: str = subjects.INTAKE
) -> Inbound:
    raw = data if isinstance(data, bytes) else json.dumps(data).encode()
    return decode(subject, said or {}, raw, stream=stream, sequence=7, delivered=2, stored_at=NOON)


def refused(*args: Any, **kwargs: Any) -> tuple[str, set[str]]:
    with pytest.raises(Permanent) as caught:
        read(*args, **kwargs)
    return caught.value.code, {problem.field for problem in caught.value.problems}


def test_the_three_forms_say_the_same() -> None:
    binary = read(BODY, BINARY)
    structured = read({**EVENT, "data": BODY}, {"Content-Type": f"{STRUCTURED}; charset=utf-8"})
    bare = read(BODY)
    assert binary == structured
    assert (binary.source, binary.event_id) == ("ci", "e1")
    assert (bare.source, bare.event_id) == (None, None)
    assert bare.body == binary.body == BODY
    assert bare.type == SubmitTask.TYPE
    assert not bare.trusted


def test_headers_of_an_outsider_are_read_in_any_case() -> None:
    assert read(BODY, {name.upper(): value for name, value in BINARY.items()}).event_id == "e1"


def test_an_outsider_cannot_say_that_it_is_memory() -> None:
    claimed = {
        **BINARY,
        "ce-capability": "token",
        "ce-taskversion": "3",
        "ce-correlationid": "t",
        "ce-publication": "9",
    }
    known = read(BODY, claimed)
    assert (known.trusted, known.capability, known.task_id, known.fence) == (False, None, None, 2)


@pytest.mark.parametrize(
    ("data", "said", "code", "fields"),
    [
        (b"", {}, "malformed", {"body"}),
        (b"{", {}, "malformed", {"body"}),
        (b'{"a": "\xff"}', {}, "malformed", {"body"}),
        (b"[" * 100_000, {}, "malformed", {"body"}),
        (b" " * (MESSAGE_LIMIT_BYTES + 1), {}, "too_large", {"body"}),
        (b"[1]", {"content-type": STRUCTURED}, "malformed", {"body"}),
        (b"{}", {"content-type": STRUCTURED}, "invalid", {"specversion", "id", "source", "type"}),
        ({**EVENT, "id": 5}, {"content-type": STRUCTURED}, "invalid", {"id"}),
        (BODY, {"ce-id": "e1"}, "invalid", {"ce-specversion", "ce-source", "ce-type"}),
        (BODY, {**BINARY, "ce-id": ""}, "invalid", {"ce-id"}),
        (BODY, {**BINARY, "ce-type": "counterpoint.task.submit.v9"}, "unknown_type", {"ce-type"}),
        ({**EVENT, "type": "x", "data": BODY}, {"content-type": STRUCTURED}, "unknown_type", {"ce-type"}),
    ],
)
def test_an_unreadable_message_is_refused_with_its_fields(
    data: Any, said: dict[str, str], code: str, fields: set[str]
) -> None:
    assert refused(data, said) == (code, fields)


def test_a_message_of_ours_may_hold_the_largest_submission_and_more() -> None:
    data = json.dumps({"task": "x" * MESSAGE_LIMIT_BYTES}).encode()
    place = {"stream": subjects.TASKS, "sequence": 1, "delivered": 1, "stored_at": NOON}
    assert decode(subjects.of("counterpoint.task.routed.v1", "acme"), headers_of(), data, **place).body  # type: ignore[arg-type]


def test_a_structured_event_without_data_has_no_body() -> None:
    assert read(EVENT, {"content-type": STRUCTURED}).body is None


@pytest.mark.parametrize("name", ["Acme", "-a", "a_b", "a" * 64])
def test_an_illegal_project_is_refused_under_default(name: str) -> None:
    assert refused(BODY, subject=f"{TASK.split('.')[0]}.{name}.task") == ("invalid", {"project"})


def test_the_trace_of_the_sender_is_passed_on() -> None:
    assert read(BODY, {"traceparent": TRACE}).traceparent == TRACE
    assert read({**EVENT, "traceparent": TRACE, "data": BODY}, {"content-type": STRUCTURED}).traceparent == TRACE
    assert read(BODY, {"traceparent": f"{TRACE}-and-more"}).traceparent is None
    assert headers_of(traceparent=TRACE)["traceparent"] == TRACE
    assert "traceparent" not in headers_of()


def headers_of(**changes: Any) -> dict[str, str]:
    said: dict[str, Any] = {
        "message_id": "m1",
        "message_type": "counterpoint.task.routed.v1",
        "source": "router",
        "time": NOON,
        "task_id": "t1",
        "cause": "m0",
        "task_version": 4,
        "publication": 1_700_000_000,
        "seq": 12,
        "capability": "token",
    }
    return headers(**said | changes)


def test_a_message_that_is_sent_is_read_back() -> None:
    known = read(BODY, headers_of(), subject=subjects.of("counterpoint.task.routed.v1", "acme"), stream=subjects.TASKS)
    assert (known.id, known.task_id, known.capability, known.time) == ("m1", "t1", "token", NOON)
    assert known.trusted


def test_a_later_life_of_the_stream_fences_off_every_delivery_of_an_earlier_one() -> None:
    def fence(publication: int, delivered: int) -> int:
        said = headers_of(publication=publication)
        place = {"stream": subjects.TASKS, "sequence": 1, "stored_at": NOON}
        return decode("tasks.acme.routed", said, b"{}", delivered=delivered, **place).fence  # type: ignore[arg-type]

    assert fence(1_700_000_000, 1) < fence(1_700_000_000, 2) < fence(1_700_000_001, 1) < 1 << 62


TOKENS = st.text(st.characters(blacklist_characters=".\r\n\0", blacklist_categories=("Cs", "Cc")), max_size=9)
NAMES = st.sampled_from([*BINARY, *headers_of(), "content-type", "traceparent"]) | TOKENS
JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(),
    lambda x: st.lists(x) | st.dictionaries(st.text(), x),
)
BYTES = st.binary(max_size=60) | JSON.map(lambda value: json.dumps(value).encode())
VALUES = st.sampled_from([STRUCTURED, "1.0", SubmitTask.TYPE, NOON.isoformat(), "9" * 5000]) | st.text(max_size=20)


@given(
    subject=st.lists(TOKENS | st.sampled_from(["intake", "acme", "task", "lineage"]), max_size=5).map(".".join),
    said=st.dictionaries(NAMES, VALUES, max_size=14),
    data=BYTES,
    stream=st.sampled_from(sorted(subjects.STREAMS)),
)
def test_any_message_is_read_or_refused(subject: str, said: dict[str, str], data: bytes, stream: str) -> None:
    try:
        known = read(data, said, subject, stream)
    except Permanent:
        return
    assert known.type
    assert known.id
    assert subjects.PROJECT_PATTERN.fullmatch(known.project)


@given(data=st.binary(max_size=200), said=st.dictionaries(st.text(max_size=9), st.text(max_size=9)), word=st.text())
def test_any_message_fits_a_dead_letter(data: bytes, said: dict[str, str], word: str) -> None:
    kept = dead_letter(word, said, data, Permanent("invalid", (Problem(field=word, problem=word),)))
    assert kept.model_dump_json().encode()
    assert "\0" not in "".join([kept.subject, *kept.headers, *kept.headers.values(), kept.problems[0].field])


def test_the_largest_message_of_the_worst_bytes_fits_into_one_request() -> None:
    said = {f"header-{n}": "\x01" * 9_000 for n in range(1_000)}
    kept = dead_letter(TASK, said, b"\x01" * (2 * MESSAGE_LIMIT_BYTES), Permanent("too_large"))
    assert len(kept.model_dump_json().encode()) < 1_000_000
    assert len(kept.body) == BODY_LIMIT_CHARS
    assert kept.problems[-1].field == "body"


def test_a_capability_is_not_kept_with_a_dead_letter() -> None:
    assert set(dead_letter(TASK, {"CE-Capability": "token", "ce-id": "e1"}, b"", Permanent("x")).headers) == {"ce-id"}


def test_a_letter_has_the_headers_of_the_envelope_alone() -> None:
    kept = {**BINARY, "content-type": "application/json", "traceparent": TRACE, "Nats-Msg-Id": "m1"}
    others = ("Authorization", "Cookie", "X-Api-Key", "Proxy-Authorization", "tracestate", "ce-token", "ce-capability")
    found = dead_letter(TASK, {**kept, **dict.fromkeys(others, "Bearer a")}, b"{}", Permanent("invalid")).headers
    assert dict(found) == {name.lower(): value for name, value in kept.items()}


def test_a_project_name_that_looks_like_a_secret_is_refused() -> None:
    name = "sk-" + "a8fk2kd93kfls03kdlq0w7vb"
    assert refused(BODY, subject=f"intake.{name}.task") == ("invalid", {"project"})
    place = DeliveryInfo(stream=subjects.INTAKE, sequence=7, delivered=1, stored_at=NOON)
    assert envelope(f"intake.{name}.task", {}, **place).project == subjects.DEFAULT_PROJECT
