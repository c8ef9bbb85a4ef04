"""The phases of a bootstrap and their content. Read-only."""

import sys
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from counterpoint.cli.ingest.files import SourceFile
    from counterpoint.cli.ingest.packages import ProviderClass, ProviderPackage
    from counterpoint.proto.providers import Provider

OWN, DAGS, PROVIDERS, DOCS = "own-docs", "dags", "providers", "docs"
PHASES = (OWN, DAGS, PROVIDERS, DOCS)
_OWN_PAGES = ("README.md", "docs")


@dataclass(frozen=True)
class PhaseOptions:
    """Paths from the command line. Empty ones stand for the usual places."""

    dags: tuple[Path, ...] = ()
    docs: tuple[Path, ...] = ()
    providers: tuple[str, ...] = ()
    providers_dirs: tuple[Path, ...] = ()


@dataclass(frozen=True)
class PhaseContent:
    """Content of a phase. `problems` are unreadable files; `where` describes the places searched."""

    where: str
    documents: "tuple[SourceFile, ...]" = ()
    providers: "tuple[Provider, ...]" = ()
    problems: tuple[str, ...] = ()

    @property
    def empty(self) -> bool:
        """Return whether there is neither content nor a problem."""
        return not (self.documents or self.providers or self.problems)


def collect(phase: str, given: PhaseOptions, here: Path, environment: Mapping[str, str]) -> PhaseContent:
    """Collect the content of one of `PHASES`. Sources are named relative to `here`."""
    match phase:
        case "own-docs":
            return _own()
        case "dags":
            home = environment.get("AIRFLOW_HOME")
            usual = (here / "dags", *((Path(home) / "dags",) if home else ()))
            return _files(given.dags, usual, here, "--dags FOLDER")
        case "docs":
            own = _checkout()
            usual = tuple(path for path in (here / "docs", here / "README.md") if own is None or here != own)
            return _files(given.docs, usual, here, "--docs FOLDER")
        case _:
            return _providers(given)


def _own() -> PhaseContent:
    """Return the documentation of Counterpoint, named independently of the checkout's path."""
    from counterpoint.cli.ingest.files import SourceFile, walk

    root = _checkout()
    if root is None:
        return PhaseContent(
            "Counterpoint's own documents, which need a checkout; this command was not installed from one"
        )
    found = list(walk([root / name for name in _OWN_PAGES], root))
    pages = tuple(
        replace(one, source=f"counterpoint/{one.source}")
        for one in found
        if isinstance(one, SourceFile) and one.path.suffix == ".md"
    )
    return PhaseContent(f"{root / 'docs'}", pages)


def _checkout() -> Path | None:
    return next((up for up in Path(__file__).resolve().parents if (up / "docs" / "architecture.md").is_file()), None)


def _files(given: tuple[Path, ...], usual: Iterable[Path], here: Path, option: str) -> PhaseContent:
    from counterpoint.cli.ingest.files import SourceFile, walk

    places = given or tuple(path for path in usual if path.exists())
    if not places:
        return PhaseContent(
            f"the usual places ({', '.join(map(str, usual))}), which do not exist; name others with {option}"
        )
    found = list(walk(places, here))
    return PhaseContent(
        ", ".join(map(str, places)),
        tuple(one for one in found if isinstance(one, SourceFile)),
        problems=tuple(f"{one.path}: {one.reason}" for one in found if not isinstance(one, SourceFile) and one.failed),
    )


def _providers(given: PhaseOptions) -> PhaseContent:
    from counterpoint.cli.ingest.packages import PackageError, ProviderPackage, installed, lying_in
    from counterpoint.cli.ingest.provider_index import row

    def everywhere() -> Iterator["ProviderPackage | Exception"]:
        yield from installed(given.providers)
        for folder in given.providers_dirs:
            packages = list(lying_in(folder))
            yield from packages
            if not packages:
                yield LookupError(f"{folder} contains no provider package, neither a wheel nor an installed one")
        if not given.providers and not given.providers_dirs:
            for entry in dict.fromkeys(sys.path):
                if entry and Path(entry).is_dir():
                    yield from lying_in(Path(entry))

    documents: list[SourceFile] = []
    rows: dict[str, Provider] = {}
    problems: list[str] = []
    for one in everywhere():
        if not isinstance(one, ProviderPackage):
            problems.append(str(one))
        elif one.name not in rows:
            try:
                made, pages = row(one), list(_pages(one))
            except PackageError as error:
                problems.append(str(error))
            else:
                rows[one.name] = made
                documents += pages
    where = ", ".join((*given.providers, *map(str, given.providers_dirs))) or (
        "the packages installed in this environment; give --providers-dir FOLDER with the site-packages of an "
        "Airflow, or wheels"
    )
    return PhaseContent(where, tuple(documents), tuple(rows.values()), tuple(problems))


def _pages(package: "ProviderPackage") -> "Iterator[SourceFile]":
    """Yield the description of a package, and a page for each module with the docstrings of its classes."""
    from counterpoint.cli.ingest.files import SourceFile

    if package.readme.strip():
        yield SourceFile(package.place, f"providers/{package.name}/README.rst", package.readme)
    by_module: dict[str, list[ProviderClass]] = {}
    for one in package.classes:
        by_module.setdefault(one.module, []).append(one)
    for module, classes in by_module.items():
        text = "\n\n".join((f"# {package.name}: {module}", *map(_section, classes)))
        yield SourceFile(package.place, f"providers/{package.name}/{module}.md", text)


def _section(one: "ProviderClass") -> str:
    parts = [f"## {one.name}", f"`from {one.module} import {one.name}`"]
    if one.parameters:
        parts.append(f"Parameters: {', '.join(one.parameters)}")
    return "\n\n".join((*parts, one.doc) if one.doc else parts)
