"""Likelihood: the probability that an answer with given features is right, by logistic regressions."""

import math
from collections.abc import Mapping
from functools import cache
from importlib.resources import files

from counterpoint.proto.messages import Shape


class LikelihoodTerms(Shape):
    """The weight of each feature by name, and the minimum probability of an answer."""

    threshold: float
    intercept: float
    weights: Mapping[str, float]

    def probability(self, features: Mapping[str, float]) -> float:
        """Return the probability in [0, 1] for features. Raises `KeyError` for a missing one."""
        odds = self.intercept + sum(weight * features[name] for name, weight in self.weights.items())
        return 1 / (1 + math.exp(-odds))


class LikelihoodModel(Shape):
    """The terms for questions and for failures. `fitted_on` describes the fit, `measured` the result on other data.

    The names and values in an error are in no document, so a section that answers it covers a small part of its words.
    """

    questions: LikelihoodTerms
    failures: LikelihoodTerms
    fitted_on: str
    measured: str

    def probability(self, features: Mapping[str, float], failure: bool = False) -> float:
        """Return the probability in [0, 1] for features of a question, or of a `failure`. Raises `KeyError` for a
        missing one."""
        return (self.failures if failure else self.questions).probability(features)


@cache
def likelihood_model() -> LikelihoodModel:
    """Load the model of the package. Raises `OSError` or `ValidationError`."""
    shipped = files("counterpoint.developer.excerpts").joinpath("likelihood.json")
    return LikelihoodModel.model_validate_json(shipped.read_text(encoding="utf-8"))
