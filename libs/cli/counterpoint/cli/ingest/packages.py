"""Provider packages on disk: wheels and installed packages. No code of a package is run.

Properties come from the metadata and, as a literal, from the function of the entry point; classes from the sources.
"""

import ast
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from email.message import Message
from functools import cached_property
from importlib.metadata import Distribution, PackageNotFoundError, distribution, distributions
from pathlib import Path
from typing import Any, Literal

from counterpoint.cli.errors import CommandError

ENTRY_POINTS = "apache_airflow_provider"
PREFIX = "apache-airflow-providers-"
SOURCE_LIMIT_BYTES = 4 * 1024 * 1024
Kind = Literal["operators", "sensors", "hooks", "transfers"]
KINDS: tuple[Kind, ...] = ("operators", "sensors", "hooks", "transfers")
_ENDINGS: dict[Kind, str] = {"operators": "Operator", "sensors": "Sensor", "hooks": "Hook", "transfers": "Operator"}


class PackageError(CommandError):
    """A package cannot be described without running it."""


@dataclass(frozen=True)
class ProviderClass:
    """A public operator, sensor or hook of a package, with its docstring."""

    kind: Kind
    module: str
    name: str
    bases: tuple[str, ...]
    parameters: tuple[str, ...]
    doc: str


@dataclass(frozen=True)
class ProviderPackage:
    """A distribution with a provider entry point. `path` is its wheel or folder."""

    distribution: Distribution = field(repr=False)
    path: Path

    @property
    def name(self) -> str:
        """Return the normalised name."""
        return str(self._metadata["Name"]).lower().replace("_", "-").replace(".", "-")

    @property
    def version(self) -> str:
        """Return the version."""
        return str(self._metadata["Version"])

    @property
    def readme(self) -> str:
        """Return the published description."""
        payload = self._metadata.get_payload()
        return str(self._metadata["Description"] or (payload if isinstance(payload, str) else ""))

    @cached_property
    def info(self) -> Mapping[str, Any]:
        """Return the literal that `get_provider_info` returns, without running it. Raises `PackageError`."""
        (point, *_) = _entry_points(self.distribution)
        module, _, function = point.value.partition(":")
        tree = self._tree(module)
        defined = [node for node in tree.body if isinstance(node, ast.FunctionDef) and node.name == function.strip()]
        returned = [node.value for made in defined for node in made.body if isinstance(node, ast.Return) and node.value]
        try:
            info = ast.literal_eval(returned[-1])
        except (IndexError, ValueError, TypeError, SyntaxError, RecursionError, MemoryError) as error:
            raise PackageError(f"{self.name}: {module} does not return a literal dictionary") from error
        if not isinstance(info, dict):
            raise PackageError(f"{self.name}: {module} does not return a dictionary")
        return info

    @cached_property
    def classes(self) -> tuple[ProviderClass, ...]:
        """Return the public classes, by kind, module and position. Raises `PackageError`."""
        found: dict[tuple[str, str], ProviderClass] = {}
        for kind in KINDS:
            for module in _modules(self.info, kind):
                for node in self._tree(module).body:
                    if isinstance(node, ast.ClassDef) and _public(node.name, kind):
                        found.setdefault((module, node.name), _class(kind, module, node))
        return tuple(found.values())

    @cached_property
    def _metadata(self) -> Message:
        from email import message_from_string

        return message_from_string(self.distribution.read_text("METADATA") or "")

    def _tree(self, module: str) -> ast.Module:
        path = module.replace(".", "/")
        for candidate in (f"{path}.py", f"{path}/__init__.py"):
            file = Path(str(self.distribution.locate_file(candidate))) if self.path.is_dir() else None
            source = self._in_wheel(candidate) if file is None else _in_folder(file)
            if source is not None:
                try:
                    return ast.parse(source)
                except (SyntaxError, ValueError, RecursionError, MemoryError) as error:
                    raise PackageError(f"{self.name}: {candidate} cannot be parsed: {error}") from error
        raise PackageError(f"{self.name}: {module} is not in the package")

    def _in_wheel(self, path: str) -> bytes | None:
        import zlib
        from zipfile import BadZipFile, ZipFile

        with ZipFile(self.path) as wheel:
            try:
                inside = wheel.getinfo(path)
            except KeyError:
                return None
            if inside.file_size > SOURCE_LIMIT_BYTES:
                raise PackageError(f"{self.name}: {path} is larger than {SOURCE_LIMIT_BYTES} bytes")
            try:
                return wheel.read(inside)
            except (BadZipFile, zlib.error, EOFError, RuntimeError) as error:
                raise PackageError(f"{self.name}: {path} cannot be unpacked: {error}") from error


def installed_packages(names: Iterable[str]) -> Iterator[ProviderPackage | PackageError]:
    """Return the installed packages of these names, with or without the usual prefix."""
    for name in names:
        for full in dict.fromkeys((name, f"{PREFIX}{name.removeprefix(PREFIX)}")):
            try:
                found = distribution(full)
            except (PackageNotFoundError, ValueError):
                continue
            if _entry_points(found):
                yield ProviderPackage(found, Path(str(found.locate_file(""))))
            else:
                yield PackageError(f"{full} is installed but is not a provider package")
            break
        else:
            full = f"{PREFIX}{name.removeprefix(PREFIX)}"
            yield PackageError(
                f"{full} is not installed here: `pip download --no-deps --dest FOLDER {full}`, then "
                "--providers-dir FOLDER; or give the site-packages that contain it with --providers-dir"
            )


def packages_in(folder: Path) -> Iterator[ProviderPackage | PackageError]:
    """Return the provider packages in a folder, of each the first version found. The path may also be a wheel."""
    from zipfile import BadZipFile

    wheels = [folder] if folder.is_file() else sorted(folder.glob("*.whl"), reverse=True)
    places = wheels if folder.is_file() else [*wheels, folder]
    seen: set[str] = set()
    for path in places:
        try:
            found = [one for one in distributions(path=[str(path)]) if _entry_points(one)]
        except (BadZipFile, OSError, UnicodeDecodeError) as error:
            yield PackageError(f"{path} cannot be read: {error}")
            continue
        if not found and path in wheels and path.name.startswith(PREFIX.replace("-", "_")):
            yield PackageError(f"{path} is not a wheel of a provider package")
        packages = [ProviderPackage(one, path) for one in found]
        for package in sorted(packages, key=lambda package: package.name):
            if package.name not in seen:
                seen.add(package.name)
                yield package


def _entry_points(found: Distribution) -> list[Any]:
    return [point for point in found.entry_points if point.group == ENTRY_POINTS]


def _modules(info: Mapping[str, Any], kind: Kind) -> list[str]:
    entries = info.get(kind) or ()
    if kind == "transfers":
        return list(dict.fromkeys(str(entry["python-module"]) for entry in entries))
    return list(dict.fromkeys(str(module) for entry in entries for module in entry.get("python-modules", ())))


def _public(name: str, kind: Kind) -> bool:
    return not name.startswith("_") and name.endswith(_ENDINGS[kind])


def _class(kind: Kind, module: str, node: ast.ClassDef) -> ProviderClass:
    made = next((each for each in node.body if isinstance(each, ast.FunctionDef) and each.name == "__init__"), None)
    arguments = [*made.args.args[1:], *made.args.kwonlyargs] if made else []
    return ProviderClass(
        kind=kind,
        module=module,
        name=node.name,
        bases=tuple(ast.unparse(base) for base in node.bases),
        parameters=tuple(argument.arg for argument in arguments),
        doc=ast.get_docstring(node) or "",
    )


def _in_folder(file: Path) -> bytes | None:
    try:
        if file.stat().st_size > SOURCE_LIMIT_BYTES:
            raise PackageError(f"{file} is larger than {SOURCE_LIMIT_BYTES} bytes")
        return file.read_bytes()
    except (FileNotFoundError, NotADirectoryError):
        return None
    except OSError as error:
        raise PackageError(f"{file}: {error.strerror}") from error
