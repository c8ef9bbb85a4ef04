"""Generation of the contract files: `python -m counterpoint.proto.generate [--check] [FOLDER]`.

Writes `schemas/<type>.json` and `asyncapi.yaml` below the folder, by default `proto/` of this package. `--check` writes
nothing, names the differing files, and exits with 1.
"""

import argparse
import json
import sys
from pathlib import Path

import yaml

from counterpoint.proto import asyncapi, schemas
from counterpoint.proto.messages import Message

FOLDER = Path(__file__).parents[2]


def documents() -> dict[str, str]:
    """Return the text of every generated file by its path below the folder."""
    found = {f"schemas/{name}.json": _json(schemas.of(name)) for name in sorted(Message.register)}
    found["asyncapi.yaml"] = yaml.dump(
        asyncapi.document(), Dumper=_Plain, sort_keys=False, allow_unicode=True, width=120
    )
    return found


def differing(folder: Path) -> tuple[str, ...]:
    """Return the generated files that are missing, outdated or obsolete."""
    wanted = documents()
    outdated = {name for name, text in wanted.items() if not _holds(folder / name, text)}
    present = {path.relative_to(folder).as_posix() for path in folder.glob("schemas/*.json")}
    return tuple(sorted(outdated | (present - wanted.keys())))


def write(folder: Path) -> tuple[str, ...]:
    """Update the folder and return the changed files."""
    wanted = documents()
    changed = differing(folder)
    for name in changed:
        path = folder / name
        if name in wanted:
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(wanted[name], encoding="utf-8")
        else:
            path.unlink()
    return changed


def main(arguments: list[str]) -> int:
    """Run the command and return its exit code."""
    parser = argparse.ArgumentParser(prog="python -m counterpoint.proto.generate", description=__doc__)
    parser.add_argument("folder", type=Path, nargs="?", default=FOLDER)
    parser.add_argument("--check", action="store_true", help="write nothing, exit 1 when a file is not up to date")
    chosen = parser.parse_args(arguments)
    changed = differing(chosen.folder) if chosen.check else write(chosen.folder)
    for name in changed:
        print(f"{'differs' if chosen.check else 'wrote'}: {name}")
    return 1 if chosen.check and changed else 0


class _Plain(yaml.SafeDumper):
    """YAML without anchors, with long texts as blocks."""

    def ignore_aliases(self, data: object) -> bool:
        return True


def _text(dumper: yaml.SafeDumper, text: str) -> yaml.ScalarNode:
    return dumper.represent_scalar("tag:yaml.org,2002:str", text, style="|" if "\n" in text else None)


_Plain.add_representer(str, _text)


def _json(value: object) -> str:
    return json.dumps(value, indent=2, ensure_ascii=False) + "\n"


def _holds(path: Path, text: str) -> bool:
    return path.is_file() and path.read_text(encoding="utf-8") == text


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
