"""Rules of plans: the provider index judges which packages and operators a statement of a plan may name. Pure.

A system has the provider that the index has, or none: no stand-in, and no general operator that runs commands or
functions in its place. A plan has no code.
"""

import re
from collections.abc import Iterable, Iterator

from counterpoint.developer.evidence.providers import ProviderLookup
from counterpoint.proto.providers import Provider, plain_name

_CLASS = re.compile(r"\b\w+(?:(?i:operator|sensor)|Hook)\b")
_PACKAGE = re.compile(r"\b(?:[a-z0-9]{1,40}-){0,4}airflow-providers?(?:-[a-z0-9]+)*", re.IGNORECASE)
_MODULE = re.compile(r"\bairflow\.providers\.([a-z0-9_]+(?:\.[a-z0-9_]+)*)", re.IGNORECASE)
_GENERAL = re.compile(
    r"(?:(?<!\w)(?=(\w*?(?:bash|python|shell|subprocess|callable)))\1\w*(?:[\s-][\s_-]*+)?"
    r"(?:operator|sensor|task|decorator)s?|@task)\b",
    re.IGNORECASE,
)
_STAND_IN = re.compile(
    r"\b(?:custom|own|home-?(?:made|grown)|(?:self|hand)-?written|generic|pseudo|stand-?in|eigene[nmrs]?)\b[^.;]{0,40}"
    r"\b(?:provider|operator|sensor|hook|plugin)s?\b",
    re.IGNORECASE,
)
_PROVIDED = re.compile(r"(?:provider|operator|sensor|hook|plugin)s?\b", re.IGNORECASE)
_CODE = re.compile(
    r"```|~~~|^[^\S\n]*(?:>>>|def \w+\(|class \w+[(:]|import \w+|from [\w.]+ import |with DAG\b|@\w+(?:\(|$)"
    r"|\w+ *= *\w+\(|#!|\$ \w)|\bDAG\(|\b\w+(?:Operator|Sensor|Hook)\(",
    re.MULTILINE,
)


def objection_to(text: str, providers: ProviderLookup) -> str | None:
    """Return why a statement has no place in a plan; None if it has."""
    if _CODE.search(text):
        return "it is code, and a plan has none"
    return next(_unofficial(text, providers), None)


def _unofficial(text: str, providers: ProviderLookup) -> Iterator[str]:
    """Yield the names in a text that stand in for an official provider."""
    own = _classes(provider for _, provider in providers.found)
    known = _classes(providers.index)
    classes = dict.fromkeys(_CLASS.findall(text))
    rest = text
    for name in classes:
        if name in own:
            rest = rest.replace(name, " ")
    if (providers.found or providers.missing) and (general := _GENERAL.search(rest)):
        yield f"it names a general operator where a provider is to be used: {general[0]}"
    for name in classes:
        if name not in known and not _GENERAL.fullmatch(name):
            yield f"it names an operator that is in no package of the provider index: {name}"
    for package in _PACKAGE.findall(text):
        if not any(package.lower() == each.package for each in providers.index):
            yield f"it names a package that is not in the provider index: {package}"
    for module in _MODULE.findall(text):
        dotted = f"{module.lower().replace('_', '.')}."
        if not any(dotted.startswith(f"{_dotted(each)}.") for each in providers.index):
            yield f"it names a module that is in no package of the provider index: {module}"
    if stand_in := _STAND_IN.search(text):
        yield f"it proposes a stand-in for a provider: {stand_in[0]}"
    words = f" {plain_name(text)} "
    for system in providers.missing:
        name = plain_name(system)
        if name and f" {name} " in words and _PROVIDED.search(text):
            yield f"it speaks of a provider of {system}, which has none"


def _classes(providers: Iterable[Provider]) -> frozenset[str]:
    return frozenset(name for each in providers for name in (*each.operators, *each.sensors, *each.hooks))


def _dotted(provider: Provider) -> str:
    return provider.package.removeprefix("apache-airflow-providers-").replace("-", ".")
