"""Tables of the documents match the code."""

import re
from typing import Any, get_args

from contract.pages import ROOT, table
from contract.product import DEVELOPER_ROOMS, LIBS, MEMORY_ROOMS
from pydantic_core import PydanticUndefined
from pydantic_settings import BaseSettings
from scripts import load_script

from counterpoint.bus import BusSettings
from counterpoint.bus.settings import ProvisionSettings
from counterpoint.developer.settings import DeveloperSettings
from counterpoint.guard.policy import policy
from counterpoint.lineage.settings import LineageSettings
from counterpoint.local.settings import LocalSettings
from counterpoint.manager.settings import ManagerSettings
from counterpoint.memory.settings import MemorySettings
from counterpoint.proto.approvals import ApprovalState
from counterpoint.proto.memory import GatewayToken
from counterpoint.proto.principals import Role
from counterpoint.router.settings import RouterSettings

OPERATIONS = (ROOT / "docs" / "operations.md").read_text()
ENVIRONMENT = (ROOT / "docs" / "settings.md").read_text()
MEMORY = (ROOT / "docs" / "memory.md").read_text()
POLICY = (ROOT / "docs" / "policy.md").read_text()
APPROVALS = (ROOT / "docs" / "approvals.md").read_text()
SETTINGS: tuple[tuple[str, type[BaseSettings]], ...] = (
    ("all services", BusSettings),
    ("memory", MemorySettings),
    ("router", RouterSettings),
    ("manager", ManagerSettings),
    ("developer", DeveloperSettings),
    ("lineage", LineageSettings),
    ("supervisor", LocalSettings),
    ("provision", ProvisionSettings),
)
OTHERS = [
    ("COUNTERPOINT_POSTGRES_OWNER_URL", "migrate, index", "*(required)*"),
    ("COUNTERPOINT_INSTALLATION", "migrate", "-"),
    ("COUNTERPOINT_SECRETS_DIR", "services, jobs", "-"),
    *(
        (f"COUNTERPOINT_{name}", "command", "-")
        for name in ("URL", "TOKEN", "CA", "DATA_DIR", "BACKUP_PASSPHRASE", "PROJECT")
    ),
]
"""Variables read without a settings class."""


def test_the_table_of_the_environment_is_that_of_the_settings() -> None:
    wanted = []
    for reader, settings in SETTINGS:
        for name, field in settings.model_fields.items():
            if settings is not BusSettings and issubclass(settings, BusSettings) and name in BusSettings.model_fields:
                continue
            if field.default_factory is not None:
                default = "from its package"
            elif field.default is PydanticUndefined:
                default = "*(required)*"
            else:
                default = "-" if field.default in (None, (), frozenset()) else str(field.default)
            wanted.append((f"COUNTERPOINT_{name.upper()}", reader, default))
    shown = table(ENVIRONMENT, "## Environment")
    assert [row[:3] for row in shown] == [*wanted, *OTHERS]
    assert all(row[3] for row in shown)


def test_the_table_of_the_rooms_is_that_of_the_folders() -> None:
    page = (ROOT / "docs" / "architecture.md").read_text()
    assert tuple(row[0] for row in table(page, "## Rooms of the memory service")) == MEMORY_ROOMS
    libraries = {row[0] for row in table(page, "## Rooms of the libraries")}
    assert libraries == {f"libs/{name}" for name in LIBS}
    others = table(page, "## Rooms of the other services") + table(page, "## From `SubmitTask` to `TaskCompleted`")
    developer = [row[0] for row in others if row[0].startswith("developer/")]
    assert developer == [f"developer/{room}" for room in DEVELOPER_ROOMS]
    for cell in (cell for row in others for cell in row):
        for service, rest in re.findall(r"\b(router|manager|developer|memory|lineage)/([\w./]+)", cell):
            path = ROOT / "services" / service / "counterpoint" / service / rest
            assert path.exists() or path.with_suffix(".py").is_file(), f"{service}/{rest}"


def test_every_variable_that_is_read_by_name_is_in_the_table() -> None:
    known = {row[0] for row in table(ENVIRONMENT, "## Environment")}
    for folder in ("proto", "libs", "services"):
        for path in (ROOT / folder).rglob("*.py"):
            read = re.findall(r"""environ(?:\.get\(|\[)["'](COUNTERPOINT_\w+)""", path.read_text())
            assert set(read) <= known, path


def test_the_table_of_metrics_names_every_metric() -> None:
    made = set()
    for path in (path for folder in ("libs", "services") for path in (ROOT / folder).rglob("*.py")):
        for kind, name in re.findall(r'(Counter|Gauge|Histogram)\(\s*"(counterpoint_\w+)"', path.read_text()):
            made.add(f"{name.removesuffix('_total')}_total" if kind == "Counter" else name)
    shown = {row[0].partition("{")[0] for row in table(OPERATIONS, "## Health and metrics")}
    assert shown == made


def test_the_tables_of_the_policy_are_those_of_the_file() -> None:
    rules = policy()

    def names(given: tuple[str, ...]) -> str:
        return " ".join(given) or "-"

    def besides(row: Any, *more: str) -> str:
        said = [name for name in ("shared", "workflow") if getattr(row, name, False)]
        said += [
            *more,
            *(
                name
                for name in ("ended", "late", "settles", "common", "system", "persons", "learned")
                if getattr(row, name, False)
            ),
        ]
        return ", ".join(said) or "-"

    services = [
        (
            name,
            names(row.agents),
            row.clearance,
            "yes" if row.grant else "no",
            "yes" if row.gateway else "no",
            "; ".join(f"{name}: {names(stores)}" for name, stores in row.changes_of.items()) or "-",
        )
        for name, row in rules.services.items()
    ]
    stores = [
        (name, row.tier, row.owner, names(row.authors), names(row.readers), row.label,
         besides(row, *(f"own task: {names(row.own_task)}" for _ in row.own_task[:1])))
        for name, row in rules.stores.items()
    ]  # fmt: skip
    messages = [
        (name, names(row.senders), names(row.audience), besides(row, *([f"kept in {row.keep}"] if row.keep else [])))
        for name, row in rules.messages.items()
    ]
    assert table(POLICY, "## Services") == services
    assert [row[:7] for row in table(POLICY, "## Stores")] == stores
    assert table(POLICY, "## Messages") == messages
    assert table(POLICY, "## Network") == [(name, ", ".join(targets)) for name, targets in rules.network.items()]
    assert [row[0] for row in table(POLICY, "## Principals and roles")] == list(rules.principals)
    assert set(rules.principals) == set(get_args(Role))
    verdicts = [
        (kind, *(rules.sensitive.verdicts[kind][label] for label in rules.labels)) for kind in rules.sensitive.verdicts
    ]
    assert [(row[0], *row[2:]) for row in table(POLICY, "## Sensitive data")] == verdicts
    acts = [(category, *by_autonomy.values()) for category, by_autonomy in rules.approvals.acts.items()]
    assert [(row[0], *row[2:]) for row in table(f"\n{APPROVALS}", "# Approvals")] == acts
    assert [row[0] for row in table(APPROVALS, "## States")] == list(get_args(ApprovalState))


def test_the_generated_pages_are_up_to_date() -> None:
    documents = load_script(ROOT / "docs" / "generate.py").documents()
    assert {name: (ROOT / "docs" / name).read_text() for name in documents} == documents


def test_the_lifetimes_of_tokens_are_those_of_the_pages() -> None:
    lives = MemorySettings.model_fields["capability_life_s"].default
    (gateway,) = (each.le for each in GatewayToken.model_fields["life_s"].metadata if hasattr(each, "le"))
    for page in (MEMORY, OPERATIONS):
        assert f"{lives / 86_400:.0f} days" in page
        assert "1 hour by default" not in page
    assert lives > MemorySettings.model_fields["retention_s"].default
    assert f"after {gateway / 60:.0f} minutes" in MEMORY
    assert gateway == GatewayToken.model_fields["life_s"].default == 300, "five minutes, as docs/gateway.md says"
