"""The phases of a bootstrap: what each finds to hand over. Reads, sends nothing."""

import sys
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from counterpoint.cli.files import Readable
    from counterpoint.cli.packages import Class, Package
    from counterpoint.proto.providers import Provider

OWN, DAGS, PROVIDERS, DOCS = "own-docs", "dags", "providers", "docs"
PHASES = (OWN, DAGS, PROVIDERS, DOCS)
_OWN_PAGES = ("README.md", "docs")


@dataclass(frozen=True)
class Given:
    """Where to look, as it was said on the command line; where nothing was said, the usual places are tried."""

    dags: tuple[Path, ...] = ()
    docs: tuple[Path, ...] = ()
    providers: tuple[str, ...] = ()
    providers_dirs: tuple[Path, ...] = ()


@dataclass(frozen=True)
class Found:
    """What a phase has to hand over. `problems` could not be read; `where` says in words what was looked through."""

    where: str
    documents: "tuple[Readable, ...]" = ()
    providers: "tuple[Provider, ...]" = ()
    problems: tuple[str, ...] = ()

    @property
    def empty(self) -> bool:
        """Whether there is nothing to hand over, and nothing went wrong."""
        return not (self.documents or self.providers or self.problems)


def look(phase: str, given: Given, here: Path, environment: Mapping[str, str]) -> Found:
    """What one of `PHASES` finds. `here` is the folder that sources are named from."""
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


def _own() -> Found:
    """Counterpoint's own documents, under names of their own wherever the checkout lies."""
    from counterpoint.cli.files import Readable, walk

    root = _checkout()
    if root is None:
        return Found("Counterpoint's own documents, which lie in its checkout: this command is not run from one")
    found = list(walk([root / name for name in _OWN_PAGES], root))
    pages = tuple(
        replace(one, source=f"counterpoint/{one.source}")
        for one in found
        if isinstance(one, Readable) and one.path.suffix == ".md"
    )
    return Found(f"{root / 'docs'}", pages)


def _checkout() -> Path | None:
    return next((up for up in Path(__file__).resolve().parents if (up / "docs" / "architecture.md").is_file()), None)


def _files(given: tuple[Path, ...], usual: Iterable[Path], here: Path, option: str) -> Found:
    from counterpoint.cli.files import Readable, walk

    places = given or tuple(path for path in usual if path.exists())
    if not places:
        return Found(f"the usual places ({', '.join(map(str, usual))}), which are not there; {option} names others")
    found = list(walk(places, here))
    return Found(
        ", ".join(map(str, places)),
        tuple(one for one in found if isinstance(one, Readable)),
        problems=tuple(f"{one.path}: {one.reason}" for one in found if not isinstance(one, Readable) and one.failed),
    )


def _providers(given: Given) -> Found:
    from counterpoint.cli.packages import Package, Unreadable, installed, lying_in
    from counterpoint.cli.provider_index import row

    def everywhere() -> Iterator["Package | Exception"]:
        yield from installed(given.providers)
        for folder in given.providers_dirs:
            packages = list(lying_in(folder))
            yield from packages
            if not packages:
                yield LookupError(f"{folder} holds no provider package, neither as a wheel nor installed")
        if not given.providers and not given.providers_dirs:
            for entry in dict.fromkeys(sys.path):
                if entry and Path(entry).is_dir():
                    yield from lying_in(Path(entry))

    documents: list[Readable] = []
    rows: dict[str, Provider] = {}
    problems: list[str] = []
    for one in everywhere():
        if not isinstance(one, Package):
            problems.append(str(one))
        elif one.name not in rows:
            try:
                made, pages = row(one), list(_pages(one))
            except Unreadable as error:
                problems.append(str(error))
            else:
                rows[one.name] = made
                documents += pages
    where = ", ".join((*given.providers, *map(str, given.providers_dirs))) or (
        "the packages that are installed beside this command; --providers-dir FOLDER names the site-packages of an "
        "Airflow, or wheels"
    )
    return Found(where, tuple(documents), tuple(rows.values()), tuple(problems))


def _pages(package: "Package") -> "Iterator[Readable]":
    """What a package says of itself: its description, and a page for each module with what its classes say."""
    from counterpoint.cli.files import Readable

    if package.readme.strip():
        yield Readable(package.place, f"providers/{package.name}/README.rst", package.readme)
    by_module: dict[str, list[Class]] = {}
    for one in package.classes:
        by_module.setdefault(one.module, []).append(one)
    for module, classes in by_module.items():
        text = "\n\n".join((f"# {package.name}: {module}", *map(_section, classes)))
        yield Readable(package.place, f"providers/{package.name}/{module}.md", text)


def _section(one: "Class") -> str:
    parts = [f"## {one.name}", f"`from {one.module} import {one.name}`"]
    if one.parameters:
        parts.append(f"Parameters: {', '.join(one.parameters)}")
    return "\n\n".join((*parts, one.doc) if one.doc else parts)
