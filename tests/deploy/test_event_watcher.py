"""The manifest of the event watcher is legal, and fits the chart and the image that it names."""

from typing import Any
from urllib.parse import urlsplit

import yaml
from deploy.compose import ROOT
from deploy.dockerfile import stages
from deploy.helm import documents, of_kind
from deploy.network import Place, allows
from deploy.schemas import NEWEST, OLDEST, problems

TEXT = (ROOT / "deploy" / "event-watcher.yaml").read_text()
PARTS: list[dict[str, Any]] = list(yaml.safe_load_all(TEXT))
(DEPLOYMENT,) = (part for part in PARTS if part["kind"] == "Deployment")
POD = DEPLOYMENT["spec"]["template"]["spec"]
(CONTAINER,) = POD["containers"]


def test_every_object_is_legal() -> None:
    assert [problem for part in PARTS for version in (OLDEST, NEWEST) for problem in problems(part, version)] == []


def test_it_runs_with_as_few_rights_as_a_service() -> None:
    (router,) = of_kind(documents("laptop"), "Deployment")["router"]["spec"]["template"]["spec"]["containers"]
    assert CONTAINER["securityContext"] == router["securityContext"]
    assert POD["securityContext"]["runAsNonRoot"] is True
    assert POD["securityContext"]["seccompProfile"] == {"type": "RuntimeDefault"}
    (user,) = stages()["client"].arguments("USER")
    assert user == f"{POD['securityContext']['runAsUser']}:{POD['securityContext']['runAsGroup']}"


def test_its_image_is_that_of_the_command() -> None:
    name, _, tag = CONTAINER["image"].partition(":")
    assert name == f"counterpoint-{stages()['client'].name}"
    assert tag == yaml.safe_load((ROOT / "deploy" / "chart" / "Chart.yaml").read_text())["appVersion"]


def test_it_reaches_the_router_of_the_chart_if_the_values_name_it_as_the_manifest_says() -> None:
    (url,) = (each["value"] for each in CONTAINER["env"] if each["name"] == "COUNTERPOINT_URL")
    host, port = urlsplit(url).hostname, urlsplit(url).port
    service = of_kind(documents("laptop"), "Service")["router"]
    assert host == f"{service['metadata']['name']}.{DEPLOYMENT['metadata']['namespace']}"
    assert port in {each["port"] for each in service["spec"]["ports"]}
    (line,) = (line for line in TEXT.splitlines() if "networkPolicy:" in line)
    clients = yaml.safe_load(line.removeprefix("#"))["networkPolicy"]["clients"]
    watcher = Place("watcher", "house", DEPLOYMENT["spec"]["template"]["metadata"]["labels"])
    router = Place("router", "house", service["spec"]["selector"])
    for values, wanted in (({}, False), ({"networkPolicy.clients": clients}, True)):
        policies = list(of_kind(documents("laptop", values), "NetworkPolicy").values())
        assert allows(policies, watcher, router, int(port or 0)) is wanted
