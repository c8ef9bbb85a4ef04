"""Files that the settings name, checked before a start."""

from counterpoint.proto.errors import ErrorCode, Permanent, Problem
from counterpoint.router.issues.trackers import TrackerError, load_trackers
from counterpoint.router.notify.receivers import ReceiverError, receivers_of
from counterpoint.router.settings import RouterSettings
from counterpoint.router.webhooks.sources import WebhookSources


def check_files(settings: RouterSettings) -> None:
    """Check the files of receivers, of sources of webhooks and of trackers. Raises `Permanent`."""
    try:
        receivers_of(settings)
    except ReceiverError as wrong:
        raise Permanent(ErrorCode.REFUSED, (Problem(field="COUNTERPOINT_NOTIFY_*", problem=str(wrong)),)) from wrong
    WebhookSources(settings.hooks_file).check()
    try:
        load_trackers(settings.issues_file)
    except TrackerError as wrong:
        problem = Problem(field="COUNTERPOINT_ISSUES_FILE", problem=str(wrong))
        raise Permanent(ErrorCode.REFUSED, (problem,)) from wrong
