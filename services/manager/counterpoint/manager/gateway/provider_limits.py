"""Configured providers and the limits of calls to them."""

from collections.abc import Mapping
from dataclasses import dataclass, field

from counterpoint.guard.policy import ApprovalPolicy, ModelPolicy, policy


@dataclass(frozen=True)
class ProviderLimits:
    """Models for text and for embeddings (the first is the default), the URL of a SearXNG, and limits.

    `fallbacks` are models for text that are tried in order when a call of another cannot be made. A model whose
    provider was unavailable is tried last for `pause_s` seconds. `replay_models` are models for text that replays
    alone may call.
    At most `calls` run at a time, each for `call_s` seconds with `tries` tries and `max_tokens` output tokens.
    `job_tokens` are token limits of jobs of the memory service in a project; other jobs have no limit.
    `policy` says which models a project may call for text, `approvals` whether a task may search the web.
    """

    models: tuple[str, ...] = ()
    fallbacks: tuple[str, ...] = ()
    replay_models: tuple[str, ...] = ()
    pause_s: float = 30.0
    embedding_models: tuple[str, ...] = ()
    search_url: str | None = None
    calls: int = 8
    call_s: float = 120.0
    tries: int = 3
    max_tokens: int = 8192
    job_tokens: Mapping[str, int] = field(default_factory=dict)
    policy: ModelPolicy = field(default_factory=ModelPolicy)
    approvals: ApprovalPolicy = field(default_factory=lambda: policy().approvals)

    def __bool__(self) -> bool:
        return bool(self.models or self.replay_models or self.embedding_models or self.search_url)

    @property
    def replayable(self) -> tuple[str, ...]:
        """The models that a replay may call."""
        return tuple(dict.fromkeys((*self.models, *self.fallbacks, *self.replay_models)))
