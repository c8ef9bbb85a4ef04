"""Provider packages are read and never run: what they say of themselves, their classes, and the index made of them."""

import json
import subprocess
import sys
from pathlib import Path
from zipfile import ZipFile

import pytest

from counterpoint.cli.ingest.packages import PackageError, ProviderPackage, installed_packages, packages_in
from counterpoint.cli.ingest.provider_index import drop_shared_names, names, row
from counterpoint.proto.providers import Provider

INFO = {
    "package-name": "apache-airflow-providers-acme-ledger",
    "name": "Acme Ledger",
    "integrations": [
        {"integration-name": "Acme Ledger", "tags": ["service"]},
        {"integration-name": "Amazon Simple Ledger Service (SLS9)", "tags": ["aws"]},
        {"integration-name": "AWS Batch", "tags": ["aws"]},
        {"integration-name": "AWS Step Functions", "tags": ["aws"]},
    ],
    "operators": [{"integration-name": "Acme Ledger", "python-modules": ["acme.operators.ledger"]}],
    "hooks": [{"integration-name": "Acme Ledger", "python-modules": ["acme.hooks.ledger"]}],
    "transfers": [{"python-module": "acme.transfers.ledger_to_s3"}],
    "connection-types": [{"connection-type": "acme_ledger", "hook-class-name": "acme.hooks.ledger.LedgerHook"}],
}
SOURCES = {
    "acme/__init__.py": "raise SystemExit('a package was run')",
    "acme/info.py": f"raise SystemExit('a package was run')\n\ndef get_provider_info():\n    return {INFO!r}\n",
    "acme/operators/ledger.py": (
        "import nowhere\n\nclass _HiddenOperator(nowhere.Base): ...\n\n"
        "class LedgerOperator(nowhere.Base):\n"
        '    """Books what is in a file.\n\n    :param path: The file.\n    """\n\n'
        "    def __init__(self, *, path, conn_id='acme'):\n        self.path = path\n\nclass Other: ...\n"
    ),
    "acme/hooks/ledger.py": 'class LedgerHook:\n    """Speaks to the ledger."""\n',
    "acme/transfers/ledger_to_s3.py": "class LedgerToS3Operator:\n    pass\n",
}
METADATA = (
    "Metadata-Version: 2.4\nName: apache-airflow-providers-acme-ledger\nVersion: {}\n\nThe provider of the ledger.\n"
)


def wheel(folder: Path, version: str = "1.2.0", sources: dict[str, str] = SOURCES) -> Path:
    """A wheel of the one package of these tests."""
    path = folder / f"apache_airflow_providers_acme_ledger-{version}-py3-none-any.whl"
    about = f"apache_airflow_providers_acme_ledger-{version}.dist-info"
    with ZipFile(path, "w") as made:
        for name, text in sources.items():
            made.writestr(name, text)
        made.writestr(f"{about}/METADATA", METADATA.format(version))
        made.writestr(
            f"{about}/entry_points.txt", "[apache_airflow_provider]\nprovider_info=acme.info:get_provider_info\n"
        )
    return path


def only(place: Path) -> ProviderPackage:
    (found,) = packages_in(place)
    assert isinstance(found, ProviderPackage), found
    return found


@pytest.mark.parametrize("unpacked", [False, True])
def test_a_package_is_read_from_its_wheel_and_where_it_is_installed_and_nothing_of_it_runs(
    tmp_path: Path, unpacked: bool
) -> None:
    place = wheel(tmp_path)
    if unpacked:
        with ZipFile(place) as made:
            made.extractall(tmp_path / "site")
        place = tmp_path / "site"
    found = only(place)
    assert (found.name, found.version) == ("apache-airflow-providers-acme-ledger", "1.2.0")
    assert "provider of the ledger" in found.readme
    made_row = row(found)
    assert made_row.operators == ("LedgerOperator", "LedgerToS3Operator")
    assert (made_row.hooks, made_row.connection_types) == (("LedgerHook",), ("acme_ledger",))
    (operator,) = (one for one in found.classes if one.name == "LedgerOperator")
    assert operator.parameters == ("path", "conn_id")
    assert operator.doc.startswith("Books what is in a file.")


def test_names_in_prose_are_told_from_words_that_mean_something_else() -> None:
    aliases, terms = names("apache-airflow-providers-acme-ledger", INFO)
    assert {"Amazon Simple Ledger Service", "SLS9", "AWS Batch", "AWS Step Functions"} <= set(aliases)
    assert {"Batch", "Step Functions", "Simple Ledger Service"} <= set(terms)
    protocol = {"name": "Ledger Protocol (LEP)", "integrations": [{"integration-name": "x", "tags": ["protocol"]}]}
    assert "LEP" in names("apache-airflow-providers-lep", protocol)[1]


def test_an_alias_claimed_twice_is_dropped() -> None:
    ledger = Provider(name="Ledger", package="apache-airflow-providers-ledger")
    other = Provider(name="Other", aliases=("Ledger", "Book"), package="apache-airflow-providers-other")
    third = Provider(name="Third", aliases=("book",), package="apache-airflow-providers-third")
    kept, dropped = drop_shared_names([ledger, other, third])
    assert dropped == ["book", "ledger"]
    assert [(each.name, each.aliases) for each in kept] == [("Ledger", ()), ("Other", ()), ("Third", ())]


@pytest.mark.parametrize(
    ("sources", "problem"),
    [
        ({"acme/info.py": "def get_provider_info():\n    return made()\n"}, "literal"),
        ({"acme/info.py": "def get_provider_info(:\n"}, "parsed"),
        ({}, "not in the package"),
        ({"acme/info.py": "def get_provider_info():\n    return []\n"}, "not return a dictionary"),
        ({"acme/info.py": f"def get_provider_info():\n    return {INFO!r}\n"}, "acme.operators.ledger is not"),
    ],
)
def test_a_package_that_cannot_be_read_says_why(tmp_path: Path, sources: dict[str, str], problem: str) -> None:
    with pytest.raises(PackageError, match=problem):
        row(only(wheel(tmp_path, sources=sources)))


@pytest.mark.parametrize("entries", [["text"], [None], 5, [{"python-modules": 5}]])
def test_a_package_that_says_something_else_than_others_is_named(tmp_path: Path, entries: object) -> None:
    info = f"def get_provider_info():\n    return {INFO | {'operators': entries}!r}\n"
    with pytest.raises(PackageError, match="unexpected form"):
        row(only(wheel(tmp_path, sources=SOURCES | {"acme/info.py": info})))


@pytest.mark.parametrize("said", ["{[]: 1}", "-" * 5000 + "1"])
def test_a_provider_info_that_cannot_be_evaluated_is_an_error(tmp_path: Path, said: str) -> None:
    info = f"def get_provider_info():\n    return {said}\n"
    with pytest.raises(PackageError):
        row(only(wheel(tmp_path, sources=SOURCES | {"acme/info.py": info})))


def test_a_wheel_that_is_damaged_is_named(tmp_path: Path) -> None:
    place = wheel(tmp_path)
    place.write_bytes(place.read_bytes().replace(b"import nowhere", b"import NOWHERE"))
    with pytest.raises(PackageError, match="cannot be unpacked: Bad CRC"):
        row(only(place))


def test_a_broken_package_is_named_and_the_others_are_read(tmp_path: Path) -> None:
    (tmp_path / "apache_airflow_providers_broken-1.0-py3-none-any.whl").write_bytes(b"no wheel")
    wheel(tmp_path, "1.2.0")
    found = list(packages_in(tmp_path))
    assert [type(one).__name__ for one in found] == ["PackageError", "ProviderPackage"]
    (missing,) = installed_packages(["nobody-has-this"])
    assert isinstance(missing, PackageError)
    assert "pip download --no-deps" in str(missing)
    (no_provider,) = installed_packages(["pydantic"])
    assert "not a provider package" in str(no_provider)


def test_the_index_is_made_by_one_command_and_keeps_rows_by_hand(tmp_path: Path) -> None:
    wheel(tmp_path)
    into = tmp_path / "index.json"
    by_hand = [
        {"name": "By Hand", "package": "apache-airflow-providers-by-hand"},
        {"name": "Old", "package": "apache-airflow-providers-acme-ledger"},
    ]
    into.write_text(json.dumps({"rows": by_hand}))
    command = [sys.executable, "-m", "counterpoint.cli.ingest.provider_index", str(tmp_path), "--into", str(into)]
    subprocess.run(command, check=True, capture_output=True, timeout=60)
    first = into.read_text()
    index = json.loads(first)
    assert [each["name"] for each in index["rows"]] == ["Acme Ledger", "By Hand"]
    (source,) = index["made_from"]
    assert (source["package"], source["version"]) == ("apache-airflow-providers-acme-ledger", "1.2.0")
    assert len(source["sha256"]) == 64
    subprocess.run(command, check=True, capture_output=True, timeout=60)
    assert into.read_text() == first
