"""Address of Counterpoint for a command: options, then the environment, then the nearest data folder."""

import json
from pathlib import Path

import pytest
from typer.testing import CliRunner

from counterpoint.cli.address import Address, AddressSource
from counterpoint.cli.errors import NotReachable, UsageError
from counterpoint.cli.main import app
from counterpoint.local.listen_addresses import ListenAddresses


def stack_in(folder: Path, name: str) -> Path:
    folder.mkdir(parents=True)
    left = {"http": f"http://{name}", "token": name, "nats": "", "users": {}, "lineage": ""}
    (folder / "endpoints.json").write_text(json.dumps(left | {"services": {}, "engines": {}}))
    return folder


def place(cwd: Path, environ: dict[str, str] | None = None, **options: object) -> AddressSource:
    given = {"url": None, "token": None, "data_dir": None} | options
    return AddressSource(**given, environ=environ or {}, cwd=cwd)  # type: ignore[arg-type]


def test_each_source_comes_before_the_next(tmp_path: Path) -> None:
    stack_in(tmp_path / ".counterpoint", "nearest")
    environment_folder = stack_in(tmp_path / "environment", "environment-folder")
    option_folder = stack_in(tmp_path / "option", "option-folder")
    below = tmp_path / "a" / "b"
    below.mkdir(parents=True)
    environ = {"COUNTERPOINT_DATA_DIR": str(environment_folder)}
    urls = environ | {"COUNTERPOINT_URL": "http://environment", "COUNTERPOINT_TOKEN": "environment"}

    assert place(below).address() == Address("http://nearest", "nearest")
    assert place(below, environ).address() == Address("http://environment-folder", "environment-folder")
    assert place(below, urls).address() == Address("http://environment", "environment")
    assert place(below, urls, data_dir=option_folder).address() == Address("http://option-folder", "option-folder")
    assert place(below, urls, url="http://option/", token="o").address() == Address("http://option", "o")
    assert place(below, urls, url="http://option").address() == Address("http://option", "environment")
    assert place(below, data_dir=option_folder, token="mine").address() == Address("http://option-folder", "mine")


def test_the_data_folder_of_a_new_stack_is_the_nearest_or_here(tmp_path: Path) -> None:
    below = tmp_path / "a"
    below.mkdir()
    assert place(below).folder() == below / ".counterpoint"
    (tmp_path / ".counterpoint").mkdir()
    assert place(below).folder() == tmp_path / ".counterpoint"


def test_contradictions_and_missing_tokens_are_misuse(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="not both"):
        place(tmp_path, url="http://x", token="t", data_dir=tmp_path).address()
    with pytest.raises(UsageError, match="token"):
        place(tmp_path, url="http://x").address()
    with pytest.raises(UsageError, match="begins with http:// or https://, not x:8484"):
        place(tmp_path, url="x:8484", token="t").address()


def test_a_folder_where_nothing_runs_is_not_reachable(tmp_path: Path) -> None:
    with pytest.raises(NotReachable, match="counterpoint up"):
        place(tmp_path).address()


def test_up_listens_where_its_options_say(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    started: list[ListenAddresses] = []

    def up(data_dir: Path, *, addresses: ListenAddresses, **_: object) -> None:
        started.append(addresses)
        stack_in(data_dir, "somewhere")

    monkeypatch.setattr("counterpoint.local.up.up", up)
    monkeypatch.setenv("COUNTERPOINT_MODELL", "openai/x")
    options = ["--host", "0.0.0.0", "--http-port", "8485", "--lineage-port", "5000", "--detach"]
    shown = CliRunner().invoke(app, ["up", *options, "--data-dir", str(tmp_path / "data")])
    assert shown.exit_code == 0, shown.output
    assert "warning: other machines can reach this one on 0.0.0.0" in shown.stderr
    assert "warning: nothing reads COUNTERPOINT_MODELL: set COUNTERPOINT_MODEL if that is meant" in shown.stderr
    ((at,),) = (started,)
    assert (at.http_host, at.http_port, at.lineage_host, at.lineage_port) == ("0.0.0.0", 8485, "0.0.0.0", 5000)
