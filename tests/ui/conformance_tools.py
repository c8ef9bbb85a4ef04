"""Tools, resources and prompts that the conformance suite of MCP asks a server for, added to ours."""

import asyncio
import base64
from typing import Any

import mcp_types as mt
from fastmcp import Context, FastMCP
from fastmcp.prompts import Message
from fastmcp.tools.base import Tool, ToolResult
from mcp import MCPError
from mcp_types.jsonrpc import MISSING_REQUIRED_CLIENT_CAPABILITY

ANY = "What the suite asks for."
PNG = "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mP8z8DwHwAFBQIAX8jx0gAAAABJRU5ErkJggg=="
WAV = base64.b64encode(b"RIFF$\0\0\0WAVEfmt \x10\0\0\0\1\0\1\0@\x1f\0\0@\x1f\0\0\1\0\x08\0data\0\0\0\0").decode()
DEFAULTS: dict[str, Any] = {
    "name": {"type": "string", "default": "John Doe"},
    "age": {"type": "integer", "default": 30},
    "score": {"type": "number", "default": 95.5},
    "status": {"type": "string", "enum": ["active", "inactive", "pending"], "default": "active"},
    "verified": {"type": "boolean", "default": True},
}
ENUMS: dict[str, Any] = {
    "untitledSingle": {"type": "string", "enum": ["option1", "option2", "option3"]},
    "titledSingle": {
        "type": "string",
        "oneOf": [{"const": f"value{n}", "title": f"Option {n}"} for n in (1, 2, 3)],
    },
    "legacyEnum": {
        "type": "string", "enum": ["opt1", "opt2", "opt3"], "enumNames": ["Option One", "Option Two", "Option Three"],
    },
    "untitledMulti": {"type": "array", "items": {"type": "string", "enum": ["option1", "option2", "option3"]}},
    "titledMulti": {
        "type": "array", "items": {"anyOf": [{"const": f"value{n}", "title": f"Choice {n}"} for n in (1, 2, 3)]},
    },
}  # fmt: skip
SCHEMA: dict[str, Any] = {
    "$schema": "https://json-schema.org/draft/2020-12/schema",
    "type": "object",
    "$defs": {
        "address": {
            "$anchor": "addressDef",
            "type": "object",
            "properties": {"street": {"type": "string"}, "city": {"type": "string"}},
        }
    },
    "properties": {
        "name": {"type": "string"},
        "address": {"$ref": "#/$defs/address"},
        "contactMethod": {"type": "string", "enum": ["phone", "email"]},
        "phone": {"type": "string"},
        "email": {"type": "string"},
    },
    "allOf": [{"anyOf": [{"required": ["phone"]}, {"required": ["email"]}]}],
    "if": {"properties": {"contactMethod": {"const": "phone"}}, "required": ["contactMethod"]},
    "then": {"required": ["phone"]},
    "else": {"required": ["email"]},
    "additionalProperties": False,
}
NAME = mt.ElicitRequest(
    params=mt.ElicitRequestFormParams(
        message="What is your name?",
        requested_schema={"type": "object", "properties": {"name": {"type": "string"}}, "required": ["name"]},
    )
)
CAPITAL = mt.CreateMessageRequest(
    params=mt.CreateMessageRequestParams(
        messages=[
            mt.SamplingMessage(role="user", content=mt.TextContent(type="text", text="What is the capital of France?"))
        ],
        max_tokens=100,
    )
)
ROOTS = mt.ListRootsRequest()
ASKED: dict[str, tuple[dict[str, Any], str | None]] = {
    "test_input_required_result_elicitation": ({"user_name": NAME}, None),
    "test_input_required_result_sampling": ({"capital_question": CAPITAL}, None),
    "test_input_required_result_list_roots": ({"client_roots": ROOTS}, None),
    "test_input_required_result_request_state": ({"confirm": NAME}, "state-ok"),
    "test_input_required_result_tampered_state": ({"confirm": NAME}, "sealed"),
    "test_input_required_result_multiple_inputs": (
        {"user_name": NAME, "greeting": CAPITAL, "client_roots": ROOTS}, "sealed",
    ),
    "test_input_required_result_capabilities": ({"sampled": CAPITAL}, None),
}  # fmt: skip
"""Tools that ask for input: the requests, and the sealed state."""


def text(words: str) -> mt.TextContent:
    """A text of a result."""
    return mt.TextContent(type="text", text=words)


def image() -> mt.ImageContent:
    """A picture of one pixel."""
    return mt.ImageContent(type="image", data=PNG, mime_type="image/png")


def embedded(uri: str, mime_type: str, words: str) -> mt.EmbeddedResource:
    """A resource within a result."""
    return mt.EmbeddedResource(
        type="resource", resource=mt.TextResourceContents(uri=uri, mime_type=mime_type, text=words)
    )


def add_conformance(server: FastMCP[Any]) -> None:
    """Add all that the suite asks for."""
    _contents(server)
    _behaviour(server)
    _questions(server)
    _resources(server)
    _prompts(server)


def _contents(server: FastMCP[Any]) -> None:
    contents: dict[str, list[Any]] = {
        "test_simple_text": [text("This is a simple text response for testing.")],
        "test_image_content": [image()],
        "test_audio_content": [mt.AudioContent(type="audio", data=WAV, mime_type="audio/wav")],
        "test_embedded_resource": [
            embedded("test://embedded-resource", "text/plain", "This is an embedded resource content.")
        ],
        "test_multiple_content_types": [
            text("Multiple content types test:"), image(),
            embedded("test://mixed-content-resource", "application/json", '{"test":"data","value":123}'),
        ],
    }  # fmt: skip
    for name, content in contents.items():

        async def tool(content: list[Any] = content) -> ToolResult:
            return ToolResult(content=content)

        made = Tool.from_function(tool, name=name, description=ANY, output_schema=None)
        server.add_tool(made.model_copy(update={"parameters": {"type": "object", "properties": {}}}))


def _behaviour(server: FastMCP[Any]) -> None:
    @server.tool(output_schema=None, description=ANY)
    async def test_error_handling() -> str:
        raise RuntimeError("This tool intentionally returns an error for testing")

    @server.tool(output_schema=None, description=ANY)
    async def test_tool_with_logging(ctx: Context) -> str:
        for words in ("Tool execution started", "Tool processing data", "Tool execution completed"):
            await ctx.info(words)
            await asyncio.sleep(0.05)
        return "done"

    @server.tool(output_schema=None, description=ANY)
    async def test_tool_with_progress(ctx: Context) -> str:
        for done in (0, 50, 100):
            await ctx.report_progress(done, 100)
            await asyncio.sleep(0.05)
        return "done"

    @server.tool(output_schema=None, description=ANY)
    async def test_sampling(prompt: str, ctx: Context) -> str:
        message = mt.SamplingMessage(role="user", content=text(prompt))
        reply = await ctx.session.create_message(messages=[message], max_tokens=100, related_request_id=ctx.request_id)
        return f"LLM response: {reply.content}"

    async def elicited(ctx: Context, message: str, properties: dict[str, Any], required: list[str]) -> str:
        schema = {"type": "object", "properties": properties, "required": required}
        reply = await ctx.session.elicit(message=message, requested_schema=schema, related_request_id=ctx.request_id)
        return f"Elicitation completed: action={reply.action}, content={reply.content}"

    @server.tool(output_schema=None, description=ANY)
    async def test_elicitation(message: str, ctx: Context) -> str:
        names = ("username", "email")
        fields = {name: {"type": "string", "description": f"User's {name}"} for name in names}
        return await elicited(ctx, message, fields, list(names))

    @server.tool(output_schema=None, description=ANY)
    async def test_elicitation_sep1034_defaults(ctx: Context) -> str:
        return await elicited(ctx, "Defaults", DEFAULTS, [])

    @server.tool(output_schema=None, description=ANY)
    async def test_elicitation_sep1330_enums(ctx: Context) -> str:
        return await elicited(ctx, "Enums", ENUMS, [])

    async def json_schema_2020_12_tool(name: str | None = None, address: dict[str, Any] | None = None) -> str:
        return f"{name} {address}"

    made = Tool.from_function(json_schema_2020_12_tool, description=ANY, output_schema=None)
    server.add_tool(made.model_copy(update={"parameters": SCHEMA}))

    @server.tool(output_schema=None, description=ANY)
    async def test_reconnection(ctx: Context) -> str:
        await ctx.close_sse_stream()
        await asyncio.sleep(0.1)
        return "Reconnection test completed successfully"


def _questions(server: FastMCP[Any]) -> None:
    for name, (requests, state) in ASKED.items():

        async def tool(
            ctx: Context, requests: dict[str, Any] = requests, state: str | None = state
        ) -> ToolResult | mt.InputRequiredResult:
            responses = ctx.input_responses or {}
            if not requests.keys() <= responses.keys():
                return mt.InputRequiredResult(input_requests=requests, request_state=state)
            answers = {key: value.model_dump(mode="json") for key, value in responses.items()}
            return ToolResult(content=[text(f"{ctx.request_state} {answers}")])

        made = Tool.from_function(tool, name=name, description=ANY, output_schema=None)
        server.add_tool(made.model_copy(update={"parameters": {"type": "object", "properties": {}}}))

    @server.tool(output_schema=None, description=ANY)
    async def test_input_required_result_multi_round(ctx: Context) -> ToolResult | mt.InputRequiredResult:
        responses = ctx.input_responses or {}
        step = "step2" if "step1" in responses or ctx.request_state == "round-2" else "step1"
        if "step2" in responses and ctx.request_state == "round-2":
            return ToolResult(content=[text("done")])
        return mt.InputRequiredResult(input_requests={step: NAME}, request_state=f"round-{step[-1]}")

    @server.tool(output_schema=None, description=ANY)
    async def test_missing_capability(ctx: Context) -> str:
        capabilities = ctx.session.client_capabilities
        if capabilities is None or capabilities.sampling is None:
            data: dict[str, Any] = {"requiredCapabilities": {"sampling": {}}}
            raise MCPError(code=MISSING_REQUIRED_CLIENT_CAPABILITY, message="needs sampling", data=data)
        return "done"

    @server.prompt(description=ANY)
    async def test_input_required_result_prompt(ctx: Context) -> list[Message] | mt.InputRequiredResult:
        if "user_context" not in (ctx.input_responses or {}):
            return mt.InputRequiredResult(input_requests={"user_context": NAME})
        return [Message("done")]


def _resources(server: FastMCP[Any]) -> None:
    @server.resource("test://static-text", mime_type="text/plain")
    async def static_text() -> str:
        return "This is the content of the static text resource."

    @server.resource("test://static-binary", mime_type="image/png")
    async def static_binary() -> bytes:
        return base64.b64decode(PNG)

    @server.resource("test://template/{id}/data", mime_type="application/json")
    async def template(id: str) -> str:
        return f'{{"id":"{id}","templateTest":true,"data":"Data for ID: {id}"}}'

    @server.resource("test://watched-resource", mime_type="text/plain")
    async def watched() -> str:
        return "watched"


def _prompts(server: FastMCP[Any]) -> None:
    @server.prompt(description=ANY)
    async def test_simple_prompt() -> str:
        return "This is a simple prompt for testing."

    @server.prompt(description=ANY)
    async def test_prompt_with_arguments(arg1: str, arg2: str) -> str:
        return f"Prompt with arguments: arg1='{arg1}', arg2='{arg2}'"

    @server.prompt(description=ANY)
    async def test_prompt_with_embedded_resource(resourceUri: str) -> list[Message]:
        return [
            Message(embedded(resourceUri, "text/plain", "Embedded resource content for testing.")),
            Message("Please process the embedded resource above."),
        ]

    @server.prompt(description=ANY)
    async def test_prompt_with_image() -> list[Message]:
        return [Message(image()), Message("Please analyze the image above.")]
