"""Files that the settings name, checked before a start."""

from counterpoint.developer.evidence.calibration import load_calibration
from counterpoint.developer.settings import DeveloperSettings
from counterpoint.proto.errors import ErrorCode, Permanent, Problem


def check_files(settings: DeveloperSettings) -> None:
    """Check the file of the calibration. Raises `Permanent`."""
    try:
        load_calibration(settings.calibration_file)
    except (OSError, ValueError) as error:
        reason = error.strerror if isinstance(error, OSError) else "it is not a calibration"
        problem = Problem(field="COUNTERPOINT_CALIBRATION_FILE", problem=f"cannot be read: {reason}")
        raise Permanent(ErrorCode.INVALID, (problem,)) from error
