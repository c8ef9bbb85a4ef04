"""The forge of a tracker, by its kind."""

from typing import assert_never

from counterpoint.router.issues.calls import RateLimit
from counterpoint.router.issues.forge import Forge
from counterpoint.router.issues.gitea import Gitea
from counterpoint.router.issues.github import GitHub
from counterpoint.router.issues.gitlab import GitLab
from counterpoint.router.issues.trackers import Tracker


def forge_of(tracker: Tracker, limit: RateLimit, timeout_s: float) -> Forge:
    """Return the forge of a tracker. A call has `timeout_s`."""
    match tracker.kind:
        case "github":
            return GitHub(tracker, limit, timeout_s)
        case "gitlab":
            return GitLab(tracker, limit, timeout_s)
        case "gitea":
            return Gitea(tracker, limit, timeout_s)
        case _:
            assert_never(tracker.kind)
