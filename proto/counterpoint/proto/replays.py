"""Replays with another model: its calls, the queries that the record has no answer to, and the sandbox that pays."""

import hashlib
from typing import Annotated, Literal

from pydantic import Field, model_validator

from counterpoint.proto.memory import EdgeWalk, Get, HybridSearch, Line, List, QueryResult, Ref, VectorSearch
from counterpoint.proto.messages import Shape, Usd
from counterpoint.proto.tasks import Budget

NAME_CHARS = 63
"""Maximum length of the name of a project."""
_SUFFIX = "-replay"
_HASH_CHARS = 8


def sandbox_project(project: str) -> str:
    """Return the project that pays for replays of a project's tasks with another model. A long name is shortened."""
    if len(project) + len(_SUFFIX) <= NAME_CHARS:
        return f"{project}{_SUFFIX}"
    kept = project[: NAME_CHARS - len(_SUFFIX) - _HASH_CHARS - 1]
    return f"{kept}-{hashlib.sha256(project.encode()).hexdigest()[:_HASH_CHARS]}{_SUFFIX}"


class ChatText(Shape):
    """A message of a prompt."""

    role: Literal["system", "user", "assistant"]
    content: str


class TextCall(Shape):
    """A call of a model: the key of the step that makes it, and the prompt."""

    key: str = Field(min_length=1, max_length=100)
    messages: tuple[ChatText, ...] = Field(min_length=1, max_length=1000)
    max_tokens: int = Field(ge=1, le=100_000)
    temperature: float = Field(default=0.0, ge=0, le=2)
    as_json: bool = False
    deadline_s: float = Field(default=45.0, gt=0, le=50)


class ReplayCall(TextCall):
    """A call of `model` in place of the one that a recorded delivery called, paid by the sandbox of the project.

    `commit_id` is the last commit of the delivery, `read` what it was given besides what the record has. `budget` is
    what all calls for the task by this model may cost; those of another `run` are made anew. Calls for the tasks of one
    `regression` run have its budget in common.
    """

    commit_id: str = Field(max_length=64)
    model: str = Field(min_length=1, max_length=200)
    budget: Budget
    run: str = Field(default="", max_length=64)
    regression: str | None = Field(default=None, min_length=1, max_length=64)
    read: tuple[Ref, ...] = Field(default=(), max_length=10_000)

    @model_validator(mode="after")
    def _limited(self) -> "ReplayCall":
        if self.budget.usd is None and self.budget.tokens is None:
            raise ValueError("budget needs usd or tokens")
        return self


class TextReply(Shape):
    """The reply of a model, paid by the project `sandbox`. `cost_usd` is absent if the price is unknown; `replayed`: an
    earlier call had it, and it was paid then."""

    text: str
    finish: str
    model: str
    input_tokens: int
    output_tokens: int
    cost_usd: Usd | None = None
    replayed: bool = False
    sandbox: str


ReadQuery = Annotated[
    Get | List | Line | VectorSearch | HybridSearch | EdgeWalk,
    Field(discriminator="op"),
]


class ReplayQueries(Shape):
    """Queries of a replayed delivery that the record has no answer to, answered as of its last commit."""

    commit_id: str = Field(max_length=64)
    queries: tuple[ReadQuery, ...] = Field(min_length=1, max_length=100)


class ReplayAnswers(Shape):
    """One answer for each query."""

    found: tuple[QueryResult, ...]
