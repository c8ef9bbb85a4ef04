"""The five nodes as a LangGraph state machine. What each does is the desk's; what follows is decided by `run`.

Where no node waits for anybody outside, the same nodes are walked in a loop: the machine takes 5 ms of a core and a
second at its first run.
"""

import os
from dataclasses import dataclass
from functools import cache
from typing import TYPE_CHECKING, Protocol, TypedDict, get_args

from counterpoint.developer.rag.run import MAX_REGENERATIONS, MAX_REWRITES, Node, Run

if TYPE_CHECKING:
    from langgraph.graph.state import CompiledStateGraph

NODES: tuple[Node, ...] = get_args(Node)
MOST_STEPS = 1 + 2 * (1 + MAX_REWRITES) + 2 * (1 + MAX_REGENERATIONS)
"""As many steps as a run can take that is not begun again."""


class Desk(Protocol):
    """Takes the next step of a run, keeps it, and returns the run after it."""

    async def take(self, node: Node, run: Run) -> Run: ...


_REFUSED = ("LANGCHAIN_TRACING", "LANGCHAIN_HANDLER")
"""Variables of the environment under which LangChain does not run at all."""


@dataclass(frozen=True)
class _At:
    """Whose steps are taken."""

    desk: Desk


class _State(TypedDict):
    run: Run


async def finish(run: Run, desk: Desk) -> Run:
    """A run to its end, from where it is. Raises what the desk raises."""
    if run.next is None:
        return run
    from langsmith import tracing_context

    # LangChain would tell all that passes through to an address outside, where its environment says so.
    with tracing_context(enabled=False):
        ended = await _machine().ainvoke({"run": run}, {"recursion_limit": MOST_STEPS + 1}, context=_At(desk))
    return Run.model_validate(ended["run"])


async def walk(run: Run, desk: Desk) -> Run:
    """As `finish`, without the machine."""
    while run.next is not None:
        run = await desk.take(run.next, run)
    return run


@cache
def _machine() -> "CompiledStateGraph[_State, _At, _State, _State]":
    for name in _REFUSED:
        os.environ.pop(name, None)
    from langgraph.graph import END, START, StateGraph
    from langgraph.runtime import Runtime

    def node(name: Node) -> object:
        async def take(state: _State, runtime: Runtime[_At]) -> _State:
            return {"run": await runtime.context.desk.take(name, state["run"])}

        return take

    def following(state: _State) -> str:
        return state["run"].next or END

    graph = StateGraph(_State, context_schema=_At)
    for each in NODES:
        graph.add_node(each, node(each))  # type: ignore[call-overload]
    graph.add_conditional_edges(START, following, [*NODES])
    graph.add_conditional_edges("route", following, ["retrieve", END])
    graph.add_conditional_edges("retrieve", following, ["evaluate", END])
    graph.add_conditional_edges("evaluate", following, ["generate", "retrieve", END])
    graph.add_conditional_edges("generate", following, ["validate", END])
    graph.add_conditional_edges("validate", following, ["generate", END])
    return graph.compile()


def load() -> None:
    """Import LangGraph and build the machine, which takes most of a second the first time."""
    _machine()
