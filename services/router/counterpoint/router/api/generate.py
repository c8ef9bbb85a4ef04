"""Generation of the OpenAPI document: `python -m counterpoint.router.api.generate [--check] [FILE]`.

Writes `proto/openapi.json`. With `--check` nothing is written, and the exit code is 1 when the file differs.
"""

import argparse
import json
import sys
from pathlib import Path

from counterpoint.router.api.application import HttpApi

FILE = Path(__file__).parents[5] / "proto" / "openapi.json"


def text() -> str:
    """Return the document of the router as JSON text."""
    return json.dumps(HttpApi().openapi(), indent=2, ensure_ascii=False) + "\n"


def main(arguments: list[str]) -> int:
    """Run the command; return its exit code."""
    parser = argparse.ArgumentParser(prog="python -m counterpoint.router.api.generate", description=__doc__)
    parser.add_argument("file", type=Path, nargs="?", default=FILE)
    parser.add_argument("--check", action="store_true", help="write nothing, exit 1 when the file is not up to date")
    options = parser.parse_args(arguments)
    document_text = text()
    if options.file.is_file() and options.file.read_text(encoding="utf-8") == document_text:
        return 0
    if not options.check:
        options.file.write_text(document_text, encoding="utf-8")
    print(f"{'differs' if options.check else 'wrote'}: {options.file.name}")
    return 1 if options.check else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
