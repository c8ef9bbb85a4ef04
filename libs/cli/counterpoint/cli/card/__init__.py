"""The card of a task: what failed, what is known, what to do next."""

from counterpoint.cli.card.content import card
from counterpoint.cli.card.model import Card, Section
from counterpoint.cli.card.render import WIDTH, Format, markdown, normalised, panel, render, rendered, text

__all__ = [
    "WIDTH",
    "Card",
    "Format",
    "Section",
    "card",
    "markdown",
    "normalised",
    "panel",
    "render",
    "rendered",
    "text",
]
