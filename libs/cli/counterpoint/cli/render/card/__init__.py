"""The card of a task: what failed, what is known, what to do next."""

from counterpoint.cli.render.card.content import card
from counterpoint.cli.render.card.model import CardSection, TaskCard
from counterpoint.cli.render.card.render import WIDTH, Format, markdown, normalised, panel, render, rendered, text

__all__ = [
    "WIDTH",
    "CardSection",
    "Format",
    "TaskCard",
    "card",
    "markdown",
    "normalised",
    "panel",
    "render",
    "rendered",
    "text",
]
