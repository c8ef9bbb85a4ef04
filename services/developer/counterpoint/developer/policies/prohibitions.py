"""Prohibitions: whether an act is one that a constraint of the task forbids. Pure.

A constraint forbids an act in words: a verb and its object. A clause of a proposal is that act if it begins with the
same verb, ends its object with a word of the forbidden object, and has all forbidden words. So “rebuild the filer index
with weed fix” is what “never rebuild the index” forbids, and “restart the loader's exporter” is not what “do not
restart the loader” forbids. Only the words are compared, not their meaning.
"""

import re
from collections.abc import Iterator
from dataclasses import dataclass

from counterpoint.developer.language.words import content_words, stem_of
from counterpoint.proto.overrides import TaskConstraint
from counterpoint.proto.tasks import TaskDelegated

_NEGATION = re.compile(
    r"\b(?:(?:do|does|must|may|should|shall|will) not|(?:don|doesn|mustn|shouldn|won)['’]t|can ?not|can['’]t|never|no"
    r"|not|avoid|refrain from|nicht|niemals|nie|keinesfalls|kein\w*)\b",
    re.IGNORECASE,
)
_CONDITION = re.compile(
    r"\b(?:without|unless|until|before|after|while|during|if|when|whenever|where|except|only|but|than|instead|other"
    r"|ohne|bis|bevor|vor|nach|während|wenn|falls|außer|nur|sondern|als|solange)\b",
    re.IGNORECASE,
)
_SUBORDINATE = re.compile(
    r"\W*(?:instead|rather|after|before|without|if|when|while|once|unless|because|since|although|until|whether|that"
    r"|wenn|falls|nachdem|bevor|ohne|statt|anstatt|weil|obwohl|bis|ob|dass)\b",
    re.IGNORECASE,
)
_PASSIVE = re.compile(
    r"^(?P<object>.+?) (?:must|may|should|shall|can|is|are) ?(?:not|never) (?:to )?be "
    r"(?P<verb>\w+ed|\w+n|\w+t)\b(?P<rest>.*)$",
    re.IGNORECASE,
)
_SENTENCE = re.compile(r"(?<=[.!?;])\s+|\n+")
_CLAUSE = re.compile(r"[,;:()]\s+|\b(?:and|or|und|oder|then|dann)\b|\s[–—-]+\s", re.IGNORECASE)
_CODE = re.compile(r"(?<!`)`++([^`\n]+)`+")
_OBJECT_END = re.compile(
    r"\b(?:of|in|into|on|onto|with|from|by|at|for|to|before|after|that|which|who|using|via|over|through|so|as|because|if"
    r"|when|until|while|during|von|im|in|mit|aus|auf|bei|für|durch|über|nach|vor|bis|damit|sobald)\b",
    re.IGNORECASE,
)
_TOKEN = re.compile(r"[^\W_]+(?:['’][^\W_]+)?")


@dataclass(frozen=True, slots=True)
class ForbiddenAct:
    """The act that a constraint forbids: all its words, its verb, and the words of its object."""

    words: frozenset[str]
    verb: str
    object: frozenset[str]


def forbidden_act(constraint: str) -> ForbiddenAct | None:
    """Return the act that a constraint forbids; None if it forbids none, or only under a condition."""
    if not _NEGATION.search(constraint) or _CONDITION.search(constraint):
        return None
    if passive := _PASSIVE.match(" ".join(constraint.split())):
        said = f"{passive['verb']} {passive['object']} {passive['rest']}"
    else:
        said = _NEGATION.sub(" ", constraint)
    words = content_words(_NEGATION.sub(" ", constraint))
    verb, phrase = _verb_and_object(said)
    return ForbiddenAct(words, verb, frozenset(phrase)) if words and verb else None


def contradiction(constraint: str, act: str) -> str | None:
    """Return the sentence of an act that does what a constraint forbids."""
    forbidden = forbidden_act(constraint)
    if forbidden is None:
        return None
    sentences = (each.strip() for each in _SENTENCE.split(act))
    return next((each for each in sentences if _does(each, forbidden)), None)


def violations(message: TaskDelegated, act: str) -> Iterator[tuple[TaskConstraint, str]]:
    """Yield the constraints for a task that forbid an act, each with the sentence that it forbids."""
    override, given = message.override, message.constraints
    if override:
        own = (TaskConstraint(text=text, by=override.by, by_kind=override.by_kind) for text in override.constraints)
        given = (*given, *own)
    for constraint in {each.text: each for each in given}.values():
        if sentence := contradiction(constraint.text, act):
            yield constraint, sentence


def is_forbidden(message: TaskDelegated, act: str) -> bool:
    """Return whether a constraint for a task forbids an act."""
    return any(violations(message, act))


def _does(sentence: str, forbidden: ForbiddenAct) -> bool:
    """Whether a sentence has a clause, or a command in it, that is the forbidden act."""
    if not _NEGATION.search(sentence) and content_words(sentence) == forbidden.words:
        return True
    return any(_is_act(clause, forbidden) for clause in _clauses(sentence)) or any(
        _is_command(command, forbidden) for command in _CODE.findall(sentence) if not _NEGATION.search(sentence)
    )


def _clauses(sentence: str) -> Iterator[str]:
    """Yield the clauses of a sentence that say what is done."""
    for clause in _CLAUSE.split(sentence):
        if clause and not _NEGATION.search(clause) and not _SUBORDINATE.match(clause):
            yield clause


def _is_act(clause: str, forbidden: ForbiddenAct) -> bool:
    verb, phrase = _verb_and_object(clause)
    if verb != forbidden.verb or not forbidden.words <= content_words(clause):
        return False
    return not forbidden.object or bool(phrase and phrase[-1] in forbidden.object)


def _is_command(command: str, forbidden: ForbiddenAct) -> bool:
    """Whether a command, such as `systemctl restart loader`, has the forbidden verb and then all words of its
    object."""
    stems = _stems(command)
    after = stems[stems.index(forbidden.verb) + 1 :] if forbidden.verb in stems else None
    return after is not None and forbidden.words <= {forbidden.verb, *after}


def _verb_and_object(text: str) -> tuple[str, tuple[str, ...]]:
    """Return the first content word of a text, and those of its object, up to a preposition after it."""
    tokens = list(_TOKEN.finditer(text))
    verb = next((token for token in tokens if stem_of(token[0])), None)
    if verb is None:
        return "", ()
    rest = re.sub(r"^\s*of\b", " ", text[verb.end() :], flags=re.IGNORECASE)
    return stem_of(verb[0]) or "", _stems(_OBJECT_END.split(rest)[0])


def _stems(text: str) -> tuple[str, ...]:
    return tuple(stem for token in _TOKEN.findall(text) if (stem := stem_of(re.sub(r"['’]\w$", "", token))))
