"""Forms: the proposal of a model in one lane, and the rules that judge it."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Literal

from counterpoint.developer.agent.readings import Kind, Reading
from counterpoint.developer.evidence.gather import Evidence
from counterpoint.developer.rag.run import Sentence
from counterpoint.proto.findings import Citation

Key = tuple[str, str, int]


@dataclass(frozen=True)
class Statement:
    """A sentence of one part of a proposal whose citations support it. `by_key` are the readings."""

    part: str
    sentence: Sentence
    cited: Sequence[Citation]
    by_key: Mapping[Key, Reading] = field(repr=False)


@dataclass(frozen=True)
class Form:
    """The form of a proposal.

    `decision_type` is that of the decisions of its turns, `task` the first line of the instructions, `parts` the
    meaning of each part. Without a supported sentence in the part `act`, in words `act_name`, a proposal is none.
    Readings of the kinds `supporting` may support a sentence. `problem` returns why a supported sentence is left out
    all the same.
    """

    decision_type: Literal["investigate", "plan"]
    task: str
    parts: Mapping[str, str]
    act: str
    act_name: str
    rules: Sequence[str]
    supporting: frozenset[Kind]
    problem: Callable[[Statement, Evidence], str | None]

    @property
    def supported_by(self) -> str:
        """The kinds of readings that support a sentence, in words."""
        return " and ".join(f"{kind}s" for kind in sorted(self.supporting))
