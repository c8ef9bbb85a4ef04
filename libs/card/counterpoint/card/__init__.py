"""The card of a task: what failed, what is known, what to do next."""

from counterpoint.card.content import card
from counterpoint.card.model import CardSection, TaskCard
from counterpoint.card.render import WIDTH, Format, markdown, normalised, panel, render, rendered, text

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
