"""`bench retrieval` and `bench answer` measure a set on a stack of their own."""

import json
import subprocess
from pathlib import Path

import pytest
from bench.sets import write

COMMAND = str(Path(__file__).parents[2] / ".venv" / "bin" / "counterpoint")
FACTS = {"Ann": "the key of the boat house", "Bob": "the map of the northern island", "Eve": "the recipe for plum jam"}


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Two conversations, in each of which everybody has something."""
    texts, queries, qrels = [], [], []
    for group, place in (("one", "cellar"), ("two", "attic")):
        for position, (speaker, thing) in enumerate(FACTS.items()):
            turn = f"{group}/{position}"
            texts.append(
                {"_id": turn, "text": f"I have put {thing} into the {place}.", "group": group, "position": position,
                 "speaker": speaker, "at": "8 May 2023"}
            )  # fmt: skip
            query = f"{group} q{position}"
            asked = f"Where has {speaker} put {thing}?"
            queries.append({"_id": query, "text": asked, "group": group, "category": 1})
            qrels.append((query, turn, 1))
    folder = tmp_path_factory.mktemp("sets")
    write(folder / "talks", texts, queries, qrels)
    return folder


def run(*arguments: str) -> dict[str, object]:
    done = subprocess.run([COMMAND, "bench", *arguments, "--json"], capture_output=True, text=True, timeout=170)
    assert done.returncode == 0, done.stderr[-3000:]
    report: dict[str, object] = json.loads(done.stdout)
    return report


def test_retrieval_prints_its_measures_by_leg_and_category(folder: Path, tmp_path: Path) -> None:
    report = run("retrieval", str(folder), "--fit", str(tmp_path / "fitted.json"))
    named = {"set": "talks", "type": "conversation", "groups": 2, "chunks": 6, "queries": 6}
    assert {name: report[name] for name in named} == named
    assert report["ndcg@10"] == report["recall@5"] == 1.0
    for part in ("lexical", "dense", "by_category"):
        assert report[part]
    assert report["refused"] == []
    assert report["grader_auroc"] == 1.0
    for measured in ("queries_per_s", "p50_ms", "p95_ms", "ingest_chunks_per_s"):
        assert report[measured] > 0  # type: ignore[operator]
    assert set(json.loads((tmp_path / "fitted.json").read_text())) == {"topic", "answer", "likeness"}


def test_answers_cite_what_they_rest_on(folder: Path) -> None:
    report = run("answer", str(folder))
    assert report["cited_spans_resolve"] == 1.0
    assert report["questions"] == 6
    assert report["answers_cite_evidence"] == report["resolved_without_fallback"] == 1.0


def test_what_cannot_be_measured_is_said(folder: Path, tmp_path: Path) -> None:
    for arguments, said in (
        (["retrieval"], "want a folder"),
        (["commit", str(folder)], "takes no folder"),
        (["retrieval", str(tmp_path)], "holds no corpus.jsonl"),
    ):
        done = subprocess.run([COMMAND, "bench", *arguments], capture_output=True, text=True, timeout=60)
        assert done.returncode != 0
        assert said in " ".join(done.stderr.split())
