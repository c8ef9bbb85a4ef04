"""Likelihood: how often an answer of such features was right, by a logistic regression that ships as data."""

import math
from collections.abc import Mapping
from functools import cache
from importlib.resources import files

from counterpoint.proto.messages import Shape


class LikelihoodModel(Shape):
    """The weight of each sign by its name, and the probability from which an answer is given. `fitted_on` says on what
    and how it was fitted, `measured` how good it is on what it was not fitted on."""

    intercept: float
    weights: Mapping[str, float]
    threshold: float
    fitted_on: str
    measured: str

    def at(self, features: Mapping[str, float]) -> float:
        """The probability in [0, 1] of these features. Raises `KeyError` where one is missing."""
        weighed = sum(weight * features[name] for name, weight in self.weights.items())
        return 1 / (1 + math.exp(-(self.intercept + weighed)))


@cache
def likelihood_model() -> LikelihoodModel:
    """The one that ships with the developer. Raises `OSError` or `ValidationError`."""
    shipped = files("counterpoint.developer.excerpts").joinpath("likelihood.json")
    return LikelihoodModel.model_validate_json(shipped.read_text(encoding="utf-8"))
