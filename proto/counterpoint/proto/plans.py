"""Plans that agents write."""

from counterpoint.proto.messages import Shape


class PlanDocument(Shape):
    """The plan of a `system` without a provider, as a document under `path`."""

    path: str
    system: str
    text: str
