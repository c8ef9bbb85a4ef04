"""Likelihood: how often an answer of such signs was right, by a logistic regression that ships as data."""

import math
from collections.abc import Mapping
from functools import cache
from importlib.resources import files

from counterpoint.proto.messages import Shape


class Likelihood(Shape):
    """The weight of each sign by its name, and the probability from which an answer is given. `fitted_on` says on what
    and how it was fitted, `measured` how good it is on what it was not fitted on."""

    intercept: float
    weights: Mapping[str, float]
    threshold: float
    fitted_on: str
    measured: str

    def at(self, signs: Mapping[str, float]) -> float:
        """The probability in [0, 1] of these signs. Raises `KeyError` where one is missing."""
        weighed = sum(weight * signs[name] for name, weight in self.weights.items())
        return 1 / (1 + math.exp(-(self.intercept + weighed)))


@cache
def likelihood() -> Likelihood:
    """The one that ships with the developer. Raises `OSError` or `ValidationError`."""
    shipped = files("counterpoint.developer").joinpath("likelihood.json")
    return Likelihood.model_validate_json(shipped.read_text(encoding="utf-8"))
