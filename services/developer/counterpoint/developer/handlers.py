"""Handlers of the developer: gather evidence, decide by pure functions, return one commit."""

import asyncio
from dataclasses import replace

from counterpoint.bus import Service
from counterpoint.client import Gateway, Memory
from counterpoint.developer.agent.acts import INVESTIGATION
from counterpoint.developer.agent.conclusion import conclude_investigation
from counterpoint.developer.agent.form import Form
from counterpoint.developer.agent.lane_step import choose_lane
from counterpoint.developer.agent.planning import PLAN, conclude_plan
from counterpoint.developer.agent.review_step import with_review
from counterpoint.developer.agent.step_runner import InvestigationRunner
from counterpoint.developer.evidence.calibration import Calibration, load_calibration
from counterpoint.developer.evidence.downstream import look_up_downstream
from counterpoint.developer.evidence.gather import Evidence, evidence_of, gather, search
from counterpoint.developer.evidence.search_query import SearchQuery
from counterpoint.developer.policies.commits import closing_commit, commit_of, join_commits
from counterpoint.developer.policies.lanes import conclude
from counterpoint.developer.policies.parts import missing_parts, with_part
from counterpoint.developer.rag.conclusion import conclude_run
from counterpoint.developer.rag.graph import build_graph, run_graph, run_loop
from counterpoint.developer.rag.step_runner import StepRunner
from counterpoint.developer.settings import DEADLINES, Deadlines, DeveloperSettings
from counterpoint.proto.errors import Permanent
from counterpoint.proto.memory import Commit
from counterpoint.proto.tasks import TaskDelegated

OFFLINE = Gateway(None)
"""A gateway without models and web search."""
_FORMS = {"investigate": INVESTIGATION, "plan": PLAN, "build": PLAN}


def register(service: Service, settings: DeveloperSettings) -> None:
    """Register the handler of delegated tasks."""
    gateway, planner = settings.gateway(), settings.planner()
    chooser, reviewer = settings.chooser(), settings.reviewer()
    calibration = load_calibration(settings.calibration_file)

    async def handler(message: TaskDelegated, memory: Memory) -> Commit:
        return await handle_delegated(
            message, memory, gateway, calibration, settings.deadlines, planner, chooser, reviewer
        )

    service.on(TaskDelegated)(handler)


async def handle_delegated(
    message: TaskDelegated,
    memory: Memory,
    gateway: Gateway = OFFLINE,
    calibration: Calibration | None = None,
    deadlines: Deadlines = DEADLINES,
    planner: Gateway | None = None,
    chooser: Gateway = OFFLINE,
    reviewer: Gateway = OFFLINE,
) -> Commit:
    """Return the commit of a delegated task: an answer, a proposal or a stop.

    A question without an override is answered in steps. Offline they are one commit. If memory refuses it, the steps
    are repeated one by one, so that only the refused step falls back. With a model, a failure without an override is
    investigated in steps; a plan is written in steps with the model of `planner`, if that is given. The model of
    `chooser` may move a task to the lane of questions, that of `reviewer` may object to a result.
    """
    message = await choose_lane(message, memory, chooser)
    calibration = calibration or load_calibration()
    form, writer = form_of(message), gateway if message.lane == "investigate" else planner or gateway
    if form is not None and writer.model is not None:
        return await work_in_turns(message, memory, InvestigationRunner(
            message, memory, writer, calibration, deadlines.investigation_s, form
        ), reviewer)  # fmt: skip
    if message.lane != "answer" or message.override is not None:
        conclusion = conclude(message, await gather(memory, message, calibration), calibration)
        return commit_of(message, memory, await with_review(message, memory, conclusion, reviewer))
    if gateway.model is None and not gateway.searches_web and reviewer.model is None:
        steps = StepRunner(message, memory, gateway, calibration, deadlines.answer_s, single_commit=True)
        try:
            await memory.step(await answer_question(message, memory, steps, calibration))
            return Commit()
        except Permanent:
            pass
    steps = StepRunner(message, memory, gateway, calibration, deadlines.answer_s)
    return await answer_question(message, memory, steps, calibration, reviewer)


async def answer_question(
    message: TaskDelegated, memory: Memory, steps: StepRunner, calibration: Calibration, reviewer: Gateway = OFFLINE
) -> Commit:
    """Return the closing commit of a question, after its remaining steps. After the deadline no model is called and the
    query is not rewritten."""
    run = await steps.resume()
    if steps.single_commit:
        run = await run_loop(run, steps.run_step)
    else:
        await asyncio.to_thread(build_graph)
        run = await run_graph(run, steps.run_step)
    by_part = {part: await _search_part(message, memory, part, calibration) for part in missing_parts(message)}
    # Lineage is read last, since all that was read restricts later commits and model calls.
    evidence = replace(steps.evidence, downstream=await look_up_downstream(memory, message.task.target))
    conclusion = conclude_run(message, evidence, run)
    for part, found in by_part.items():
        conclusion = with_part(conclusion, part, found, calibration)
    conclusion = await with_review(message, memory, conclusion, reviewer)
    return join_commits(steps.pending, closing_commit(message, memory, conclusion, *steps.last_ids(run)))


def form_of(message: TaskDelegated) -> Form | None:
    """Return the form of the proposals that a configured model makes for a task: for a failure or a plan, unless an
    override says what to do, or the task is only assessed again."""
    return _FORMS.get(message.lane) if message.override is None and message.purpose == "work" else None


async def work_in_turns(
    message: TaskDelegated, memory: Memory, steps: InvestigationRunner, reviewer: Gateway = OFFLINE
) -> Commit:
    """Return the closing commit of a failure or a plan, after the remaining steps of the work on it."""
    run = await steps.run()
    # Lineage is read last, since all that was read restricts later commits and model calls.
    evidence = replace(steps.rules.evidence, downstream=await look_up_downstream(memory, message.task.target))
    rules = conclude(message, evidence, steps.calibration)
    if steps.form is PLAN:
        conclusion = conclude_plan(message, rules, run, steps.readings, steps.calibration)
    else:
        conclusion = conclude_investigation(message, rules, run, steps.readings)
    if conclusion.model is not None:  # Two worked on one thing: the model and the rules.
        conclusion = replace(conclusion, beside=steps.rules_action)
    conclusion = await with_review(message, memory, conclusion, reviewer)
    return closing_commit(message, memory, conclusion, *run.last)


async def _search_part(message: TaskDelegated, memory: Memory, part: str, calibration: Calibration) -> Evidence:
    query = SearchQuery(text=part)
    return evidence_of(message, await search(memory, message, query), calibration, query)
