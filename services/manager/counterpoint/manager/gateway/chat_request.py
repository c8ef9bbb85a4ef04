"""Requests of completions, in the format of OpenAI's API: text, tools, and JSON by a schema."""

from typing import Annotated, Any, Literal, Self

from pydantic import Field, ValidationInfo, field_validator, model_validator

from counterpoint.manager.gateway.calls import GenerateCall
from counterpoint.proto.messages import Shape

TOOLS_LIMIT = 128


class _Part(Shape):
    type: Literal["text"]
    text: str


class _Function(Shape):
    name: str = Field(min_length=1, max_length=64)


class _CalledFunction(_Function):
    arguments: str = ""


class _ToolCall(Shape):
    id: str
    type: Literal["function"] = "function"
    function: _CalledFunction


class _ChatMessage(Shape):
    role: Literal["system", "developer", "user", "assistant", "tool"]
    content: str | tuple[_Part, ...] | None = None
    tool_calls: tuple[_ToolCall, ...] | None = None
    tool_call_id: str | None = None

    @model_validator(mode="after")
    def _complete(self) -> Self:
        if self.role == "tool" and self.tool_call_id is None:
            raise ValueError("a message of the role tool needs tool_call_id")
        if self.content is None and not self.tool_calls:
            raise ValueError("content is required in a message without tool_calls")
        return self

    @property
    def text(self) -> str:
        content = self.content or ""
        return content if isinstance(content, str) else "\n".join(part.text for part in content)

    @property
    def for_call(self) -> tuple[str, str] | dict[str, Any]:
        """The message as a call holds it."""
        if not self.tool_calls and self.tool_call_id is None:
            return self.role, self.text
        calls = [call.model_dump() for call in self.tool_calls or ()]
        return {
            "role": self.role,
            "content": self.text,
            **({"tool_calls": calls} if calls else {}),
            **({"tool_call_id": self.tool_call_id} if self.tool_call_id is not None else {}),
        }


class _DeclaredFunction(_Function):
    description: str | None = None
    parameters: dict[str, Any] | None = None
    strict: bool | None = None


class _Tool(Shape):
    type: Literal["function"]
    function: _DeclaredFunction


class _ToolChoice(Shape):
    type: Literal["function"]
    function: _Function


class _JsonSchema(Shape):
    name: str = Field(min_length=1, max_length=64)
    description: str | None = None
    schema_: dict[str, Any] | None = Field(default=None, alias="schema")
    strict: bool | None = None


class _Format(Shape):
    type: Literal["text", "json_object", "json_schema"]
    json_schema: _JsonSchema | None = None

    @model_validator(mode="after")
    def _complete(self) -> Self:
        if self.type == "json_schema" and self.json_schema is None:
            raise ValueError("json_schema is required")
        return self


class _StreamOptions(Shape):
    include_usage: bool = False


class ChatRequest(Shape):
    """A request of a completion, in the format of OpenAI's API."""

    messages: Annotated[tuple[_ChatMessage, ...], Field(min_length=1, max_length=1000)]
    model: str | None = None
    max_tokens: int | None = Field(default=None, ge=1)
    max_completion_tokens: int | None = Field(default=None, ge=1)
    temperature: float = Field(default=0.0, ge=0, le=2)
    response_format: _Format | None = None
    tools: Annotated[tuple[_Tool, ...], Field(max_length=TOOLS_LIMIT)] = ()
    tool_choice: Literal["none", "auto", "required"] | _ToolChoice | None = None
    stream: bool = False
    stream_options: _StreamOptions | None = None
    n: Literal[1] | None = None

    @field_validator("tools", "stream", mode="before")
    @classmethod
    def _default(cls, value: Any, info: ValidationInfo) -> Any:
        return cls.model_fields[str(info.field_name)].default if value is None else value

    def call(self, model: str, max_tokens: int) -> GenerateCall:
        """Return the call of this request."""
        form = self.response_format
        schema = form.json_schema if form and form.type == "json_schema" else None
        choice = self.tool_choice
        return GenerateCall(
            model=model,
            messages=tuple(message.for_call for message in self.messages),
            max_tokens=max_tokens,
            temperature=self.temperature,
            as_json=form is not None and form.type == "json_object",
            json_schema=schema.model_dump(by_alias=True, exclude_none=True) if schema else None,
            tools=tuple(tool.model_dump(exclude_none=True) for tool in self.tools),
            tool_choice=choice.model_dump() if isinstance(choice, _ToolChoice) else choice,
        )
