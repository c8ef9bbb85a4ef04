"""`counterpoint bench retrieval` and `counterpoint bench answer` measure a set of known answers."""

import json
import subprocess
from pathlib import Path
from typing import Any

import httpx
import pytest

from counterpoint.bench import answer, retrieval
from counterpoint.bench.evaluation_sets import EvaluationSet, read_sets, write_set
from counterpoint.bus import Service

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
    write_set(folder / "talks", texts, queries, qrels)
    return folder


def _the_set(folder: Path) -> EvaluationSet:
    (talks,) = read_sets(folder, folder)
    return talks


async def test_retrieval_measures_by_leg_and_category(router: Service, folder: Path, project: str) -> None:
    result = await retrieval.measure_set(router, project, _the_set(folder), "conversation")
    _check_retrieval(result.as_json(10))
    assert retrieval.fitted_calibration([result]).answer.fitted_on.startswith("18 passages")


async def test_answers_cite_their_evidence(http: httpx.AsyncClient, folder: Path, project: str) -> None:
    _check_answers((await answer.measure_set(http, project, _the_set(folder), "conversation")).as_json())


@pytest.mark.slow
def test_the_commands_measure_a_stack_of_their_own(folder: Path, tmp_path: Path) -> None:
    _check_retrieval(_run("retrieval", str(folder), "--fit", str(tmp_path / "fitted.json")))
    assert set(json.loads((tmp_path / "fitted.json").read_text())) == {"topic", "answer", "likeness"}
    _check_answers(_run("answer", str(folder)))


def _run(*arguments: str) -> dict[str, Any]:
    done = subprocess.run([COMMAND, "bench", *arguments, "--json"], capture_output=True, text=True, timeout=170)
    assert done.returncode == 0, done.stderr[-3000:]
    report: dict[str, Any] = json.loads(done.stdout)
    return report


def _check_retrieval(report: dict[str, Any]) -> None:
    expected = {"set": "talks", "type": "conversation", "groups": 2, "chunks": 6, "queries": 6}
    assert {name: report[name] for name in expected} == expected
    assert report["ndcg@10"] == report["recall@5"] == 1.0
    for part in ("lexical", "dense", "by_category"):
        assert report[part]
    assert report["refused"] == []
    assert report["grader_auroc"] == 1.0
    for rate in ("queries_per_s", "p50_ms", "p95_ms", "ingest_chunks_per_s"):
        assert report[rate] > 0


def _check_answers(report: dict[str, Any]) -> None:
    assert report["cited_spans_resolve"] == 1.0
    assert report["questions"] == 6
    assert report["answers_cite_evidence"] == report["resolved_without_fallback"] == 1.0


def test_a_bench_that_cannot_run_says_why(folder: Path, tmp_path: Path) -> None:
    for arguments, said in (
        (["retrieval"], "needs a folder of sets"),
        (["commit", str(folder)], "takes no folder"),
        (["retrieval", str(tmp_path)], "contains no corpus.jsonl"),
    ):
        done = subprocess.run([COMMAND, "bench", *arguments], capture_output=True, text=True, timeout=60)
        assert done.returncode != 0
        assert said in " ".join(done.stderr.split())
