"""Settings of the manager."""

from typing import Annotated, Any

from pydantic import Field, field_validator
from pydantic_settings import NoDecode

from counterpoint.bus import BusSettings
from counterpoint.client.gateway import RELATIONS_JOB, Gateway
from counterpoint.guard.policy import policy
from counterpoint.manager.gateway.provider_limits import ProviderLimits
from counterpoint.manager.task_limits import TaskLimits

_FOLDER = "file:"
_ANY_HOST = frozenset({"0.0.0.0", "::", ""})


class ManagerSettings(BusSettings):
    """Settings of the bus, the limits of tasks, and the providers of the gateway.

    `model_fallbacks` are models that write when another cannot be called, in order, separated by commas.
    `replay_models` are further models that replays may call, separated by commas.
    `embedding_models` are further allowed embedding models, separated by commas: a change of the model calls both.
    At most `gateway_calls` calls run at a time, each for at most `gateway_call_s` with `gateway_tries` tries and
    `gateway_max_tokens` output tokens. `relations_tokens` is the total budget of memory for relations in a project.
    """

    outcome_wait_s: float = Field(default=TaskLimits.outcome_wait_s, gt=0)
    reassess_s: float = Field(default=TaskLimits.reassess_s, gt=0)
    max_attempts: int = Field(default=TaskLimits.max_attempts, ge=1)
    max_same_failures: int = Field(default=TaskLimits.max_same_failures, ge=1)
    max_resumes: int = Field(default=TaskLimits.max_resumes, ge=0)
    model: str | None = None
    model_manager: str | None = None
    model_developer: str | None = None
    model_router: str | None = None
    model_judge: str | None = None
    model_sessions: str | None = None
    model_fallbacks: Annotated[tuple[str, ...], NoDecode] = ()
    replay_models: Annotated[tuple[str, ...], NoDecode] = ()
    embedding_model: str | None = None
    embedding_models: Annotated[frozenset[str], NoDecode] = frozenset()
    search_url: str | None = None
    gateway_host: str = "127.0.0.1"
    gateway_port: int = 8486
    gateway_calls: int = Field(default=8, ge=1)
    gateway_call_s: float = Field(default=120.0, gt=0)
    gateway_tries: int = Field(default=3, ge=1)
    gateway_max_tokens: int = Field(default=8192, ge=1)
    relations_tokens: int = Field(default=2_000_000, ge=0)

    @field_validator("embedding_models", "model_fallbacks", "replay_models", mode="before")
    @classmethod
    def _names(cls, value: Any) -> Any:
        return [name for each in value.split(",") if (name := each.strip())] if isinstance(value, str) else value

    def provider_limits(self) -> ProviderLimits:
        """Return the providers of the gateway; a model in a folder runs in the memory service."""
        named = (self.embedding_model, *sorted(self.embedding_models))
        embedding = [name for name in named if name and not name.startswith(_FOLDER)]
        lanes = (self.model, self.model_manager, self.model_developer)
        models = (*lanes, self.model_router, self.model_judge, self.model_sessions)
        return ProviderLimits(
            models=tuple(dict.fromkeys(model for model in models if model)),
            fallbacks=tuple(dict.fromkeys(self.model_fallbacks)),
            replay_models=tuple(dict.fromkeys(self.replay_models)),
            embedding_models=tuple(dict.fromkeys(embedding)),
            search_url=self.search_url,
            calls=self.gateway_calls,
            call_s=self.gateway_call_s,
            tries=self.gateway_tries,
            max_tokens=self.gateway_max_tokens,
            policy=policy().models,
            job_tokens={f"job:{RELATIONS_JOB}": self.relations_tokens},
        )

    def summarizer(self) -> Gateway:
        """Return the client of the own gateway with the model that compacts sessions, the one that is named for it."""
        host = "127.0.0.1" if self.gateway_host in _ANY_HOST else self.gateway_host
        url = f"http://[{host}]" if ":" in host else f"http://{host}"
        return Gateway(f"{url}:{self.gateway_port}", model=self.model_sessions)

    def task_limits(self) -> TaskLimits:
        """Return the limits of one task."""
        return TaskLimits(
            outcome_wait_s=self.outcome_wait_s,
            reassess_s=self.reassess_s,
            max_attempts=self.max_attempts,
            max_same_failures=self.max_same_failures,
            max_resumes=self.max_resumes,
        )
