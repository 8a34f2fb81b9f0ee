"""Messages of kio, an independent implementation of Kafka's protocol, as lists of values."""

import dataclasses
import datetime
import importlib
import io
import re
import uuid
from enum import Enum
from typing import Any

from kio.schema.errors import ErrorCode
from kio.serial import entity_reader, entity_writer

from kstore.messages.schema import Struct
from tests.messages.values import text_of_id

ERROR_CODES = [code.value for code in ErrorCode]
_EPOCH = datetime.datetime(1970, 1, 1, tzinfo=datetime.UTC)


def entity(message_name: str, version: int) -> type:
    """kio's class of a request or a response."""
    api, kind = re.fullmatch(r"(\w+)(Request|Response)", message_name).groups()
    folder = re.sub(r"(?<=[a-z])(?=[A-Z])", "_", api).lower()
    module = importlib.import_module(f"kio.schema.{folder}.v{version}.{kind.lower()}")
    return getattr(module, message_name)


def read(kind: type, data: bytes) -> Any:
    """Read a whole message."""
    found, size = entity_reader(kind)(memoryview(data), 0)
    assert size == len(data)
    return found


def write(message: Any) -> bytes:
    """Encode a message."""
    target = io.BytesIO()
    entity_writer(type(message))(target, message)
    return target.getvalue()


def plain(value: Any) -> Any:
    """A value of kio as kstore has it, an entity as the list of its values."""
    if dataclasses.is_dataclass(value):
        return [plain(getattr(value, field.name)) for field in dataclasses.fields(value)]
    if isinstance(value, tuple):
        return [plain(one) for one in value]
    if isinstance(value, datetime.timedelta):
        return value // datetime.timedelta(milliseconds=1)
    if isinstance(value, datetime.datetime):
        return (value - _EPOCH) // datetime.timedelta(milliseconds=1)
    if isinstance(value, uuid.UUID):
        return text_of_id(value.bytes)
    return value.value if isinstance(value, Enum) else value


def in_order(struct: Struct, values: dict[str, Any], version: int) -> list[Any]:
    """The values of a version, as `plain` has them."""
    found = []
    for field in struct.fields:
        if field.since <= version <= field.until:
            value = values[field.name]
            element = getattr(field.kind, "element", field.kind)
            if isinstance(element, Struct) and value is not None:
                parts = [
                    in_order(element, one, version) for one in (value if isinstance(value, list) else [value])
                ]
                value = parts if isinstance(value, list) else parts[0]
            elif field.name.endswith(("opicId",)) and value == "A" * 22:
                value = None  # kio has no zero id
            found.append(bytes(value) if isinstance(value, memoryview) else value)
    return found
