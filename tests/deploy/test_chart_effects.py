"""Every value of the chart has an effect on what it renders."""

from collections.abc import Iterator
from typing import Any

import pytest
import yaml
from deploy.helm import CHART, EXAMPLES, documents, rendering


@pytest.mark.slow
@pytest.mark.parametrize("example", EXAMPLES)
def test_no_value_of_an_example_is_without_effect(example: str) -> None:
    """Each value of an example, taken out, changes the rendering or is refused."""
    whole = yaml.safe_load((CHART / "examples" / f"{example}.yaml").read_text())
    text = rendering(example).stdout
    for name in whole:
        if name == "networkPolicy":
            continue
        changed = rendering(example, {name: None}, check=False)
        assert changed.stdout != text, name


EVERYTHING: dict[str, Any] = {
    "nats.login": "creds",
    "nats.accountId": "A" + "B" * 55,
    "postgres.ca.secret": "pg",
    "router.ingress.enabled": True,
    "lineage.ingress.enabled": True,
}
"""With the example `production`, the values that let every other one matter."""
OTHERWISE: dict[str, Any] = {
    "image.pullPolicy": "Always",
    "secrets.external.store.kind": "SecretStore",
    "nats.url": "nats://elsewhere:4222",
    "nats.login": "certificate",
    "nats.accountId": "A" + "C" * 55,
    "nats.certificatePrefix": "bus",
    "nats.monitoring": "elsewhere:8222",
    "router.url": "https://elsewhere.example.com",
    "lineage.url": "https://elsewhere.example.com",
    "jobs.indexSchedule": "1 1 * * *",
    "autoscaling.by": "hpa",
    "autoscaling.prometheus": "http://elsewhere",
    "serviceMonitor.interval": "7s",
    "pod.affinity": {"nodeAffinity": {}},
    "pod.spread": ["zone"],
    "pod.tolerations": [{"key": "more"}],
}
"""Another legal value, where type and name do not say it."""
LISTS: dict[str, list[Any]] = {
    "volumes": [{"name": "more", "emptyDir": {}}],
    "volumeMounts": [{"name": "more", "mountPath": "/more"}],
    "pullSecrets": ["more"],
    "keys": ["MORE_API_KEY"],
    "ports": [8443],
    "parentRefs": [{"name": "more"}],
}


def otherwise(name: str, present: Any) -> Any:
    """Return another value than the present one."""
    last = name.rpartition(".")[2]
    if name in OTHERWISE:
        return OTHERWISE[name]
    if last == "cpu" and "resources" in name:
        return "7"
    match present:
        case bool():
            return not present
        case int():
            return present + 3
        case list():
            return LISTS.get(last, [{"ipBlock": {"cidr": "198.51.100.0/24"}}])
        case dict():
            return {"COUNTERPOINT_LOG_LEVEL": "debug"} if last == "settings" else {"more": "more"}
        case str() if "digests" in name:
            return f"sha256:{'ab' * 32}"
        case str() if last == "size" or "resources" in name:
            return "77Gi"
        case _:
            return "more"


def leaves(part: dict[str, Any], path: str = "") -> Iterator[tuple[str, Any]]:
    """Each value by its path, as `--set` has it; a list and an empty table are values."""
    for name, each in part.items():
        if isinstance(each, dict) and each:
            yield from leaves(each, f"{path}{name}.")
        else:
            yield f"{path}{name}", each


@pytest.mark.slow
def test_no_value_of_the_chart_is_without_effect() -> None:
    """Each value of values.yaml, changed where the others let it matter, changes the rendering or is refused."""
    defaults = dict(leaves(yaml.safe_load((CHART / "values.yaml").read_text())))
    example = yaml.safe_load((CHART / "examples" / "production.yaml").read_text())
    present = defaults | {name: each for name, each in leaves(example) if name in defaults} | EVERYTHING
    fixed = {f"{name}.autoscaling.enabled": False for name in ("router", "manager", "developer", "lineage")}
    needed = {"autoscaling.cpu": {"autoscaling.by": "hpa"}} | {
        name: fixed for name in defaults if name.endswith(".replicas")
    }
    for name in defaults:
        values = EVERYTHING | needed.get(name, {})
        before = documents("production", values)
        done = rendering("production", values | {name: otherwise(name, present[name])}, check=False)
        assert done.returncode == 0 or "The values need changes" in done.stderr, (name, done.stderr)
        assert [each for each in yaml.load_all(done.stdout, yaml.CSafeLoader) if each] != before, name
