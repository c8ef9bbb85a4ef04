"""The rules of gitleaks, read from `gitleaks_rules/`, which also has their licence and origin."""

import tomllib
from importlib.resources import files
from typing import Any

from counterpoint.guard.rule import Allowlist, Rule

_BY_PATH_ALONE = frozenset({"pkcs12-file"})
"""Rules that match file names only."""


def gitleaks_rules() -> tuple[Rule, ...]:
    """Return the rules that match content, in the order of gitleaks."""
    with files("counterpoint.guard").joinpath("gitleaks_rules", "gitleaks.toml").open("rb") as file:
        config = tomllib.load(file)
    everywhere = _allowed(config["allowlist"])
    return tuple(
        Rule(
            kind=rule["id"].replace("-", "_"),
            keywords=tuple(word.lower().encode() for word in rule["keywords"]),
            pattern=rule["regex"].encode(),
            entropy=rule.get("entropy", 0.0),
            group=rule.get("secretGroup", 0),
            allowed=(*everywhere, *(one for each in rule.get("allowlists", ()) for one in _allowed(each))),
        )
        for rule in config["rules"]
        if rule["id"] not in _BY_PATH_ALONE
    )


def _allowed(row: dict[str, Any]) -> tuple[Allowlist, ...]:
    if row.get("condition") == "AND":
        return ()
    patterns = tuple(pattern.encode() for pattern in row.get("regexes", ()))
    words = tuple(word.lower().encode() for word in row.get("stopwords", ()))
    return (Allowlist(row.get("regexTarget", "secret"), patterns, words),) if patterns or words else ()
