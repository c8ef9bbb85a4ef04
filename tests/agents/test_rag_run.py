"""The course of a run, on random graders, drafts, verdicts, failures and clocks: it ends, within bounds."""

import asyncio
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from counterpoint.developer.evidence.search_query import SearchQuery
from counterpoint.developer.excerpts.relevance import Grade
from counterpoint.developer.rag import graph
from counterpoint.developer.rag import run as transitions
from counterpoint.developer.rag.graph import MOST_STEPS, NODES, run_graph
from counterpoint.developer.rag.run import Draft, Node, Route, Run, Sentence, Verdict
from counterpoint.proto.errors import Conflict, Denied, Transient

QUESTION = "Who owns finance_daily?"
RULES = Path(transitions.__file__).parent


class Dice:
    """Steps whose decisions are all drawn; `seen` are the nodes that were run."""

    def __init__(self, draw: st.DrawFn, lose: bool = False) -> None:
        self.draw = draw
        self.lose = lose
        self.lost = 0
        self.seen: list[Node] = []

    async def run_step(self, node: Node, run: Run) -> Run:
        assert run.next == node
        self.seen.append(node)
        before = self.begun_again(run)
        if before is not run:
            return transitions.after_retrieve(before, ())
        if self.chance("the step fails"):
            return transitions.after_failure(run, node, "drawn")
        late = self.chance("late")
        match node:
            case "route":
                return transitions.after_route(
                    run, Route(mode="hybrid", reason="drawn"), SearchQuery(text=run.question)
                )
            case "retrieve":
                return transitions.after_retrieve(run, ())
            case "evaluate":
                other = SearchQuery(text=f"other words {run.rewrites}") if self.chance("other words") else None
                grade = Grade(sufficient=self.chance("enough"), probability=0.5, reason="drawn")
                return transitions.after_evaluate(run, grade, other, late)
            case "generate":
                sentences = tuple(Sentence(text="said", rests_on=(0,)) for _ in range(self.draw(st.integers(0, 3))))
                return transitions.after_generate(run, Draft(sentences=sentences, declined=self.chance("declined")))
            case "validate":
                assert run.draft is not None
                verdicts = tuple(Verdict(supported=self.chance("supported")) for _ in run.draft.sentences)
                return transitions.after_validate(run, verdicts, late)

    def begun_again(self, run: Run) -> Run:
        """The run, or as it is where a restart finds that what it rests on has changed."""
        if not self.lose or run.next in ("route", "retrieve") or self.lost >= 3 or not self.chance("lost"):
            return run
        self.lost += 1
        return transitions.search_again(run)

    def chance(self, of: str) -> bool:
        return self.draw(st.booleans(), label=of)


def ended(run: Run) -> None:
    """Assert the invariants of a run that has ended."""
    assert run.next is None
    assert run.ending in ("answered", "insufficient_evidence", "fallback")
    assert run.rewrites <= transitions.MAX_REWRITES == 2
    assert run.regenerations <= transitions.MAX_REGENERATIONS == 1
    if run.ending == "answered":
        assert run.draft is not None
        assert len(run.verdicts) == len(run.draft.sentences) > 0
        assert all(verdict.supported for verdict in run.verdicts)


async def walked(run: Run, steps: Dice) -> Run:
    """A run to its end, by `run` alone."""
    while run.next is not None:
        run = await steps.run_step(run.next, run)
    return run


@given(st.data())
def test_every_run_ends_within_its_bounds(data: st.DataObject) -> None:
    steps = Dice(data.draw)
    run = asyncio.run(run_graph(Run(question=QUESTION), steps.run_step))
    ended(run)
    assert run.steps == len(steps.seen) <= MOST_STEPS
    assert steps.seen.count("retrieve") <= 1 + transitions.MAX_REWRITES
    assert steps.seen.count("generate") <= 1 + transitions.MAX_REGENERATIONS
    assert steps.seen[0] == "route"
    assert steps.seen.count("route") == 1


@given(st.data())
def test_a_run_whose_evidence_is_lost_on_the_way_ends_too(data: st.DataObject) -> None:
    steps = Dice(data.draw, lose=True)
    run = asyncio.run(walked(Run(question=QUESTION), steps))
    ended(run)
    assert run.steps == len(steps.seen) <= MOST_STEPS * (1 + steps.lost)


@given(st.data())
def test_a_run_that_goes_on_where_it_was_has_steps_enough(data: st.DataObject) -> None:
    """LangGraph counts its rounds anew; whatever was done before, what is left fits."""
    steps = Dice(data.draw)
    run = Run(question=QUESTION)
    for _ in range(data.draw(st.integers(0, MOST_STEPS - 1))):
        if run.next is not None:
            run = asyncio.run(steps.run_step(run.next, run))
    if run.next not in ("route", "retrieve") and data.draw(st.booleans()):
        run = transitions.search_again(run)
    ended(asyncio.run(run_graph(run, steps.run_step)))


class Script:
    """Steps that are replayed."""

    def __init__(self, taken: dict[int, Run]) -> None:
        self.taken = taken
        self.seen: list[Node] = []

    async def run_step(self, node: Node, run: Run) -> Run:
        assert run.next == node
        self.seen.append(node)
        return self.taken[run.steps]


@given(st.data())
def test_langgraph_goes_where_the_run_says(data: st.DataObject) -> None:
    steps, taken, run = Dice(data.draw), dict[int, Run](), Run(question=QUESTION)
    while run.next is not None:
        after = asyncio.run(steps.run_step(run.next, run))
        taken[run.steps] = after
        run = after
    script = Script(taken)
    assert asyncio.run(run_graph(Run(question=QUESTION), script.run_step)) == run
    assert script.seen == steps.seen


def test_the_machine_has_exactly_the_five_nodes() -> None:
    machine = graph._machine()
    assert set(machine.get_graph().nodes) - {"__start__", "__end__"} == set(NODES)
    assert NODES == ("route", "retrieve", "evaluate", "generate", "validate")


async def test_the_longest_run_takes_the_most_steps() -> None:
    class Stubborn(Dice):
        def chance(self, of: str) -> bool:
            return of == "other words" or (of == "enough" and self.seen.count("retrieve") == 3)

    steps = Stubborn(lambda strategy, label=None: 1)  # type: ignore[arg-type]
    run = await run_graph(Run(question=QUESTION), steps.run_step)
    assert (run.steps, run.ending, run.rewrites, run.regenerations) == (MOST_STEPS, "fallback", 2, 1)


@pytest.mark.parametrize("error", [Transient("away"), Denied("ended"), Conflict("routes", "r", 0, 1), KeyError("no")])
async def test_an_error_comes_out_of_the_machine_as_it_was_raised(error: Exception) -> None:
    class FailingSteps:
        async def run_step(self, node: Node, run: Run) -> Run:
            if node == "route":
                return transitions.after_route(run, Route(mode="hybrid", reason="r"), SearchQuery(text=run.question))
            raise error

    with pytest.raises(type(error)) as raised:
        await run_graph(Run(question=QUESTION), FailingSteps().run_step)
    assert raised.value is error


async def test_a_run_is_cancelled_in_the_middle_of_a_step() -> None:
    reached, ended = asyncio.Event(), asyncio.Event()

    class SlowSteps:
        async def run_step(self, node: Node, run: Run) -> Run:
            reached.set()
            try:
                await asyncio.Event().wait()
            finally:
                ended.set()
            return run

    going = asyncio.create_task(run_graph(Run(question=QUESTION), SlowSteps().run_step))
    await reached.wait()
    going.cancel()
    with pytest.raises(asyncio.CancelledError):
        await going
    assert ended.is_set()


ASKED_TO_TELL = f"""
import asyncio, socket, sys
sys.path.insert(0, {str(Path(__file__).parents[1])!r})
from agents.test_rag_run import QUESTION
from counterpoint.developer.rag import graph, run as transitions
from counterpoint.developer.rag.run import Run
from langsmith.utils import tracing_is_enabled

def nobody(*_: object) -> None:
    raise AssertionError("something is told to somebody outside")

class UntracedSteps:
    async def run_step(self, node, run):
        assert not tracing_is_enabled()
        return transitions.after_failure(run, node, "no")

socket.socket.connect = nobody
print(asyncio.run(graph.run_graph(Run(question=QUESTION), UntracedSteps().run_step)).ending)
"""


@pytest.mark.parametrize(
    "said", ["LANGSMITH_TRACING", "LANGCHAIN_TRACING_V2", "LANGCHAIN_TRACING", "LANGCHAIN_HANDLER"]
)
def test_no_environment_variable_turns_on_tracing_of_a_run(said: str) -> None:
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


@pytest.mark.parametrize("module", ["main", "handlers", "rag.step_runner"])
def test_langgraph_is_not_imported_before_a_question_comes(module: str) -> None:
    look = f"import sys, counterpoint.developer.{module}; sys.exit('langgraph' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", look], check=False).returncode == 0


def test_the_next_node_is_set_in_one_module() -> None:
    """A node's successor is set by `run` alone."""
    setting = [path.name for path in RULES.glob("*.py") if re.search(r"\bnext\s*=[^=]|\"next\":", path.read_text())]
    assert setting == ["run.py"]
