"""Completions as LiteLLM returns them, whole or in parts, and as the gateway stores and returns them. Pure."""

from collections.abc import Iterable, Mapping
from typing import Any


def completion_of(response: Any) -> dict[str, Any]:
    """Return the completion of a response: `text`, `finish`, and `tool_calls` if there are any."""
    choice = response.choices[0]
    calls = [_tool_call(each) for each in choice.message.tool_calls or ()]
    return _completion(choice.message.content or "", choice.finish_reason, calls)


def _completion(text: str, finish: str | None, tool_calls: list[dict[str, Any]]) -> dict[str, Any]:
    answer: dict[str, Any] = {"text": text, "finish": finish or "stop"}
    return {**answer, "tool_calls": tool_calls} if tool_calls else answer


def _tool_call(call: Any) -> dict[str, Any]:
    function = {"name": call.function.name or "", "arguments": call.function.arguments or ""}
    return {"id": call.id, "type": "function", "function": function}


def message_of(answer: Mapping[str, Any]) -> dict[str, Any]:
    """Return a stored completion as a message of OpenAI's API."""
    calls = answer.get("tool_calls")
    message = {"role": "assistant", "content": answer["text"] or (None if calls else "")}
    return {**message, "tool_calls": calls} if calls else message


def delta_of(answer: Mapping[str, Any]) -> dict[str, Any]:
    """Return a stored completion as a single part."""
    calls = [{"index": index, **call} for index, call in enumerate(answer.get("tool_calls", ()))]
    delta = {"content": answer["text"]} if answer["text"] or not calls else {}
    return {**delta, "tool_calls": calls} if calls else delta


class StreamedCompletion:
    """A completion that is received in parts."""

    def __init__(self) -> None:
        self.usage: Any = None
        self._text: list[str] = []
        self._finish: str | None = None
        self._calls: dict[int, dict[str, Any]] = {}

    def add(self, chunk: Any) -> dict[str, Any]:
        """Add a chunk of the stream; return its part of the completion, empty if it has none."""
        self.usage = getattr(chunk, "usage", None) or self.usage
        if not chunk.choices:
            return {}
        choice = chunk.choices[0]
        self._finish = choice.finish_reason or self._finish
        delta: dict[str, Any] = {}
        if choice.delta.content:
            self._text.append(choice.delta.content)
            delta["content"] = choice.delta.content
        if calls := [self._add_call(each) for each in choice.delta.tool_calls or ()]:
            delta["tool_calls"] = calls
        return delta

    def _add_call(self, part: Any) -> dict[str, Any]:
        known = self._calls.setdefault(part.index, {"id": part.id, "name": "", "arguments": ""})
        known["id"] = known["id"] or part.id
        known["name"] += part.function.name or ""
        known["arguments"] += part.function.arguments or ""
        named = {"name": part.function.name, "arguments": part.function.arguments}
        function = {name: value for name, value in named.items() if value is not None}
        head = {"id": part.id, "type": "function"} if part.id else {}
        return {"index": part.index, **head, "function": function}

    @property
    def answer(self) -> dict[str, Any]:
        """The completion so far, as `completion_of` returns it."""
        return _completion("".join(self._text), self._finish, list(self._complete_calls()))

    def _complete_calls(self) -> Iterable[dict[str, Any]]:
        for _, call in sorted(self._calls.items()):
            function = {"name": call["name"], "arguments": call["arguments"]}
            yield {"id": call["id"], "type": "function", "function": function}
