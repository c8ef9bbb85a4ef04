"""Replays of the demo: the decisions of a task run again, also without the memory that they rest on."""

from counterpoint.cli.demo.stage import DemoStage
from counterpoint.cli.demo.task import holds, is_ended
from counterpoint.cli.replay.processes import ReplayProcesses
from counterpoint.cli.replay.task import TaskReport, replay_task
from counterpoint.proto.tasks import Task


def replay(stage: DemoStage, first: Task, again: Task) -> None:
    """Replay both failures, the second one also without the fix of the first."""
    stage.report(again, again.attempt or 1, {"outcome": "succeeded"})
    stage.wait_until(again, "the second failure to complete", is_ended)
    fix = f"attempts/{first.attempt_id}"
    with ReplayProcesses() as processes:

        def replayed(task: Task, without: str | None = None) -> TaskReport:
            return replay_task(stage.cast.administrator, task.task_id, stage.project, processes, without=without)

        for task in (first, again):
            report = replayed(task)
            stage.transcript.say(f"replayed: {report.contexts} contexts rebuilt from the record, {report.verdict}")
            stage.transcript.check(
                "what each step was given is unchanged, and each decision is the same",
                report.verdict == "same" and report.contexts == len(report.steps),
                [(step.service, step.verdict, *step.why) for step in report.steps],
            )
        report = replayed(again, fix)
    instruction = first.override.instruction if first.override else ""
    proposed = [each.decision for step in report.steps if step.difference for each in step.replayed]
    stage.transcript.say(f"replayed without {fix}: {report.verdict}")
    stage.transcript.check(
        "without that attempt, its fix would not have been proposed",
        holds(again.proposal, instruction) and proposed and not any(holds(text, instruction) for text in proposed),
        proposed,
    )
