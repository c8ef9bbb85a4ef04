"""Codes of a failure: signals, statuses and results in JSON, in every notation."""

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from counterpoint.proto.signature import headline, signature

KILLED = (
    "Task exited with return code -9", "Task exited with return code Negsignal.SIGKILL", "exit code 137",
    "Task failed with exit code 137", "Pod failed: OOMKilled", "Container exited with status 137, reason: OOMKilled",
    "Process was killed by SIGKILL", "signal: killed", "killed by signal 9", "subprocess failed, returncode=-9",
    "AirflowException: Bash command failed. The command returned a non-zero exit code 137.",
)  # fmt: skip
ENDED = {
    "term": ("Task exited with return code -15", "exit code 143", "terminated by SIGTERM", "signal: terminated"),
    "segv": ("Task exited with return code -11", "exit code 139", "Segmentation fault (core dumped)", "SIGSEGV"),
}


def test_a_process_that_a_signal_ended_has_one_signature_in_every_notation() -> None:
    killed, *ended = ({signature(each).digest for each in texts} for texts in (KILLED, *ENDED.values()))
    assert [len(killed), *map(len, ended)] == [1, 1, 1]
    assert len(killed.union(*ended)) == 3


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ("Task exited with return code 9", "Task exited with return code -9"),
        ("Task exited with return code 9", "Task exited with return code 137"),
        ("exit code 129", "exit code 1"),
        ("exit code 130", "killed by signal 2"),
        ("exit code 137", "Task failed with exit code 3, then exit code 137"),
        ("exit code 200", "killed by signal 72"),
        ("exit code 137", "error 137 in the table"),
        ("Pod failed: OOMKilled", "spark-submit of the loader: OOMKilled"),
    ],
)
def test_a_code_is_a_signal_by_the_convention_alone(one: str, other: str) -> None:
    assert signature(one).digest != signature(other).digest


def test_a_message_that_says_more_keeps_its_words_and_has_the_signal_as_a_code() -> None:
    texts = ("spark-submit died with SIGKILL", "spark-submit: Main process exited, code=killed, status=9/KILL",
             "Command '['x']' died with <Signals.SIGKILL: 9>.", "spark-submit ended, rc=-9")  # fmt: skip
    assert all("signal 9" in signature(each).codes for each in texts)
    assert "spark-submit" in signature(texts[0]).text
    for code in (128, 129, 130, 160, 200, 255):
        assert not any(each.startswith("signal") for each in signature(f"spark-submit: exit code {code}").codes)


def test_an_http_status_in_front_of_a_message_is_a_code_and_not_a_number() -> None:
    assert signature("403 Quota exceeded for the table").codes == ("http 403",)
    assert signature("403 Quota exceeded").digest != signature("429 Quota exceeded").digest
    assert signature("440 Rows were rejected").digest == signature("450 Rows were rejected").digest


RESULT = 'fatal: [{host}]: FAILED! => {{"changed": false, "msg": "{msg}", "rc": {rc}, "stderr": "{stderr}", "task": 7}}'


def _result(msg: str = "non-zero return code", rc: int = 2, stderr: str = "", host: str = "web-3") -> str:
    return RESULT.format(host=host, msg=msg, rc=rc, stderr=stderr)


def test_the_signature_of_a_json_result_is_that_of_its_message() -> None:
    denied, timed_out = "over ssh: Permission denied", "over ssh: Connection timed out"
    assert signature(_result(denied)).digest == signature(_result(denied, host="db-1")).digest
    assert signature(_result(denied)).digest != signature(_result(timed_out)).digest
    assert headline(_result(stderr="pg_dump: no such role"))[1] == "pg_dump: no such role: rc 2"
    assert signature(_result(denied, rc=137)).digest != signature(_result(denied, rc=2)).digest
    assert signature(_result(rc=137)).digest != signature(_result(rc=2)).digest, "no message with a cause"
    api = 'HTTPError: 403 Client Error: {"error": {"code": 403, "message": "the API is off"}, "id": 8}'
    assert headline(api) == ("HTTPError", "403 Client Error: the API is off: code 403")


@given(st.text(), st.text())
def test_a_result_in_json_of_any_text_has_a_signature_that_can_be_stored(msg: str, stderr: str) -> None:
    made = signature(f"FAILED! => {json.dumps({'msg': msg, 'stderr': stderr})}")
    assert "\x00" not in made.text
    made.text.encode()


def test_a_result_inside_a_result_is_not_read_in_turn(monkeypatch: pytest.MonkeyPatch) -> None:
    text = "disk full"
    for _ in range(9):
        text = json.dumps({"msg": text, "error": "no"})
    read = list[str]()
    parse = json.JSONDecoder.raw_decode

    def counted(decoder: json.JSONDecoder, result: str, start: int = 0) -> Any:
        read.append(result)
        return parse(decoder, result, start)

    monkeypatch.setattr(json.JSONDecoder, "raw_decode", counted)
    signature(text)
    assert len(read) == 1


@given(one=st.integers(1, 99_999), other=st.integers(1, 99_999), at=st.sampled_from(["{}", "{}.", "{}: x", "{}, x"]))
def test_two_codes_are_never_one_failure(one: int, other: int, at: str) -> None:
    for kind in (
        f"ORA-{one:05}/ORA-{other:05}",
        f"SQLSTATE {one:05}/SQLSTATE {other:05}",
        f"errno {one}/errno {other}",
    ):
        left, right = kind.split("/")
        assert (signature(at.format(left)).digest == signature(at.format(right)).digest) is (one == other)


@pytest.mark.parametrize(
    ("error", "codes"),
    [
        ("rpc error: code = DeadlineExceeded desc = context deadline exceeded", ("grpc deadlineexceeded",)),
        ("<_InactiveRpcError: status = StatusCode.DEADLINE_EXCEEDED>", ("grpc deadlineexceeded",)),
        ("rpc error: code = Unknown desc = failed to resolve reference", ()),
        ("StatusCode.INTERNAL: stream was reset", ()),
    ],
)
def test_the_status_of_a_remote_call_is_a_code_unless_servers_give_it_to_the_errors_of_others(
    error: str, codes: tuple[str, ...]
) -> None:
    assert signature(error).codes == codes
