"""Parsing of a page: the lesson as it stands there, and which of its parts a person edited. Pure."""

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from pydantic import ValidationError

from counterpoint.cli.lessons.body import DerivedLine, Heading, LabelledBlock, Part, Prose, parts
from counterpoint.cli.lessons.digests import digest
from counterpoint.cli.lessons.front_matter import FrontMatter, PageError, Path, field_name, read_front_matter
from counterpoint.cli.lessons.page import (
    ATTEMPT_LISTS,
    ATTEMPT_TEXTS,
    CITED,
    FAILURE_TEXTS,
    FORM,
    REVIEWED,
    VERSION,
)
from counterpoint.proto.lessons import LessonAttempt, LessonFailure, PastLesson

_TRIED, _SOURCES, _HAPPENED, _FIXED = "What was tried", "Sources", "What happened", "What fixed it"
_SECTIONS = (_HAPPENED, "Cause", _TRIED, _FIXED, "How to verify", _SOURCES)
_ATTEMPT = re.compile(r"Attempt (\d{1,6})")
_HEAD_FIELDS = frozenset(LessonFailure.model_fields) - {*FAILURE_TEXTS.values(), "cited"}
_ATTEMPT_FIELDS = frozenset(LessonAttempt.model_fields) - {
    *ATTEMPT_TEXTS.values(),
    *ATTEMPT_LISTS.values(),
    *REVIEWED.values(),
}
_NAMES = (
    frozenset(PastLesson.model_fields) | frozenset(LessonFailure.model_fields) | frozenset(LessonAttempt.model_fields)
)
_NEW = "new"
"""Start of the id that an attempt without one has until it is imported."""


@dataclass(frozen=True)
class ParsedPage:
    """A lesson as its page states it. `edited` are the ids of attempts that a person changed or added."""

    lesson: PastLesson
    failure_edited: bool
    edited: frozenset[str]


@dataclass
class _Texts:
    """The texts of the body, with the line of each field."""

    failure: dict[str, Any] = field(default_factory=dict)
    attempts: list[dict[str, Any]] = field(default_factory=list)
    reviewed: dict[tuple[str, int], str] = field(default_factory=dict)
    prose: dict[str, str] = field(default_factory=dict)
    lines: dict[Path, int] = field(default_factory=dict)


def parse(text: str) -> ParsedPage | None:
    """Return the lesson of a page, None for a file that is no page of a lesson. Raises `PageError`."""
    lines = text.removeprefix("\ufeff").split("\n")
    if all(line.endswith("\r") for line in lines[:-1]):
        lines = [line.removesuffix("\r") for line in lines]
    front = read_front_matter(lines)
    if front is None:
        return None
    if (version := front.values.get(FORM)) != VERSION:
        raise PageError(front.line((FORM,)), FORM, f"is {version}: this release reads form {VERSION}")
    texts = _texts(parts(lines[front.length :], front.length))
    return _page(front, texts)


def _page(front: FrontMatter, texts: _Texts) -> ParsedPage:
    values = dict(front.values)
    heads = values.pop("attempts", None)
    if not isinstance(heads, list) or not all(isinstance(each, dict) for each in heads) or not heads:
        raise PageError(front.line(("attempts",)), "attempts", "must be a list with at least one attempt")
    _unknown(front, values, {FORM, "id", "digest", *_HEAD_FIELDS}, ())
    if len(heads) != len(texts.attempts):
        line = texts.lines.get(("attempts",), front.line(("attempts",)))
        raise PageError(line, _TRIED, f"has {len(texts.attempts)} attempts, the front matter {len(heads)}")
    _place_reviews(texts, heads)
    attempts = []
    for place, (head, words) in enumerate(zip(heads, texts.attempts, strict=True)):
        _unknown(front, head, {"digest", *_ATTEMPT_FIELDS}, ("attempts", place))
        own = {name: each for name, each in head.items() if name != "digest"}
        attempts.append({"id": f"{_NEW}-{place + 1}", "attempt": place + 1, **own, **words})
    failure = {name: values[name] for name in _HEAD_FIELDS & values.keys()} | texts.failure
    lesson = _checked({"id": values.get("id"), "failure": failure, "attempts": attempts}, front, texts)
    pairs = list(zip(lesson.attempts, heads, strict=True))
    return ParsedPage(
        lesson=lesson,
        failure_edited=digest(lesson.failure) != values.get("digest"),
        edited=frozenset(each.id for each, head in pairs if digest(each) != head.get("digest")),
    )


def _checked(value: Mapping[str, Any], front: FrontMatter, texts: _Texts) -> PastLesson:
    try:
        return PastLesson.model_validate(value)
    except ValidationError as error:
        first = error.errors()[0]
        path: Path = tuple(each for each in first["loc"] if isinstance(each, int) or each in _NAMES)
        if path[:1] == ("failure",):
            path = path[1:]
        line = texts.lines.get(path) or texts.lines.get(path[:3]) or front.line(path)
        raise PageError(line, field_name(path) if path else "attempts", first["msg"]) from error


def _unknown(front: FrontMatter, given: Iterable[str], known: set[str], path: Path) -> None:
    for name in given:
        if name not in known:
            inner = (*path, name)
            raise PageError(front.line(inner), field_name(inner), f"is not one of {', '.join(sorted(known))}")


def _place_reviews(texts: _Texts, heads: list[dict[str, Any]]) -> None:
    """Put the causes and verifications at their attempts; prose belongs to the one that fixed it, else to the last."""
    for (title, place), text in texts.reviewed.items():
        if not 1 <= place <= len(heads):
            raise PageError(texts.lines[(title, place)], title, f"names attempt {place} of {len(heads)}")
        texts.attempts[place - 1][REVIEWED[title]] = text
    fixes = [place for place, head in enumerate(heads) if head.get("outcome") == "succeeded"]
    for title, text in texts.prose.items():
        words = texts.attempts[fixes[-1] if fixes else -1]
        before = words.get(REVIEWED[title])
        words[REVIEWED[title]] = f"{before}\n\n{text}" if before else text


def _texts(body: Iterable[Part]) -> _Texts:
    texts, section = _Texts(), ""
    for part in body:
        match part:
            case Heading(level=1) if not section:
                continue
            case Heading(line=line, level=2, text=title):
                if title not in _SECTIONS:
                    raise PageError(line, title, f"is not one of the sections {', '.join(_SECTIONS)}")
                section = title
            case Heading(line=line, text=title):
                _begin_attempt(texts, section, line, title)
            case LabelledBlock():
                _keep(texts, section, part)
            case DerivedLine():
                continue
            case Prose(line=line, text=text):
                if section not in REVIEWED:
                    problem = "holds text outside of a block, which cannot be imported: move it below a label"
                    raise PageError(line, section or "page", problem)
                texts.prose[section] = "\n\n".join(filter(None, (texts.prose.get(section), text)))
    return texts


def _begin_attempt(texts: _Texts, section: str, line: int, title: str) -> None:
    named = _ATTEMPT.fullmatch(title)
    place = len(texts.attempts) + 1
    if section != _TRIED or named is None or int(named[1]) != place:
        expected = f"must be “Attempt {place}”" if section == _TRIED else "is not expected here"
        raise PageError(line, f"heading {title!r}", expected)
    texts.attempts.append({})
    texts.lines[("attempts",)] = texts.lines[("attempts", place - 1)] = line


def _keep(texts: _Texts, section: str, part: LabelledBlock) -> None:
    """Keep the text of a block in the field of its label. Raises `PageError`."""
    place = len(texts.attempts) - 1
    if section == _HAPPENED and part.label in FAILURE_TEXTS:
        _once(texts, texts.failure, (FAILURE_TEXTS[part.label],), part)
    elif section == _SOURCES and part.label == CITED:
        texts.failure.setdefault("cited", []).append(part.text)
    elif section in REVIEWED and (named := _ATTEMPT.fullmatch(part.label)):
        key = (section, int(named[1]))
        if key in texts.reviewed:
            raise PageError(part.line, part.label, "is given twice")
        texts.reviewed[key], texts.lines[key] = part.text, part.line
    elif section == _TRIED and place >= 0 and part.label in ATTEMPT_TEXTS:
        _once(texts, texts.attempts[place], ("attempts", place, ATTEMPT_TEXTS[part.label]), part)
    elif section == _TRIED and place >= 0 and part.label in ATTEMPT_LISTS:
        texts.attempts[place].setdefault(ATTEMPT_LISTS[part.label], []).append(part.text)
    else:
        raise PageError(part.line, part.label, f"is not a label of the section {section or 'before the first one'}")


def _once(texts: _Texts, values: dict[str, Any], path: Path, part: LabelledBlock) -> None:
    if path in texts.lines:
        raise PageError(part.line, part.label, "is given twice")
    values[str(path[-1])] = part.text
    texts.lines[path] = part.line
