"""No file of the repository names a private place: a machine, or a registry of packages."""

import re
import subprocess
from pathlib import Path

from contract.pages import ROOT


def _tree() -> list[Path]:
    told = subprocess.run(
        ["git", "ls-files", "--cached", "--others", "--exclude-standard"],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=True,
    )
    return [path for name in told.stdout.splitlines() if (path := ROOT / name).is_file()]


def _text(path: Path) -> str:
    return path.read_bytes().decode(errors="replace")


def test_no_file_names_a_place_on_the_machine_it_was_written_on() -> None:
    place = re.compile(
        "|".join(
            [rf"{re.escape(str(where))}(?!\w)" for where in (ROOT, Path.home())]
            + [r"(?<![\w.$}~-])/(?:root|tmp|work|workspace|builds)/\w"]
        )
    )
    data = (ROOT / "tests" / "data", ROOT / "examples" / "events")
    for path in _tree():
        if not any(path.is_relative_to(folder) for folder in data):
            found = place.search(_text(path))
            assert found is None, f"{path.relative_to(ROOT)}: {found[0]}"


def test_packages_come_from_the_public_registries_alone() -> None:
    hosts = {"uv.lock": {"pypi.org", "files.pythonhosted.org"}, "package-lock.json": {"registry.npmjs.org"}}
    seen = set()
    for path in _tree():
        assert path.name not in (".npmrc", "pip.conf", "uv.toml")
        assert not path.name.startswith("requirements")
        if path.name in hosts:
            seen.add(path.name)
            pattern = r'(?:url|registry|resolved)"? ?[=:] "https?://([^/"]+)'
            assert set(re.findall(pattern, _text(path))) <= hosts[path.name]
        if path.name == "pyproject.toml":
            assert "index" not in re.findall(r"^\[+tool\.uv\.(\w+)", _text(path), re.MULTILINE)
    assert seen == set(hosts)
