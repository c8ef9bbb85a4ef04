"""The same failure has the same signature, another failure has another."""

import re
import string

import pytest
from growth import LIMIT, growth
from hypothesis import given
from hypothesis import strategies as st

from counterpoint.proto.error_template import MESSAGE_LIMIT_CHARS
from counterpoint.proto.signature import TEXT_LIMIT_CHARS, headline, parameters, signature

SAME = [
    (
        "TrinoException: Query 20261127_031122_00042_abcde exceeded the limit of 12.5GB",
        "TrinoException: Query 20261126_231122_00142_xyzzy exceeded the limit of 8GB",
    ),
    (
        "ConnectionError: could not resolve ldap.internal: DNS lookup timed out after 5 s (resolver 10.20.0.2:53)",
        "ConnectionError: could not resolve ldap-2.internal: DNS lookup timed out after 30 s (resolver 10.20.0.3:53)",
    ),
    ("connect to [fe80::1]:5432 refused", "connect to 192.168.0.17:5433 refused"),
    ("no such file: /data/lake/raw/orders.csv", "no such file: /mnt/other/2026/users.parquet"),
    ("cannot open 'C:\\Users\\me\\a b.txt'", "cannot open '/home/me/some folder/x.txt'"),
    ("failed in dags/orders.py:19", "failed in dags/finance/daily.py:204"),
    ("GET https://api.example.com/v1/x?id=3 timed out", "GET http://10.0.0.1:8080/v2/y timed out"),
    ("run 550e8400-e29b-41d4-a716-446655440000 lost", "run 01a1e6cd-a800-78e5-88ee-45e2485b4b1f lost"),
    ("at 2026-11-20T17:03:50.578750+00:00 job died", "at 2025-01-02 03:04:05,123 job died"),
    ("at Fri Nov 20 17:03:50 2026 job died", "at 3 Jan 2025 04:05 job died"),
    ("segfault at 0x7f3a2b99", "segfault at 0xdeadbeef"),
    ("commit 3f2a9bc not found", "commit 9bcdef01234567890abcdef01234567890abcdef not found"),
    ("pod orders-7f9c6d5b4-x2x1z evicted", "pod orders-5d4b7c9f6-bcdfg evicted"),
    ("used 1.5GB of 2 GB in 500ms", "used 900 MB of 1GB in 2 min"),
    ("timed out after 1h30m", "timed out after 45s"),
    ("error 4711 while reading row 3", "error 17 while reading row 4"),
    ("worker (A7K2P) lost", "worker (B9X4Q) lost"),
    ("rows [1, 2, 3] rejected", "rows [7, 8] rejected"),
    ('could not translate host name "db-primary" to address', 'could not translate host name "db-17" to address'),
    ("mail to a.b@example.com bounced", "mail to root@other.org bounced"),
    ("a=0, then nothing", "a=1000000, then nothing"),
    ("a=0, then nothing", "a=1000000.000, then nothing"),
    ("took 1,5 s, then nothing", "took 7 s, then nothing"),
    ("\x1b[31mdisk full on node-3\x1b[0m", "Disk  full\non node-44"),
    ("task job_12345 failed", "task job_9 failed"),
    ("request qK3vY9dTzR0bXwLm7A== was throttled", "request Zt81bQpWc5nHy2sJfEuM= was throttled"),
    ("Could not convert string 'n/a' to INT32", "Could not convert string 'unknown' to INT32"),
    ('invalid input syntax for type integer: "n/a"', 'invalid input syntax for type integer: "12 EUR"'),
    ("Duplicate entry '17-A' for key 'orders.id'", "Duplicate entry 'north' for key 'orders.id'"),
    ("request qK3vY9dTzR0bXwLm7A was throttled", "request Zt81bQpWc5nHy2sJfEuMab== was throttled"),
]
OTHER = [
    ("ConnectionError: refused", "TimeoutError: refused"),
    ("ValueError: refused", "refused"),
    ("requests.exceptions.Timeout: gone", "socket.Timeout: gone"),
    ("KeyError: 'user_id'", "KeyError: 'amount'"),
    ("Could not convert string 'n/a' to INT32", "Could not convert string 'n/a' to DATE"),
    ("Duplicate entry '17' for key 'orders.id'", "Duplicate entry '17' for key 'orders.mail'"),
    ("could not find column 'amount'", "could not find column 'price'"),
    ("relation public.orders does not exist", "relation public.users does not exist"),
    ("could not resolve ldap.internal", "could not reach ldap.internal"),
    ("HTTP 404 for http://x.io/a", "HTTP 503 for http://x.io/a"),
    ("process ended with exit code 1", "process ended with exit code 137"),
    ("[Errno 111] Connection refused", "[Errno 113] No route to host"),
    ("ORA-00942: table or view does not exist", "ORA-01017: invalid username/password"),
    ("ORA-01653: unable to extend table", "ORA-01654: unable to extend table"),
    ("ORA-01653 unable to extend table", "ORA-01654 unable to extend table"),
    ("write failed (SQLSTATE 23505)", "write failed (SQLSTATE 40001)"),
    ("write failed, sqlstate=XX000", "write failed, sqlstate=P0001"),
    ("Command failed with a non-zero exit code 1.", "Command failed with a non-zero exit code 127."),
    ("DB2 SQL Error: SQLCODE=-911", "DB2 SQL Error: SQLCODE=-803"),
    ("ERROR 1205 (HY000): try restarting transaction", "ERROR 1213 (40001): try restarting transaction"),
    ("Msg 1205, Level 13, State 51", "Msg 2627, Level 13, State 51"),
    ("[WinError 32] The process failed", "[WinError 5] The process failed"),
    ("ended with error 0x80070005", "ended with error 0x80070020"),
    ("rsync ended, rc=23", "rsync ended, rc=12"),
    ("ProgrammingError: ('42S02', 'execute failed')", "ProgrammingError: ('42S22', 'execute failed')"),
    ("TF400889: the path is locked", "TF400890: the path is locked"),
    ("read/write error", "I/O error"),
    ("{'code': 403, 'message': 'refused'}", "{'code': 404, 'message': 'refused'}"),
    ('{"statusCode": 429}', '{"statusCode": 503}'),
    ("ended (error_code=7)", "ended (error_code=9)"),
    ("ended with exit-code: 3", "ended with exit-code: 4"),
    ("vault gave response 401", "vault gave response 403"),
    ("000604 (57014): statement cancelled", "000630 (57014): statement cancelled"),
    ("AADSTS50126: signing in failed", "AADSTS50055: signing in failed"),
    ("QLS-207: segment is sealed", "QLS-208: segment is sealed"),
    ("Fehlercode 17 beim Schreiben", "Fehlercode 18 beim Schreiben"),
    ("Prozess endete mit Rückgabewert 3", "Prozess endete mit Rückgabewert 4"),
    ("server closed the connection unexpectedly", "server rejected the connection unexpectedly"),
]


@pytest.mark.parametrize(("one", "other"), SAME)
def test_variable_parts_of_an_error_are_not_in_the_signature(one: str, other: str) -> None:
    assert signature(one) == signature(other)


@pytest.mark.parametrize(("one", "other"), OTHER)
def test_another_class_message_name_or_code_is_another_failure(one: str, other: str) -> None:
    assert signature(one).digest != signature(other).digest


@pytest.mark.parametrize(
    "error",
    [
        "ERROR: task failed",
        "", "task_failure", "failed without an error message", "Task failed with exit code 1", "Error", "exit code 1.",
        "AirflowException: Bash command failed. The command returned a non-zero exit code 1.",
        "Job 7f9c6d5b terminated unexpectedly, see the logs",
        "org.apache.spark.SparkException: Job aborted due to stage failure",
        "BackoffLimitExceeded: Job has reached the specified backoff limit",
    ],
)  # fmt: skip
def test_a_template_without_a_cause_is_generic(error: str) -> None:
    assert signature(error).generic


@pytest.mark.parametrize(
    "error",
    ["Task failed with exit code 137", "disk full", "KeyError: 'user_id'", "Pod failed: OOMKilled", "HTTP 503",
     "ORA-01653: unable to extend table", "kinit: Cannot contact any KDC"],
)  # fmt: skip
def test_a_template_with_a_code_a_class_or_a_cause_is_not_generic(error: str) -> None:
    assert not signature(error).generic


def test_parameters_are_the_values_that_the_template_leaves_out() -> None:
    assert set(parameters("cannot open /data/a.csv at 10.0.0.1:5432 after 30 s (ORA-01653)")) == {
        "/data/a.csv", "10.0.0.1:5432", "30 s",
    }  # fmt: skip


PYTHON = """Traceback (most recent call last):
  File "/opt/a.py", line 3, in <module>
    f()
KeyError: 'x'

During handling of the above exception, another exception occurred:

Traceback (most recent call last):
  File "/opt/a.py", line {line}, in f
    raise OSError("gone")
    ~~~~~~~~~~~~^^^^^^^^
{raised}
"""
JAVA = """Exception in thread "main" java.lang.IllegalStateException: no session for {who}
\tat com.example.App.main(App.java:{line})
Caused by: java.net.UnknownHostException: db
\t... 3 more
"""


@pytest.mark.parametrize(
    ("text", "want"),
    [
        (PYTHON.format(line=9, raised="OSError: gone"), ("OSError", "gone")),
        (PYTHON.format(line=9, raised="app.errors.Odd: two\nlines"), ("app.errors.Odd", "two\nlines")),
        (PYTHON.format(line=9, raised="KeyboardInterrupt"), ("KeyboardInterrupt", "")),
        (JAVA.format(who="me", line=3), ("java.lang.IllegalStateException", "no session for me")),
        ("ValueError: boom", ("ValueError", "boom")),
        ("task_failure", (None, "task_failure")),
        ("Error: it broke", ("Error", "it broke")),
        ("WARNING: it broke", (None, "WARNING: it broke")),
        ("cannot connect: timeout", (None, "cannot connect: timeout")),
        ("", (None, "")),
    ],
)
def test_the_exception_that_escaped_is_found(text: str, want: tuple[str | None, str]) -> None:
    assert headline(text) == want


def test_a_stack_trace_has_the_signature_of_its_last_line_wherever_it_was_raised() -> None:
    assert signature(PYTHON.format(line=9, raised="OSError: gone")) == signature("OSError: gone")
    assert signature(PYTHON.format(line=9, raised="OSError: gone")) == signature(
        PYTHON.format(line=700, raised="OSError: gone")
    )
    assert signature(JAVA.format(who="me", line=3)) == signature(JAVA.format(who="me", line=77))


VARIABLE = {
    "path": st.lists(
        st.text(string.ascii_lowercase + string.digits + "_.-", min_size=1, max_size=8), min_size=1, max_size=5
    ).map(lambda parts: "/" + "/".join(part.strip(".-") or "x" for part in parts)),
    "ip": st.ip_addresses(v=4).map(str),
    "ip_port": st.tuples(st.ip_addresses(v=4), st.integers(1, 65535)).map(lambda pair: f"{pair[0]}:{pair[1]}"),
    "ipv6": st.ip_addresses(v=6).map(str).filter(lambda text: re.search(r"\d", text)),
    "uuid": st.uuids().map(str),
    "hex": st.text("0123456789abcdef", min_size=8, max_size=40),
    "address": st.integers(0, 2**64).map(hex),
    "number": st.integers(0, 10**12).map(str),
    "decimal": st.decimals(0, 10**6, places=3).map(str),
    "time": st.datetimes().filter(lambda at: at.year > 999).map(lambda at: at.isoformat()),
    "clock": st.times().map(lambda at: at.strftime("%H:%M:%S")),
    "host": st.tuples(
        st.text(string.ascii_lowercase, min_size=1, max_size=8),
        st.integers(0, 99),
        st.sampled_from(["internal", "com", "svc"]),
    ).map(lambda parts: f"{parts[0]}-{parts[1]}.cluster.{parts[2]}"),
    "query": st.tuples(
        st.datetimes().filter(lambda at: at.year > 999),
        st.integers(0, 99_999),
        st.text(string.ascii_lowercase + string.digits, min_size=5, max_size=5),
    ).map(lambda parts: f"{parts[0]:%Y%m%d_%H%M%S}_{parts[1]:05}_{parts[2]}"),
    "url": st.tuples(st.ip_addresses(v=4), st.integers(1, 65535)).map(lambda pair: f"http://{pair[0]}:{pair[1]}/x?y=1"),
    "duration": st.tuples(st.integers(0, 10**6), st.sampled_from([" s", "ms", " minutes", "s", "h"])).map(
        lambda pair: f"{pair[0]}{pair[1]}"
    ),
}
TEMPLATES = [
    "job died at {} while reading",
    "could not open {}",
    "got '{}' instead",
    "(near {}) lookup failed",
    "a={}, then nothing",
]


@pytest.mark.parametrize("kind", VARIABLE)
@given(data=st.data())
def test_any_two_values_of_a_kind_are_alike_in_any_sentence(kind: str, data: st.DataObject) -> None:
    one, other = data.draw(VARIABLE[kind]), data.draw(VARIABLE[kind])
    template = "OSError: " + data.draw(st.sampled_from(TEMPLATES))
    assert signature(template.format(one)) == signature(template.format(other))


WORDS = st.text(string.ascii_lowercase, min_size=3, max_size=9).filter(lambda word: not re.fullmatch("[a-f]{7,}", word))


@given(words=st.lists(WORDS, min_size=1, max_size=8), at=st.integers(0, 7), instead=WORDS)
def test_any_other_word_is_another_failure(words: list[str], at: int, instead: str) -> None:
    changed = [*words]
    changed[at % len(words)] = instead
    same = changed == words
    assert (signature(" ".join(words)).digest == signature(" ".join(changed)).digest) is same


NAMES = st.from_regex(r"[A-Z][a-z]{1,8}(Error|Exception)", fullmatch=True)


@given(one=NAMES, other=NAMES, message=st.text(max_size=50))
def test_any_other_class_is_another_failure(one: str, other: str, message: str) -> None:
    assert (signature(f"{one}: {message}").digest == signature(f"{other}: {message}").digest) is (one == other)


@given(text=st.text(max_size=400))
def test_any_text_has_a_signature_that_can_be_stored(text: str) -> None:
    found = signature(text)
    assert len(found.text) <= TEXT_LIMIT_CHARS
    assert re.fullmatch("[0-9a-f]{16}", found.digest)
    assert found.model_dump_json().encode()
    assert "\x00" not in found.text
    assert found == signature(text)


@pytest.mark.parametrize(
    "unit", ["a.", "a-", "1.2", "/a", "a/", "::", "1:", "a@", "0", "f", " ", "\n", "host a-b ", "<", "jan 1 ", "\\\\"]
)
def test_no_text_takes_long(unit: str) -> None:
    assert growth(lambda size: signature(unit * (size // len(unit))), MESSAGE_LIMIT_CHARS) < LIMIT


def test_what_looks_like_a_code_in_a_path_is_a_value() -> None:
    first, second = (f"sort of /scratch/genomes/{each}.bam failed: ORA-00942" for each in ("SRR19384", "SRR20011"))
    assert signature(first).codes == signature(second).codes == ("ora-00942",)
    assert signature(first).digest == signature(second).digest
