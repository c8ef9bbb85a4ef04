"""The console of a command, on which texts of others steer nothing."""

from collections.abc import Iterable

from rich.console import Console, ConsoleOptions, RenderableType
from rich.segment import Segment

from counterpoint.card.printable import printable


class PlainConsole(Console):
    """A console that prints what it is given without control characters; its own colours are kept."""

    def render(self, renderable: RenderableType, options: ConsoleOptions | None = None) -> Iterable[Segment]:
        """Yield the parts of what is printed."""
        for part in super().render(renderable, options):
            yield part if part.control else Segment(printable(part.text), part.style)
