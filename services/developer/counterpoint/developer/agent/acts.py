"""Acts against a failure: the form of an investigation. Pure."""

import re

from counterpoint.developer.agent.form import Form, Statement
from counterpoint.developer.evidence.attempts import NO_OUTCOME, EarlierAttempt
from counterpoint.developer.evidence.gather import Evidence
from counterpoint.developer.excerpts.passages import is_same_text

_PROHIBITION = re.compile(
    r"\b(?:(?:do|must|should|may|shall) not|don't|mustn't|shouldn't|never|avoid|nicht|nie|niemals)\b", re.IGNORECASE
)


def _has_outcome(one: EarlierAttempt) -> bool:
    return one.in_task and one.attempt.outcome not in NO_OUTCOME


def _problem(statement: Statement, evidence: Evidence) -> str | None:
    """Return why an act is not proposed: it was tried, it failed, its attempt had no success, or the cited text says
    the opposite.

    An act of this task without an outcome may be proposed again: after the approval of a limit it was never offered.
    """
    if statement.part != "action":
        return None
    cited, text = statement.cited, statement.sentence.text
    tried = [one.text for one in evidence.lessons if one.failures or any(map(_has_outcome, one.attempts))]
    texts = [text, *(citation.quote for citation in cited)]
    if any(is_same_text(each, earlier) for each in texts for earlier in tried):
        return "it was tried in this task, or failed for this failure"
    attempts = [statement.by_key[each.store, each.id, each.version].attempt for each in cited]
    if any(one is not None and one.attempt.outcome not in ("succeeded", "partial") for one in attempts):
        return "it rests on an attempt that did not succeed"
    if not _PROHIBITION.search(text) and all(_PROHIBITION.search(citation.quote) for citation in cited):
        return "the cited text advises against it"
    return None


INVESTIGATION = Form(
    decision_type="investigate",
    task="You find the cause of one failure of a data system and the act that puts it right.",
    parts={
        "cause": "why it failed",
        "action": "what to do",
        "verify": "how to see that it worked",
        "risk": "what may go wrong",
        "refutes": "what would show that the cause is another one",
    },
    act="action",
    act_name="act",
    rules=("Do not propose what failed for this failure before.",),
    supporting=frozenset({"document", "attempt"}),
    problem=_problem,
)
