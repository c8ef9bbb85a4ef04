"""The walls of the house, read from its source: who imports whom, where a subject is spelled, what a setting is for."""

import ast
import re
import tomllib
from functools import cache
from itertools import chain
from pathlib import Path

import pytest
from contract.product import DEVELOPER_ROOMS, LIBS, MEMBERS, MEMORY_ROOMS, ROOT, SERVICES, sources, walked

from counterpoint.guard.policy import policy
from counterpoint.proto import approvals, attempts, interventions, lineage, memory  # noqa: F401  (they fill the register)
from counterpoint.proto.attempts import Attempt
from counterpoint.proto.decisions import DecisionMade
from counterpoint.proto.line import Action
from counterpoint.proto.messages import Message
from counterpoint.proto.principals import Principal
from counterpoint.proto.tasks import Task

pytestmark = pytest.mark.xdist_group("source")  # the trees of its modules take seconds
ONLY = {
    "asyncpg": {"memory"},
    "pgvector": {"memory"},
    "qdrant_client": {"memory"},
    "qdrant_edge": {"memory"},
    "redis": {"memory"},
    "ladybug": {"memory"},
    "faststream": {"bus"},
    "nats": {"bus", "local"},
    "litellm": {"manager"},
    "langgraph": {"developer"},
    "langsmith": {"developer"},
    "openlineage": {"lineage"},
    "fastmcp": {"router"},
    "mcp": {"router"},
    "mcp_types": {"router"},
    "biscuit_auth": {"guard"},
    "cachetools": {"guard", "memory", "router"},
    "nacl": {"memory", "local"},
    "setproctitle": {"local"},
    "cryptography": {"local"},
    "nkeys": set(),
    "tree_sitter": {"memory"},
    "pypdfium2": {"memory"},
    "markdownify": {"memory"},
    "bs4": {"memory"},
    "playwright": set(),
    "joserfc": set(),
    "jwt": set(),
}
"""Packages and the only members that may import them."""
BENCH = "bench"
"""The one exception: it measures services and engines, so it may import them all. Nothing imports it."""
ROOMS = {
    "memory": (MEMORY_ROOMS, {"__init__.py", "main.py", "settings.py", "wiring.py"}),
    "developer": (
        DEVELOPER_ROOMS,
        {"__init__.py", "main.py", "settings.py", "configured_files.py", "handlers.py", "replay.py"},
    ),
}
"""Services in rooms: their rooms, and the modules above them."""
SPELLED = re.compile(
    r"(live\.)?(intake|tasks|decisions|changes|dead)\.([a-z0-9*>-]+(\.|$)|$)|memory\.[a-z*]*\.?(query|commit|ingest|put)\b"
)
POSSESSIVE = re.compile(r"\(\?>|(?<!\\)\)(?:[*+?]|\{[0-9,]+\})\+")


@cache
def imported(tree: ast.AST) -> tuple[str, ...]:
    """Every module a tree imports, wherever in it."""
    found: list[str] = []
    for node in walked(tree):
        match node:
            case ast.Import():
                found += [alias.name for alias in node.names]
            case ast.ImportFrom(module=str(module)):
                assert node.level == 0, "imports are absolute"
                found += [module, *(f"{module}.{alias.name}" for alias in node.names)]
    return tuple(found)


def module_name(path: Path) -> str:
    """The name by which a module of the product is imported."""
    parts = path.relative_to(ROOT).with_suffix("").parts
    return ".".join(parts[parts.index("counterpoint") :]).removesuffix(".__init__")


def members(name: str) -> set[str]:
    """The members that a member may import."""
    if name == "proto":
        return {"proto"}
    if name == BENCH:
        return {"proto", *LIBS, *SERVICES}
    return ({"proto", name, *LIBS} if name in LIBS or name in SERVICES else set()) - {BENCH}


def test_members_import_only_the_members_allowed() -> None:
    wrong = [
        f"{path.relative_to(ROOT)}: {module}"
        for member, path, tree in sources()
        for module in imported(tree)
        if module.startswith("counterpoint.") and module.split(".")[1] not in members(member)
    ]
    assert not wrong


def circular(needs: dict[str, set[str]]) -> set[str]:
    """The names that need each other in a circle, or need such ones."""
    needs = dict(needs)
    while free := [name for name, needed in needs.items() if not (needed - {name}) & needs.keys()]:
        for name in free:
            del needs[name]
    return set(needs)


def test_libraries_do_not_import_each_other_in_a_circle() -> None:
    needs = {name: set[str]() for name in LIBS}
    for member, _, tree in sources():
        if member in needs:
            needs[member] |= {module.split(".")[1] for module in imported(tree) if module.startswith("counterpoint.")}
    assert not circular(needs)


def test_modules_do_not_import_each_other_in_a_circle() -> None:
    """Neither at the top nor in functions nor for types."""
    trees = {module_name(path): tree for _, path, tree in sources()}
    needs = {name: {module for module in imported(tree) if module in trees} for name, tree in trees.items()}
    assert sum(map(len, needs.values())) > len(trees)
    assert not circular(needs)


@pytest.mark.parametrize("service", ROOMS)
def test_a_room_imports_only_rooms_below_it(service: str) -> None:
    rooms, above = ROOMS[service]
    folder = ROOT / "services" / service / "counterpoint" / service
    wrong = []
    for member, path, tree in sources():
        if member != service or path.parent == folder:
            continue
        room = path.relative_to(folder).parts[0]
        for module in imported(tree):
            if module.startswith(f"counterpoint.{service}."):
                other = module.split(".")[2]
                if other not in rooms or rooms.index(other) < rooms.index(room):
                    wrong.append(f"{path.relative_to(folder)}: {module}")
    assert not wrong
    assert {path.name for path in folder.glob("*.py")} == above


@pytest.mark.parametrize("package", sorted(ONLY))
def test_an_engine_is_known_to_its_own_member_alone(package: str) -> None:
    known = {member for member, _, tree in sources() for module in imported(tree) if module.split(".")[0] == package}
    assert known <= ONLY[package] | {BENCH}


def test_a_member_declares_the_members_it_imports() -> None:
    for member in ("proto", *LIBS, *SERVICES):
        (folder,) = (
            path for path in (ROOT, ROOT / "libs", ROOT / "services") if (path / member / "pyproject.toml").exists()
        )
        project = tomllib.loads((folder / member / "pyproject.toml").read_text())["project"]
        declared = [*project["dependencies"], *chain.from_iterable(project.get("optional-dependencies", {}).values())]
        ours = {name.removeprefix("counterpoint-") for name in declared if name.startswith("counterpoint-")}
        needed = {
            module.split(".")[1]
            for known, _, tree in sources()
            if known == member
            for module in imported(tree)
            if module.startswith("counterpoint.")
        }
        assert needed - {member} <= ours, member


def test_no_member_claims_the_namespace_for_itself() -> None:
    folders = [path for path in ROOT.iterdir() if path.is_dir() and not path.name.startswith(".")]
    assert not [
        path
        for folder in folders
        for path in folder.glob("**/counterpoint/__init__.py")
        if "node_modules" not in path.parts
    ]


def test_every_member_is_typed() -> None:
    for folder in {ROOT / part / "counterpoint" / member for member, part in MEMBERS.items()}:
        assert (folder / "py.typed").is_file(), folder


def _docstrings(tree: ast.Module) -> set[int]:
    return {id(node.value) for node in walked(tree) if isinstance(node, ast.Expr)}


def _log_events(tree: ast.Module) -> set[int]:
    return {
        id(node.args[0])
        for node in walked(tree)
        if isinstance(node, ast.Call)
        and isinstance(node.func, ast.Attribute)
        and isinstance(node.func.value, ast.Name)
        and node.func.value.id == "log"
        and node.args
    }


def test_a_subject_is_spelled_in_one_file() -> None:
    wrong = []
    for _, path, tree in sources():
        if path.name == "subjects.py" and path.parent.name == "proto":
            continue
        passed = _docstrings(tree) | _log_events(tree)
        wrong += [
            f"{path.relative_to(ROOT)}:{node.lineno}: {node.value}"
            for node in walked(tree)
            if isinstance(node, ast.Constant)
            and isinstance(node.value, str)
            and id(node) not in passed
            and SPELLED.match(node.value)
        ]
    assert not wrong


@pytest.mark.parametrize(
    "text",
    [
        "intake.",
        "tasks.acme.routed",
        "live.tasks.acme.>",
        "dead.",
        "memory.router.query",
        "changes.*.manager",
        "tasks.>",
    ],
)
def test_a_spelled_subject_would_be_found(text: str) -> None:
    assert SPELLED.match(text)


def test_no_pattern_repeats_a_group_possessively() -> None:
    """Python before 3.11.5 gives such a group back wrongly (gh-106052), and so finds only a part of a key."""
    wrong = [
        f"{path.relative_to(ROOT)}:{node.lineno}: {node.value}"
        for _, path, tree in sources()
        for node in walked(tree)
        if isinstance(node, ast.Constant) and isinstance(node.value, str) and POSSESSIVE.search(node.value)
    ]
    assert not wrong


def test_no_group_is_caught_by_a_star() -> None:
    """Before Python 3.11.4 what is raised there comes wrapped in a group, and nobody knows it again."""
    found = [
        f"{path.relative_to(ROOT)}:{node.lineno}"
        for _, path, tree in sources()
        for node in walked(tree)
        if isinstance(node, ast.TryStar)
    ]
    assert found == []


def test_every_setting_is_read() -> None:
    settings: dict[str, str] = {}
    read: set[str] = set()
    for _, path, tree in sources():
        for node in walked(tree):
            if isinstance(node, ast.ClassDef) and node.name.endswith("Settings"):
                settings |= {
                    item.target.id: f"{path.relative_to(ROOT)}: {item.target.id}"
                    for item in node.body
                    if isinstance(item, ast.AnnAssign) and isinstance(item.target, ast.Name)
                }
            elif isinstance(node, ast.Attribute) and isinstance(node.ctx, ast.Load):
                read.add(node.attr)
    assert settings
    assert not sorted(where for name, where in settings.items() if name not in read)


def test_scanned_fields_of_messages_exist() -> None:
    for message_type, row in policy().messages.items():
        assert set(row.text) <= set(Message.register[message_type].model_fields), message_type


def test_scanned_fields_of_stores_exist() -> None:
    shapes = {"tasks": Task, "attempts": Attempt, "decisions": DecisionMade, "actions": Action, "principals": Principal}
    for store, shape in shapes.items():
        assert set(policy().stores[store].text) <= set(shape.model_fields), store
