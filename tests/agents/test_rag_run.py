"""The course of a run, on random graders, drafts, verdicts, failures and clocks: it ends, within bounds (row C6)."""

import asyncio
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from counterpoint.developer.rag import graph
from counterpoint.developer.rag import run as course
from counterpoint.developer.rag.graph import MOST_STEPS, NODES, finish
from counterpoint.developer.rag.run import Asked, Draft, Graded, Node, Route, Run, Sentence, Verdict
from counterpoint.proto.errors import Conflict, Denied, Transient

QUESTION = "Who owns finance_daily?"
RULES = Path(course.__file__).parent


class Dice(graph.Desk):
    """A desk whose every decision is drawn; `seen` are the nodes it was at."""

    def __init__(self, draw: st.DrawFn, lose: bool = False) -> None:
        self.draw = draw
        self.lose = lose
        self.lost = 0
        self.seen: list[Node] = []

    async def take(self, node: Node, run: Run) -> Run:
        assert run.next == node
        self.seen.append(node)
        before = self.begun_again(run)
        if before is not run:
            return course.retrieved(before, ())
        if self.chance("the step fails"):
            return course.failed(run, node, "drawn")
        late = self.chance("late")
        match node:
            case "route":
                return course.routed(run, Route(mode="hybrid", reason="drawn"), Asked(text=run.question))
            case "retrieve":
                return course.retrieved(run, ())
            case "evaluate":
                other = Asked(text=f"other words {run.rewrites}") if self.chance("other words") else None
                graded = Graded(sufficient=self.chance("enough"), probability=0.5, reason="drawn")
                return course.evaluated(run, graded, other, late)
            case "generate":
                sentences = tuple(Sentence(text="said", rests_on=(0,)) for _ in range(self.draw(st.integers(0, 3))))
                return course.generated(run, Draft(sentences=sentences, declined=self.chance("declined")))
            case "validate":
                assert run.draft is not None
                verdicts = tuple(Verdict(supported=self.chance("supported")) for _ in run.draft.sentences)
                return course.validated(run, verdicts, late)

    def begun_again(self, run: Run) -> Run:
        """The run, or as it is where a restart finds that what it rests on has changed."""
        if not self.lose or run.next in ("route", "retrieve") or self.lost >= 3 or not self.chance("lost"):
            return run
        self.lost += 1
        return course.lost(run)

    def chance(self, of: str) -> bool:
        return self.draw(st.booleans(), label=of)


def ended(run: Run) -> None:
    """What holds of every run that has ended."""
    assert run.next is None
    assert run.ending in ("answered", "insufficient_evidence", "fallback")
    assert run.rewrites <= course.MAX_REWRITES == 2
    assert run.regenerations <= course.MAX_REGENERATIONS == 1
    if run.ending == "answered":
        assert run.draft is not None
        assert len(run.verdicts) == len(run.draft.sentences) > 0
        assert all(verdict.supported for verdict in run.verdicts)


async def walked(run: Run, desk: graph.Desk) -> Run:
    """A run to its end, by `run` alone."""
    while run.next is not None:
        run = await desk.take(run.next, run)
    return run


@given(st.data())
def test_every_run_ends_within_its_bounds(data: st.DataObject) -> None:
    desk = Dice(data.draw)
    run = asyncio.run(finish(Run(question=QUESTION), desk))
    ended(run)
    assert run.steps == len(desk.seen) <= MOST_STEPS
    assert desk.seen.count("retrieve") <= 1 + course.MAX_REWRITES
    assert desk.seen.count("generate") <= 1 + course.MAX_REGENERATIONS
    assert desk.seen[0] == "route"
    assert desk.seen.count("route") == 1


@given(st.data())
def test_a_run_whose_evidence_is_lost_on_the_way_ends_too(data: st.DataObject) -> None:
    desk = Dice(data.draw, lose=True)
    run = asyncio.run(walked(Run(question=QUESTION), desk))
    ended(run)
    assert run.steps == len(desk.seen) <= MOST_STEPS * (1 + desk.lost)


@given(st.data())
def test_a_run_that_goes_on_where_it_was_has_steps_enough(data: st.DataObject) -> None:
    """LangGraph counts its rounds anew; whatever was done before, what is left fits."""
    desk = Dice(data.draw)
    run = Run(question=QUESTION)
    for _ in range(data.draw(st.integers(0, MOST_STEPS - 1))):
        if run.next is not None:
            run = asyncio.run(desk.take(run.next, run))
    if run.next not in ("route", "retrieve") and data.draw(st.booleans()):
        run = course.lost(run)
    ended(asyncio.run(finish(run, desk)))


class Script(graph.Desk):
    """A desk that takes the steps another took."""

    def __init__(self, taken: dict[int, Run]) -> None:
        self.taken = taken
        self.seen: list[Node] = []

    async def take(self, node: Node, run: Run) -> Run:
        assert run.next == node
        self.seen.append(node)
        return self.taken[run.steps]


@given(st.data())
def test_langgraph_goes_where_the_run_says(data: st.DataObject) -> None:
    desk, taken, run = Dice(data.draw), dict[int, Run](), Run(question=QUESTION)
    while run.next is not None:
        after = asyncio.run(desk.take(run.next, run))
        taken[run.steps] = after
        run = after
    script = Script(taken)
    assert asyncio.run(finish(Run(question=QUESTION), script)) == run
    assert script.seen == desk.seen


def test_the_machine_has_exactly_the_five_nodes() -> None:
    machine = graph._machine()
    assert set(machine.get_graph().nodes) - {"__start__", "__end__"} == set(NODES)
    assert NODES == ("route", "retrieve", "evaluate", "generate", "validate")


async def test_the_longest_run_takes_the_most_steps() -> None:
    class Stubborn(Dice):
        def chance(self, of: str) -> bool:
            return of == "other words" or (of == "enough" and self.seen.count("retrieve") == 3)

    desk = Stubborn(lambda strategy, label=None: 1)  # type: ignore[arg-type]
    run = await finish(Run(question=QUESTION), desk)
    assert (run.steps, run.ending, run.rewrites, run.regenerations) == (MOST_STEPS, "fallback", 2, 1)


@pytest.mark.parametrize("error", [Transient("away"), Denied("ended"), Conflict("routes", "r", 0, 1), KeyError("no")])
async def test_an_error_comes_out_of_the_machine_as_it_was_raised(error: Exception) -> None:
    class Broken(graph.Desk):
        async def take(self, node: Node, run: Run) -> Run:
            if node == "route":
                return course.routed(run, Route(mode="hybrid", reason="r"), Asked(text=run.question))
            raise error

    with pytest.raises(type(error)) as raised:
        await finish(Run(question=QUESTION), Broken())
    assert raised.value is error


async def test_a_run_is_cancelled_in_the_middle_of_a_step() -> None:
    reached, ended = asyncio.Event(), asyncio.Event()

    class Slow(graph.Desk):
        async def take(self, node: Node, run: Run) -> Run:
            reached.set()
            try:
                await asyncio.Event().wait()
            finally:
                ended.set()
            return run

    going = asyncio.create_task(finish(Run(question=QUESTION), Slow()))
    await reached.wait()
    going.cancel()
    with pytest.raises(asyncio.CancelledError):
        await going
    assert ended.is_set()


ASKED_TO_TELL = f"""
import asyncio, socket, sys
sys.path.insert(0, {str(Path(__file__).parents[1])!r})
from agents.test_rag_run import QUESTION
from counterpoint.developer.rag import graph, run as course
from counterpoint.developer.rag.run import Run
from langsmith.utils import tracing_is_enabled

def nobody(*_: object) -> None:
    raise AssertionError("something is told to somebody outside")

class Looking(graph.Desk):
    async def take(self, node, run):
        assert not tracing_is_enabled()
        return course.failed(run, node, "no")

socket.socket.connect = nobody
print(asyncio.run(graph.finish(Run(question=QUESTION), Looking())).ending)
"""


@pytest.mark.parametrize(
    "said", ["LANGSMITH_TRACING", "LANGCHAIN_TRACING_V2", "LANGCHAIN_TRACING", "LANGCHAIN_HANDLER"]
)
def test_nothing_of_a_run_is_told_outside_whatever_the_environment_says(said: str) -> None:
    environment = os.environ | {said: "true", "LANGSMITH_API_KEY": "k", "LANGSMITH_ENDPOINT": "http://127.0.0.1:9"}
    done = subprocess.run(
        [sys.executable, "-W", "error", "-c", ASKED_TO_TELL],
        env=environment,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr[-2000:]
    assert done.stdout.strip() == "insufficient_evidence"


@pytest.mark.parametrize("module", ["main", "handlers", "rag.desk"])
def test_langgraph_is_not_imported_before_a_question_comes(module: str) -> None:
    look = f"import sys, counterpoint.developer.{module}; sys.exit('langgraph' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", look], check=False).returncode == 0


def test_what_follows_is_decided_in_one_place() -> None:
    """A node's successor is set by `run` alone."""
    setting = [path.name for path in RULES.glob("*.py") if re.search(r"\bnext\s*=[^=]|\"next\":", path.read_text())]
    assert setting == ["run.py"]
