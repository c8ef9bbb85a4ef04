"""What is configured of the world outside, and how patiently it is asked."""

from collections.abc import Mapping
from dataclasses import dataclass, field


@dataclass(frozen=True)
class Outside:
    """The models that may write, those that may embed (the first is the one meant where none is named), and a SearXNG.

    At most `calls` are under way at a time, each for `call_s` with `tries` tries; `max_tokens` is the most that one may
    have a model write. `job_tokens` are the most that jobs of memory's own may take in a project; others have no limit.
    """

    models: tuple[str, ...] = ()
    embedding_models: tuple[str, ...] = ()
    search_url: str | None = None
    calls: int = 8
    call_s: float = 120.0
    tries: int = 3
    max_tokens: int = 8192
    job_tokens: Mapping[str, int] = field(default_factory=dict)

    def __bool__(self) -> bool:
        return bool(self.models or self.embedding_models or self.search_url)
