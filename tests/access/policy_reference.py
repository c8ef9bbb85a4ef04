"""A second implementation of the access rules, from the policy file and the contract alone, without product code."""

from pathlib import Path
from typing import NamedTuple

import yaml

POLICY = yaml.safe_load((Path(__file__).parents[2] / "libs/guard/counterpoint/guard/policy.yaml").read_text())
LABELS, SERVICES, STORES, MESSAGES, ROLES = map(POLICY.get, ("labels", "services", "stores", "messages", "principals"))
LETTERS = set("abcdefghijklmnopqrstuvwxyz0123456789")
TRACES = {("read", "actions"), ("write", "actions"), ("write", "decisions"), ("send", "counterpoint.decision.made.v1")}


class Asker(NamedTuple):
    projects: tuple[str, ...]
    roles: tuple[str, ...]
    revoked: bool = False
    kind: str = "person"

    def in_(self, project: str) -> set[str]:
        if not self.revoked and {"*", project} & {*self.projects} and (project != "shared" or "admin" in self.roles):
            return {*self.roles}
        return {*self.roles} & {"read"} if project == "shared" and not self.revoked else set()


class Case(NamedTuple):
    """One access by `service`: by a token for `audience`, on its standing (for an asker) or by `work` of memory."""

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
    work: str = ""


def refusals(case: Case) -> set[str]:
    """Every rule that refuses this access; none when it is allowed."""
    token, asker = case.token and not case.work, None if case.token or case.work else case.asker
    holder, project, task = case.service, case.project, case.token_task if token else None
    wrong = {"project": not (0 < len(project) < 64 and {*project} <= LETTERS | {"-"} and project[0] != "-")}
    if case.work:
        holder, wrong["audience"] = "memory", case.service != "memory"
    elif token:
        holder, inbound = case.audience, MESSAGES[case.inbound]
        consumers = {inbound.get("consumer"), *inbound.get("consumers", [])}
        wrong["audience"] = holder != case.service or holder not in consumers
        wrong["expired"], wrong["message"] = case.lives_s <= 0, case.token_message != case.message
        wrong["project"] |= case.token_project != project
        wrong["task"] = task not in (None, case.task)
    else:
        wrong["grant"] = not SERVICES.get(holder, {}).get("grant")
        wrong["role"] = asker is not None and not asker.in_(project)
    store, message = STORES.get(case.target, {}), MESSAGES.get(case.target, {})
    late = MESSAGES.get(case.inbound, {}).get("late")
    writers, known = {store.get("owner"), *store.get("authors", [])}, SERVICES.get(holder, {})
    agents, clearance = known.get("agents", []), LABELS.index(known.get("clearance", LABELS[0]))
    roles = asker.in_(project) if asker else set()
    by_role = not roles or store.get("owner") == holder or (case.operation, case.target) in TRACES
    for role in roles:
        right = ROLES[role].get("stores", {}).get(case.target)
        by_role |= case.target in ROLES[role].get("messages", []) or case.operation in (right, right and "read")
    if case.operation == "read":
        shown = store.get("system") or case.record_project == (case.token_project if token else project)
        wrong["store"] = holder not in {*writers, *store.get("readers", [])} or not by_role
        wrong["foreign"] = not shown and not (store.get("shared") and case.record_project == "shared")
        wrong["label"] = case.label > clearance
        wrong["ended"] = case.ended and task is not None and not (late and store.get("ended"))
        wrong["own"] = holder in store.get("own_task", []) and case.about != task
        return {rule for rule, broken in wrong.items() if broken}
    wrong["task"] = wrong.get("task", False) or (None not in (task, case.about) and task != case.about)
    late = (store or message).get("ended") and (late or (case.operation, case.target) in TRACES)
    wrong["ended"] = case.ended and task is not None and not late
    wrong["send"] = case.operation == "send" and (holder not in message.get("senders", []) or not by_role)
    if case.operation == "write":
        administers = "admin" in roles and ("*" in asker.projects or not store.get("system"))
        closed = not token and not case.work and not administers and (store.get("system") or project == "shared")
        stem = case.agent.rstrip("0123456789")
        numbered = 0 < len(case.agent) - len(stem) < 5 and f"{stem}*" in agents
        closed |= bool(store.get("persons") and known.get("grant")) and (asker is None or asker.kind != "person")
        taken = case.work == "erasing" and bool(store) and not store.get("system")
        taken |= case.work == "taking_back" and (store.get("learned", False) or case.target == "approvals")
        wrong["store"] = (holder not in writers or not by_role or closed) and not taken
        wrong["agent"] = not numbered and ("*" in case.agent or case.agent not in agents)
        wrong["label"] = max(case.label, LABELS.index(store.get("label", LABELS[0]))) > clearance
    return {rule for rule, broken in wrong.items() if broken}
