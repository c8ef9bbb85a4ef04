"""The enumeration is sharp: a diode with any one rule removed or inverted disagrees with the reference."""

import random
from functools import cache
from importlib import import_module
from pathlib import Path
from types import ModuleType

import pytest
from access.access_cases import agree, enumerated, judged
from access.policy_reference import Case, refusals

SOURCE, RIGHTS = (
    Path(str(import_module(name).__file__)).read_text()
    for name in ("counterpoint.memory.access.diode", "counterpoint.guard.rights")
)

MUTANTS: dict[str, tuple[str, str]] = {
    "audience dropped": ("if grant.audience != request.caller:", "if False:"),
    "audience inverted": ("if grant.audience != request.caller:", "if grant.audience == request.caller:"),
    "audience by prefix": ("grant.audience != request.caller:", "not request.caller.startswith(grant.audience):"),
    "expiry dropped": ("if request.now >= grant.expires_at:", "if False:"),
    "expiry one moment late": ("request.now >= grant.expires_at", "request.now > grant.expires_at"),
    "expiry inverted": ("request.now >= grant.expires_at", "request.now < grant.expires_at"),
    "message dropped": ("if grant.message != request.message:", "if False:"),
    "project dropped": ("if grant.project != request.project or not", "if not"),
    "project by prefix": ("grant.project != request.project or", "not grant.project.startswith(request.project) or"),
    "illegal project in a token": (" or not PROJECT_PATTERN.fullmatch(request.project):", ":"),
    "project matched in part": (
        "PROJECT_PATTERN.fullmatch(request.project):\n        return",
        "PROJECT_PATTERN.match(request.project):\n        return",
    ),
    "task dropped": ("if grant.task is not None and grant.task != request.task:", "if False:"),
    "task of anyone when none is named": (
        "grant.task != request.task:",
        "request.task is not None and grant.task != request.task:",
    ),
    "a token without a task works for none": (
        "if grant.task is not None and grant.task != request.task",
        "if grant.task != request.task",
    ),
    "every store is read": ('return None if (store, "read") in grant.rights and', "return None if"),
    "a right to write is one to read": ('(store, "read") in grant.rights and', '(store, "write") in grant.rights and'),
    "foreign records are shown": (
        "    if project != grant.project and not (project == SHARED_PROJECT and row.shared):\n        return False\n",
        "",
    ),
    "nothing is shared": (" and not (project == SHARED_PROJECT and row.shared):", ":"),
    "every store is shared": ("project == SHARED_PROJECT and row.shared", "project == SHARED_PROJECT"),
    "every project is shared": ("project == SHARED_PROJECT and row.shared", "row.shared"),
    "label dropped at reading": ("    if label > grant.clearance:\n        return False\n", ""),
    "own label not readable": (
        "    if label > grant.clearance:\n        return False\n",
        "    if label >= grant.clearance:\n        return False\n",
    ),
    "own_task dropped": ("return not (grant.audience in row.own_task and record_id != grant.task)", "return True"),
    "own_task inverted": ("and record_id != grant.task)", "and record_id == grant.task)"),
    "own_task for tokens with a task only": (
        "in row.own_task and record_id",
        "in row.own_task and grant.task is not None and record_id",
    ),
    "every store is written": ('if (store, "write") not in grant.rights or store', "if store"),
    "a right to read is one to write": (
        'if (store, "write") not in grant.rights',
        'if (store, "read") not in grant.rights',
    ),
    "agent dropped": ("if not policy.services[grant.audience].signs(agent):", "if False:"),
    "agent inverted": (
        "if not policy.services[grant.audience].signs(agent):",
        "if policy.services[grant.audience].signs(agent):",
    ),
    "any service's agents": (
        "not policy.services[grant.audience].signs(agent)",
        "not any(row.signs(agent) for row in policy.services.values())",
    ),
    "label dropped at writing": ("    if label > grant.clearance:\n        return ErrorCode.LABEL\n", ""),
    "own label not writable": (
        "    if label > grant.clearance:\n        return ErrorCode.LABEL\n",
        "    if label >= grant.clearance:\n        return ErrorCode.LABEL\n",
    ),
    "every message is sent": ("if message_type not in grant.sends or message_type", "if message_type"),
    "an ended task is written": ("all(policy.stores[name].ended for name in stores) and all(", "all("),
    "an ended task speaks": (" and all(policy.messages[name].ended for name in messages)", ""),
    "an ended task, any of its stores": ("return all(policy.stores", "return any(policy.stores"),
    "any message is late": ("return inbound in policy.messages and policy.messages[inbound].late", "return True"),
    "no message is late": ("return inbound in policy.messages and policy.messages[inbound].late", "return False"),
    "what is late reads all": ("and policy.stores[store].ended else", "else"),
    "what is not late writes all": ("return stores <= ALWAYS and", "return"),
    "what is not late says all": (" and messages <= {DecisionMade.TYPE}", ""),
    "a token for who does not consume": ("    if service not in row.audience:\n", "    if False:\n"),
    "a standing for all": ("if row is None or not row.grant:", "if row is None:"),
    "asker ignored": ("    if principal is None:\n        return grant", "    if True:\n        return grant"),
    "roles of another project": ("if principal.may(name, request.project))", "if name in principal.roles)"),
    "no role needed": ("    if not roles:\n", "    if False:\n"),
    "roles give all messages": (', "sends": grant.sends & sends}', "}"),
    "roles give all stores": ("(grant.rights - closed) & rights", "grant.rights - closed"),
    "roles give what the service lacks": ("(grant.rights - closed) & rights", "rights - closed"),
    "roles give messages the service lacks": ("grant.sends & sends", "sends"),
    "decisions are read without a role": ('| {("actions", "read")}', '| {(name, "read") for name in ALWAYS}'),
    "no traces": ('| {(name, "write") for name in ALWAYS} ', ""),
    "a role to read writes": (
        'rights |= {(name, "read"), (name, right)}',
        'rights |= {(name, "read"), (name, "write")}',
    ),
    "shared writable": ("if (row.system or shared) and", "if row.system and"),
    "system stores writable": ("if (row.system or shared) and", "if shared and"),
    "no administrator needed": ("not (admin and (not row.system or everywhere))", "not (not row.system or everywhere)"),
    "one project's administrator": ("not (admin and (not row.system or everywhere))", "not admin"),
    "what may be read may be written": ("in policy.writable(service)", "in policy.readable(service)"),
    "no person needed": (" if not (policy.stores[name].persons and may_stand)", ""),
    "a person needed with a capability too": ("persons and may_stand", "persons"),
    "everybody is a person": ('if principal.kind == "person":', "if True:"),
    "any service for a person": ("if row.persons and row.written_by(service)", "if row.persons"),
    "who may write may read nothing": ('{(name, "read") for name in policy.readable(service)} |', ""),
    "all is taken back": ("policy.stores.items() if row.learned)", "policy.stores.items())"),
    "nothing is taken back": ("if row.learned)", "if False)"),
    "no approval is asked for": ('| learned | {(_APPROVALS, "write")}', "| learned"),
    "nothing is erased": ("if not row.system)", "if False)"),
    "what is for persons is erased by nobody": ("if not row.system)", "if not row.system and not row.persons)"),
    "full clearance": ('"clearance": policy.clearance(service)', '"clearance": len(policy.labels)'),
    "no task in a token": ('"task": task, "message"', '"task": None, "message"'),
}
TASK_RULE = """    if grant.task is not None and task is not None and task != grant.task:
        return ErrorCode.TASK
"""


def mutant(source: str, rights: str = RIGHTS) -> ModuleType:
    """The diode made of this text, with the rights of services made of that one."""
    module, given = ModuleType("counterpoint.memory.diode_mutant"), ModuleType("counterpoint.guard.rights_mutant")
    exec(compile(rights, given.__name__, "exec"), given.__dict__)
    exec(compile(source, module.__name__, "exec"), module.__dict__)
    module.__dict__["service_rights"] = given.__dict__["service_rights"]
    return module


@cache
def shuffled() -> list[Case]:
    """The enumeration, shuffled so that a mutant is met early."""
    cases = list(enumerated())
    random.Random(0).shuffle(cases)
    return cases


@cache
def expected(number: int) -> set[str]:
    """Return the rules by which the reference refuses a case."""
    return refusals(shuffled()[number])


def caught(diode: ModuleType, among: int | None = None) -> bool:
    """Whether the enumeration finds an access that this diode judges otherwise than the reference."""
    cases = shuffled()[:among]
    return any(not agree(judged(diode, case), expected(number)) for number, case in enumerate(cases))


@pytest.mark.parametrize(("old", "new"), MUTANTS.values(), ids=MUTANTS)
def test_a_mutant_is_caught(old: str, new: str) -> None:
    assert (SOURCE + RIGHTS).count(old) == 1, "the text to replace is there once"
    assert caught(mutant(SOURCE.replace(old, new), RIGHTS.replace(old, new)))


@pytest.mark.parametrize("place", ["write", "send"])
def test_a_mutant_that_lets_another_task_through_is_caught(place: str) -> None:
    before, found, after = SOURCE.partition(f"def {place}(")
    assert after.count(TASK_RULE) >= 1
    assert caught(mutant(before + found + after.replace(TASK_RULE, "", 1)))


def test_the_diode_itself_is_not() -> None:
    """Over all of the enumeration it is `test_no_disagreement_over_all_that_differs_in_a_field_from_a_plain_access`."""
    assert not caught(mutant(SOURCE), among=5_000)
