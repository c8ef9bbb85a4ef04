"""Conversation formats: JSON of the usual shapes, an export of Slack, or a plain transcript."""

import json
import re
from collections.abc import Iterator
from datetime import UTC, datetime
from typing import Any

from counterpoint.proto.conversation import TURN, UNKNOWN, Turn

_SPEAKER = ("speaker", "role", "user", "author", "name", "username", "sender", "from", "bot_id")
_TEXT = ("text", "content", "body", "message", "value")
_AT = ("at", "date", "time", "timestamp", "ts", "created_at")
_LISTS = ("messages", "turns", "conversation", "conversations", "dialogue", "dialog")
_EPOCH = re.compile(r"1\d{9}(?:\.\d+)?")
_TIMED = re.compile(
    r"^\[?(?P<at>\d[\d./:T -]{3,30}(?:[+-]\d\d:?\d\d|Z| ?[AaPp][Mm])?)\]?,?(?: -)? +"
    r"(?:<(?P<nick>[^<>\n]{1,80})>|(?P<speaker>[^\s\[\]<>:][^\[\]<>\n:]{0,79}):)[ \t]?",
    re.MULTILINE,
)


def turns_of(text: str) -> list[Turn] | None:
    """Return the turns of a conversation, or None for a text that is a transcript already. Raises `ValueError` with the
    reason if there are no turns."""
    stripped = text.lstrip("\ufeff \t\r\n")
    if stripped.startswith(("[{", "{")) or re.match(r"\[\s*[\[{]", stripped):
        turns = turns_of_json(text)
        if turns:
            return turns
        raise ValueError("its JSON is not a list of messages with a speaker")
    if TURN.match(stripped):
        return None
    if _TIMED.match(stripped):
        return list(_plain(stripped))
    raise ValueError("it does not start with `<speaker>: ` or `[<time>] <speaker>: `")


def turns_of_json(text: str) -> list[Turn]:
    """Return the turns of JSON or JSON lines; none if an entry is not a turn. Raises `ValueError` with the line if it
    is not valid JSON."""
    try:
        turns = [_turn(entry) for entry in _entries(_loaded(text))]
    except RecursionError:
        raise ValueError("it is nested too deeply") from None
    return [] if None in turns else [turn for turn in turns if turn is not None and turn.text.strip()]


def _loaded(text: str) -> Any:
    text = text.removeprefix("\ufeff")
    try:
        return json.loads(text)
    except json.JSONDecodeError as error:
        if not error.msg.startswith("Extra data"):
            raise ValueError(f"it is not valid JSON: {error}") from error
    found = []
    for n, line in enumerate(text.split("\n"), 1):
        try:
            found += [json.loads(line)] if line.strip() else []
        except ValueError as error:
            raise ValueError(f"line {n} is not valid JSON") from error
    return found


def _entries(value: Any) -> Iterator[Any]:
    """Yield the entries in order, also of nested lists, and of objects that contain a list of messages."""
    if isinstance(value, list):
        for item in value:
            yield from _entries(item)
        return
    if isinstance(value, dict):
        for name in _LISTS:
            if isinstance(value.get(name), list):
                yield from _entries(value[name])
                return
    yield value


def _turn(entry: Any) -> Turn | None:
    """Return an entry as a turn; None if it has neither a speaker nor a text."""
    if not isinstance(entry, dict):
        return None
    text = next((entry[name] for name in _TEXT if entry.get(name) is not None), None)
    speaker = next((found for name in _SPEAKER if (found := _name(entry.get(name)))), None)
    if text is None and (speaker is None or not any(name in entry for name in _TEXT)):
        return None
    if speaker is None and entry.get("type") != "message":
        return None
    at = next((entry[name] for name in _AT if isinstance(entry.get(name), str | int | float)), None)
    profile = entry.get("user_profile")
    named = _name(profile.get("real_name") or profile.get("name")) if isinstance(profile, dict) else None
    return Turn(named or speaker or UNKNOWN, _text(text), None if at is None else _time(at))


def _name(value: Any) -> str | None:
    if isinstance(value, dict):
        value = next((value[name] for name in ("real_name", "name", "login", "role", "id") if value.get(name)), None)
    return value if isinstance(value, str) and value.strip() else None


def _text(value: Any) -> str:
    """Return a text, or the texts of its parts; anything else, such as a tool call, as JSON."""
    if isinstance(value, list):
        return "\n".join(filter(None, map(_text, value)))
    if isinstance(value, dict) and isinstance(value.get("text"), str):
        return str(value["text"])
    return value if isinstance(value, str) else "" if value is None else json.dumps(value, ensure_ascii=False)


def _time(value: str | float) -> str:
    """Return a time as it is written; seconds or milliseconds since 1970 as a time in UTC."""
    if isinstance(value, int | float):
        value = repr(value / 1000 if 1e11 < value < 1e15 else value)
    if not _EPOCH.fullmatch(value):
        return value
    return datetime.fromtimestamp(int(float(value)), UTC).isoformat().replace("+00:00", "Z")


def _plain(text: str) -> Iterator[Turn]:
    heads = list(_TIMED.finditer(text))
    for head, end in zip(heads, [*(head.start() for head in heads[1:]), len(text)], strict=True):
        yield Turn(head["nick"] or head["speaker"], text[head.end() : end].rstrip("\n"), head["at"].strip(" -"))
