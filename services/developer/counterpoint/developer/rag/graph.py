"""The five nodes of a question as a LangGraph state machine; `run` decides on the next node.

If no node waits for a model or the web, `run_loop` runs the same nodes without it: the graph costs 5 ms of CPU time,
and a second at its first run.
"""

import os
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from functools import cache
from typing import TYPE_CHECKING, TypedDict, get_args

from counterpoint.developer.rag.run import MAX_REGENERATIONS, MAX_REWRITES, Node, Run

if TYPE_CHECKING:
    from langgraph.graph.state import CompiledStateGraph

NODES: tuple[Node, ...] = get_args(Node)
MOST_STEPS = 1 + 2 * (1 + MAX_REWRITES) + 2 * (1 + MAX_REGENERATIONS)
"""Maximum steps of a run without a repeated search after a redelivery."""

StepFunction = Callable[[Node, Run], Awaitable[Run]]
"""Runs one node, commits its step, and returns the run after it."""

_REFUSED = ("LANGCHAIN_TRACING", "LANGCHAIN_HANDLER")
"""Environment variables that keep LangChain from running."""


@dataclass(frozen=True)
class _Context:
    """Context of one run of the graph."""

    run_step: StepFunction


class _State(TypedDict):
    run: Run


async def run_graph(run: Run, run_step: StepFunction) -> Run:
    """Run the remaining nodes of a question with LangGraph. Raises what `run_step` raises."""
    if run.next is None:
        return run
    from langsmith import tracing_context

    # LangChain sends traces to an external address if its environment enables that.
    with tracing_context(enabled=False):
        ended = await _machine().ainvoke({"run": run}, {"recursion_limit": MOST_STEPS + 1}, context=_Context(run_step))
    return Run.model_validate(ended["run"])


async def run_loop(run: Run, run_step: StepFunction) -> Run:
    """Run the remaining nodes of a question without LangGraph. Raises what `run_step` raises."""
    while run.next is not None:
        run = await run_step(run.next, run)
    return run


@cache
def _machine() -> "CompiledStateGraph[_State, _Context, _State, _State]":
    for name in _REFUSED:
        os.environ.pop(name, None)
    from langgraph.graph import END, START, StateGraph
    from langgraph.runtime import Runtime

    def node(name: Node) -> object:
        async def take(state: _State, runtime: Runtime[_Context]) -> _State:
            return {"run": await runtime.context.run_step(name, state["run"])}

        return take

    def following(state: _State) -> str:
        return state["run"].next or END

    graph = StateGraph(_State, context_schema=_Context)
    for each in NODES:
        graph.add_node(each, node(each))  # type: ignore[call-overload]
    graph.add_conditional_edges(START, following, [*NODES])
    graph.add_conditional_edges("route", following, ["retrieve", END])
    graph.add_conditional_edges("retrieve", following, ["evaluate", END])
    graph.add_conditional_edges("evaluate", following, ["generate", "retrieve", END])
    graph.add_conditional_edges("generate", following, ["validate", END])
    graph.add_conditional_edges("validate", following, ["generate", END])
    return graph.compile()


def build_graph() -> None:
    """Import LangGraph and build the machine, which takes most of a second the first time."""
    _machine()
