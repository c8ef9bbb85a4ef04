"""Evaluation sets are read as the layout says, their authors' files become it, and rankings are measured right."""

import json
import math
from pathlib import Path

import pytest

from counterpoint.bench.evaluation_metrics import auroc, ndcg, recall
from counterpoint.bench.evaluation_sets import SetText, TextGroup, UnreadableSet, read_set, read_sets, write_set
from counterpoint.bench.relevance_fit import THRESHOLD, GradedPassage, fit_curve
from counterpoint.bench.retrieval import EvaluationCorpus, content_type_of
from counterpoint.developer.excerpts.relevance import HitFeatures


def layout(folder: Path) -> Path:
    texts = [
        {"_id": "D1:2", "text": "In the hall.", "group": "a/1", "position": 2, "speaker": "Bob", "at": "8 May"},
        {"_id": "D1:1", "text": "Where is it?", "group": "a/1", "position": 1, "speaker": "Ann"},
        {"_id": "D1:1", "text": "Another talk.", "group": "b", "position": 1, "speaker": "Ann"},
    ]
    queries = [
        {"_id": "q 1", "text": "Where?", "group": "a/1", "category": 4},
        {"_id": "q2", "text": "Nothing answers this.", "group": "b"},
    ]
    write_set(folder, texts, queries, [("q 1", "D1:2", 2), ("q 1", "not there", 1), ("q2", "D1:1", 0)])
    return folder


def test_a_set_is_its_groups_in_order_with_the_questions_that_something_answers(tmp_path: Path) -> None:
    of = read_set(layout(tmp_path / "talks"))
    assert of.name == "talks"
    assert of.spoken
    first, second = of.groups
    assert [text.id for text in first.texts] == ["D1:1", "D1:2"]
    assert [(query.id, query.category, query.relevant) for query in first.queries] == [("q 1", "4", {"D1:2": 2.0})]
    assert second.queries == []


@pytest.mark.parametrize(
    ("file", "text", "problem"),
    [
        ("corpus.jsonl", '{"text": "x"}\n', "_id is missing"),
        ("corpus.jsonl", "{\n", "corpus.jsonl"),
        ("corpus.jsonl", "[]\n", "is not a JSON object"),
        ("corpus.jsonl", '{"_id": 1, "text": "x"}\n{"_id": "1", "text": "y"}\n', "occurs twice"),
        ("corpus.jsonl", '{"_id": "1", "text": "x", "position": "first"}\n', "is not a number"),
        ("queries.jsonl", '{"_id": "q", "text": "x", "group": "c"}\n', "no text has the group c"),
        ("qrels.tsv", "query\tcorpus\tscore\nq 1\tD1:2\n", "qrels.tsv"),
    ],
)
def test_a_set_that_breaks_the_layout_is_refused_with_the_problem(
    tmp_path: Path, file: str, text: str, problem: str
) -> None:
    (layout(tmp_path / "talks") / file).write_text(text)
    with pytest.raises(UnreadableSet, match=problem):
        read_set(tmp_path / "talks")


def test_a_folder_without_a_set_names_the_missing_files(tmp_path: Path) -> None:
    with pytest.raises(UnreadableSet, match=r"contains no corpus\.jsonl"):
        list(read_sets(tmp_path, tmp_path / "scratch"))


def test_the_files_of_three_authors_become_the_layout(tmp_path: Path) -> None:
    turns = [
        {"dia_id": "D1:1", "speaker": "Ann", "text": "I moved."},
        {"dia_id": "D1:2", "speaker": "Bob", "text": "Oh."},
    ]
    asked = [
        {"question": "Who moved?", "evidence": ["D1:1; D9:9"], "category": 1},
        {"question": "Who did not?", "evidence": ["D1:2"], "category": 5},
        {"question": "When?", "evidence": [], "category": 2},
    ]
    talk = {"session_1": turns, "session_1_date_time": "8 May", "session_2_date_time": "9 May"}
    (tmp_path / "locomo_some.json").write_text(json.dumps([{"sample_id": "c", "conversation": talk, "qa": asked}]))
    (tmp_path / "cosqa").mkdir()
    (tmp_path / "cosqa" / "code_idx_map.txt").write_text(json.dumps({"def f(): pass": 0, "def g(): pass": 1}))
    one = [{"idx": "q", "doc": "python g", "retrieval_idx": 1}]
    (tmp_path / "cosqa" / "cosqa-retrieval-some.json").write_text(json.dumps(one))
    (tmp_path / "cranfield").mkdir()
    abstracts = ".I 1\n.T\nwings\n.A\na\n.B\nb\n.W\non wings .\n.I 2\n.T\ntails\n.A\na\n.B\nb\n.W\n"
    (tmp_path / "cranfield" / "cran.all.1400").write_text(abstracts)
    (tmp_path / "cranfield" / "cran.qry").write_text(".I 004\n.W\nwhat of\nwings .\n")
    (tmp_path / "cranfield" / "cranqrel").write_text("1 1 2\n1 2 -1\n")

    sets = {of.name: of for of in read_sets(tmp_path, tmp_path / "scratch")}
    assert set(sets) == {"locomo", "cosqa", "cranfield"}
    (talk_group,) = sets["locomo"].groups
    assert [(text.speaker, text.at) for text in talk_group.texts] == [("Ann", "8 May"), ("Bob", "8 May")]
    assert [(query.text, query.relevant) for query in talk_group.queries] == [("Who moved?", {"c/D1:1": 1.0})]
    (functions,) = sets["cosqa"].groups
    assert [query.relevant for query in functions.queries] == [{"c1": 1.0}]
    (papers,) = sets["cranfield"].groups
    assert [(text.title, text.text) for text in papers.texts] == [("wings", "on wings ."), ("tails", "")]
    assert [(query.text, query.relevant) for query in papers.queries] == [("what of wings .", {"1": 3.0})]
    assert [content_type_of(sets[name]) for name in ("locomo", "cosqa", "cranfield")] == [
        "conversation",
        "code",
        "docs",
    ]


def test_a_passage_of_a_conversation_counts_for_the_turn_it_came_from() -> None:
    said = ["Yes.", "", "A long story. " * 100, "No: never.\nAnn: said Bob."]
    texts = [SetText(id=f"t{n}", text=text, speaker="Ann", position=n) for n, text in enumerate(said)]
    corpus = EvaluationCorpus(TextGroup("g", texts), "conversation")
    (document,) = corpus.documents
    assert [corpus.owner("conversation", f"doc-{n:05d}") for n in range(4)] == ["t0", "t2", "t2", "t3"]
    assert corpus.text("conversation") == document.text


def test_measures_are_those_of_the_literature() -> None:
    relevant = {"a": 3.0, "b": 1.0}
    assert ndcg(["a", "b"], relevant, 10) == pytest.approx(1)
    assert ndcg(["x", "a"], relevant, 10) == pytest.approx((3 / math.log2(3)) / (3 + 1 / math.log2(3)))
    assert recall(["x", "a"], relevant, 1) == 0
    assert recall(["x", "a"], relevant, 2) == 0.5
    assert auroc([1, 2, 3, 4], [False, False, True, True]) == 1
    assert auroc([1, 1, 1], [False, True, True]) == 0.5
    assert auroc([1, 2], [True, True]) is None


def test_a_fitted_curve_separates_its_own_set_and_passes_most_questions() -> None:
    passages = []
    for n in range(200):
        passages.append(
            GradedPassage("s", f"q{n}", HitFeatures(cosine=0.6 + n % 7 / 50, overlap=0.9, lexical_z=6), True)
        )
        passages.append(
            GradedPassage("s", f"q{n}", HitFeatures(cosine=0.4 + n % 5 / 50, overlap=0.3, lexical_z=1), False)
        )
    curve = fit_curve(passages, "made up")
    assert auroc([curve.probability(each.features) for each in passages], [each.relevant for each in passages]) == 1
    enough = [curve.probability(each.features) >= THRESHOLD for each in passages if each.relevant]
    assert 0.85 <= sum(enough) / len(enough) <= 1
    with pytest.raises(ValueError, match="a fit needs both"):
        fit_curve(passages[::2], "only the good ones")
