"""Triggers by which a task goes to the calling LLM although its work could go on (docs/triggers.md). Pure.

The same error twice is counted in `attempts`; the others are here: a change over several DAGs or owners, attempts that
contradict each other, and "take over".
"""

import re
import textwrap
from collections.abc import Iterable
from dataclasses import dataclass

from counterpoint.manager.task_history import TaskHistory
from counterpoint.proto.attempts import Attempt
from counterpoint.proto.errors import ErrorCode
from counterpoint.proto.tasks import EscalationCode, Target, Task, TaskWorked

CONFIDENT = 0.6
"""Confidence above which two attempts that contradict each other are a deadlock."""
_ADDRESSED = r"\b(?:please|bitte|now|just|then|so|ok|okay|you|claude|agent|should|must|can|could|would|to|and)\s+"
_OBJECT = r"(?:it|this|that|the (?:task|incident|case|problem|issue|work)|here|for me|now|please|yourself|control)"
_TAKE_OVER = re.compile(
    rf"(?:^|[.!?,:;\n–-][^\S\n]*|{_ADDRESSED})(?P<asked>take (?:(?:it|this|that) )?over"
    rf"(?=\s*(?:$|[.!?,;:\n–-])|\s+(?:{_OBJECT}|from here|and|with)\b))"
    r"|\b(?:bitte |du )(?P<bitte>übernehmen|übernimm|übernimmst)\b"
    r"|\b(?P<das>übernimm (?:das|bitte|den (?:fall|auftrag)|die (?:aufgabe|sache)))\b",
    re.IGNORECASE,
)
_NOT_ASKED = re.compile(
    r"\b(?:do not|don['’]t|never|nobody|no one|cannot|can['’]t|could not|did not|didn['’]t|fail(?:s|ed)? to|unable to"
    r"|before|until|when|if|nicht)\b[^.!?,\n]*$",
    re.IGNORECASE,
)
_CLAUSE_CHARS = 200
_SEVERAL = (
    r"(?:all|every|each|both|several|multiple|many|various|different|other|two|three|four|five|\d{1,3}"
    r"|alle[nr]?|jede[nsr]?|mehrere[nr]?|beide[nr]?|verschiedene[nr]?|zwei|drei)"
)
_SCOPES = r"(?:dags?|pipelines?|workflows?|teams?|owners?|departments?|projects?|repos(?:itor(?:y|ies))?)"
_WIDE = re.compile(
    rf"\b{_SEVERAL} (?:of )?(?:the |our |your |its |their |other |unserer? |der )?(?:\w+ )?{_SCOPES}\b"
    rf"|\bacross (?:the |our )?(?:\w+ )?{_SCOPES}\b|\b(?:dag|pipeline|team)[- ]übergreifend",
    re.IGNORECASE,
)
_ONE = re.compile(rf"\b(?:one|1|ein(?:e[nmrs]?)?) (?:\w+ )?{_SCOPES}\b", re.IGNORECASE)
_OPPOSITES = (
    ("increase", "decrease"), ("raise", "lower"), ("enable", "disable"), ("start", "stop"), ("add", "remove"),
    ("upgrade", "downgrade"), ("open", "close"), ("lock", "unlock"), ("pause", "resume"), ("pause", "unpause"),
    ("up", "down"), ("on", "off"), ("install", "uninstall"), ("attach", "detach"), ("grant", "revoke"),
    ("allow", "deny"), ("mount", "unmount"),
)  # fmt: skip
_NEGATION = re.compile(r"\b(?:do not|don['’]t|never|nicht|kein\w*)\b", re.IGNORECASE)
_WORD = re.compile(r"[^\W\d_]\w*")
_STOP = frozenset(
    ("a", "an", "the", "to", "of", "for", "in", "at", "by", "and", "with", "its", "it", "is", "be", "from")
)


@dataclass(frozen=True, slots=True)
class Trigger:
    """A reason for which the calling LLM has to decide."""

    code: EscalationCode
    what: str


def trigger_of(history: TaskHistory, message: TaskWorked) -> Trigger | None:
    """Return the trigger of a result that would be offered or stops for want of a model; an override is a decision that
    was made already."""
    task = history.task
    if task.override is not None:
        return None
    if message.outcome == "stopped" and message.code == ErrorCode.NO_MODEL and (scope := wide_scope(task)):
        return Trigger("architecture_scope", f"who decides on a change of {scope}")
    if message.outcome != "proposed":
        return None
    if any(asks_take_over(text) for text in (task.title, task.description) if text):
        return Trigger("take_over", "how to continue: the task asks you to take over")
    if disagreement := _disagreement(history, message):
        return disagreement
    if pair := deadlock(history.ordered_attempts, message.attempt):
        first, second = pair
        what = f"which is right: attempt {first.attempt} and attempt {second.attempt} contradict each other"
        return Trigger("confidence_deadlock", what)
    return None


def asks_take_over(text: str) -> bool:
    """Return whether a text asks its reader to take over, rather than telling of something that does."""
    starts = (match.start(match.lastgroup or 0) for match in _TAKE_OVER.finditer(text))
    return any(not _NOT_ASKED.search(text[max(0, start - _CLAUSE_CHARS) : start]) for start in starts)


def only_asks_take_over(instruction: str) -> bool:
    """Return whether an instruction is a request to take over and nothing else."""
    rest = _words(_TAKE_OVER.sub(" ", instruction))
    filler = {"please", "now", "here", "this", "task", "you", "ok", "bitte", "me", "incident", "case"}
    return asks_take_over(instruction) and rest <= filler


def wide_scope(task: Task) -> str | None:
    """Return the scope of a change over several DAGs or owners in words, None for any other task."""
    if task.kind != "develop":
        return None
    if len(files := dag_files(task.target)) > 1:
        return f"{len(files)} DAGs"
    text = f"{task.title or ''}\n{task.description}"
    return match[0].lower() if (match := _WIDE.search(text)) and not _ONE.search(text) else None


def dag_files(target: Target | None) -> frozenset[str]:
    """Return the files of a target that are below a folder `dags`."""
    paths = target.paths if target else ()
    return frozenset(path for path in paths if "dags" in path.split("/")[:-1] and path.endswith(".py"))


def deadlock(attempts: Iterable[Attempt], number: int) -> tuple[Attempt, Attempt] | None:
    """Return an earlier attempt and attempt `number` if both are confident and contradict each other."""
    confident = [each for each in attempts if each.confidence is not None and each.confidence > CONFIDENT]
    latest = next((each for each in confident if each.attempt == number), None)
    earlier = (each for each in confident if each.attempt < number)
    return next(((each, latest) for each in earlier if latest and contradicts(each.tried, latest.tried)), None)


def _disagreement(history: TaskHistory, message: TaskWorked) -> Trigger | None:
    """Return the trigger of a confident proposal of a model that contradicts that of the rules."""
    task, attempt, alternative = history.task, history.attempts.get(message.attempt), message.alternative
    if not alternative or attempt is None or (attempt[0].confidence or 0) <= CONFIDENT:
        return None
    if not contradicts(alternative, attempt[0].tried):
        return None
    if task.shadow:
        return Trigger("confidence_deadlock", "which is right: the model and the rules contradict each other")
    acts = f"the model proposes “{_short(attempt[0].tried)}”, the rules propose “{_short(alternative)}”"
    return Trigger("confidence_deadlock", f"which is right: {acts}")


def _short(act: str) -> str:
    return textwrap.shorten(act, 300, placeholder="…")


def contradicts(first: str, second: str) -> bool:
    """Return whether two acts are the same but for a negation or for one word and its opposite."""
    negated = _NEGATION.search(first) is not None, _NEGATION.search(second) is not None
    one, other = _words(_NEGATION.sub(" ", first)), _words(_NEGATION.sub(" ", second))
    if negated[0] != negated[1]:
        return bool(one) and one == other
    pairs = (pair for way in _OPPOSITES for pair in (way, way[::-1]))
    return any(a in one and b in other and one - {a} == other - {b} and one != {a} for a, b in pairs)


def _words(text: str) -> set[str]:
    """Return the words of a text in lower case, without numbers and stop words."""
    return {word.lower() for word in _WORD.findall(text)} - _STOP
