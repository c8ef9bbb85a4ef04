"""Values that do not exist, are missing or contradict each other are refused by name, and any legal name works."""

import json
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import yaml
from deploy.helm import CHART, documents, helm, of_kind, pods, rendering
from deploy.schemas import problems

NAME = re.compile(r"[a-z]([-a-z0-9]{0,61}[a-z0-9])?")
"""A name of a Service, which begins with a letter."""


def refusal(values: dict[str, Any], example: str = "laptop") -> str:
    """The text with which values are refused."""
    done = rendering(example, values, check=False)
    assert done.returncode != 0
    assert not done.stdout
    return done.stderr


@pytest.mark.parametrize(
    ("value", "given", "said"),
    [
        ("replicas", 2, "additional properties 'replicas' not allowed"),
        ("router.replica", 2, "'/router': additional properties 'replica' not allowed"),
        ("memory.autoscaling", {"enabled": True}, "'/memory': additional properties 'autoscaling' not allowed"),
        ("settings.COUNTERPOINT_MODELL", "m", "'/settings': additional properties 'COUNTERPOINT_MODELL' not allowed"),
        ("lineage.settings.COUNTERPOINT_MODEL", "m", "'/lineage/settings': additional properties"),
        ("memory.settings.COUNTERPOINT_AUDIT_KEY", "ab", "'/memory/settings': additional properties"),
        ("router.settings.COUNTERPOINT_HTTP_PORT", 80, "'/router/settings': additional properties"),
        ("router.settings.COUNTERPOINT_TASKS_UNDER_WAY", 0, "minimum: got 0, want 1"),
        ("settings.COUNTERPOINT_RETENTION_S", "7d", "got string, want number"),
        ("router.replicas", 0, "minimum: got 0, want 1"),
        ("router.url", "counterpoint.example.com", "'/router/url'"),
        ("nats.url", "nats://user:secret@nats:4222", "'/nats/url'"),
        ("networkPolicy.clients", [{"podselector": {}}], "additional properties 'podselector' not allowed"),
        ("manager.providers.keys", ["COUNTERPOINT_ADMIN_TOKEN"], "'/manager/providers/keys/0'"),
        ("router.resources", {"limits": {"memory": "1Gi", "gpu": 1}}, "additional properties 'gpu' not allowed"),
        ("autoscaling.by", "vpa", "value must be one of 'keda', 'hpa'"),
        ("nats.streamsBytes", 1000, "'/nats/streamsBytes': minimum: got 1,000"),
    ],
)
def test_a_value_that_does_not_exist_or_is_illegal_is_refused(value: str, given: Any, said: str) -> None:
    assert said in refusal({value: given})


def test_every_object_of_the_schema_is_closed() -> None:
    """Except those whose fields are names of the user's or Kubernetes' own."""
    open_ones = []

    def look(schema: Any, path: str) -> None:
        if isinstance(schema, list):
            for number, each in enumerate(schema):
                look(each, f"{path}/{number}")
        elif isinstance(schema, dict):
            if schema.get("type") == "object" and "additionalProperties" not in schema:
                open_ones.append(path)
            for name, each in schema.items():
                look(each, f"{path}/{name}")

    look(json.loads((CHART / "values.schema.json").read_text()), "")
    kubernetes = ("/global", "/affinity", "/tolerations/items", "/volumes/items", "/volumeMounts/items",
                  "/matchExpressions/items")  # fmt: skip
    assert [path for path in open_ones if not path.endswith(kubernetes)] == []


def test_every_default_is_in_the_schema_and_the_other_way_round() -> None:
    schema = json.loads((CHART / "values.schema.json").read_text())

    def resolved(part: dict[str, Any]) -> dict[str, Any]:
        reference = part.get("$ref")
        return schema["definitions"][reference.removeprefix("#/definitions/")] if reference else part

    def compare(values: Any, part: dict[str, Any], path: str) -> None:
        own = resolved(part)
        if not isinstance(values, dict) or not values or own.get("additionalProperties") is not False:
            return
        if path.endswith((".resources.requests", ".resources.limits")) or not own.get("properties"):
            return
        assert set(values) == set(own["properties"]) - {"global"}, path
        for name, each in values.items():
            compare(each, own["properties"][name], f"{path}.{name}")

    defaults = yaml.safe_load((CHART / "values.yaml").read_text())
    for peers in defaults["networkPolicy"].values():
        assert peers is not None
    defaults["networkPolicy"]["dns"] = []
    compare(defaults, schema, "")


def test_all_missing_values_are_named_at_once_with_a_remedy() -> None:
    text = refusal({}, example="")
    assert "nats.url: is required, the address of NATS without a login, for example nats://" in text
    for engine in ("nats", "postgres", "valkey"):
        assert f"networkPolicy.engines.{engine}.peers: is required" in text
    assert "qdrant" not in text
    assert "or set networkPolicy.enabled=false" in text


@pytest.mark.parametrize(
    ("values", "said"),
    [
        ({"memory.replicas": 2}, "memory.replicas: above 1 needs a Qdrant server"),
        ({"qdrant.enabled": True}, "networkPolicy.engines.qdrant.peers: is required"),
        ({"settings": {"COUNTERPOINT_MODEL": "m"}}, "outside.manager.peers: is required with COUNTERPOINT_MODEL"),
        ({"manager.settings": {"COUNTERPOINT_SEARCH_URL": "http://searx"}}, "is required with COUNTERPOINT_SEARCH_URL"),
        ({"manager.providers.keys": ["OPENAI_API_KEY"]}, "manager.providers.secret: is required"),
        ({"router.files.hooks": "hooks.toml"}, "router.files.secret: is required"),
        ({"secrets.external.enabled": True}, "secrets.external.store.name: is required"),
        ({"router.url": ""}, "router.url: is required with router.ingress or router.httpRoute"),
        ({"lineage.ingress.enabled": True}, "lineage.url: is required with lineage.ingress"),
        ({"router.httpRoute.enabled": True}, "router.httpRoute.parentRefs: is required"),
        ({"developer.autoscaling.enabled": True}, "nats.monitoring: is required with developer.autoscaling"),
        (
            {"developer.autoscaling.enabled": True, "nats.login": "creds", "nats.monitoring": "nats:8222"},
            "nats.accountId: is required with developer.autoscaling and nats.login=creds",
        ),
        (
            {
                "secrets.external": {"enabled": True, "store": {"name": "vault"}},
                "secrets.names.index": "counterpoint-migrate",
            },
            "secrets.names.migrate: is counterpoint-migrate, as that of index",
        ),
        (
            {"developer.autoscaling": {"enabled": True, "minReplicas": 5, "maxReplicas": 4}, "autoscaling.by": "hpa"},
            "developer.autoscaling.maxReplicas: is below minReplicas",
        ),
        ({"networkPolicy.dns": []}, "networkPolicy.dns: is required"),
        (
            {"router.files": {"secret": "files", "notify": "notify.toml"}},
            "networkPolicy.outside.router.peers: is required with router.files.notify",
        ),
        ({"nats.certificatePrefix": "bus"}, "nats.certificatePrefix: is for nats.login=certificate, which is password"),
        (
            {"pod.labels": {"app.kubernetes.io/name": "house", "team": "data"}},
            "pod.labels: app.kubernetes.io/name is a label of the chart",
        ),
        (
            {"serviceMonitor": {"enabled": True, "labels": {"helm.sh/chart": "c"}}},
            "serviceMonitor.labels: helm.sh/chart is a label of the chart",
        ),
        (
            {"router.volumes": [{"name": "tmp", "emptyDir": {}}]},
            "router.volumes: tmp is the name of another volume of that pod",
        ),
        (
            {"memory.volumes": [{"name": "audit", "emptyDir": {}}]},
            "memory.volumes: audit is the name of another volume of that pod",
        ),
    ],
)  # fmt: skip
def test_values_that_contradict_each_other_are_refused(values: dict[str, Any], said: str) -> None:
    assert said in refusal(values)


def test_without_network_policies_no_peer_is_needed() -> None:
    found = documents("", {"nats.url": "nats://nats:4222", "networkPolicy.enabled": False})
    assert not of_kind(found, "NetworkPolicy")
    assert not [problem for each in found for problem in problems(each)]


@pytest.mark.parametrize(
    ("release", "fullname", "prefix"),
    [
        ("counterpoint", "", "counterpoint-"),
        ("prod", "", "prod-counterpoint-"),
        ("my-counterpoint", "", "my-counterpoint-"),
        ("x" * 53, "", f"{'x' * 27}-counterpoint-"),
        ("prod", "cp", "cp-"),
        ("prod", "a" * 80, f"{'a' * 40}-"),
        ("7up", "cp", "cp-"),
        ("123", "cp", "cp-"),
    ],
)
def test_any_name_of_a_release_gives_legal_names(release: str, fullname: str, prefix: str) -> None:
    values = ["--values", CHART / "examples" / "production.yaml", "--set", f"fullname={fullname}"]
    found = list(yaml.load_all(helm("template", release, CHART, *values).stdout, yaml.CSafeLoader))
    assert [problem for each in found for problem in problems(each)] == []
    for each in found:
        name = each["metadata"]["name"]
        assert NAME.fullmatch(name), name
        assert name.startswith(prefix)
        assert len(name) <= (52 if each["kind"] in ("CronJob", "StatefulSet") else 63), name
        labels = each["metadata"]["labels"]
        assert all(len(value) <= 63 for value in labels.values())
    for template in pods(found).values():
        assert template["spec"]["serviceAccountName"].startswith(prefix)


@pytest.mark.parametrize("release", ["7up", "a.b"])
def test_a_release_name_that_is_no_legal_service_name_needs_fullname(release: str) -> None:
    done = helm("template", release, CHART, "--values", CHART / "examples" / "laptop.yaml", check=False)
    assert done.returncode != 0
    assert f"fullname: is required, since {release}-counterpoint, from the name of the release" in done.stderr


def test_names_that_look_like_numbers_stay_names() -> None:
    numbers = {
        "image.pullSecrets": ["1"],
        "secrets.names": {"router": "2", "migrate": "3"},
        "nats.ca": {"secret": "4", "key": "5"},
        "postgres.ca": {"secret": "6", "key": "7"},
        "router.files": {"secret": "8", "hooks": "hooks.toml"},
        "router.tls.secret": "9",
        "router.ingress": {"enabled": True, "className": "10", "tlsSecret": "11"},
        "manager.providers": {"secret": "12", "keys": ["ON"]},
        "memory.persistence.storageClass": "13",
        "pod.priorityClassName": "14",
        "pod.labels": {"number": "15"},
    }  # fmt: skip
    found = documents("laptop", numbers)
    assert [problem for each in found for problem in problems(each)] == []
    known = json.dumps(found)
    assert [number for number in map(str, range(1, 16)) if f'"{number}"' not in known] == []
    vault = {"secrets.external": {"enabled": True, "store": {"name": "16"}, "prefix": "17", "refreshInterval": "0"}}
    assert [problem for each in documents("laptop", vault) for problem in problems(each)] == []


def variables(example: str, values: dict[str, Any], name: str) -> dict[str, str | None]:
    """The variables of a container by name; None for those of a Secret."""
    (container,) = pods(documents(example, values))[name]["spec"]["containers"]
    return {each["name"]: each.get("value") for each in container["env"]}


def test_a_setting_reaches_the_services_that_read_it_and_its_own_one_comes_first() -> None:
    values = {
        "settings": {"COUNTERPOINT_RELATIONS_TOKENS": 2_500_000_000, "COUNTERPOINT_RPC_TIMEOUT_S": 2.5},
        "manager.settings": {"COUNTERPOINT_RELATIONS_TOKENS": 0},
        "router.settings": {
            "COUNTERPOINT_PROJECT_WEIGHTS": {"orders": 3},
            "COUNTERPOINT_NOTIFY_PRIVATE": True,
            "COUNTERPOINT_MCP_HOSTS": ["a.example.com", "b.example.com"],
        },
    }
    memory, manager, router = (variables("laptop", values, name) for name in ("memory", "manager", "router"))
    assert memory["COUNTERPOINT_RELATIONS_TOKENS"] == "2500000000"
    assert manager["COUNTERPOINT_RELATIONS_TOKENS"] == "0"
    assert "COUNTERPOINT_RELATIONS_TOKENS" not in router
    assert {each["COUNTERPOINT_RPC_TIMEOUT_S"] for each in (memory, manager, router)} == {"2.5"}
    assert router["COUNTERPOINT_PROJECT_WEIGHTS"] == '{"orders":3}'
    assert router["COUNTERPOINT_NOTIFY_PRIVATE"] == "true"
    assert router["COUNTERPOINT_MCP_HOSTS"] == '["a.example.com","b.example.com"]'
    assert router["COUNTERPOINT_MCP_URL"] == "http://counterpoint.localhost/mcp"
    assert router["COUNTERPOINT_CONSOLE_URL"] == "http://counterpoint.localhost"
    hosts = json.loads(variables("laptop", {}, "router")["COUNTERPOINT_MCP_HOSTS"] or "")
    assert hosts == ["counterpoint.localhost", *(f"counterpoint-router{more}" for more in ("", ".house", ".house.svc"))]


def test_a_digest_replaces_the_tag_of_its_image() -> None:
    digest = f"sha256:{'ab' * 32}"
    found = pods(documents("airgapped", {"image.digests": {"memory": digest}}))
    images = {name: template["spec"]["containers"][0]["image"] for name, template in found.items()}
    repository = "registry.internal.example/counterpoint"
    assert images["memory"] == images["migrate"] == f"{repository}-memory@{digest}"
    assert images["router"] == f"{repository}-router:0.1.0"


def test_files_with_credentials_are_readable_by_their_owner_alone(tmp_path: Path) -> None:
    template = pods(documents("production"))["router"]["spec"]
    (first,) = template["initContainers"]
    secret, files = tmp_path / "secret", tmp_path / "files"
    (secret / "..data").mkdir(parents=True)
    files.mkdir()
    (secret / "..data" / "hooks.toml").write_text("[[source]]")
    (secret / "hooks.toml").symlink_to("..data/hooks.toml")
    program = first["command"][2].replace("/files-secret", str(secret)).replace("/files/", f"{files}/")
    subprocess.run([sys.executable, "-c", program], check=True)
    assert [(each.name, each.read_text()) for each in files.iterdir()] == [("hooks.toml", "[[source]]")]
    assert (files / "hooks.toml").stat().st_mode & 0o777 == 0o400
    given = variables("production", {}, "router")
    assert given["COUNTERPOINT_HOOKS_FILE"] == "/etc/counterpoint/files/hooks.toml"
    assert given["COUNTERPOINT_NOTIFY_FILE"] == "/etc/counterpoint/files/notify.toml"
    assert given["COUNTERPOINT_ISSUES_FILE"] == "/etc/counterpoint/files/issues.toml"


def test_all_that_exists_at_once_gives_legal_objects() -> None:
    odd = {
        "fullname": "cp",
        "image.tag": "1.0",
        "image.pullSecrets": ["a", "b"],
        "nats": {"url": "tls://nats.example.com:4222", "login": "certificate"},
        "nats.ca": {"secret": "ca", "key": "root.pem"},
        "postgres.ca": {"secret": "pg", "key": "pg.pem"},
        "router.url": "https://counterpoint.example.com:8443/",
        "router.ingress": {"enabled": True, "annotations": {"a/b": "x: {y}\n#z", "c": "true"}, "tlsSecret": "tls"},
        "router.httpRoute": {"enabled": True, "annotations": {"n": "1"}, "parentRefs": [{"name": "g", "port": 443}]},
        "router.files": {"secret": "files", "hooks": "hooks.toml", "notify": ""},
        "router.tls.secret": "router-tls",
        "lineage": {"url": "http://l.example.com", "ingress": {"enabled": True, "className": ""}},
        "developer.resources": {"requests": {"cpu": 1}, "limits": {"cpu": 1.5, "memory": "1Gi"}},
        "memory.persistence": {"enabled": False, "size": "5Gi"},
        "memory.auditPersistence.storageClass": "slow",
        "manager.volumes": [{"name": "extra", "emptyDir": {}}],
        "manager.volumeMounts": [{"name": "extra", "mountPath": "/extra"}],
        "networkPolicy.clients": [{"namespaceSelector": {}, "podSelector": {"matchLabels": {"x": "true"}}}],
        "networkPolicy.metrics": [{"ipBlock": {"cidr": "192.0.2.0/24", "except": ["192.0.2.1/32"]}}],
        "serviceMonitor": {"enabled": True, "labels": {"release": "p"}},
        "pod.annotations": {"note": "on: true", "number": "7"},
        "pod.labels": {"team": "data"},
        "pod.affinity": {"nodeAffinity": {}},
        "pod.spread": [],
        "settings": {"COUNTERPOINT_EMBEDDING_MODELS": "a/b,c/d", "COUNTERPOINT_PROJECT_WEIGHTS": {}},
    }  # fmt: skip
    found = documents("beside", odd)
    assert [problem for each in found for problem in problems(each)] == []
    ingress, route = of_kind(found, "Ingress")["cp-router"], of_kind(found, "HTTPRoute")["cp-router"]
    assert ingress["metadata"]["annotations"] == {"a/b": "x: {y}\n#z", "c": "true"}
    assert route["spec"]["rules"][0]["timeouts"] == {"request": "0s"}
    assert ingress["spec"]["rules"][0]["host"] == route["spec"]["hostnames"][0] == "counterpoint.example.com"
    templates = pods(found)
    assert {each["metadata"]["annotations"]["note"] for each in templates.values()} == {"on: true"}
    assert {each["metadata"]["labels"]["team"] for each in templates.values()} == {"data"}
    assert templates["router"]["spec"]["containers"][0]["image"] == "counterpoint-router:1.0"
    given = {each["name"]: each.get("value") for each in templates["router"]["spec"]["containers"][0]["env"]}
    assert given["COUNTERPOINT_MCP_URL"] == "https://counterpoint.example.com:8443/mcp"
    assert given["COUNTERPOINT_PROJECT_WEIGHTS"] == "{}"
    (claim,) = of_kind(found, "StatefulSet")["cp-memory"]["spec"]["volumeClaimTemplates"]
    assert claim["metadata"]["name"] == "audit"
