"""Omissions: excerpts that have nothing of what a question asks for, though they have its words. Pure functions."""

import re
from collections.abc import Sequence

from counterpoint.developer.excerpts.excerpt import HALF, Excerpt
from counterpoint.developer.excerpts.sections import Section
from counterpoint.developer.language.exact_forms import names_in
from counterpoint.developer.language.kinds import DEFAULT, OWN, OWNERSHIP, Kind
from counterpoint.developer.language.question_terms import QuestionTerms
from counterpoint.developer.language.words import content_words

_SETTING = re.compile(r"\b\w+(?:[._]\w+)+|\b[a-z]+[A-Z]\w*")
_VALUE = r"['\"`*]{0,3}\s{0,3}[:=|]\s{0,3}[\w'\"`.-]"


def omits(terms: QuestionTerms, compared: Sequence[Section], excerpts: Sequence[Excerpt]) -> bool:
    """Return whether the document is about another subject, only an internal page can answer, or no excerpt has the
    requested kind of value."""
    if _omits_subject(terms, compared, excerpts[0].section.source):
        return True
    if terms.ours and not any(OWN.search(hit.text) for each in excerpts for hit in each.section.hits):
        return True
    if terms.kind is None:
        return False
    if terms.kind.strict and not _has_kind(terms, excerpts):
        return True
    if OWNERSHIP.search(terms.text) is not None and not _names_owner(terms, terms.kind, excerpts):
        return True
    return DEFAULT.search(terms.text) is not None and not _gives_default(terms, excerpts)


def _has_kind(terms: QuestionTerms, excerpts: Sequence[Excerpt]) -> bool:
    """Return whether a block with a telling word of the question, or under one, has the requested kind of value. It has
    another word of the question itself, unless it is the answer to a question of the page."""
    named = terms.telling or terms.worth.keys()
    blocks = ((each.section, each.section.sentences[n]) for each in excerpts for n in each.units)
    return any(
        terms.fits(block)
        and (section.is_answer or terms.words_in(block))
        and terms.words_in(f"{section.headings}\n{block}") & named
        for section, block in blocks
    )


def _omits_subject(terms: QuestionTerms, compared: Sequence[Section], source: str) -> bool:
    """Return whether the question names the subject of a document by a word that no section of this one has, such as
    the name of another system. Everyday words, those that ask for an owner or a value, and translations name none."""
    text = OWNERSHIP.sub(" ", terms.kind.asks.sub(" ", terms.text) if terms.kind else terms.text)
    literal = content_words(text) | terms.worth.keys()
    named = {word for one in compared for word in terms.matching(one.subject & literal)} & terms.words_in(text)
    named -= terms.everyday
    own = [one for one in compared if one.source == source]
    return not named <= {word for each in own for word in terms.matching(each.words | each.subject)}


def _names_owner(terms: QuestionTerms, kind: Kind, excerpts: Sequence[Excerpt]) -> bool:
    """Return whether a sentence with an owner names most of what the question asks about."""
    about = terms.words_in(" ".join(names_in(terms.text)) or kind.asks.sub(" ", terms.text)) - terms.missing
    sentences = ((each.section, each.section.sentences[n]) for each in excerpts for n in each.units)
    named = (terms.words_in(f"{section.headings}\n{text}") & about for section, text in sentences if terms.fits(text))
    return any(terms.share(words) >= HALF * terms.share(about) for words in named)


def _gives_default(terms: QuestionTerms, excerpts: Sequence[Excerpt]) -> bool:
    """Return whether a sentence gives a default, or a value, of a setting that the question names literally; also
    without such a name."""
    settings = [name.casefold() for name in _SETTING.findall(terms.text)]
    sentences = [each.section.sentences[n].casefold() for each in excerpts for n in each.units]
    return not settings or any(
        name in text and (DEFAULT.search(text) or re.search(re.escape(name) + _VALUE, text))
        for name in settings
        for text in sentences
    )
