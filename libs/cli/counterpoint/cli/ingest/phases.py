"""The phases of a bootstrap and their content. Read-only."""

import sys
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

from counterpoint.cli.shipped import shipped_root

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


def collect(phase: str, options: PhaseOptions, folder: Path, environment: Mapping[str, str]) -> PhaseContent:
    """Collect the content of one of `PHASES`. Sources are named relative to `folder`."""
    match phase:
        case "own-docs":
            return _own()
        case "dags":
            home = environment.get("AIRFLOW_HOME")
            usual = (folder / "dags", *((Path(home) / "dags",) if home else ()))
            return _files(options.dags, usual, folder, "--dags FOLDER")
        case "docs":
            own = shipped_root()
            usual = tuple(path for path in (folder / "docs", folder / "README.md") if folder != own)
            return _files(options.docs, usual, folder, "--docs FOLDER")
        case _:
            return _providers(options)


def _own() -> PhaseContent:
    """Return the documentation of Counterpoint, named independently of the checkout's path."""
    from counterpoint.cli.ingest.files import SourceFile, walk

    root = shipped_root()
    found = list(walk([root / name for name in _OWN_PAGES], root))
    pages = tuple(
        replace(package, source=f"counterpoint/{package.source}")
        for package in found
        if isinstance(package, SourceFile) and package.path.suffix == ".md"
    )
    return PhaseContent(f"{root / 'docs'}", pages)


def _files(options: tuple[Path, ...], usual: Iterable[Path], folder: Path, option: str) -> PhaseContent:
    from counterpoint.cli.ingest.files import SourceFile, walk

    places = options or tuple(path for path in usual if path.exists())
    if not places:
        return PhaseContent(
            f"the usual places ({', '.join(map(str, usual))}), which do not exist; name others with {option}"
        )
    found = list(walk(places, folder))
    return PhaseContent(
        ", ".join(map(str, places)),
        tuple(package for package in found if isinstance(package, SourceFile)),
        problems=tuple(
            f"{package.path}: {package.reason}"
            for package in found
            if not isinstance(package, SourceFile) and package.failed
        ),
    )


def _providers(options: PhaseOptions) -> PhaseContent:
    from counterpoint.cli.ingest.packages import PackageError, ProviderPackage, installed_packages, packages_in
    from counterpoint.cli.ingest.provider_index import row

    def packages() -> Iterator["ProviderPackage | Exception"]:
        yield from installed_packages(options.providers)
        for folder in options.providers_dirs:
            found = list(packages_in(folder))
            yield from found
            if not found:
                yield LookupError(f"{folder} contains no provider package, neither a wheel nor an installed one")
        if not options.providers and not options.providers_dirs:
            for entry in dict.fromkeys(sys.path):
                if entry and Path(entry).is_dir():
                    yield from packages_in(Path(entry))

    documents: list[SourceFile] = []
    rows: dict[str, Provider] = {}
    problems: list[str] = []
    for package in packages():
        if not isinstance(package, ProviderPackage):
            problems.append(str(package))
        elif package.name not in rows:
            try:
                index_row, pages = row(package), list(_pages(package))
            except PackageError as error:
                problems.append(str(error))
            else:
                rows[package.name] = index_row
                documents += pages
    where = ", ".join((*options.providers, *map(str, options.providers_dirs))) or (
        "the packages installed in this environment; give --providers-dir FOLDER with the site-packages of an "
        "Airflow, or wheels"
    )
    return PhaseContent(where, tuple(documents), tuple(rows.values()), tuple(problems))


def _pages(package: "ProviderPackage") -> "Iterator[SourceFile]":
    """Yield the description of a package, and a page for each module with the docstrings of its classes."""
    from counterpoint.cli.ingest.files import SourceFile

    if package.readme.strip():
        yield SourceFile(package.path, f"providers/{package.name}/README.rst", package.readme)
    by_module: dict[str, list[ProviderClass]] = {}
    for class_ in package.classes:
        by_module.setdefault(class_.module, []).append(class_)
    for module, classes in by_module.items():
        text = "\n\n".join((f"# {package.name}: {module}", *map(_section, classes)))
        yield SourceFile(package.path, f"providers/{package.name}/{module}.md", text)


def _section(class_: "ProviderClass") -> str:
    parts = [f"## {class_.name}", f"`from {class_.module} import {class_.name}`"]
    if class_.parameters:
        parts.append(f"Parameters: {', '.join(class_.parameters)}")
    return "\n\n".join((*parts, class_.doc) if class_.doc else parts)
