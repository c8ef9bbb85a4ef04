"""The provider index, made from provider packages: their names and contents (docs/ingestion.md).

    python -m counterpoint.cli.ingest.provider_index FOLDER... \\
        --into services/memory/counterpoint/memory/ingest/providers.json

The names of a package come from its metadata: its own name, its integrations, its connection types, and the end of its
package name. `aliases` are matched in prose. `terms` mean something else in prose and are matched only in names of
systems: ordinary words of an integration's name without its vendor ("batch", "step functions"), connection types, and
protocols ("http", "ssh"), which are in every log.
"""

import argparse
import hashlib
import json
import re
import sys
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from counterpoint.cli.ingest.packages import PREFIX, PackageError, ProviderPackage, packages_in
from counterpoint.proto.providers import Provider

VENDORS = ("amazon", "aws", "google", "microsoft", "apache", "cncf", "ibm", "atlassian")
"""First words of names that people omit."""

MANUAL_ALIASES: Mapping[str, tuple[str, ...]] = {
    "amazon": ("aws", "redshift", "athena"),
    "cncf-kubernetes": ("k8s",),
    "google": ("gcp", "dataproc", "pubsub", "bigtable"),
    "microsoft-azure": ("adls",),
    "microsoft-mssql": ("sql server",),
    "postgres": ("pgsql",),
}
"""Manual aliases that no metadata contains."""

EVERYDAY = frozenset({"common", "standard", "git", "cloud", "sql", "email", "file", "files", "python", "bash"})
"""Manual list of words that are not names in prose."""

_NOTE = (
    "Names of provider packages and of what is in them, read from the packages under `made_from` by "
    "counterpoint.cli.ingest.provider_index; the packages are published by the Apache Software Foundation under the "
    "Apache License 2.0. Rows without a version were written by hand."
)
_IN_BRACKETS = re.compile(r"(.*)\(([^()]+)\)\s*$")


def row(package: ProviderPackage) -> Provider:
    """Return a package as a row of the index. Raises `PackageError`."""
    try:
        return _row(package)
    except (AttributeError, KeyError, TypeError) as error:
        raise PackageError(f"{package.name}: its metadata has an unexpected form: {error!r}") from error


def _row(package: ProviderPackage) -> Provider:
    info = package.info
    name = str(info.get("name") or package.name)
    aliases, terms = names(package.name, info)
    by_kind: dict[str, list[str]] = {"operators": [], "sensors": [], "hooks": []}
    for one in package.classes:
        by_kind["operators" if one.kind == "transfers" else one.kind].append(one.name)
    types = [str(each["connection-type"]) for each in info.get("connection-types") or ()]
    try:
        return Provider(
            name=name,
            aliases=tuple(aliases),
            terms=tuple(terms),
            package=package.name,
            package_version=package.version,
            operators=tuple(sorted(set(by_kind["operators"]))),
            sensors=tuple(sorted(set(by_kind["sensors"]))),
            hooks=tuple(sorted(set(by_kind["hooks"]))),
            connection_types=tuple(dict.fromkeys(types)),
        )
    except ValueError as error:
        raise PackageError(f"{package.name}: {error}") from error


def names(package: str, info: Mapping[str, Any]) -> tuple[list[str], list[str]]:
    """Return the aliases of a package, for prose, and its terms, for names of systems."""
    own = str(info.get("name") or package)
    short = package.removeprefix(PREFIX)
    protocol = any("protocol" in (each.get("tags") or ()) for each in info.get("integrations") or ())
    aliases: dict[str, str] = {}
    terms: dict[str, str] = {}
    its_own: set[str] = set()

    def take(name: str, *, whole: bool) -> None:
        plain = _plain(name)
        if not plain or plain in aliases or plain in terms or plain == "cloud":
            return
        a_name = whole or any(map(_is_unusual, name.split())) or bool(its_own & set(plain.split()))
        in_prose = a_name if " " in plain else a_name and not protocol and plain not in EVERYDAY
        (aliases if in_prose else terms)[plain] = name

    for name in (*MANUAL_ALIASES.get(short, ()), *_spoken_names(own), *_spoken_names(short.replace("-", " "))):
        take(name, whole=True)
    its_own = {plain for plain in aliases if " " not in plain}
    for integration in info.get("integrations") or ():
        full = str(integration["integration-name"])
        for at, name in enumerate(_spoken_names(full)):
            take(name, whole=at == 0)
    for connection in info.get("connection-types") or ():
        plain = str(connection["connection-type"]).replace("_", " ")
        if _plain(plain) not in aliases:
            terms.setdefault(_plain(plain), plain)
    if _plain(own) not in terms:
        aliases.pop(_plain(own), None)
    return list(aliases.values()), list(terms.values())


def drop_shared_names(rows: Iterable[Provider]) -> tuple[list[Provider], list[str]]:
    """Return the rows without the names that two of them claim, and those names.

    A provider keeps its own name and the end of its package name.
    """
    rows = list(rows)
    own = {_plain(name): each.package for each in rows for name in _own(each)}
    claims: dict[str, set[str]] = {}
    for each in rows:
        for name in (each.name, *each.aliases, *each.terms):
            claims.setdefault(_plain(name), set()).add(each.package)
    dropped = sorted(name for name, packages in claims.items() if len(packages) > 1)

    def unshared(each: Provider, args: Sequence[str]) -> tuple[str, ...]:
        return tuple(n for n in args if len(claims[_plain(n)]) == 1 or own.get(_plain(n)) == each.package)

    unique = [
        each.model_copy(update={"aliases": unshared(each, each.aliases), "terms": unshared(each, each.terms)})
        for each in rows
    ]
    return unique, dropped


def _own(each: Provider) -> tuple[str, ...]:
    short = each.package.removeprefix(PREFIX).replace("-", " ")
    return (each.name, *_spoken_names(each.name), *_spoken_names(short))


def _spoken_names(name: str) -> list[str]:
    """Return the spoken forms of a name: without brackets, their content, and each without its vendor."""
    bracketed = _IN_BRACKETS.match(name)
    whole = tuple(map(str.strip, bracketed.groups())) if bracketed else (name,)
    bare = [rest for each in whole for rest in [_without_vendor(each)] if rest]
    return [each for each in dict.fromkeys((*whole, *bare)) if _plain(each)]


def _without_vendor(name: str) -> str:
    first, _, rest = name.strip().partition(" ")
    return rest.strip() if first.lower() in VENDORS else ""


def _is_unusual(name: str) -> bool:
    """Return whether a single word has a digit or an inner capital, unlike an ordinary word."""
    return any(c.isdigit() for c in name) or any(c.isupper() for c in name[1:])


def _plain(name: str) -> str:
    return " ".join(re.findall(r"[a-z0-9]+", name.lower()))


def build_index(folders: Sequence[Path], manual: Sequence[Provider]) -> tuple[dict[str, Any], list[str]]:
    """Return the content of the index file for the official packages in some folders, and notes about unreadable
    packages and names that two packages claim. A manual row stays unless its package was read."""
    rows, sources, notes = [], [], []
    for folder in folders:
        for package in packages_in(folder):
            if isinstance(package, PackageError):
                notes.append(str(package))
                continue
            if not package.name.startswith(PREFIX):
                notes.append(f"{package.name} is not an official package")
                continue
            try:
                rows.append(row(package))
            except PackageError as error:
                notes.append(str(error))
                continue
            source = {"package": package.name, "version": package.version}
            if package.path.is_file():
                source["sha256"] = hashlib.sha256(package.path.read_bytes()).hexdigest()
            sources.append(source)
    read = {each.package for each in rows}
    rows += [each for each in manual if each.package not in read]
    unique, dropped = drop_shared_names(sorted(rows, key=lambda each: each.package))
    if dropped:
        notes.append(f"claimed by two packages and omitted: {', '.join(dropped)}")
    index = {
        "note": _NOTE,
        "made_from": sorted(sources, key=lambda source: source["package"]),
        "rows": [each.model_dump(mode="json", exclude_none=True, exclude_defaults=True) for each in unique],
    }
    return index, notes


def main() -> None:
    """Write the index file."""
    parser = argparse.ArgumentParser(description="Make the provider index from wheels and installed packages.")
    parser.add_argument("folders", type=Path, nargs="+", help="Folders with wheels or installed packages.")
    parser.add_argument("--into", type=Path, required=True, help="The index file; its manual rows are kept.")
    args = parser.parse_args()
    before = json.loads(args.into.read_text())["rows"] if args.into.exists() else []
    manual = [Provider.model_validate(each) for each in before if "package_version" not in each]
    index, notes = build_index(args.folders, manual)
    lines = ",\n  ".join(json.dumps(each, ensure_ascii=False) for each in index["rows"])
    head = json.dumps({"note": index["note"], "made_from": index["made_from"]}, ensure_ascii=False, indent=1)
    args.into.write_text(f'{head.removesuffix("}").rstrip()},\n "rows": [\n  {lines}\n ]\n}}\n')
    for each in notes:
        sys.stderr.write(f"{each}\n")
    sys.stderr.write(f"{len(index['rows'])} rows, {len(index['made_from'])} of them from packages\n")


if __name__ == "__main__":
    main()
