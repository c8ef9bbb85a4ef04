"""Calibration: the curves and the model that evidence is assessed with, read from a file."""

from functools import cache
from importlib.resources import files
from pathlib import Path

from pydantic import Field

from counterpoint.developer.evidence.likeness import LikenessModel, likeness_model
from counterpoint.developer.excerpts.relevance import Curve
from counterpoint.proto.messages import Shape


class Calibration(Shape):
    """The curve of topical relevance, the curve of answering a question, and the model of the likeness of two
    failures."""

    topic: Curve
    answer: Curve
    likeness: LikenessModel = Field(default_factory=likeness_model)


@cache
def load_calibration(file: Path | None = None) -> Calibration:
    """Load the calibration of the package, or of a file. Raises `OSError` or `ValidationError`."""
    shipped = files("counterpoint.developer.evidence").joinpath("calibration.json")
    return Calibration.model_validate_json(shipped.read_text() if file is None else file.read_text())
