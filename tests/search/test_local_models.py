"""Models of a user's own, by folder: as embedders and as rerankers, and what is said of one that cannot be used."""

import json
import shutil
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from search.local_models import minilm, overlap, save_model, wrong

from counterpoint.manager.settings import ManagerSettings
from counterpoint.memory.embedding.files import FULL_ID, ModelSettings
from counterpoint.memory.embedding.folder import Folder, folder_of, remember, remembered
from counterpoint.memory.embedding.folder_embedder import FolderEmbedder
from counterpoint.memory.embedding.model import Embedder
from counterpoint.memory.search.rerank import RERANKED, Reranker, reranked, widened
from counterpoint.proto.errors import Permanent
from counterpoint.proto.memory import HybridSearch, Item

VARIABLE = "COUNTERPOINT_EMBEDDING_MODEL"
TEXTS = [
    "The DNS resolver did not answer, so the join of the host to the domain failed.",
    "Our cat sleeps on the warm windowsill all afternoon.",
    "half a pair \ud800",
    "",
    "x " * 5000,
]
QUESTION = "why could the host not join the domain?"


@pytest.fixture(scope="module")
def export(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """MiniLM as it is exported."""
    return minilm(tmp_path_factory.mktemp("models") / "minilm")


@pytest.fixture(scope="module")
def embedder(export: Path) -> Iterator[FolderEmbedder]:
    own = FolderEmbedder(Folder(export, VARIABLE))
    yield own
    own.close()


@pytest.fixture(scope="module")
def pairs(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Reranker]:
    """A cross-encoder."""
    own = Reranker(Folder(overlap(tmp_path_factory.mktemp("models") / "overlap"), VARIABLE))
    yield own
    own.close()


async def test_minilms_own_export_makes_the_vectors_of_the_model_in_the_house(embedder: FolderEmbedder) -> None:
    inside = Embedder(ModelSettings().model_cache_dir, model=FULL_ID)
    vectors = await embedder.embed(TEXTS)
    assert (embedder.dimensions, vectors.shape, vectors.dtype) == (384, (len(TEXTS), 384), np.float32)
    assert np.allclose(np.linalg.norm(vectors, axis=1), 1, atol=1e-5)
    assert np.allclose(vectors, await inside.embed(TEXTS), atol=1e-4)
    alone = np.concatenate([await embedder.embed([text]) for text in TEXTS])
    assert np.array_equal(vectors, alone)
    inside.close()


async def test_a_graph_that_pools_itself_and_one_in_the_layout_of_a_hub_are_read_alike(
    embedder: FolderEmbedder, tmp_path: Path
) -> None:
    folder = minilm(tmp_path / "pooled", pooled=True)
    (folder / "onnx").mkdir()
    (folder / "model.onnx").rename(folder / "onnx" / "model.onnx")
    pooled = FolderEmbedder(Folder(folder, VARIABLE))
    assert np.allclose(await pooled.embed(TEXTS[:2]), await embedder.embed(TEXTS[:2]), atol=1e-4)
    pooled.close()


def test_the_vector_of_the_first_token_is_taken_where_the_model_says_so(tmp_path: Path) -> None:
    folder = overlap(tmp_path / "m")
    assert not Folder(folder, VARIABLE).by_first_token()
    (folder / "1_Pooling").mkdir()
    (folder / "1_Pooling" / "config.json").write_text('{"pooling_mode_cls_token": true}')
    assert Folder(folder, VARIABLE).by_first_token()


def test_the_id_is_that_of_the_content_wherever_it_lies(export: Path, tmp_path: Path) -> None:
    copy = Path(shutil.copytree(export, tmp_path / "elsewhere"))
    assert Folder(copy, VARIABLE).model_id == Folder(export, VARIABLE).model_id
    (copy / "sentence_bert_config.json").write_text('{"max_seq_length": 128}')
    assert Folder(copy, VARIABLE).model_id != Folder(export, VARIABLE).model_id


def test_a_model_is_found_by_its_id_until_its_content_is_another(tmp_path: Path) -> None:
    own = Folder(overlap(tmp_path / "m"), VARIABLE)
    cache = tmp_path / "cache"
    remember(own, cache)
    remember(own, cache)
    assert remembered(own.model_id, cache, VARIABLE).path == own.path.resolve()
    (own.path / "tokenizer.json").write_text(json.dumps({"other": True}))
    with pytest.raises(Permanent, match="model_differs"):
        remembered(own.model_id, cache, VARIABLE)
    with pytest.raises(Permanent, match="model_missing"):
        remembered("file-0123456789abcdef", cache, VARIABLE)


@pytest.mark.parametrize("name", ["file:relative/dir", "/no/scheme", "minilm", "file:"])
def test_a_relative_path_of_a_model_is_refused(name: str) -> None:
    with pytest.raises(Permanent, match=f"invalid: {VARIABLE}: .*absolute path"):
        folder_of(name, VARIABLE)


def test_missing_and_unreadable_model_files_are_named(tmp_path: Path) -> None:
    def refused(folder: Path, *, dimensions: int | None = None) -> str:
        with pytest.raises(Permanent) as error:
            FolderEmbedder(folder_of(f"file:{folder}", VARIABLE), dimensions)
        assert VARIABLE in str(error.value)
        return str(error.value)

    assert "is not a folder" in refused(tmp_path / "nowhere")
    (tmp_path / "bare").mkdir()
    assert "contains neither model.onnx nor onnx/model.onnx" in refused(tmp_path / "bare")
    (tmp_path / "bare" / "model.onnx").write_bytes(b"no graph")
    assert "does not contain tokenizer.json" in refused(tmp_path / "bare")
    (tmp_path / "bare" / "tokenizer.json").write_text("{}")
    assert "model_unreadable" in refused(tmp_path / "bare")
    shutil.copy(wrong(tmp_path / "t") / "tokenizer.json", tmp_path / "bare")
    assert "model_unreadable" in refused(tmp_path / "bare")
    assert "has the inputs pixel_values" in refused(wrong(tmp_path / "image", asks="pixel_values"))
    assert "none of shape (1, n)" in refused(wrong(tmp_path / "flat", gives=("n",)))
    assert "model_fails" in refused(wrong(tmp_path / "fixed", gives=(1, 3)))
    cross = refused(overlap(tmp_path / "cross"))
    assert "embedding_dimensions" in cross
    assert "COUNTERPOINT_RERANKER" in cross


def test_vectors_of_another_length_than_was_set_are_refused(export: Path) -> None:
    with pytest.raises(Permanent, match="returns vectors of 384 dimensions, not 256"):
        FolderEmbedder(Folder(export, VARIABLE), 256)


async def test_a_cross_encoder_reads_question_and_passage_together(pairs: Reranker) -> None:
    assert pairs.reads_pairs
    passages = ["nothing of it", QUESTION, "the host could join", "x " * 5000]
    scores = await pairs.scores(QUESTION, passages)
    assert all(0 <= score <= 1 for score in scores)
    assert scores[1] > scores[2] > scores[0]
    assert await pairs.scores(QUESTION, passages[::-1]) == scores[::-1]
    assert await pairs.scores(QUESTION, []) == []


async def test_minilm_as_a_reranker_scores_by_meaning(export: Path) -> None:
    both = Reranker(Folder(export, "COUNTERPOINT_RERANKER"))
    assert not both.reads_pairs
    scores = await both.scores(QUESTION, TEXTS[:2])
    assert scores[0] > 0.4 > scores[1]
    both.close()


def chunk_item(number: int, text: str) -> Item:
    body = {"text": text}
    return Item(
        store="chunks", id=f"c-{number}", version=1, project="p", seq=1, author="memory", label=1,
        integrity=2, at=datetime.now(UTC), body=body, score=1 / (1 + number), scores={"lexical": 1.0},
    )  # fmt: skip


async def test_the_best_passages_are_ordered_anew_and_the_rest_come_after(pairs: Reranker) -> None:
    items = [chunk_item(n, "nothing") for n in range(RERANKED - 1)]
    items += [chunk_item(RERANKED - 1, QUESTION), *(chunk_item(RERANKED + n, QUESTION) for n in range(3))]
    ordered = await reranked(pairs, HybridSearch(store="chunks", text=QUESTION, k=200), items)
    assert ordered[0].id == f"c-{RERANKED - 1}"
    assert {item.id for item in ordered} == {item.id for item in items}
    assert [item.id for item in ordered[RERANKED:]] == [f"c-{RERANKED + n}" for n in range(3)]
    scores = [item.score or 0.0 for item in ordered]
    assert scores == sorted(scores, reverse=True)
    assert (ordered[0].scores or {})["fused"] == items[RERANKED - 1].score
    assert (ordered[0].scores or {})["rerank"] == ordered[0].score
    assert [item.id for item in await reranked(pairs, HybridSearch(store="chunks", text=QUESTION, k=1), items)] == [
        ordered[0].id
    ]


@given(st.integers(1, 200))
def test_enough_is_searched_for_and_the_order_of_the_legs_is_left_alone(k: int) -> None:
    query = HybridSearch(store="chunks", text="a", k=k)
    wide = widened(query)
    assert wide is not None
    assert wide.k == max(k, RERANKED)
    assert widened(query.model_copy(update={"vector_weight": 0.5})) is None
    assert widened(query.model_copy(update={"store": "attempts"})) is None


def test_a_model_by_folder_is_none_that_the_gateway_may_call() -> None:
    given: dict[str, Any] = {"nats_user": "manager", "nats_password": "p"}
    own = ManagerSettings(**given, embedding_model="file:/models/mine")
    assert not own.provider_limits()
    both = ManagerSettings(**given, embedding_model="file:/models/mine", embedding_models="openai/e, file:/x")
    assert both.provider_limits().embedding_models == ("openai/e",)


def test_a_tokenizers_own_bound_counts_where_no_settings_say_more(tmp_path: Path) -> None:
    folder = save_model(tmp_path / "m", _empty())
    assert Folder(folder, VARIABLE).max_tokens() == 256
    (folder / "sentence_bert_config.json").unlink()
    (folder / "tokenizer.json").write_text('{"truncation": {"max_length": 99}}')
    assert Folder(folder, VARIABLE).max_tokens() == 99
    (folder / "config.json").write_text('{"max_position_embeddings": 8192}')
    assert Folder(folder, VARIABLE).max_tokens() == 512


def _empty() -> Any:
    from onnx import ModelProto

    return ModelProto()
