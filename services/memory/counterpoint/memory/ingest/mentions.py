"""Mentions in a text: files, services, DAGs, errors and systems, by rules alone. Pure."""

import errno
import re
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from functools import lru_cache
from typing import Literal

from counterpoint.memory.ingest.providers import built_in_providers

Kind = Literal["file", "service", "dag", "error", "system"]

MAX_CHARS = 1_000_000
"""Characters of a text that are searched, from its beginning."""
MAX_MENTIONS = 200
"""Maximum number of mentions of a text; the most frequent are kept."""
_NAME_CHARS = 200
_PART_CHARS = 16_384

_EXTENSIONS = (
    "avro|bak|bat|bz2|c|cc|cfg|cnf|conf|cpp|cs|csv|css|dat|db|ddl|delta|dockerfile|env|ex|exs|feather|go|gz|h|hcl|hql|"
    "html|ini|ipynb|j2|jar|java|jinja|jinja2|js|json|jsonl|key|kt|lock|log|lua|md|mjs|orc|parquet|patch|pem|php|pid|"
    "pkl|pl|properties|proto|ps1|py|pyi|r|rb|rs|rst|scala|sh|snappy|sock|sql|sqlite|swift|tar|tf|tfvars|tgz|toml|tpl|"
    "ts|tsv|tsx|txt|vue|war|whl|xls|xlsx|xml|yaml|yml|zip|zst"
)
_TEMPLATE = r"(?:\.(?:j2|jinja2?|tpl|tmpl|template|example|sample|dist|bak|orig|gz|bz2|zst))?"
_FILE = re.compile(
    # Below a root a path may end in anything. A relative path reads like a job's name, so it needs a known file ending.
    r"(?<![\w/.:-])(?:~?/|\./)[\w./-]*[\w-]\.[A-Za-z][A-Za-z0-9]{0,7}\b"
    rf"|(?<![\w/.:-])[\w-]+/[\w./-]*[\w-]\.(?:{_EXTENSIONS}){_TEMPLATE}\b(?!\.\w)"
    rf"|(?<![\w/.-])[\w-]{{1,80}}\.(?:py|sql|ya?ml|json|toml|cfg|conf|ini|sh|md|csv|parquet|log|tf|jar){_TEMPLATE}"
    r"\b(?!\.\w)"
)
_CODE_NAME = re.compile(r"(?<![\w/.-])([A-Za-z_]\w{0,80}\.[a-z]{2,7})(?:\(|\.\w+[.(])")
_RECEIVERS = frozenset({"self", "cls", "this", "super", "log", "logger", "logging", "console"})
_HOST = re.compile(
    r"(?<![\w@./-])(?:[a-z0-9](?:[a-z0-9-]{0,61}[a-z0-9])?\.){1,6}"
    r"(?:internal|local|lan|svc|cluster|com|org|net|io|dev|cloud|eu|de)\b(?![\w/-]*\.\w)"
)
_DAG = re.compile(
    r"(?:\bdag_id\b[\"']?\s{0,3}[=:]\s{0,3}[\"']?|\bDAG:?\s+[`\"']?|\bdags/)([A-Za-z][\w.-]{2,80}[A-Za-z0-9])", re.ASCII
)
_ERROR = re.compile(r"\b([A-Z][A-Za-z0-9]{2,60}(?:Error|Exception|Timeout|Fault|Interrupt|Warning))\b")
_RESOLVER_CODES = frozenset({"ENOTFOUND", "ESERVFAIL", "EREFUSED", "ETIMEOUT", "EAI_AGAIN", "EAI_FAIL", "EAI_NONAME"})
_ERRNOS = "|".join(sorted(_RESOLVER_CODES | {name for name in errno.errorcode.values() if name.startswith("E")}))
_CODE = re.compile(rf"\b(?:ORA-\d{{5}}|SQLSTATE \w{{5}}|(?:{_ERRNOS})|HTTP [45]\d\d)\b")


@dataclass(frozen=True, slots=True)
class Mention:
    """An entity that a text mentions, and how often."""

    kind: Kind
    name: str
    count: int


def mentions(text: str) -> tuple[Mention, ...]:
    """Return the entities that a text mentions, the most frequent first, equal ones by name."""
    found: Counter[tuple[Kind, str]] = Counter()
    for part in _parts(text[:MAX_CHARS]):
        found.update(_mentioned(part))
    ordered = sorted(found.items(), key=lambda each: (-each[1], each[0]))
    return tuple(Mention(kind, name, count) for (kind, name), count in ordered if len(name) <= _NAME_CHARS)[
        :MAX_MENTIONS
    ]


def _parts(text: str) -> Iterator[str]:
    """Yield a text in groups of lines: no other thread runs while a pattern is searched for."""
    start = 0
    while start < len(text):
        most = start + _PART_CHARS
        end = len(text) if most >= len(text) else text.rfind("\n", start, most) + 1 or text.rfind(" ", start, most) + 1
        yield text[start : end or most]
        start = end or most


def _mentioned(text: str) -> Iterator[tuple[Kind, str]]:
    code = {match[1].lower() for match in _CODE_NAME.finditer(text)}
    for match in _FILE.finditer(text):
        if match[0].lower() not in code and not _is_code(match[0]):
            yield "file", match[0].removeprefix("./")
    for match in _HOST.finditer(text):
        yield "service", match[0]
    for match in _DAG.finditer(text):
        yield "dag", match[1].removesuffix(".py")
    for pattern, group in ((_ERROR, 1), (_CODE, 0)):
        for match in pattern.finditer(text):
            yield "error", match[group]
    systems, names = _systems()
    for match in systems.finditer(text):
        yield "system", names[match[0].lower()]


def _is_code(name: str) -> bool:
    """Whether a bare name is an attribute of an object or of a system's client, such as `logger.log`, `spark.sql`."""
    stem, _, ending = name.lower().rpartition(".")
    return stem in _RECEIVERS or (ending == "sql" and stem in _systems()[1])


@lru_cache(maxsize=1)
def _systems() -> tuple[re.Pattern[str], dict[str, str]]:
    """Return the systems of the provider index, by names that are unambiguous in prose."""
    providers = built_in_providers()
    names = {alias.lower(): row.name for row in providers for alias in (row.name, *row.aliases) if len(alias) > 2}
    longest_first = sorted(names, key=lambda name: (-len(name), name))
    return re.compile(rf"\b(?:{'|'.join(map(re.escape, longest_first))})\b", re.IGNORECASE), names
