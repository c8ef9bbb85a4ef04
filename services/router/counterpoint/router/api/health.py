"""The health of the house over HTTP."""

from collections.abc import Sequence
from typing import Literal

from fastapi import APIRouter, Response

from counterpoint.proto.memory import ConsumerHealth, Health, HealthReport
from counterpoint.proto.messages import Shape
from counterpoint.router.api.body import reply
from counterpoint.router.api.context import Context

router = APIRouter(prefix="/v1/health", tags=["operate"])

ServiceState = Literal["ready", "busy", "away"]


class ServiceHealth(Shape):
    """A service: `ready` when it asks for messages, `busy` when it handles some and asks for none, else `away`.

    A process that ended is seen within five seconds. Memory, which answers this request, is always ready.
    """

    service: str
    state: ServiceState
    consumers: tuple[ConsumerHealth, ...] = ()


class HouseHealth(HealthReport):
    """The health of the services, and of memory: messages on their way, recall and cache."""

    services: tuple[ServiceHealth, ...]


@router.get("", responses={200: {"model": HouseHealth}}, response_model=None)
async def health(context: Context) -> Response:
    """Return the state and lag of each service, the recall of searches, and the hits of the cache.

    It describes the house as a whole, not one project. Without the bus or memory it is 503.
    """
    context.require("operate")
    (found,) = await context.memory().query(Health())
    report = HealthReport.model_validate(found.report)
    by_service: dict[str, list[ConsumerHealth]] = {}
    for consumer in report.consumers:
        by_service.setdefault(consumer.service, []).append(consumer)
    services = [
        ServiceHealth(service=name, state=state_of(consumers), consumers=tuple(consumers))
        for name, consumers in by_service.items()
        if name != "memory"
    ]
    memory = ServiceHealth(service="memory", state="ready", consumers=tuple(by_service.get("memory", ())))
    ordered = sorted((*services, memory), key=lambda each: each.service)
    return reply(HouseHealth(**report.model_dump(), services=tuple(ordered)))


def state_of(consumers: Sequence[ConsumerHealth]) -> ServiceState:
    """Return the state of a service by its consumers."""
    if all(each.pulling for each in consumers):
        return "ready"
    return "busy" if all(each.pulling or each.unacknowledged for each in consumers) else "away"
