"""Write the bill of materials of each image, CycloneDX 1.5 from the lock file: `python deploy/sbom.py FOLDER`.

A component has the hashes of all its distributions. One with the property `uv:package:marker` is only in an image whose
Python and processor the marker describes.
"""

import argparse
import shlex
import subprocess
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
UV = ROOT / ".tools" / "bin" / "uv"
DOCKERFILE = ROOT / "deploy" / "docker" / "Dockerfile"
IMAGES = {
    "client": "counterpoint-cli",
    **{name: f"counterpoint-{name}" for name in ("router", "manager", "developer", "memory", "lineage")},
}
"""The member of the workspace that an image installs, by the name of the image."""
_UNINSTALL = "uv pip uninstall --python /app/.venv"


def uninstalled() -> list[str]:
    """Return the packages that the build of memory's image removes again."""
    text = DOCKERFILE.read_text().replace("\\\n", " ")
    return shlex.split(text.partition(_UNINSTALL)[2].partition("&&")[0])


def write(folder: Path) -> list[Path]:
    """Write one file for each image and return the paths."""
    folder.mkdir(parents=True, exist_ok=True)
    written = []
    for image, package in IMAGES.items():
        path = folder / f"{image}.cdx.json"
        pruned = [word for name in uninstalled() for word in ("--prune", name)] if image == "memory" else []
        export = ["export", "--quiet", "--locked", "--no-dev", "--preview-features", "sbom-export"]
        selected = ["--format", "cyclonedx1.5", "--package", package, *pruned, "--output-file", str(path.resolve())]
        subprocess.run([UV, *export, *selected], cwd=ROOT, stdout=subprocess.DEVNULL, check=True)
        written.append(path)
    return written


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("folder", type=Path)
    for file in write(parser.parse_args().folder):
        print(file)
