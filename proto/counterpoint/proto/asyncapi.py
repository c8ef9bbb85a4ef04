"""The AsyncAPI 3.0 document: the messages that another system may send or watch on the bus."""

import inspect
from typing import Any

from counterpoint.proto import schemas, subjects
from counterpoint.proto.messages import MESSAGE_LIMIT_BYTES, Message

Node = dict[str, Any]

PUBLISHER, OBSERVER = "publisher", "observer"

_ABOUT = f"""\
What another system sees of Counterpoint on NATS. `send` is what it may publish, `receive` what it may watch; the tags
of an operation say which NATS users may do it.

A message to an intake subject is bare JSON, or a CloudEvent in binary mode (`ce-` headers) or in structured mode
(`content-type: application/cloudevents+json`), of at most {MESSAGE_LIMIT_BYTES // 1024} KiB. A request on an intake
subject is answered by the stream's acknowledgement: the message is stored. An acknowledgement with an `error` means
that it is not stored; code 503 means that too many messages of its kind wait in the project, so publish it again later.
Events about a message are republished below `live.`, at most once; the record is read by HTTP. A user listens on its
own inbox only: set the inbox prefix that was issued with its password.

Readers accept unknown fields and unknown values. An absent value is left out, never null.
"""

_PARAMETERS: dict[str, Node] = {
    "project": {"description": "The project: 1 to 63 lower-case letters, digits or `-`.", "default": "default"},
    "agent": {"description": "Who decided: router, manager, developer, coder-2, judge, calling_llm, human and others."},
    "service": {"description": "The service that committed: router, manager, developer, memory, lineage."},
}

_ATTRIBUTES: dict[str, Node] = {
    "specversion": {"type": "string", "const": "1.0"},
    "id": {"type": "string", "description": "Unique within the source; the same id is the same message."},
    "type": {"type": "string", "description": "`counterpoint.<noun>.<verb>.v<N>`"},
    "source": {"type": "string", "format": "uri-reference"},
    "time": {"type": "string", "format": "date-time"},
    "subject": {"type": "string", "description": "The task's id."},
    "datacontenttype": {"type": "string", "const": "application/json"},
    "dataschema": {"type": "string", "format": "uri"},
    "correlationid": {"type": "string", "description": "The task's id, the same in all of its messages."},
    "causationid": {"type": "string", "description": "The id of the message that led to this one."},
}
_EXTENSIONS: dict[str, Node] = {
    "sequence": {
        "type": "string",
        "description": "The message's place in the log of its project, if it is in the log.",
    },
    "publication": {"type": "string", "description": "How often the message was published, counted from 1."},
    "taskversion": {"type": "string", "description": "The version of the task's record that the message belongs to."},
}
_REQUIRED = ["specversion", "id", "type", "source"]
_TRACE: Node = {"traceparent": {"type": "string", "description": "W3C trace context."}}


def document() -> Node:
    """Return the document, generated from the registered messages and their subjects."""
    types = [t for t in subjects.message_types() if _channel_address(t) is not None]
    sent = [t for t in types if schemas.sender(t) == "other-systems"]
    return {
        "asyncapi": "3.0.0",
        "info": {"title": "Counterpoint", "version": "1.0.0", "description": _ABOUT, "license": {"name": "Apache-2.0"}},
        "defaultContentType": "application/json",
        "servers": {
            "bus": {
                "host": "{host}:{port}",
                "protocol": "nats",
                "description": "`nats` and `users` in the endpoints.json of a running stack.",
                "variables": {"host": {"default": "127.0.0.1"}, "port": {"default": "4222"}},
                "security": [{"$ref": "#/components/securitySchemes/user"}],
            }
        },
        "channels": {_channel_name(t): _channel(t) for t in types},
        "operations": {_operation_name(t): _operation(t) for t in types},
        "components": {
            "messages": {_title(t): _message(t) for t in types}
            | {_title(t) + "Structured": _structured_message(t) for t in sent},
            "schemas": {"SentHeaders": _sent_headers(), "EmittedHeaders": _emitted_headers()},
            "securitySchemes": {"user": {"type": "userPassword", "description": "A NATS user and its password."}},
        },
    }


def user_kinds(message_type: str) -> tuple[str, ...]:
    """Return the kinds of NATS user that may send (intake) or watch (others) a message type."""
    stream = subjects.stream_of(subjects.of(message_type, "*"))
    if stream == subjects.INTAKE:
        return (PUBLISHER,)
    return (PUBLISHER, OBSERVER) if stream == subjects.TASKS else (OBSERVER,)


def _channel_address(message_type: str) -> str | None:
    """Return the subject on which other systems send or watch a message type, or None."""
    subject = subjects.of(message_type, "{project}", agent="{agent}", service="{service}")
    stream = subjects.stream_of(subject)
    if stream == subjects.INTAKE:
        return subject
    return subjects.live(subject) if stream in subjects.LIVE_STREAMS else None


def _channel_name(message_type: str) -> str:
    tokens = (_channel_address(message_type) or "").replace("_", ".").split(".")
    first, *others = [token for token in tokens if not token.startswith("{")]
    return first + "".join(token.capitalize() for token in others)


def _channel(message_type: str) -> Node:
    address = _channel_address(message_type) or ""
    names = [_title(message_type)]
    if schemas.sender(message_type) == "other-systems":
        names.append(names[0] + "Structured")
    return {
        "address": address,
        "messages": {name: {"$ref": f"#/components/messages/{name}"} for name in names},
        "parameters": {name: about for name, about in _PARAMETERS.items() if f"{{{name}}}" in address},
    }


def _operation_name(message_type: str) -> str:
    return ("send" if schemas.sender(message_type) == "other-systems" else "receive") + _title(message_type)


def _operation(message_type: str) -> Node:
    return {
        "action": "send" if schemas.sender(message_type) == "other-systems" else "receive",
        "channel": {"$ref": f"#/channels/{_channel_name(message_type)}"},
        "summary": _summary(message_type),
        "tags": [{"name": user} for user in user_kinds(message_type)],
    }


def _message(message_type: str) -> Node:
    sent = schemas.sender(message_type) == "other-systems"
    return {
        "name": message_type,
        "title": _title(message_type),
        "summary": _summary(message_type),
        "contentType": "application/json",
        "correlationId": {"location": "$message.header#/ce-correlationid"},
        "headers": {
            "allOf": [
                {"$ref": f"#/components/schemas/{'SentHeaders' if sent else 'EmittedHeaders'}"},
                {"type": "object", "properties": {"ce-type": {"const": message_type}}},
            ]
        },
        "payload": _payload(message_type),
    }


def _structured_message(message_type: str) -> Node:
    return {
        "name": message_type,
        "title": f"{_title(message_type)} in structured mode",
        "summary": _summary(message_type),
        "contentType": "application/cloudevents+json",
        "payload": {
            "type": "object",
            "required": [*_REQUIRED, "data"],
            "properties": _ATTRIBUTES
            | {"type": {"const": message_type}, "data": {"$ref": f"./schemas/{message_type}.json"}},
        },
    }


def _payload(message_type: str) -> Node:
    return {
        "schemaFormat": "application/schema+json;version=draft-2020-12",
        "schema": {"$ref": f"./schemas/{message_type}.json"},
    }


def _sent_headers() -> Node:
    return {
        "type": "object",
        "description": "None for bare JSON; in binary mode the attributes of a CloudEvent.",
        "properties": _headers(),
        "dependencies": {"ce-specversion": [f"ce-{name}" for name in _REQUIRED[1:]]},
    }


def _emitted_headers() -> Node:
    required = [*_REQUIRED, "time", "datacontenttype", "dataschema"]
    extensions = {f"ce-{name}": dict(about) for name, about in _EXTENSIONS.items()}
    return {
        "type": "object",
        "description": "The attributes of a CloudEvent in binary mode.",
        "properties": _headers() | extensions,
        "required": [f"ce-{name}" for name in required],
    }


def _headers() -> Node:
    return {f"ce-{name}": dict(about) for name, about in _ATTRIBUTES.items()} | _TRACE


def _title(message_type: str) -> str:
    return Message.register[message_type].__name__


def _summary(message_type: str) -> str:
    return (inspect.getdoc(Message.register[message_type]) or "").partition("\n")[0]
