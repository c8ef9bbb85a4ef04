"""The independent verifier says yes to what the log gives out, and no to anything else; it needs nothing of ours."""

import ast
import base64
import io
import json
import subprocess
import sys
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
from audit.audit_log import PROJECT, a_log
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from memory_service.databases import template_server
from memory_service.house import AUDIT_KEY
from scripts import load_script

from counterpoint.memory.audit.note import NoteKey
from counterpoint.proto.memory import AuditLeaves, Prove

SCRIPT = Path(__file__).parents[2] / "examples" / "verify" / "verify_log.py"
Given = tuple[bytes, bytes, str]
"""Proofs of a task, all leaves, and the checkpoints, as they are written to files."""


VERIFIER = load_script(SCRIPT)


@pytest.fixture(scope="module")
async def exported_log(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Given]:
    """Yield the proofs, leaves and checkpoints of a log of two projects."""
    folder = tmp_path_factory.mktemp("log")
    async with template_server(folder) as server, a_log(server, folder) as log:
        await log.story("t-1")
        await log.house.delegated("billing", "t-2")
        proofs = await log.house.report(PROJECT, Prove(task_id="t-1"))
        leaves = (await log.house.report(PROJECT, AuditLeaves()))["items"]
        lines = "".join(json.dumps(leaf, ensure_ascii=False) + "\n" for leaf in leaves)
        yield json.dumps(proofs, ensure_ascii=False).encode(), lines.encode(), await log.file.read()


def refused(check: Any, *arguments: Any) -> bool:
    """Whether the verifier says no, in one of its ways."""
    try:
        check(*arguments)
    except (ValueError, KeyError, TypeError, AttributeError):
        return True
    return False


def proofs_refused(content: bytes, key: str = AUDIT_KEY.public) -> bool:
    return refused(lambda: VERIFIER.check_proofs(json.loads(content.decode()), key))


def leaves_refused(content: bytes, notes: str) -> bool:
    return refused(lambda: VERIFIER.check_leaves(io.StringIO(content.decode()), notes, AUDIT_KEY.public))


def test_the_script_imports_the_standard_library_only() -> None:
    names = {
        alias.name
        for node in ast.walk(ast.parse(SCRIPT.read_text()))
        if isinstance(node, ast.Import)
        for alias in node.names
    }
    assert names <= sys.stdlib_module_names
    assert not [node for node in ast.walk(ast.parse(SCRIPT.read_text())) if isinstance(node, ast.ImportFrom)]


def test_the_script_exits_with_its_verdict(exported_log: Given, tmp_path: Path) -> None:
    proofs, leaves, notes = exported_log
    (tmp_path / "proofs.json").write_text(json.dumps({"ok": True, "proofs": json.loads(proofs)}))
    (tmp_path / "leaves.jsonl").write_bytes(leaves)
    (tmp_path / "changed.jsonl").write_bytes(leaves.replace(b"manager", b"lineage"))
    (tmp_path / "checkpoints").write_text(notes)

    def run(*words: str) -> tuple[int, str]:
        command = [sys.executable, "-I", str(SCRIPT), "--key", AUDIT_KEY.public, *words]
        done = subprocess.run(command, capture_output=True, text=True, cwd=tmp_path, timeout=60, check=False)
        assert not done.stderr
        return done.returncode, done.stdout

    assert run("proofs.json") == (0, f"yes: {len(json.loads(proofs)['leaves'])} leaves are in the log of 9\n")
    assert run("--checkpoint", "checkpoints", "leaves.jsonl")[0] == 0
    code, said = run("--checkpoint", "checkpoints", "changed.jsonl")
    assert (code, said[:4]) == (1, "no: ")


@settings(max_examples=150, deadline=None, suppress_health_check=list(HealthCheck))
@given(place=st.integers(min_value=0), bit=st.integers(0, 7))
def test_a_flipped_bit_anywhere_in_proofs_is_refused(exported_log: Given, place: int, bit: int) -> None:
    content = bytearray(exported_log[0])
    assert not proofs_refused(bytes(content))
    content[place % len(content)] ^= 1 << bit
    assert proofs_refused(bytes(content))


@settings(max_examples=60, deadline=None, suppress_health_check=list(HealthCheck))
@given(place=st.integers(min_value=0), bit=st.integers(0, 7))
def test_a_flipped_bit_anywhere_in_leaves_is_refused(exported_log: Given, place: int, bit: int) -> None:
    _, leaves, notes = exported_log
    content = bytearray(leaves)
    assert not leaves_refused(bytes(content), notes)
    content[place % len(content)] ^= 1 << bit
    assert leaves_refused(bytes(content), notes)


@settings(max_examples=60, deadline=None, suppress_health_check=list(HealthCheck))
@given(place=st.integers(min_value=0), bit=st.integers(0, 7))
def test_a_flipped_bit_anywhere_in_the_last_checkpoint_is_refused(exported_log: Given, place: int, bit: int) -> None:
    _, leaves, notes = exported_log
    last = notes[notes.rindex(AUDIT_KEY.origin + "\n") :].encode()
    content = bytearray(last)
    content[place % len(content)] ^= 1 << bit
    assert leaves_refused(leaves, content.decode(errors="replace"))


def test_another_key_and_leaves_that_are_missing_or_in_another_order_are_refused(exported_log: Given) -> None:
    proofs, leaves, notes = exported_log
    assert proofs_refused(proofs, NoteKey("11" * 32).public)
    lines = leaves.splitlines(keepends=True)
    assert leaves_refused(b"".join(lines[:-1]), notes)
    assert leaves_refused(b"".join(lines[1:]), notes)
    assert leaves_refused(b"".join([*lines[1:], lines[0]]), notes)


@pytest.mark.parametrize(
    ("seed", "public", "text", "signature"),
    [
        (
            "9d61b19deffd5a60ba844af492ec2cc44449c5697b326919703bac031cae7f60",
            "d75a980182b10ab7d54bfed3c964073a0ee172f3daa62325af021a68f707511a",
            "",
            "e5564300c360ac729086e2cc806e828a84877f1eb8e5d974d873e06522490155"
            "5fb8821590a33bacc61e39701cf9b46bd25bf5f0595bbe24655141438e7a100b",
        ),
        (
            "4ccd089b28ff96da9db6c346ec114e0f5b8a319f35aba624da8cf6ed4fb8a6fb",
            "3d4017c3e843895a92b70aa74d1b7ebc9c982ccf2ec4968cc0cd55f12af4660c",
            "72",
            "92a009a9f0d4cab8720e820b5f642540a2b27b5416503f8fb3762223ebdb69da"
            "085ac1e43e15996e458f3613d0f11d8c387b2eaeb4302aeeb00d291612bb0c00",
        ),
    ],
    ids=["RFC 8032 test 1", "RFC 8032 test 2"],
)
def test_signatures_are_those_of_the_standard(seed: str, public: str, text: str, signature: str) -> None:
    raw = bytes.fromhex(signature)
    assert VERIFIER.signed(bytes.fromhex(public), bytes.fromhex(text), raw)
    assert not VERIFIER.signed(bytes.fromhex(public), bytes.fromhex(text) + b"\0", raw)
    assert AUDIT_KEY.public != NoteKey(seed).public
    assert NoteKey(seed).public.endswith("+" + base64.b64encode(b"\1" + bytes.fromhex(public)).decode())
