"""A compact leaf says the same as one of an earlier release, whose form is read too."""

import hashlib
import json
from typing import Any

import pytest

from counterpoint.memory.audit.leaf_body import CompactRows, expanded, text_hash
from counterpoint.memory.record.canonical import canonical

OF_WRITE: list[Any] = ["t-1", "router", 1, 2, 1]
OF_ROUTED: list[Any] = ["t-1", "tasks.orders.routed", ["manager"], 1, 2, None, None, False, True]
OF_OTHER: list[Any] = [None, "dead.orders", [], 1, 2, None, None, False, False]


def sha256(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()


OLDER: dict[str, Any] = {
    "commit": "c-1",
    "inbox": [True, 7, "done", sha256('{"status":"done"}')],
    "read_set": ["c-0", sha256("reads"), sha256("answers")],
    "writes": [["tasks", "t-1", 1, sha256("task"), OF_WRITE], ["decisions", "d-1", 1, sha256("decided"), OF_WRITE]],
    "messages": [
        ["m-1", "routed", sha256("routed"), OF_ROUTED],
        ["m-2", "decided", sha256("decided"), OF_ROUTED],
        ["m-3", "died", sha256("died"), OF_OTHER],
    ],
}


def compact() -> dict[str, Any]:
    rows = CompactRows()
    writes = [
        rows.write("tasks", "t-1", 1, bytes.fromhex(sha256("task")), OF_WRITE),
        rows.write("decisions", "d-1", 1, bytes.fromhex(sha256("decided")), OF_WRITE),
    ]
    messages = [
        rows.message("m-1", "routed", "routed", None, OF_ROUTED),
        rows.message("m-2", "decided", "decided", 1, OF_ROUTED),
    ]
    began = {**rows.lists, "writes": writes, "messages": messages}
    later = CompactRows(began)
    messages.append(later.message("m-3", "died", "died", None, OF_OTHER))
    read_set = ["c-0", text_hash("reads"), text_hash("answers")]
    return {**began, **later.lists, "commit": "c-1", "inbox": [True, 7, "done"], "read_set": read_set}


def test_a_compact_leaf_is_expanded_to_the_form_of_earlier_releases() -> None:
    leaf = json.loads(canonical(compact()))
    assert {name: expanded(leaf)[name] for name in OLDER} == OLDER
    assert len(canonical(leaf)) < 0.75 * len(canonical(OLDER))


def test_a_leaf_of_an_earlier_release_is_taken_as_it_is() -> None:
    assert expanded(OLDER) == OLDER


@pytest.mark.parametrize("change", [{"tasks": []}, {"stamps": []}, {"writes": [[]]}, {"inbox": []}])
def test_a_malformed_compact_leaf_is_an_error(change: dict[str, Any]) -> None:
    with pytest.raises((LookupError, TypeError, ValueError)):
        expanded({**compact(), **change})
