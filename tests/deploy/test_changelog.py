"""The changelog is what the commits say."""

from types import ModuleType

import pytest
from contract.product import ROOT
from scripts import load_script

HISTORY = [
    ("2026-03-02", "HEAD -> main", "memory: keep a lease for two seconds"),
    ("2026-03-01", "", "tests: wait for the lease"),
    ("2026-03-01", "", "fixup! memory: keep"),
    ("2026-02-01", "tag: v0.2.0", "cli: print the version"),
    ("2026-01-01", "tag: v0.1.0, origin/main", "cli, router: add tasks"),
]


@pytest.fixture(scope="module")
def changelog() -> ModuleType:
    return load_script(ROOT / "deploy" / "changelog.py")


def test_commits_are_grouped_by_release_and_scope(changelog: ModuleType) -> None:
    assert changelog.markdown(changelog.releases(HISTORY, "0.3.0")) == (
        "# Changelog\n\n"
        "## 0.3.0 (not released)\n\n### memory\n\n- keep a lease for two seconds\n\n"
        "## 0.2.0 (2026-02-01)\n\n### cli\n\n- print the version\n\n"
        "## 0.1.0 (2026-01-01)\n\n### cli, router\n\n- add tasks\n"
    )


def test_a_checkout_has_one(changelog: ModuleType) -> None:
    assert changelog.changelog().startswith("# Changelog\n\n## 0.")
