"""State of an investigation or of the work on a plan, and its transitions. Pure."""

from typing import Literal

from counterpoint.developer.rag.run import Draft
from counterpoint.proto.findings import Citation
from counterpoint.proto.messages import Shape

MAX_TURNS = 8
MAX_TOOL_CALLS = 6
MAX_PROBLEMS = 2
"""Number of unusable replies that end an investigation."""
BUDGET_CHARS = 240_000
"""Maximum characters of all prompts and replies of an investigation."""

MAX_STEPS = 30
"""Maximum number of steps of a plan."""
Ending = Literal["proposed", "unusable", "exhausted", "late", "unavailable"]


class PlannedStep(Shape):
    """A step of a plan, and the numbers of the steps before it that it depends on, from 1."""

    does: str
    after: tuple[int, ...] = ()


class ModelProposal(Shape):
    """A proposal in the words of a model, with the numbers of readings as citation marks: an act with its reasons, or a
    plan."""

    cause: str = ""
    action: str = ""
    verify: str = ""
    risk: str = ""
    refutes: str = ""
    architecture: str = ""
    connections: str = ""
    operators: str = ""
    alternatives: str = ""
    steps: tuple[PlannedStep, ...] = ()
    open_points: str = ""


class ModelTurn(Shape):
    """One reply of a model: a tool call or a proposal, or the `problem` that makes it unusable."""

    hypothesis: str = ""
    would_tell: str = ""
    tool: str | None = None
    arguments: dict[str, str] = {}
    proposal: ModelProposal | None = None
    problem: str | None = None

    @property
    def looks(self) -> bool:
        """Whether it is a tool call to be made."""
        return self.tool is not None and self.problem is None

    @property
    def problem_in_short(self) -> str:
        """The problem without details, which may be the model's own words and are for the model alone."""
        return (self.problem or "").partition(":")[0]

    @property
    def call(self) -> str:
        """The tool call in short."""
        return f"{self.tool}({', '.join(f'{name}={value}' for name, value in sorted(self.arguments.items()))})"


class ProposalSection(Shape):
    """The supported sentences of one part of a proposal; of a step also its number and those of the steps before
    it."""

    part: str
    draft: Draft
    number: int | None = None
    after: tuple[int, ...] = ()

    @property
    def cited(self) -> tuple[Citation, ...]:
        """The citations of its sentences, each once."""
        numbers = dict.fromkeys(n for sentence in self.draft.sentences for n in sentence.rests_on)
        return tuple(self.draft.citations[n] for n in numbers)


class Investigation(Shape):
    """State after a step, as in its checkpoint.

    `sections` are the supported part of the proposal, `cut` the number of sentences that were left out. `prompts` has
    the hash of each prompt, `chars` the size of all prompts and replies, `spent_s` the time of all deliveries, `last`
    the ids of the last action and decision.
    """

    steps: int = 0
    turns: tuple[ModelTurn, ...] = ()
    ending: Ending | None = None
    reason: str = ""
    model: str | None = None
    sections: tuple[ProposalSection, ...] = ()
    cut: int = 0
    prompts: tuple[str, ...] = ()
    chars: int = 0
    spent_s: float = 0.0
    last: tuple[str, str] = ("", "")

    @property
    def turns_left(self) -> int:
        """The number of turns that are left."""
        return MAX_TURNS - len(self.turns)

    @property
    def tool_calls_left(self) -> int:
        """The number of tool calls that are left."""
        return MAX_TOOL_CALLS - sum(turn.looks for turn in self.turns)


def permitted(run: Investigation, turn: ModelTurn) -> ModelTurn:
    """Return a turn, with a problem if its tool call repeats an earlier one or exceeds their number."""
    if not turn.looks:
        return turn
    if any(earlier.looks and earlier.call == turn.call for earlier in run.turns):
        return turn.model_copy(update={"problem": "this call was made before; its result is above"})
    if run.tool_calls_left <= 0:
        return turn.model_copy(update={"problem": "no tool calls are left; make the proposal"})
    return turn


def after_rules(run: Investigation) -> Investigation:
    """Return the run after the result of the rules was recorded."""
    return run.model_copy(update={"steps": run.steps + 1})


def after_turn(run: Investigation, turn: ModelTurn, prompt_sha256: str, chars: int) -> Investigation:
    """Return the run after a turn without a supported proposal; it ends if problems, turns or characters are used
    up."""
    turns = (*run.turns, turn)
    after = run.model_copy(
        update={
            "steps": run.steps + 1,
            "turns": turns,
            "prompts": (*run.prompts, prompt_sha256),
            "chars": run.chars + chars,
        }
    )
    if sum(each.problem is not None for each in turns) >= MAX_PROBLEMS:
        return _ended(after, "unusable", f"its replies could not be used: {turn.problem_in_short}")
    if after.turns_left <= 0:
        return _ended(after, "exhausted", f"it made no supported proposal in {MAX_TURNS} turns")
    if after.chars >= BUDGET_CHARS:
        return _ended(after, "exhausted", f"its prompts and replies have reached {BUDGET_CHARS} characters")
    return after


def after_proposal(
    run: Investigation, turn: ModelTurn, prompt_sha256: str, chars: int, sections: tuple[ProposalSection, ...], cut: int
) -> Investigation:
    """Return the run after a proposal with a supported act, which ends it."""
    after = after_turn(run, turn, prompt_sha256, chars)
    return after.model_copy(update={"ending": "proposed", "reason": "", "sections": sections, "cut": cut})


def after_fault(run: Investigation, ending: Ending, reason: str) -> Investigation:
    """Return the run after a call that was not made or has no usable outcome, which ends it."""
    return _ended(run.model_copy(update={"steps": run.steps + 1}), ending, reason)


def _ended(run: Investigation, ending: Ending, reason: str) -> Investigation:
    return run.model_copy(update={"ending": ending, "reason": reason})
