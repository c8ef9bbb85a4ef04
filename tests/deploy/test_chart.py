"""The chart renders legal objects that run with as few rights as they need."""

import json
import shutil
import tomllib
from pathlib import Path
from types import ModuleType

import pytest
import yaml
from deploy.compose import ROOT
from deploy.helm import CHART, EXAMPLES, documents, helm, of_kind, pods, rendering
from deploy.schemas import NEWEST, OLDEST, problems
from scripts import load_script

from counterpoint.bus.first_connection import REFUSED
from counterpoint.bus.nsc import account_name
from counterpoint.bus.streams import consumer_specs
from counterpoint.guard.policy import policy
from counterpoint.local.service import SERVICES

GOLDEN = Path(__file__).with_name("chart")
JOBS = ("migrate", "provision", "index")
examples = pytest.mark.parametrize("example", EXAMPLES)


def generator() -> ModuleType:
    """`deploy/chart/generate.py`."""
    return load_script(CHART / "generate.py")


def test_its_generated_parts_are_those_of_the_policy_and_the_settings() -> None:
    made = generator().documents()
    assert {path: path.read_text() for path in made} == made


def test_its_version_is_that_of_the_product() -> None:
    chart = yaml.safe_load((CHART / "Chart.yaml").read_text())
    product = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    assert chart["appVersion"] == chart["version"] == product["version"]
    assert chart["kubeVersion"] == f">={OLDEST}-0"


@examples
def test_helm_finds_nothing_wrong(example: str) -> None:
    helm("lint", "--strict", CHART, "--values", CHART / "examples" / f"{example}.yaml")


@examples
def test_the_rendering_is_the_golden_one(example: str, pytestconfig: pytest.Config) -> None:
    golden = GOLDEN / f"{example}.yaml"
    text = rendering(example).stdout
    if pytestconfig.getoption("--update"):
        golden.parent.mkdir(exist_ok=True)
        golden.write_text(text)
    assert golden.read_text() == text, "pytest tests/deploy/test_chart.py --update"


@examples
@pytest.mark.parametrize("version", [OLDEST, NEWEST])
def test_every_object_is_legal(example: str, version: str) -> None:
    assert [problem for each in documents(example) for problem in problems(each, version)] == []


@pytest.mark.parametrize(("example", "kind"), [("laptop", "Deployment"), ("production", "ScaledObject")])
def test_a_field_that_does_not_exist_is_noticed(example: str, kind: str) -> None:
    each = of_kind(documents(example), kind)["router"]
    (problem,) = problems(each | {"spec": each["spec"] | {"replica": 2}})
    assert "'replica'" in problem


@examples
def test_names_are_unique_and_references_lead_somewhere(example: str) -> None:
    found = documents(example)
    names = [(each["kind"], each["metadata"]["name"]) for each in found]
    assert len(set(names)) == len(names)
    assert {each["metadata"]["namespace"] for each in found} == {"house"}
    for component, template in pods(found).items():
        spec = template["spec"]
        assert ("ServiceAccount", spec["serviceAccountName"]) in names, component
        volumes = {volume["name"] for volume in spec["volumes"]}
        if component == "memory":
            claims = of_kind(found, "StatefulSet")["memory"]["spec"].get("volumeClaimTemplates", [])
            volumes |= {claim["metadata"]["name"] for claim in claims}
        for container in (*spec["containers"], *spec.get("initContainers", ())):
            assert {mount["name"] for mount in container["volumeMounts"]} <= volumes, component
    labels = [template["metadata"]["labels"] for template in pods(found).values()]
    for each in of_kind(found, "Service").values():
        assert [own for own in labels if each["spec"]["selector"].items() <= own.items()], each["metadata"]["name"]
    for kind in ("HorizontalPodAutoscaler", "ScaledObject"):
        for each in of_kind(found, kind).values():
            assert ("Deployment", each["spec"]["scaleTargetRef"]["name"]) in names


@examples
def test_every_pod_is_restricted(example: str) -> None:
    """As the Pod Security Standard `restricted` demands, with a read-only root and no token besides."""
    found = pods(documents(example))
    assert set(SERVICES) <= set(found)
    for template in found.values():
        spec = template["spec"]
        assert spec["automountServiceAccountToken"] is spec["enableServiceLinks"] is False
        security = spec["securityContext"]
        assert security["runAsNonRoot"] is True
        assert security["runAsUser"] == security["runAsGroup"] == security["fsGroup"] == 10001
        assert security["seccompProfile"] == {"type": "RuntimeDefault"}
        assert not {"hostNetwork", "hostPID", "hostIPC", "hostAliases"} & set(spec)
        for volume in spec["volumes"]:
            assert set(volume) - {"name"} <= {"emptyDir", "secret", "projected", "persistentVolumeClaim"}
        for container in (*spec["containers"], *spec.get("initContainers", ())):
            assert container["securityContext"] == {
                "allowPrivilegeEscalation": False,
                "readOnlyRootFilesystem": True,
                "capabilities": {"drop": ["ALL"]},
            }
            assert {"cpu", "memory"} <= set(container["resources"]["requests"])
            # No limit of processor time: a throttled service misses its deadlines, and requests share it out.
            assert set(container["resources"]["limits"]) == {"memory"}
            assert not container["image"].endswith(":latest")


@examples
def test_no_object_grants_a_right_on_the_cluster(example: str) -> None:
    kinds = {each["kind"] for each in documents(example)}
    assert not kinds & {"Role", "ClusterRole", "RoleBinding", "ClusterRoleBinding", "Secret"}


@examples
def test_probes_ask_for_paths_that_exist(example: str) -> None:
    found = documents(example)
    memory = of_kind(found, "StatefulSet")["memory"]["spec"]["replicas"]
    for name in SERVICES:
        (container,) = pods(found)[name]["spec"]["containers"]
        ports = {port["name"]: port["containerPort"] for port in container["ports"]}
        assert ports["health"] == 8080
        wanted = "/readyz?exclude=lease" if name == "memory" and memory > 1 else "/readyz"
        for probe, path in {"startup": "/livez", "liveness": "/livez", "readiness": wanted}.items():
            assert container[f"{probe}Probe"]["httpGet"] == {"path": path, "port": "health"}


@examples
def test_jobs_come_before_the_services_of_a_release(example: str) -> None:
    found = documents(example)
    jobs = of_kind(found, "Job")
    commands = {name: pods(found)[name]["spec"]["containers"][0]["command"][2] for name in jobs}
    assert commands == {
        "migrate": "counterpoint.memory.record.migrate",
        "provision": "counterpoint.bus.provision",
    }
    hooks = {
        (each["kind"], each["metadata"]["name"].removeprefix("counterpoint-")): notes
        for each in found
        if (notes := each["metadata"].get("annotations", {})) and "helm.sh/hook" in notes
    }
    assert {notes["helm.sh/hook"] for notes in hooks.values()} == {"pre-install,pre-upgrade"}
    assert {notes["helm.sh/hook-delete-policy"] for notes in hooks.values()} == {"before-hook-creation,hook-succeeded"}
    weights = {name: int(notes["helm.sh/hook-weight"]) for name, notes in hooks.items()}
    first = min(weights["Job", name] for name in jobs)
    for name in jobs:
        needed = [("ServiceAccount", "jobs"), ("NetworkPolicy", name)]
        needed += [("ExternalSecret", name)] if of_kind(found, "ExternalSecret") else []
        assert all(weights[each] < first for each in needed)


@examples
def test_replicas_survive_a_drain_and_spread(example: str) -> None:
    found = documents(example)
    disrupted = of_kind(found, "PodDisruptionBudget")
    for name in SERVICES:
        workload = of_kind(found, "StatefulSet" if name == "memory" else "Deployment")[name]
        scaler = {**of_kind(found, "ScaledObject"), **of_kind(found, "HorizontalPodAutoscaler")}.get(name)
        assert ("replicas" in workload["spec"]) != (scaler is not None)
        least = workload["spec"].get("replicas")
        if scaler is not None:
            least = scaler["spec"].get("minReplicaCount") or scaler["spec"]["minReplicas"]
        assert (name in disrupted) == (least > 1)
        spread = workload["spec"]["template"]["spec"]["topologySpreadConstraints"]
        assert [each["topologyKey"] for each in spread] == ["kubernetes.io/hostname", "topology.kubernetes.io/zone"]
        for each in (*spread, *([disrupted[name]["spec"] | {"labelSelector": disrupted[name]["spec"]["selector"]}]
                                if name in disrupted else [])):  # fmt: skip
            assert each["labelSelector"] == workload["spec"]["selector"]


def test_services_scale_by_the_lag_of_the_consumers_they_have() -> None:
    scaled = of_kind(documents("production"), "ScaledObject")
    assert set(scaled) == set(SERVICES) - {"memory"}
    for name, each in scaled.items():
        lags = [row["metadata"] for row in each["spec"]["triggers"] if row["type"] == "nats-jetstream"]
        wanted = {(spec.stream, spec.durable) for spec in consumer_specs(policy()) if spec.durable == name}
        assert {(row["stream"], row["consumer"]) for row in lags} == wanted
        assert {row["account"] for row in lags} == {"HOUSE"}
        (own,) = (row["metadata"] for row in each["spec"]["triggers"] if row["type"] == "prometheus")
        assert f'counterpoint_consumer_pending{{consumer="{name}"' in own["query"]
    account = "A" + "B" * 55
    with_operator = of_kind(documents("production", {"nats.login": "creds", "nats.accountId": account}), "ScaledObject")
    for each in with_operator.values():
        lags = [row["metadata"] for row in each["spec"]["triggers"] if row["type"] == "nats-jetstream"]
        assert {(row["account"], row["accountID"]) for row in lags} == {(account_name("memory"), account)}
    assert set(of_kind(documents("beside"), "HorizontalPodAutoscaler")) == {"developer"}
    assert not of_kind(documents("beside"), "ScaledObject")


def test_a_service_gets_the_time_that_its_deliveries_have() -> None:
    given = {"settings": {"COUNTERPOINT_DRAIN_S": 40.5}, "developer.settings": {"COUNTERPOINT_DRAIN_S": 90}}
    graces = {
        name: template["spec"].get("terminationGracePeriodSeconds")
        for name, template in pods(documents("laptop", given)).items()
    }
    called = dict.fromkeys(("router", "manager", "lineage"), 61)
    assert graces == {"memory": 56, "developer": 105} | called | dict.fromkeys(JOBS)


def test_a_migration_that_a_repetition_cannot_help_ends_the_upgrade() -> None:
    jobs = of_kind(documents("laptop"), "Job")
    assert jobs.keys() == {"migrate", "provision"}
    policies = {name: job["spec"]["podFailurePolicy"]["rules"] for name, job in jobs.items()}
    ended = {"containerName": "migrate", "operator": "In", "values": [REFUSED]}
    assert {"action": "FailJob", "onExitCodes": ended, "onPodConditions": []} in policies["migrate"]
    # NATS may not yet have the accounts of a Secret that was changed a minute ago.
    assert {each["action"] for each in policies["provision"]} == {"Ignore"}


def test_a_service_that_others_call_accepts_connections_until_they_know_that_its_pod_ends() -> None:
    """Kubernetes removes a pod from the Service and asks it to end at the same time."""
    for name in SERVICES:
        (container,) = pods(documents("laptop"))[name]["spec"]["containers"]
        is_called = len(container["ports"]) > 1
        assert ("lifecycle" in container) == is_called == (name in ("router", "manager", "lineage")), name
        if is_called:
            program, option, code = container["lifecycle"]["preStop"]["exec"]["command"]
            assert (program, option) == ("python", "-c")
            assert int(code.removeprefix("import time; time.sleep(").removesuffix(")")) == 5
            compile(code, name, "exec")


def notes_of(example: str, *more: str) -> str:
    """The notes of an installation."""
    values = ["--values", CHART / "examples" / f"{example}.yaml", *more]
    told = helm("install", "counterpoint", CHART, *values, "--dry-run=client", "--namespace", "house").stdout
    return told.partition("NOTES:")[2]


def test_notes_say_how_to_reach_it_and_where_the_token_is() -> None:
    notes = notes_of("beside")
    for said in (
        "https://counterpoint.example.com",
        "get secret counterpoint-memory",
        "COUNTERPOINT_ADMIN_TOKEN",
        "rollout status",
    ):
        assert said in notes, notes
    inside = ("--set", "router.url=", "--set", "router.ingress.enabled=false")
    for example, scheme in (("laptop", "http"), ("airgapped", "https")):
        notes = notes_of(example, *inside)
        assert "port-forward service/counterpoint-router 8484" in notes
        assert f"COUNTERPOINT_URL={scheme}://127.0.0.1:8484" in notes


def test_a_new_service_follows_from_the_policy_its_settings_and_its_values(tmp_path: Path) -> None:
    """The recipe of CONTRIBUTING.md, applied to a copy."""
    assert set(generator().SETTINGS) == set(policy().services)
    chart = tmp_path / "chart"
    shutil.copytree(CHART, chart)
    house = yaml.safe_load((chart / "files" / "house.yaml").read_text())
    for part in ("secrets", "settings", "consumers"):
        house[part]["auditor"] = house[part]["developer"]
    house["ports"]["auditor"] = {"health": 8080}
    house["network"] |= {"auditor": ["nats"], "metrics": [*house["network"]["metrics"], "auditor.health"]}
    (chart / "files" / "house.yaml").write_text(yaml.safe_dump(house))
    values = yaml.safe_load((chart / "values.yaml").read_text())
    values["auditor"] = values["developer"] | {"replicas": 2}
    values["secrets"]["names"]["auditor"] = ""
    (chart / "values.yaml").write_text(yaml.safe_dump(values))
    schema = json.loads((chart / "values.schema.json").read_text())
    schema["properties"]["auditor"] = schema["properties"]["developer"]
    names = schema["properties"]["secrets"]["properties"]["names"]["properties"]
    names["auditor"] = names["developer"]
    (chart / "values.schema.json").write_text(json.dumps(schema))
    text = helm("template", "counterpoint", chart, "--values", CHART / "examples" / "laptop.yaml").stdout
    found = [each for each in yaml.load_all(text, yaml.CSafeLoader) if each]
    assert [problem for each in found for problem in problems(each)] == []
    made = {each["kind"] for each in found if each["metadata"]["name"] == "counterpoint-auditor"}
    assert made == {"Deployment", "Service", "ServiceAccount", "NetworkPolicy", "PodDisruptionBudget"}
    (container,) = pods(found)["auditor"]["spec"]["containers"]
    assert container["image"] == "counterpoint-auditor:0.1.0"
