"""Who may do what, said a second time: from the policy file and the contract's words alone, with nothing of ours."""

from pathlib import Path
from typing import NamedTuple

import yaml

POLICY = yaml.safe_load((Path(__file__).parents[2] / "libs/guard/counterpoint/guard/policy.yaml").read_text())
LABELS, SERVICES, STORES = POLICY["labels"], POLICY["services"], POLICY["stores"]
MESSAGES, ROLES = POLICY["messages"], POLICY["principals"]
LETTERS = set("abcdefghijklmnopqrstuvwxyz0123456789")
TRACES = {("read", "actions"), ("write", "actions"), ("write", "decisions"), ("send", "counterpoint.decision.made.v1")}


class Asker(NamedTuple):
    projects: tuple[str, ...]
    roles: tuple[str, ...]
    revoked: bool = False

    def in_(self, project: str) -> set[str]:
        if self.revoked or not {"*", project} & {*self.projects, "shared"}:
            return set()
        return {*self.roles} & {"read"} if project == "shared" and "admin" not in self.roles else {*self.roles}


class Case(NamedTuple):
    """One access by `service`: with a token made for `audience`, or on its own standing, for an asker or for nobody."""

    service: str
    operation: str
    target: str
    token: bool = True
    asker: Asker | None = None
    inbound: str = ""
    audience: str = ""
    token_project: str = "demo"
    project: str = "demo"
    record_project: str = "demo"
    token_task: str | None = "t-1"
    task: str | None = "t-1"
    about: str | None = "t-1"
    token_message: str = "m-1"
    message: str = "m-1"
    lives_s: float = 60.0
    agent: str = ""
    label: int = 0
    ended: bool = False


def refusals(case: Case) -> set[str]:
    """Every rule that refuses this access; none when it is allowed."""
    holder, project, task = case.service, case.project, case.token_task if case.token else None
    wrong = {"project": not (0 < len(project) < 64 and {*project} <= LETTERS | {"-"} and project[0] != "-")}
    if case.token:
        holder, inbound = case.audience, MESSAGES[case.inbound]
        wrong["audience"] = holder != case.service or holder not in [
            inbound.get("consumer"),
            *inbound.get("consumers", []),
        ]
        wrong["expired"] = case.lives_s <= 0
        wrong["message"] = case.token_message != case.message
        wrong["project"] |= case.token_project != project
        wrong["task"] = task not in (None, case.task)
    else:
        wrong["grant"] = not SERVICES.get(holder, {}).get("grant")
        wrong["role"] = case.asker is not None and not case.asker.in_(project)
    store, message = STORES.get(case.target, {}), MESSAGES.get(case.target, {})
    writers = {store.get("owner"), *store.get("authors", [])}
    service = SERVICES.get(holder, {"clearance": LABELS[0], "agents": []})
    clearance = LABELS.index(service["clearance"])
    roles = set() if case.token or not case.asker else case.asker.in_(project)
    by_role = not roles or store.get("owner") == holder or (case.operation, case.target) in TRACES
    for role in roles:
        right = ROLES[role].get("stores", {}).get(case.target)
        by_role |= case.target in ROLES[role].get("messages", [])
        by_role |= right is not None and case.operation in (right, "read")
    if case.operation == "read":
        own_project = case.record_project == (case.token_project if case.token else project)
        shared = store.get("system") or (store.get("shared") and case.record_project == "shared")
        wrong["store"] = holder not in {*writers, *store.get("readers", [])} or not by_role
        wrong["foreign"] = not own_project and not shared
        wrong["label"] = case.label > clearance
        wrong["own"] = holder in store.get("own_task", []) and case.about != task
        return {rule for rule, broken in wrong.items() if broken}
    wrong["task"] = wrong.get("task", False) or (None not in (task, case.about) and task != case.about)
    wrong["ended"] = case.ended and task is not None and not (store or message).get("ended")
    if case.operation == "send":
        wrong["send"] = holder not in message.get("senders", []) or not by_role
    else:
        everywhere = case.asker is not None and "*" in case.asker.projects
        administers = "admin" in roles and (everywhere or not store.get("system"))
        closed = not case.token and not administers and (store.get("system") or project == "shared")
        stem = case.agent.rstrip("0123456789")
        numbered = 0 < len(case.agent) - len(stem) < 5 and f"{stem}*" in service["agents"]
        wrong["store"] = holder not in writers or not by_role or closed
        wrong["agent"] = not numbered and case.agent not in {a for a in service["agents"] if "*" not in a}
        wrong["label"] = max(case.label, LABELS.index(store.get("label", LABELS[0]))) > clearance
    return {rule for rule, broken in wrong.items() if broken}
