"""Decisions of agents, with their reasoning and sources."""

from typing import Annotated, ClassVar, Literal

from pydantic import Field, StringConstraints

from counterpoint.proto.messages import Id, Message, ProjectName, Shape, Time, Usd

Agent = Annotated[str, StringConstraints(pattern=r"^[a-z][a-z0-9_-]{0,62}$")]
"""`router manager developer coder-N judge calling_llm human`; one subject token."""

Band = Literal["high", "medium", "low"]


class ConfidenceTerms(Shape):
    """The four inputs of the confidence score, each in [0, 1] except `rag_hits`, a count."""

    rag_similarity: float = Field(ge=0, le=1)
    rag_hits: int = Field(ge=0)
    provider_exists: bool | Literal["not applicable"]
    similar_dag: bool


class Confidence(Shape):
    """A score in [0, 1], its band and its terms."""

    score: float = Field(ge=0, le=1)
    band: Band | str
    terms: ConfidenceTerms | None = None


class Source(Shape):
    """An item that a decision is based on, at the version read."""

    store: str
    id: str
    version: int
    score: float | None = None


class DecisionMade(Message):
    """One decision of one agent, published on `decisions.<project>.<agent>` and kept permanently."""

    TYPE: ClassVar[str] = "counterpoint.decision.made.v1"

    decision_id: Id
    task_id: Id | None = None
    session_id: Id | None = None
    project: ProjectName
    agent: Agent
    decision_type: str
    decision: str
    reasoning: str
    confidence: Confidence | None = None
    sources: tuple[Source, ...] = ()
    parent_decision_id: Id | None = None
    model: str | None = None
    cost_usd: Usd | None = None
    made_at: Time
