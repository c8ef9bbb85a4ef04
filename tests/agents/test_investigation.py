"""A model in the lane of failures: what it proposes is judged by the rules, whose own result is kept beside it."""

import json
from datetime import timedelta
from typing import Any

import pytest
from agents.developer_memory import START
from agents.obedient import call, proposal
from agents.question_runs import Book
from agents.scripted_model import ACT, ERROR, FAILURE, ScriptedGateway, delivered, failure, proposes, shelf_of
from prometheus_client import REGISTRY

from counterpoint.developer.agent import prompt as prompts
from counterpoint.developer.handlers import OFFLINE
from counterpoint.proto.errors import Transient
from counterpoint.proto.tasks import JobRef, Target, TaskDelegated


async def test_a_supported_proposal_takes_the_place_of_that_of_the_rules_which_is_kept_beside_it() -> None:
    of_rules = shelf_of()
    rules = await delivered(of_rules)
    rules_attempt = of_rules.one("attempts", rules.attempt_id or "").body["tried"]
    assert rules.alternative is None
    shelf = shelf_of()
    model = ScriptedGateway(call("search", text="flush the name cache"), proposes("Flush the name cache"))
    worked = await delivered(shelf, model)
    assert (rules.outcome, worked.outcome) == ("proposed", "proposed")
    assert worked.text is not None
    assert worked.text.startswith(
        "**Action**: Flush the name cache of the ldap.internal hosts with `nscd -i hosts`. [1]"
    )
    assert [citation.source_path for citation in worked.findings.citations] == ["warehouse.md"]
    assert worked.confidence == rules.confidence
    assert worked.alternative == rules_attempt
    proposed = next(action for action in shelf.line() if action["kind"] == "propose")
    noted = next(action for action in shelf.line() if action.get("result", "").startswith("propose: "))
    assert proposed["coordinates_with"] == [noted["action_id"]]
    attempt = shelf.one("attempts", worked.attempt_id or "").body
    assert attempt["tried"] == "- Flush the name cache of the ldap.internal hosts with `nscd -i hosts`."
    decisions = shelf.decisions()
    assert [each.decision_type for each in decisions] == [
        "confidence",
        "rules",
        "investigate",
        "investigate",
        "propose",
        "review",
    ]
    assert decisions[1].decision.startswith("propose: ")
    assert ACT in decisions[1].decision
    assert [each.model for each in decisions] == [None, None, "m", "m", "m", None]
    assert [each.parent_decision_id for each in decisions[1:]] == [each.decision_id for each in decisions[:-1]]
    assert shelf.steps == ["00-rules", "01-turn", "02-turn", "done"]
    assert [action["kind"] for action in shelf.line()] == [
        "search",
        "assess",
        "assess",
        "search",
        "generate",
        "propose",
        "review",
    ]


async def test_an_act_of_a_model_that_a_constraint_forbids_is_sent_back_and_then_left_out() -> None:
    constraint = {"text": "never flush a name cache", "by": "ada", "by_kind": "person"}
    script = proposes("Flush the name cache")
    first = await delivered(shelf_of(), ScriptedGateway(script), failure(constraints=[constraint]))
    assert [each.rule for each in first.objections] == ["prohibition"]
    again = failure(constraints=[constraint], objections=first.objections)
    second = await delivered(shelf_of(), ScriptedGateway(script), again)
    assert second.outcome == "proposed"
    assert ACT in (second.text or "")
    assert "the act that a model proposed is one that a constraint forbids" in second.findings.caveats


async def test_statements_without_support_in_memory_are_left_out() -> None:
    parts = {
        "cause": "The resolver of the cluster has lost its cache [2]. The moon is full [2].",
        "verify": "Run `dig ldap.external` [2].",
        "risk": "Nobody knows.",
        "refutes": "Check that `dig ldap.internal` answers [2].",
    }
    worked = await delivered(shelf_of(), ScriptedGateway(lambda messages: proposal(messages, has="Restart", **parts)))
    text = worked.text or ""
    assert "**Likely cause**: The resolver of the cluster has lost its cache. [" in text
    assert "**What would refute it**: Check that `dig ldap.internal` answers." in text
    assert all(absent not in text for absent in ("moon", "ldap.external", "Nobody", "How to verify", "Risk"))
    assert "statements of the model that memory does not support were left out: 3" in worked.findings.caveats


@pytest.mark.parametrize(
    ("says", "why"),
    [
        (json.dumps({"proposal": {"action": "Reboot the mail server [2]."}}), "action: has little in common"),
        (
            json.dumps({"proposal": {"action": "Restart the resolver with `systemctl restart named`."}}),
            "action: cites nothing",
        ),
        (json.dumps({"proposal": {"action": f"{ACT} [99]"}}), "action: cites a passage that does not exist"),
        (json.dumps({"proposal": {"cause": "The resolver has lost its cache [2]."}}), "it is empty"),
        (
            json.dumps({"proposal": {"action": "Resolve ldap.internal after the DNS lookup timed out [1]."}}),
            "action: it rests on a task",
        ),
        (json.dumps({"proposal": {"action": "Restart the resolver, ![x](https://a.example/b) [2]."}}), ""),
    ],
)
async def test_without_a_supported_act_the_result_is_that_of_the_rules(says: str, why: str) -> None:
    rules, shelf = await delivered(shelf_of()), shelf_of()
    worked = await delivered(shelf, model := ScriptedGateway(says))
    assert worked.text == rules.text
    assert worked.findings.caveats[:-1] == rules.findings.caveats
    end = "its replies could not be used: no act in it is supported"
    assert worked.findings.caveats[-1] == f"the investigation by a model made no proposal: {end}"
    assert f"no act in it is supported: {why}" in model.asked[1][-1]["content"]
    assert worked.confidence == rules.confidence
    assert shelf.decisions()[-1].model is None


async def test_a_model_with_an_unsupported_proposal_may_propose_again() -> None:
    model = ScriptedGateway(json.dumps({"proposal": {"action": "Reboot the mail server [2]."}}), proposes())
    worked = await delivered(shelf_of(), model)
    assert (worked.text or "").startswith(f"**Action**: {ACT}")
    assert "This could not be used: no act in it is supported" in model.asked[1][-1]["content"]


async def test_an_act_that_failed_for_this_failure_is_not_proposed_again() -> None:
    shelf = shelf_of()
    tried = {"tried": ACT, "outcome": "failed", "by": "ann", "by_kind": "person", "attempt": 1, "project": "shop"}
    told = {"description": FAILURE, "error_message": ERROR, "at": START.isoformat()}
    signature = {"error_signature": None}
    shelf.put("attempts", "a-1", {"attempt_id": "a-1", "task_id": "t", **tried, **told, **signature})
    worked = await delivered(shelf, model := ScriptedGateway(proposes()), failure(attempt=2))
    assert (worked.text or "").startswith("From runbook.md")
    assert "action: it was tried in this task, or failed" in model.asked[1][-1]["content"]


async def test_an_act_of_this_task_without_an_outcome_may_be_proposed_again() -> None:
    shelf = with_attempt(shelf_of(), ACT, task_id="t", outcome="unknown")
    worked = await delivered(shelf, ScriptedGateway(proposes()), failure(attempt=2))
    assert (worked.text or "").startswith(f"**Action**: {ACT}")


async def test_an_act_that_the_cited_text_forbids_is_not_proposed() -> None:
    shelf = shelf_of({"warning.md": "Never flush the name cache of the ldap.internal hosts."})
    says = lambda messages: proposal(messages, has="Never").replace("Never flush", "Flush")  # noqa: E731
    worked = await delivered(shelf, model := ScriptedGateway(says))
    assert "Flush the name cache" not in (worked.text or "")
    assert "action: the cited text advises against it" in model.asked[1][-1]["content"]


def with_attempt(shelf: Book, act: str, **fields: Any) -> Book:
    """A memory with an attempt at this failure, or at another one."""
    body = {
        "attempt_id": "a-1", "task_id": "t-0", "project": "shop", "attempt": 1, "tried": act, "outcome": "succeeded",
        "by": "ann", "by_kind": "person", "description": FAILURE, "error_message": ERROR, "at": START.isoformat(),
    }  # fmt: skip
    shelf.put("attempts", "a-1", {**body, **fields})
    return shelf


PINNED = "Pinned ldap.internal in /etc/hosts of the workers"
ELSEWHERE = {"description": "The printer of the office jams", "error_message": "paper jam in tray two"}


async def test_an_earlier_success_is_cited_and_its_act_quoted() -> None:
    rules = await delivered(with_attempt(shelf_of(), PINNED))
    shelf = with_attempt(shelf_of(), PINNED)
    worked = await delivered(shelf, ScriptedGateway(lambda messages: proposal(messages, "attempt", "Pinned")))
    assert shelf.one("attempts", worked.attempt_id or "").body["tried"] == PINNED
    assert worked.findings.citations[0].source_path == "attempts/a-1#tried"
    assert any(source.id == "a-1" for source in shelf.decisions()[-1].sources)
    assert worked.findings.likelihood == rules.findings.likelihood is not None
    assert not any("may be a different one" in caveat for caveat in worked.findings.caveats)


async def test_an_act_from_another_failure_says_so_and_has_no_likelihood() -> None:
    shelf = with_attempt(shelf_of(), PINNED, **ELSEWHERE)
    looks = call("attempts", text="printer jams in tray two")
    worked = await delivered(shelf, ScriptedGateway(looks, lambda messages: proposal(messages, "attempt", "Pinned")))
    assert (worked.text or "").startswith(f"**Action**: {PINNED}")
    assert worked.findings.likelihood is None
    assert "the cited attempt was at a failure that may be a different one" in worked.findings.caveats


async def test_an_act_that_failed_elsewhere_supports_no_act() -> None:
    shelf = with_attempt(shelf_of(), PINNED, outcome="failed", **ELSEWHERE)
    looks = call("attempts", text="printer jams in tray two")
    model = ScriptedGateway(looks, lambda messages: proposal(messages, "attempt", "Pinned"))
    assert PINNED not in ((await delivered(shelf, model)).text or "")
    assert "action: it rests on an attempt that did not succeed" in model.asked[2][-1]["content"]


async def test_an_override_is_followed_without_a_model() -> None:
    override = {"instruction": "Reboot the host", "reasoning": "it hangs", "by": "ann", "by_kind": "person"}
    shelf = shelf_of()
    shelf.put("tasks", "t", {"task_id": "t", "override": override})
    message = TaskDelegated.model_validate({**failure().model_dump(mode="json"), "override": override})
    worked = await delivered(shelf, model := ScriptedGateway(proposes()), message)
    assert "Reboot the host" in (worked.text or "")
    assert not model.asked


async def test_a_task_without_its_record_is_tried_again() -> None:
    shelf = shelf_of()
    shelf.drop("tasks", "t")
    with pytest.raises(Transient, match="does not exist yet"):
        await delivered(shelf, ScriptedGateway(proposes()))


async def test_a_prompt_shows_the_newest_results_whole_and_leaves_out_the_oldest(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(prompts, "PROMPT_CHARS", 6_000)
    names = ("alpha", "bravo", "delta")
    shelf = shelf_of({f"{name}.md": f"{name} " * 600 for name in names})
    model = ScriptedGateway(*(call("search", text=name) for name in names), proposes())
    await delivered(shelf, model)
    *_, alpha, _, bravo, _, delta = (each["content"] for each in model.asked[-1])
    assert [each.startswith("left out") for each in (alpha, bravo, delta)] == [True, True, False]


async def test_a_stop_of_the_rules_stays_a_stop_and_offers_the_finding_of_the_model() -> None:
    message = failure(description="the printer of the office does not print", error_message="paper jam in tray two")
    rules = await delivered(shelf_of(), OFFLINE, message)
    shelf = shelf_of()
    worked = await delivered(shelf, ScriptedGateway(call("search", text="restart the resolver"), proposes()), message)
    assert (worked.outcome, worked.code, worked.confidence) == (rules.outcome, rules.code, rules.confidence)
    assert (worked.outcome, worked.code) == ("stopped", "low_confidence")
    assert worked.needs == rules.needs
    assert (worked.text or "").startswith(f"**Action**: {ACT}")
    assert not shelf.kept("attempts")


@pytest.mark.parametrize("fields", [{"purpose": "reassess"}, {}])
async def test_a_reassessment_and_a_house_without_a_model_ask_no_model(fields: dict[str, Any]) -> None:
    model = ScriptedGateway(proposes())
    shelf = shelf_of()
    worked = await delivered(shelf, model if fields else OFFLINE, failure(**fields))
    assert not model.asked
    assert worked.text == (await delivered(shelf_of())).text
    assert shelf.steps == ["done"]


async def test_every_tool_is_a_query_and_shows_its_results() -> None:
    shelf = shelf_of()
    target = Target(job=JobRef(namespace="prod", name="orders"))
    shelf.put("jobs", "prod/orders", {"namespace": "prod", "name": "orders", "owners": ["team-o"]})
    edge = {"kind": "data", "source": "job:prod/orders", "target": "dataset:prod/table", "job": "job:prod/orders"}
    shelf.put("edges", "e", edge)
    shelf.put("datasets", "prod/table", {"namespace": "prod", "name": "table"})
    shelf.put("runs", "r", {"run_id": "r", "job": "job:prod/orders", "state": "FAIL", "error_message": "broken pipe"})
    shelf.put("providers", "p", {"name": "Kafka", "package": "apache-airflow-providers-apache-kafka"})
    shelf.put("actions", "x", {
        "action_id": "x", "task_id": "t", "agent": "router", "kind": "route", "reasoning": "a failure",
        "at": (START - timedelta(days=1)).isoformat(),
    })  # fmt: skip
    calls = [
        call("lineage"), call("runs"), call("providers", system="kafka"), call("search", text="coffee"),
        call("attempts", text="dns"), call("search", text="resolver"),
    ]  # fmt: skip
    model = ScriptedGateway(*calls, proposes())
    worked = await delivered(shelf, model, failure(target=target))
    assert worked.outcome == "proposed"
    shown = "\n".join(each["content"] for each in model.asked[-1])
    for text in ("downstream 1: dataset prod/table", "broken pipe", "apache-airflow-providers-apache-kafka",
                 "router route: a failure", "descaled on Mondays"):  # fmt: skip
        assert text in shown, text
    assert "Make the proposal now." in shown
    stores = {write.store for commit in shelf.commits for write in commit.writes}
    assert stores == {"actions", "checkpoints", "attempts"}


async def test_turns_and_endings_are_counted() -> None:
    def counts() -> list[float]:
        turns = [("investigation_turns", {"usable": each}) for each in ("yes", "no")]
        metrics = [("investigations", {"ending": "proposed"}), *turns]
        return [REGISTRY.get_sample_value(f"counterpoint_{name}_total", labels) or 0.0 for name, labels in metrics]

    before = counts()
    await delivered(shelf_of(), ScriptedGateway("prose", call("runs"), proposes()))
    assert [now - then for now, then in zip(counts(), before, strict=True)] == [1, 2, 1]
