"""A model in the lane of plans: memory and the provider index judge what it writes, and the plan of the rules stays."""

import json
from collections.abc import Mapping, Sequence
from typing import Any

import pytest
from agents.obedient import call, readings
from agents.process_death import ProcessDeath
from agents.question_runs import Book
from agents.scripted_model import ScriptedGateway
from agents.test_developer_providers import INDEX
from hypothesis import example, given
from hypothesis import strategies as st

from counterpoint.client import Gateway
from counterpoint.developer.evidence.providers import look_up_providers
from counterpoint.developer.handlers import OFFLINE, handle_delegated
from counterpoint.developer.policies.provider_rules import objection_to
from counterpoint.proto.errors import Denied, Permanent, Problem
from counterpoint.proto.tasks import SubmitTask, TaskDelegated, TaskWorked

GOAL = "Load the invoices of the ledger into Snowflake every night"
HOWTO = """# Invoices

The ledger of Acme Ledger writes a CSV file of invoices to the share at 02:00.

1. Copy the file of invoices from the share into a stage of Snowflake.
2. Load the stage into the table INVOICES and compare the totals.
3. Call the ledger with a BashOperator when the totals differ.
"""
STEPS = (
    "Copy the file of invoices from the share into a stage of Snowflake [{}].",
    "Load the stage into the table INVOICES and compare the totals [{}].",
)


def shelf_of(*extra: tuple[str, str, int]) -> Book:
    """A memory with a how-to, the provider index and the record of the task."""

    async def alike(query: str, texts: Any) -> list[float]:
        return [0.8] * len(texts)

    shelf = Book()
    shelf.similarity = alike
    shelf.ingest("invoices.md", HOWTO)
    for source, text, integrity in extra:
        shelf.ingest(source, text, integrity)
    for row in INDEX:
        shelf.put("providers", row.package, row.model_dump(mode="json"))
    shelf.put("tasks", "t", {"task_id": "t"})
    return shelf


def planned(systems: Sequence[str] = ("Snowflake",), kind: str = "plan", **fields: Any) -> TaskDelegated:
    """A plan, delegated."""
    task = SubmitTask.model_validate({"kind": kind, "description": GOAL, "systems": tuple(systems)})
    values: dict[str, Any] = {
        "task_id": "t", "project": "shop", "session_id": "s", "attempt": 1, "task": task, "after": ("before",),
        "lane": "plan" if kind == "plan" else "build", **fields,
    }  # fmt: skip
    return TaskDelegated.model_validate(values)


async def delivered(shelf: Book, gateway: Gateway = OFFLINE, message: TaskDelegated | None = None) -> TaskWorked:
    """One delivery and its result."""
    memory = shelf.delivered("message", "t")
    await memory.step(await handle_delegated(message or planned(), memory, gateway))
    return shelf.worked()


def number(messages: Sequence[Mapping[str, str]], has: str) -> int:
    """The number of the first reading that contains a text."""
    return next(each[0] for each in readings(messages) if has in each[3])


def plans(*steps: tuple[str, Sequence[int]] | str, has: str = "Copy the file", **parts: str) -> Any:
    """A model that writes a plan; `{}` is the number of the reading that contains `has`, `{p}` of the provider."""

    def said(messages: Sequence[Mapping[str, str]]) -> str:
        known = {"p": next((each[0] for each in readings(messages) if each[1] == "provider"), 99)}
        at = number(messages, has)
        written = [(each, ()) if isinstance(each, str) else each for each in steps]
        body = {name: text.format(at, **known) for name, text in parts.items()}
        does = [{"does": text.format(at, **known), "after": list(after)} for text, after in written]
        return json.dumps({"hypothesis": "it is known", "proposal": {**body, "steps": does}})

    return said


def sections(text: str | None) -> dict[str, str]:
    """The sections of a plan by title."""
    parts = (text or "").split("\n## ")
    return {part.partition("\n")[0]: part.partition("\n")[2] for part in parts[1:]}


async def test_the_rules_write_a_plan_with_dependencies_providers_and_open_points() -> None:
    worked = await delivered(shelf_of())
    assert worked.outcome == "answered"
    found = sections(worked.text)
    assert list(found) == ["Searched", "Connections and operators", "Steps", "Open points"]
    assert "apache-airflow-providers-snowflake" in found["Connections and operators"]
    assert "Step 3 of invoices.md. Depends on 2." in found["Steps"]
    assert "BashOperator" not in (worked.text or ""), "a provider exists"
    left_out = "- Passages of invoices.md that are code or name a stand-in for a provider are left out: 1."
    assert left_out in found["Open points"]
    assert all(each.quote in (worked.text or "") for each in worked.findings.citations)
    assert not any("objection" in each for each in worked.findings.caveats), worked.findings.caveats


async def test_a_models_sections_stand_beside_the_plan_of_the_rules_with_citations() -> None:
    rules = await delivered(shelf_of())
    shelf = shelf_of()
    model = ScriptedGateway(
        call("search", text="stage of invoices"),
        plans(
            (STEPS[0], ()), (STEPS[1], (1,)),
            operators="SnowflakeSqlApiOperator of apache-airflow-providers-snowflake runs the load [{p}].",
            architecture="Acme Ledger writes a CSV file of invoices to the share at 02:00 [{}].",
        ),
    )  # fmt: skip
    worked = await delivered(shelf, model)
    assert (worked.outcome, worked.confidence) == (rules.outcome, rules.confidence)
    found = sections(worked.text)
    assert list(found) == ["Searched", "Architecture", "Connections and operators", "Steps", "Open points"]
    assert "- Acme Ledger writes a CSV file of invoices to the share at 02:00. [" in found["Architecture"]
    assert "- SnowflakeSqlApiOperator" in found["Connections and operators"]
    assert "In the words of m:" in found["Steps"]
    steps = [line for line in found["Steps"].splitlines() if line[:3] in ("1. ", "2. ")]
    assert [line.rpartition(" Depends")[2] for line in steps] == [" on nothing.", " on 1."]
    assert all(line in found["Steps"] for line in sections(rules.text)["Steps"].splitlines() if line.startswith("> "))
    assert {each.store for each in worked.findings.citations} == {"chunks", "providers"}
    decisions = shelf.decisions()
    assert [each.decision_type for each in decisions] == ["confidence", "rules", "plan", "plan", "answer", "review"]
    assert [each.model for each in decisions] == [None, None, "m", "m", "m", None]
    assert shelf.steps == ["00-rules", "01-turn", "02-turn", "done"]
    assert "providers" in model.asked[0][1]["content"]


async def test_steps_that_a_constraint_forbids_are_in_no_plan() -> None:
    constraint = {"text": "never copy the file of invoices", "by": "ada", "by_kind": "person"}
    for gateway in (OFFLINE, ScriptedGateway(plans(*STEPS))):
        worked = await delivered(shelf_of(), gateway, planned(constraints=[constraint]))
        assert worked.objections == ()
        assert worked.outcome == "answered"
        found = sections(worked.text)
        assert "Copy the file" not in found["Steps"]
        assert "Load the stage" in found["Steps"]
        assert "- Steps of invoices.md that a constraint of the task forbids are left out: 1." in found["Open points"]


async def test_a_step_that_memory_does_not_support_is_cut_and_its_dependents_say_so() -> None:
    invented = "Rename the warehouse of the mail server [{}]."
    worked = await delivered(
        shelf_of(), ScriptedGateway(plans((STEPS[0], (3,)), (invented, (1,)), (STEPS[1], (1, 2, 2))))
    )
    steps = [line for line in sections(worked.text)["Steps"].splitlines() if line[:2] in ("1.", "2.", "3.")]
    assert len(steps) == 2
    assert steps[0].endswith("Depends on nothing."), "a step cannot depend on a later one"
    assert steps[1].endswith("Depends on 1. It also depends on a step that memory does not support.")
    assert "mail server" not in (worked.text or "")
    assert "statements of the model that memory does not support were left out: 1" in worked.findings.caveats


@pytest.mark.parametrize(
    ("said", "why"),
    [
        ("Copy the file of invoices with a BashOperator into a stage of Snowflake [{}].", "general operator"),
        ("Call the ledger with a BashOperator when the totals differ [{}].", "general operator"),
        ("Copy the file of invoices with a bash operator into a stage of Snowflake [{}].", "general operator"),
        ("Copy the file of invoices by @task into a stage of Snowflake [{}].", "general operator"),
        ("Copy the file of invoices with a custom operator into a stage [{}].", "stand-in"),
        ("Copy the file of invoices with LedgerCopyOperator into a stage [{}].", "ledgercopyoperator"),
        ("```\nCopy the file of invoices from the share into a stage\n``` [{}]", "code"),
        ("Copy the file of invoices from the share, ![x](https://a.example/b) into a stage [{}].", ""),
        ("Copy the file of invoices from the share into a stage of Snowflake.", "cites nothing"),
    ],
)
async def test_without_a_supported_step_the_plan_is_that_of_the_rules(said: str, why: str) -> None:
    rules = await delivered(shelf_of())
    model = ScriptedGateway(plans(said, has="Copy the file"))
    worked = await delivered(shelf_of(), model)
    assert (worked.text, worked.outcome) == (rules.text, rules.outcome)
    assert worked.findings.caveats[-1].startswith("the plan is that of the rules, a model added nothing: ")
    assert why in model.asked[1][-1]["content"].lower()
    assert "a.example" not in worked.model_dump_json()


async def test_the_plan_of_a_missing_provider_has_the_text_of_a_model_and_no_stand_in() -> None:
    systems = ("Acme Ledger", "Snowflake", "Zeppo Mail")
    rules = await delivered(shelf_of(), message=planned(systems))
    model = ScriptedGateway(
        plans(
            (STEPS[0], ()),
            ("Install the provider of Acme Ledger from the share of invoices [{}].", ()),
            architecture="Acme Ledger writes a CSV file of invoices to the share at 02:00 [{}].",
        )
    )
    worked = await delivered(shelf_of(), model, planned(systems))
    assert (worked.outcome, worked.code, worked.needs) == ("stopped", "no_provider", rules.needs)
    assert [each.path for each in worked.plans] == [
        "docs/provider_plan_acme_ledger.md", "docs/provider_plan_zeppo_mail.md",
    ]  # fmt: skip
    first = sections(worked.plans[0].text)
    assert list(first) == [
        "Searched", "Known about it", "Architecture", "Connections and operators", "Alternatives", "Steps",
        "Decision record", "Open points",
    ]  # fmt: skip
    assert "After that, in the words of m:\n\n1. Copy the file of invoices" in first["Steps"]
    assert "Install the provider" not in (worked.text or "")
    assert worked.plans[1].text.endswith("What concerns the whole task is in `docs/provider_plan_acme_ledger.md`.")
    assert worked.text == "\n\n".join(each.text for each in worked.plans)


async def test_a_task_that_needs_code_has_a_plan_too_and_still_stops() -> None:
    worked = await delivered(shelf_of(), ScriptedGateway(plans(STEPS[0])), planned(kind="develop"))
    assert (worked.outcome, worked.code) == ("stopped", "no_model")
    assert "In the words of m:" in (worked.text or "")


async def test_the_model_of_the_manager_writes_plans_and_that_of_the_developer_does_not() -> None:
    writer, other = ScriptedGateway(plans(STEPS[0])), ScriptedGateway(plans(STEPS[0]))
    shelf = shelf_of()
    memory = shelf.delivered("message", "t")
    await memory.step(await handle_delegated(planned(), memory, other, planner=writer))
    assert len(writer.asked) == 1
    assert other.asked == []
    memory = shelf_of().delivered("message", "t")
    await memory.step(await handle_delegated(planned(), memory, other, planner=Gateway(None)))
    assert other.asked == []


@pytest.mark.parametrize(
    "fault", [Denied("budget", "limit project"), Permanent("unknown_outcome", (Problem(field="call", problem="?"),))]
)
async def test_a_call_that_fails_leaves_the_plan_of_the_rules(fault: Any) -> None:
    rules = await delivered(shelf_of())
    worked = await delivered(shelf_of(), ScriptedGateway(fault))
    assert worked.text == rules.text
    assert "the model was not available" in worked.findings.caveats[-1]


async def test_a_killed_plan_goes_on_at_the_first_missing_turn_and_pays_for_no_prompt_twice() -> None:
    script = (call("providers", system="Snowflake"), call("search", text="stage"), plans(STEPS[0]))
    whole = await delivered(shelf_of(), ScriptedGateway(*script))
    for kill in range(1, 7):
        shelf, model, left = shelf_of(), ScriptedGateway(*script), [kill]

        def dies(what: str, left: list[int] = left) -> None:
            left[0] -= 1
            if left[0] == 0:
                raise ProcessDeath

        shelf.after = model.after = dies
        try:
            worked = await delivered(shelf, model)
        except ProcessDeath:
            worked = await delivered(shelf, model)
        assert worked.text == whole.text
        prompts = [json.dumps(each) for each in model.asked]
        assert len(prompts) == len(set(prompts)) == 3


async def test_the_outcomes_of_similar_plans_are_read_and_support_nothing() -> None:
    shelf = shelf_of()
    note = {"task_id": "t-0", "text": f"{GOAL}: the plan failed, rename the stage of Snowflake first",
            "outcome": "failed", "at": "2026-11-01T00:00:00Z"}  # fmt: skip
    shelf.put("planner_memory", "n", note)
    model = ScriptedGateway(plans("Rename the stage of Snowflake first [{}].", has="rename the stage"))
    worked = await delivered(shelf, model)
    assert "(plan planner_memory/n" in model.asked[0][1]["content"]
    assert "Rename the stage" not in (worked.text or "")
    assert "it rests on a plan, which supports nothing" in model.asked[1][-1]["content"]


CLASSES = sorted({name for row in INDEX for name in (*row.operators, *row.sensors, *row.hooks)})
GENERAL = ("BashOperator", "PythonOperator", "BranchPythonOperator", "PythonVirtualenvOperator", "BashSensor")
NAMES = st.one_of(
    st.sampled_from(CLASSES),
    st.sampled_from(GENERAL),
    st.builds(
        lambda stem, end: stem.capitalize() + end,
        st.text("abcdefghijklmnopqrstuvwxyz", min_size=2, max_size=12),
        st.sampled_from(["Operator", "Sensor", "Hook"]),
    ),
)
SYSTEMS = st.lists(st.sampled_from(["Snowflake", "Amazon", "Postgres", "Acme Ledger", "FreeIPA"]), max_size=3)


@given(systems=SYSTEMS, names=st.lists(NAMES, min_size=1, max_size=4), words=st.text("abc .,()`", max_size=12))
@example(systems=["Snowflake"], names=["BashOperator"], words="")
@example(systems=[], names=["BashOperator"], words="")
def test_a_statement_of_a_plan_names_only_entries_of_the_provider_index(
    systems: list[str], names: list[str], words: str
) -> None:
    providers = look_up_providers(systems, "", INDEX)
    refused = objection_to(f"Use {f' {words} and '.join(names)} for the load", providers)
    unofficial = [name for name in names if name not in CLASSES and (systems or name not in GENERAL)]
    assert (refused is not None) >= bool(unofficial), (refused, unofficial)


@given(
    system=st.sampled_from(["Acme Ledger", "FreeIPA", "Zeppo"]), package=st.from_regex(r"[a-z]{2,9}", fullmatch=True)
)
def test_a_package_that_the_index_does_not_have_is_no_part_of_a_plan(system: str, package: str) -> None:
    providers = look_up_providers([system], "", INDEX)
    known = any(row.package == f"apache-airflow-providers-{package}" for row in INDEX)
    assert (objection_to(f"Install apache-airflow-providers-{package}", providers) is None) == known
    assert objection_to(f"Use the {system} provider of the community", providers) is not None
    assert objection_to(f"Read {system} by airflow.providers.{package}x.hooks", providers) is not None
