"""Likelihood: the probability that an answer with given features is right, by a logistic regression."""

import math
from collections.abc import Mapping
from functools import cache
from importlib.resources import files

from counterpoint.proto.messages import Shape


class LikelihoodModel(Shape):
    """The weight of each feature by name, and the minimum probability of an answer. `fitted_on` describes the fit,
    `measured` the result on other data."""

    intercept: float
    weights: Mapping[str, float]
    threshold: float
    fitted_on: str
    measured: str

    def probability(self, features: Mapping[str, float]) -> float:
        """Return the probability in [0, 1] for features. Raises `KeyError` for a missing one."""
        weighed = sum(weight * features[name] for name, weight in self.weights.items())
        return 1 / (1 + math.exp(-(self.intercept + weighed)))


@cache
def likelihood_model() -> LikelihoodModel:
    """Load the model of the package. Raises `OSError` or `ValidationError`."""
    shipped = files("counterpoint.developer.excerpts").joinpath("likelihood.json")
    return LikelihoodModel.model_validate_json(shipped.read_text(encoding="utf-8"))
