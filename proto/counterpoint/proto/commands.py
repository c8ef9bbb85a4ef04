"""Commands to memory, of operators and of services about their own delivery."""

from typing import Annotated, Any, Literal
from uuid import UUID

from pydantic import Field

from counterpoint.proto.memory import CommitReply, Erase, GatewayToken, Origin, Ref, Refusal, TakeBack
from counterpoint.proto.messages import Id, Shape
from counterpoint.proto.tasks import Budget

EDITOR_MINUTES_MAX = 480
"""Maximum life of a token for an editor, in minutes."""
FINISHED_MAX = 1_000


class TakeBackMemory(Shape):
    """Quarantine a record, roll it back, or lift one of both; the result is kept in `quarantines` under `id`.

    A `preview` of a quarantine or rollback changes nothing; its report is a `TakeBackPreview`.
    """

    op: Literal["take_back"] = "take_back"
    id: Id
    wish: TakeBack
    preview: bool = False


class EraseContent(Shape):
    """Erase a project, a task or a document with what was derived from it; the result is kept in `erasures`, under
    `id`."""

    op: Literal["erase"] = "erase"
    id: Id
    wish: Erase


class RetryDeadLetter(Shape):
    """Send the message of a dead letter once more, under an id of its own. `version` is that of the letter's record."""

    op: Literal["retry_dead_letter"] = "retry_dead_letter"
    id: str
    version: int = Field(ge=1)


class RebuildProjection(Shape):
    """Rebuild a projection of the project from the record, beside the one in use."""

    op: Literal["rebuild_projection"] = "rebuild_projection"
    tier: Literal["episodic", "graph"]


class ChangeEmbeddingModel(Shape):
    """Change the embedding model of all projects.

    `begin` makes vectors of `model` beside those in use, `switch` uses them when they are complete, `rollback` returns
    to the model before, `drop` deletes the vectors not in use. Large projects need an index of the other model before
    a switch, unless they may be `unindexed`.
    """

    op: Literal["change_embedding_model"] = "change_embedding_model"
    act: Literal["begin", "switch", "rollback", "drop"]
    model: str | None = Field(default=None, min_length=1, max_length=210)
    unindexed: bool = False


class IssueGatewayToken(GatewayToken):
    """Issue a token for the gateway, for the task of the inbound message."""

    op: Literal["issue_gateway_token"] = "issue_gateway_token"


class IssueReplayToken(Shape):
    """Issue a token for one call of a model that replays a delivery, on the account of the project's sandbox.

    `commit_id` is the last commit of the delivery, `read` what it was given besides, `budget` what all calls of `job`
    may cost.
    """

    op: Literal["issue_replay_token"] = "issue_replay_token"
    task_id: Id
    commit_id: str
    job: str = Field(pattern=r"^[0-9a-f]{32}$")
    budget: Budget
    read: tuple[Ref, ...] = Field(default=(), max_length=10_000)


class IssueEditorToken(Shape):
    """Issue a token for the calls that a tool of the principal, such as an editor, makes for a task."""

    op: Literal["issue_editor_token"] = "issue_editor_token"
    task_id: Id
    minutes: int = Field(ge=1, le=EDITOR_MINUTES_MAX)


class FinishMessages(Shape):
    """Finish messages of the project by commits without effect, as far as they are for the caller.

    A message that its consumer has not finished is published again when its stream has dropped it.
    """

    op: Literal["finish_messages"] = "finish_messages"
    ids: tuple[UUID, ...] = Field(min_length=1, max_length=FINISHED_MAX)


Command = Annotated[
    TakeBackMemory
    | EraseContent
    | RetryDeadLetter
    | RebuildProjection
    | ChangeEmbeddingModel
    | IssueGatewayToken
    | IssueReplayToken
    | IssueEditorToken
    | FinishMessages,
    Field(discriminator="op"),
]


class CommandRequest(Shape):
    """A command, and the origin that it acts for."""

    origin: Origin
    command: Command


class CommandReply(Shape):
    """Result of a command: the commit that it made, a report, or the token; or its refusal. `approval`: the act was not
    done, and waits for a second person under this id."""

    commit: CommitReply | None = None
    approval: Id | None = None
    report: dict[str, Any] | None = None
    token: str | None = None
    refusal: Refusal | None = None
