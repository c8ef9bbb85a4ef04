"""Facts of a run: versions, settings, schemas and volumes from its facets, as short texts for comparison.

A key is `<what>` or `<what> <name>`. Values that differ in every run (ids, times) are left out.
"""

import hashlib
from collections.abc import Iterator, Mapping
from typing import Any

from counterpoint.lineage.openlineage.events import CodeLocation
from counterpoint.lineage.openlineage.facets import redact, text

FACTS_LIMIT = 120
_VALUE_LIMIT_CHARS, _SCHEMA_LIMIT_CHARS = 200, 4_000
_DEPTH = 3
_SETTINGS = ("config", "conf", "propert", "setting", "environment", "version", "param", "engine")
_NO_SETTINGS = frozenset({"parent", "nominalTime", "errorMessage", "externalQuery", "airflow", "airflowDagRun"})
_STATISTICS = ("inputStatistics", "outputStatistics", "dataQualityMetrics")


def run_facts(raw: Mapping[str, Any], code: CodeLocation | None) -> dict[str, str]:
    """Return the facts of an event; missing or malformed values are left out."""
    found: dict[str, str] = {}
    if code is not None:
        found |= {"code": code.version or "", "repository": code.repo_url or code.url or ""}
    facets, job = _object(_object(raw, "run"), "facets"), _object(_object(raw, "job"), "facets")
    for source in ("sql", "sourceCode"):
        source_text = text(_object(job, source), "query") or text(_object(job, source), "sourceCode")
        if source_text:
            found[f"code {source}"] = hashlib.sha256(source_text.encode()).hexdigest()[:12]
    for name, facet in sorted({**job, **facets}.items()):
        if name in _NO_SETTINGS or not isinstance(facet, Mapping):
            continue
        settings = any(word in name.lower() for word in _SETTINGS)
        for path, value in _scalars(facet):
            if path.rpartition(".")[2].lower() in ("image", "containerimage", "container_image"):
                found["image"] = value
            elif settings:
                found[f"configuration {name}.{path}"] = value
    for side in ("inputs", "outputs"):
        listed = raw.get(side)
        for dataset in listed if isinstance(listed, list) else ():
            if isinstance(dataset, Mapping):
                found |= _of_dataset(dataset, side)
    redacted = {name: redact(value) or "" for name, value in found.items() if value and len(name) <= 300}
    return dict(sorted(redacted.items())[:FACTS_LIMIT])


def _of_dataset(dataset: Mapping[str, Any], side: str) -> dict[str, str]:
    name, facets = text(dataset, "name"), _object(dataset, "facets")
    if name is None:
        return {}
    found: dict[str, str] = {}
    fields = _object(facets, "schema").get("fields")
    if isinstance(fields, list):
        named = [f for f in fields if isinstance(f, Mapping) and isinstance(f.get("name"), str)]
        columns = sorted(f"{redact(f['name'])}:{redact(text(f, 'type')) or '?'}" for f in named)
        found[f"schema {name}"] = ", ".join(columns)[:_SCHEMA_LIMIT_CHARS]
    for of in (_object(dataset, "inputFacets"), _object(dataset, "outputFacets"), facets):
        for statistics in _STATISTICS:
            count = _object(of, statistics).get("rowCount")
            if isinstance(count, int) and not isinstance(count, bool):
                found[f"volume {name}"] = f"{count} rows {'read' if side == 'inputs' else 'written'}"
    return found


def _scalars(facet: Mapping[str, Any], path: str = "", depth: int = _DEPTH) -> Iterator[tuple[str, str]]:
    """Yield the short values of a facet by path; lists of `{name, value}` are read as fields."""
    for key, value in facet.items():
        if str(key).startswith("_"):
            continue
        name = redact(str(key))
        at = f"{path}.{name}" if path else str(name)
        if isinstance(value, bool | int | float | str):
            source_text = str(value).strip()
            if source_text and len(source_text) <= _VALUE_LIMIT_CHARS:
                yield at, source_text
        elif isinstance(value, Mapping) and depth > 1:
            yield from _scalars(value, at, depth - 1)
        elif isinstance(value, list) and depth > 1:
            named = {
                v["name"]: v.get("value") for v in value if isinstance(v, Mapping) and isinstance(v.get("name"), str)
            }
            yield from _scalars(named, at, depth - 1)


def _object(value: Mapping[str, Any], key: str) -> Mapping[str, Any]:
    found = value.get(key)
    return found if isinstance(found, Mapping) else {}
