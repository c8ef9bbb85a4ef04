"""Our documents and the examples of the demo: part of the wheel, or of the checkout."""

from importlib.resources import files
from pathlib import Path


def shipped_root() -> Path:
    """Return the folder with `README.md`, `docs` and `examples`."""
    packaged = Path(str(files("counterpoint.cli"))) / "shipped"
    return packaged if packaged.is_dir() else Path(__file__).resolve().parents[4]
