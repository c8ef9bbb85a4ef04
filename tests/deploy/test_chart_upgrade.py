"""An upgrade changes no field that Kubernetes refuses to change, and takes the values of the last release."""

import json
import shutil
from copy import deepcopy
from pathlib import Path
from typing import Any

import pytest
import yaml
from contract.pages import table
from deploy.compose import ROOT
from deploy.helm import CHART, EXAMPLES, Document, documents, helm
from deploy.test_chart_effects import EVERYTHING, leaves, otherwise
from flows.earlier_releases import earlier_releases, git

RELEASES = 2
HOOK, DELETED = "helm.sh/hook", "helm.sh/hook-delete-policy"
MUTABLE = {
    "StatefulSet": ("replicas", "template", "updateStrategy", "persistentVolumeClaimRetentionPolicy",
                    "minReadySeconds", "ordinals"),
    "Job": ("parallelism", "activeDeadlineSeconds", "backoffLimit", "suspend", "ttlSecondsAfterFinished"),
}  # fmt: skip
"""The fields of a specification that may change, of kinds in which all others may not."""
IMMUTABLE = {"Deployment": ("selector",), "Service": ("clusterIP", "clusterIPs")}
"""The fields that may not change, of other kinds."""
FLIPS: dict[str, dict[str, Any]] = {
    "certificates of the bus": {"nats.login": "certificate"},
    "certificates of cert-manager": {"nats.login": "certificate", "nats.certificatePrefix": "bus"},
    "an operator of the bus": {"nats.login": "creds"},
    "a CA of the bus": {"nats.ca.secret": "ca"},
    "a CA of the database": {"postgres.ca.secret": "ca"},
    "no cache": {"valkey.enabled": False},
    "standbys": {
        "memory.replicas": 3,
        "qdrant.enabled": True,
        "networkPolicy.engines.qdrant.peers": [{"podSelector": {}}],
    },
    "more routers": {"router.replicas": 3},
    "autoscaling": {"router.autoscaling.enabled": True, "autoscaling.by": "hpa"},
    "no index job": {"jobs.indexSchedule": ""},
    "no network policies": {"networkPolicy.enabled": False},
    "secrets from a vault": {
        "secrets.external": {"enabled": True, "store": {"name": "vault"}},
        "secrets.names": {"index": "", "migrate": ""},
    },
    "TLS": {"router.tls.secret": "tls", "lineage.tls.secret": "tls"},
    "labels": {"pod.labels": {"team": "data"}, "pod.spread": []},
    "another image": {"image.tag": "9.9.9"},
}
Fields = dict[tuple[str, str], Any]


def is_replaced(each: Document) -> bool:
    """Whether Helm deletes an object before it creates that of the next release."""
    return "before-hook-creation" in each["metadata"].get("annotations", {}).get(DELETED, "")


def immutable(found: list[Document]) -> Fields:
    """Return the immutable fields of each object, by kind and name."""
    fields: Fields = {}
    for each in found:
        kind, spec = each["kind"], each.get("spec", {})
        if is_replaced(each):
            continue
        if kind in MUTABLE:
            kept = {name: value for name, value in spec.items() if name not in MUTABLE[kind]}
        else:
            kept = {name: spec[name] for name in IMMUTABLE.get(kind, ()) if name in spec}
        fields[kind, each["metadata"]["name"]] = kept
    return fields


def refusals(before: list[Document], after: list[Document]) -> list[str]:
    """Return the changes of an upgrade that a cluster refuses, and its losses."""
    old, new = immutable(before), immutable(after)
    found = [f"{kind} {name}" for kind, name in old.keys() & new.keys() if old[kind, name] != new[kind, name]]
    # Volumes belong to a StatefulSet by its name.
    found += [f"{kind} {name} is gone" for kind, name in old.keys() - new.keys() if kind == "StatefulSet"]
    # Helm adopts no object of a hook that is still there, and a hook none of a release.
    hooks = {
        (each["kind"], each["metadata"]["name"]) for each in before if HOOK in each["metadata"].get("annotations", {})
    }
    left = [
        (each["kind"], each["metadata"]["name"])
        for each in before
        if "hook-succeeded" not in each["metadata"].get("annotations", {}).get(DELETED, "hook-succeeded")
    ]
    return found + [f"{kind} {name} was a hook" for kind, name in new if (kind, name) in hooks and (kind, name) in left]


def chart_of(commit: str, folder: Path) -> Path | None:
    """The chart of a commit; None if it has none."""
    if git("archive", "-o", str(folder.with_suffix(".zip")), commit, "deploy/chart") is None:
        return None
    shutil.unpack_archive(folder.with_suffix(".zip"), folder)
    return folder / "deploy" / "chart"


def rendered(chart: Path, values: Path) -> list[Document]:
    """The objects of a chart with a file of values."""
    arguments = ("template", "counterpoint", chart, "--namespace", "house", "--kube-version", "1.31.0")
    return [each for each in yaml.load_all(helm(*arguments, "--values", values).stdout, yaml.CSafeLoader) if each]


def test_values_of_the_last_releases_are_accepted_and_change_nothing_immutable(tmp_path: Path) -> None:
    compared = 0
    for number, commit in enumerate(earlier_releases(RELEASES)):
        if (older := chart_of(commit, tmp_path / str(number))) is None:
            continue
        for values in sorted((older / "examples").glob("*.yaml")):
            before, after = rendered(older, values), rendered(CHART, values)
            assert refusals(before, after) == [], (commit, values.stem)
            assert refusals(after, before) == [], f"rollback to {commit} with {values.stem}"
            compared += 1
    if not compared:
        pytest.skip("no earlier release has a chart")


@pytest.mark.parametrize("example", EXAMPLES)
def test_a_change_of_values_and_its_rollback_change_nothing_immutable(example: str) -> None:
    before = documents(example)
    for what, values in FLIPS.items():
        needed = {"nats.accountId": "A" + "B" * 55} if values.get("nats.login") == "creds" else {}
        after = documents(example, values | needed)
        assert refusals(before, after) == refusals(after, before) == [], what


def test_each_change_of_values_changes_something() -> None:
    for what, values in FLIPS.items():
        needed = {"nats.accountId": "A" + "B" * 55} if values.get("nats.login") == "creds" else {}
        assert documents("laptop", values | needed) != documents("laptop"), what


@pytest.mark.slow
def test_only_the_values_that_the_page_names_change_immutable_fields() -> None:
    found = set()
    before = documents("production", EVERYTHING)
    present = dict(leaves(yaml.safe_load((CHART / "values.yaml").read_text())))
    for name, default in present.items():
        try:
            after = documents("production", EVERYTHING | {name: otherwise(name, default)})
        except AssertionError:
            continue
        if refusals(before, after):
            found.add(name)
    page = (ROOT / "docs" / "kubernetes.md").read_text()
    assert found == {name for row in table(page, "## Upgrade") for name in row[0].split(", ")}


@pytest.mark.parametrize(
    ("kind", "path", "value"),
    [
        ("Deployment", ("selector", "matchLabels", "tier"), "house"),
        ("StatefulSet", ("podManagementPolicy",), "OrderedReady"),
        ("StatefulSet", ("serviceName",), "other"),
        ("Service", ("clusterIP",), "None"),
        ("StatefulSet", ("volumeClaimTemplates",), []),
    ],
)
def test_a_change_that_kubernetes_refuses_is_noticed(kind: str, path: tuple[str, ...], value: Any) -> None:
    before = documents("laptop")
    after = deepcopy(before)
    changed = next(each for each in after if each["kind"] == kind)
    *places, last = path
    spec = changed["spec"]
    for place in places:
        spec = spec[place]
    spec[last] = value
    assert refusals(before, after) == [f"{kind} {changed['metadata']['name']}"]


def test_a_renamed_statefulset_and_a_job_without_replacement_are_noticed() -> None:
    before = documents("laptop")
    after = json.loads(json.dumps(before).replace('"counterpoint-memory"', '"counterpoint-store"'))
    assert "StatefulSet counterpoint-memory is gone" in refusals(before, after)
    kept, changed = deepcopy(before), deepcopy(before)
    for each in (*kept, *changed):
        if each["kind"] == "Job":
            del each["metadata"]["annotations"]
    next(each for each in changed if each["kind"] == "Job")["spec"]["template"]["spec"]["containers"][0]["image"] = "x"
    assert refusals(kept, changed) == ["Job counterpoint-migrate"]
