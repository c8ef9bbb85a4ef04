"""JSON Schemas of the messages that another system may send or receive."""

import inspect
from typing import Any, Literal

from pydantic.json_schema import GenerateJsonSchema, JsonSchemaValue
from pydantic_core import core_schema

from counterpoint.proto import subjects
from counterpoint.proto.messages import Message
from counterpoint.proto.validation import OPAQUE

DIALECT = "https://json-schema.org/draft/2020-12/schema"
BASE = "https://counterpoint.dev/schemas/"
TIME_PATTERN = r"^[0-9]{4}-[0-9]{2}-[0-9]{2}[Tt][0-9]{2}:[0-9]{2}(:[0-9]{2}(\.[0-9]+)?)?([Zz]|[+-][0-9]{2}:[0-9]{2})$"
AMOUNT_PATTERN = r"^-?[0-9]+(\.[0-9]+)?$"
AMOUNT_FROM_ZERO_PATTERN = r"^[0-9]+(\.[0-9]+)?$"

Sender = Literal["other-systems", "counterpoint"]


def sender(message_type: str) -> Sender:
    """Return the sender of a message type. A type without a subject comes from other systems by HTTP."""
    on_a_subject = message_type in subjects.message_types()
    if on_a_subject and subjects.stream_of(subjects.of(message_type, "*")) != subjects.INTAKE:
        return "counterpoint"
    return "other-systems"


def of(message_type: str) -> JsonSchemaValue:
    """Return the schema of a message type's body.

    It is open: unknown fields are allowed, and sets of values that Counterpoint sends may grow.
    """
    model = Message.register[message_type]
    head = {
        "$schema": DIALECT,
        "$id": BASE + message_type,
        "title": model.__name__,
        "description": inspect.getdoc(model),
        "x-sent-by": sender(message_type),
        "type": "object",
    }
    if message_type in OPAQUE:
        return head
    generator = _InboundSchema if sender(message_type) == "other-systems" else _OutboundSchema
    described = model.model_json_schema(schema_generator=generator)
    return head | {key: described[key] for key in ("properties", "required", "$defs") if key in described}


class _InboundSchema(GenerateJsonSchema):
    """Schemas of messages that others send: sets of values are closed, times and amounts have patterns."""

    def field_title_should_be_set(self, schema: Any) -> bool:
        return False

    def datetime_schema(self, schema: core_schema.DatetimeSchema) -> JsonSchemaValue:
        return {"type": "string", "format": "date-time", "pattern": TIME_PATTERN}

    def decimal_schema(self, schema: core_schema.DecimalSchema) -> JsonSchemaValue:
        number = {"type": "number"} | ({"minimum": 0} if schema.get("ge") == 0 else {})
        return {"anyOf": [_amount(schema), number]}


class _OutboundSchema(_InboundSchema):
    """Schemas of messages that Counterpoint sends: absent values are omitted, sets of values are open."""

    def decimal_schema(self, schema: core_schema.DecimalSchema) -> JsonSchemaValue:
        return _amount(schema)

    def nullable_schema(self, schema: core_schema.NullableSchema) -> JsonSchemaValue:
        return self.generate_inner(schema["schema"])

    def default_schema(self, schema: core_schema.WithDefaultSchema) -> JsonSchemaValue:
        described = super().default_schema(schema)
        return {key: value for key, value in described.items() if key != "default" or value is not None}

    def literal_schema(self, schema: core_schema.LiteralSchema) -> JsonSchemaValue:
        known = super().literal_schema(schema)
        return {"anyOf": [known, {"type": "string"}]} if known.get("type") == "string" else known

    def union_schema(self, schema: core_schema.UnionSchema) -> JsonSchemaValue:
        """Reduce `Literal | str` to the open set that `literal_schema` returns."""
        described = super().union_schema(schema)
        arms: list[JsonSchemaValue] = []
        for arm in described.get("anyOf", []):
            for inner in arm.get("anyOf", [arm]):
                if inner not in arms:
                    arms.append(inner)
        return described | {"anyOf": arms} if arms else described


def _amount(schema: core_schema.DecimalSchema) -> JsonSchemaValue:
    return {"type": "string", "pattern": AMOUNT_FROM_ZERO_PATTERN if schema.get("ge") == 0 else AMOUNT_PATTERN}
