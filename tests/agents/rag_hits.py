"""Passages and the support of a draft by them."""

from agents.developer_memory import START

from counterpoint.developer.excerpts.relevance import Hit, HitFeatures
from counterpoint.developer.language.words import content_words
from counterpoint.developer.rag.generate import draft_of_model
from counterpoint.developer.rag.validate import verdicts_of
from counterpoint.proto.memory import Item

PAGER = "When a team does not answer its pager within 15 minutes, call the duty manager at 555-0199."


OWNER = "finance_daily is owned by the finance team. It runs at 06:30 on 3 March with 1,500 rows and a limit of -5 %."


def hit(text: str, n: int = 0, context: str = "", start: int = 0) -> Hit:
    item = Item(
        store="chunks", id=f"c-{n}", project="shop", version=1, body={"text": text}, author="memory", label=1,
        integrity=2, seq=n + 1, at=START,
    )  # fmt: skip
    return Hit(item, f"{n}.md", text, context, start, True, 0.9 - n / 100, HitFeatures(0.5, 0.5), content_words(text))


FOUND = (hit(PAGER), hit(OWNER, 1, start=100))


def supported(text: str, found: tuple[Hit, ...] = FOUND) -> list[str | None]:
    """Return the problem of each sentence that a model wrote, None where there is none."""
    return [verdict.problem for verdict in verdicts_of(draft_of_model(text, found, "m"), found)]
