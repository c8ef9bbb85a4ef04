"""Cards as text."""

from typing import Any

from counterpoint.card.content import card
from counterpoint.card.render import text
from counterpoint.proto.tasks import Task


def card_text(task: dict[str, Any], *, verbose: bool = False) -> str:
    return text(card(Task.model_validate(task), verbose=verbose))


def flat(shown: str) -> str:
    return " ".join(shown.split())
