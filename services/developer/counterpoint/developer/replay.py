"""Replay of the developer's deliveries, see `counterpoint.client.replay`. No time runs out."""

from collections.abc import Mapping
from typing import Any

from counterpoint.client import Gateway, Memory
from counterpoint.client.replay import Handler, RecordedGateway, replay_lines
from counterpoint.developer.agent.lane_step import KEY as LANE
from counterpoint.developer.agent.review_step import KEY as JUDGE
from counterpoint.developer.evidence.calibration import Calibration, load_calibration
from counterpoint.developer.handlers import OFFLINE, handle_delegated
from counterpoint.developer.settings import Deadlines
from counterpoint.proto.memory import Commit
from counterpoint.proto.tasks import TaskDelegated

_UNLIMITED = Deadlines(1e9, 1e9)


def handlers(policy: Mapping[str, Any], gateway: Gateway) -> Mapping[str, Handler]:
    """Return the handlers with a gateway. The `calibration` of a policy replaces the fields that it names."""
    shipped = load_calibration()
    calibration = Calibration.model_validate(_merged(shipped.model_dump(), policy.get("calibration", {})))

    chooser, reviewer, rest = OFFLINE, OFFLINE, gateway
    if isinstance(gateway, RecordedGateway):
        chooser, reviewer = gateway.among(lambda key: key == LANE), gateway.among(lambda key: key == JUDGE)
        rest = gateway.among(lambda key: key not in (LANE, JUDGE))

    async def delegated(message: TaskDelegated, memory: Memory) -> Commit:
        task = message.task.model_copy(update={"deadline": None})
        untimed = message.model_copy(update={"task": task})
        return await handle_delegated(untimed, memory, rest, calibration, _UNLIMITED, None, chooser, reviewer)

    return {TaskDelegated.TYPE: delegated}


def _merged(value: Any, changes: Any) -> Any:
    if not isinstance(value, dict) or not isinstance(changes, dict):
        return changes
    return value | {name: _merged(value.get(name), change) for name, change in changes.items()}


if __name__ == "__main__":
    replay_lines(handlers)
