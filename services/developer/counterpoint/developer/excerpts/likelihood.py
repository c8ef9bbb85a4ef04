"""Likelihood: the probability that an answer with given features is right, by a logistic regression."""

import math
from collections.abc import Mapping
from functools import cache
from importlib.resources import files

from counterpoint.proto.messages import Shape


class FailureTerms(Shape):
    """Terms that are added for a failure.

    The names and values in an error are in no document. A section that answers it covers a small part of its words, but
    is far ahead of the other sections.
    """

    intercept: float
    weights: Mapping[str, float]
    fitted_on: str
    measured: str


class LikelihoodModel(Shape):
    """The weight of each feature by name, and the minimum probability of an answer. `fitted_on` describes the fit,
    `measured` the result on other data. `failures` are further terms for failures."""

    intercept: float
    weights: Mapping[str, float]
    threshold: float
    fitted_on: str
    measured: str
    failures: FailureTerms | None = None

    def probability(self, features: Mapping[str, float], failure: bool = False) -> float:
        """Return the probability in [0, 1] for features of a question, or of a `failure`. Raises `KeyError` for a
        missing one."""
        return 1 / (1 + math.exp(-self.log_odds(features, failure)))

    def log_odds(self, features: Mapping[str, float], failure: bool = False) -> float:
        """Return the logarithm of the odds. Raises `KeyError` for a missing feature."""
        parts = (self, self.failures) if failure and self.failures is not None else (self,)
        return sum(part.intercept + sum(w * features[name] for name, w in part.weights.items()) for part in parts)


@cache
def likelihood_model() -> LikelihoodModel:
    """Load the model of the package. Raises `OSError` or `ValidationError`."""
    shipped = files("counterpoint.developer.excerpts").joinpath("likelihood.json")
    return LikelihoodModel.model_validate_json(shipped.read_text(encoding="utf-8"))
