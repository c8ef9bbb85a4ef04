"""The commands of docs/kubernetes.md are legal; they are not run on a cluster."""

from pathlib import Path

import pytest
import yaml
from contract.pages import commands, table
from deploy.compose import ROOT
from deploy.helm import CHART, EXAMPLES, Document, documents, helm
from deploy.test_kubernetes_engines import FOLDER

PAGE = (ROOT / "docs" / "kubernetes.md").read_text()
COMMANDS = commands(PAGE, run=False)
KUBECTL = {"create", "apply", "wait", "rollout", "logs", "delete"}


def test_helm_takes_the_arguments_of_the_page(tmp_path: Path) -> None:
    taken = 0
    for words in COMMANDS:
        if words[:2] in (("helm", "install"), ("helm", "upgrade")) and "deploy/chart" in words:
            values = {"values.yaml": str(CHART / "examples" / "laptop.yaml"), "deploy/chart": str(CHART)}
            arguments = [values.get(word, word) for word in words[1:]]
            if arguments[0] == "upgrade":
                arguments[:1] = ["install"]
            told = helm(*arguments, "--dry-run=client")
            assert "registry.example.com/counterpoint-router:0.1.0" in told.stdout
            taken += 1
    assert taken == 2


def test_files_of_the_page_exist_and_are_all_there() -> None:
    words = {word for command in COMMANDS for word in command if word.startswith("deploy/")}
    assert all((ROOT / word).exists() for word in words)
    named = {word for word in PAGE.replace("`", " ").split() if word.startswith("deploy/kubernetes/")}
    assert {Path(word).name for word in named} - {"kubernetes"} == {path.name for path in FOLDER.iterdir()}
    assert {row[0] for row in table(PAGE, "## Install")} == {f"{example}.yaml" for example in EXAMPLES}


def object_names(found: list[Document]) -> set[str]:
    """The objects of a rendering as kubectl names them."""
    return {f"{each['kind'].lower()}/{each['metadata']['name']}" for each in found}


def test_objects_of_the_page_exist() -> None:
    cluster = yaml.safe_load((FOLDER / "postgres.yaml").read_text())["metadata"]["name"]
    objects = object_names(documents("laptop")) | {f"cluster/{cluster}"}
    named = []
    for words in COMMANDS:
        if words[0] != "kubectl":
            continue
        assert words[1] in KUBECTL
        named += [
            word.removeprefix("--from=") for word in words if "/" in word and not word.startswith(("deploy/", "app."))
        ]
    assert named
    assert set(named) <= objects


def test_the_table_of_values_is_that_of_the_chart() -> None:
    rows = [name for row in table(PAGE, "## Values") for name in row[0].split(", ")]
    assert sorted(rows) == sorted(yaml.safe_load((CHART / "values.yaml").read_text()))


def test_the_table_of_the_network_is_that_of_the_chart() -> None:
    rows = {name for row in table(PAGE, "## Network") for name in row[0].split(", ")}
    values = yaml.safe_load((CHART / "values.yaml").read_text())["networkPolicy"]
    places = {f"{group}.{name}" for group in ("engines", "outside") for name in values[group]}
    assert rows == places | {"clients", "metrics"}


@pytest.mark.parametrize("name", sorted(path.name for path in Path(__file__).parent.glob("test_*.py")))
def test_the_tests_of_the_chart_are_listed(name: str) -> None:
    listed = [row[0] for row in table(PAGE, "## What is tested")]
    assert (name in listed) == name.startswith(("test_chart", "test_kubernetes", "test_nats_certificates", "test_job"))
