"""Control records of KRaft, as they stand after the record's metadata (spec 2.4, 11.2)."""

from kstore.tools.decoders.json_text import json_text
from kstore.tools.decoders.reader import Reader
from kstore.tools.decoders.schema import Table
from kstore.tools.decoders.tables import CONTROL

_TABLE = Table(CONTROL)


def control_text(control_type: int, value: bytes) -> str | None:
    """What is printed of a control record, None for other types.

    Kafka reads every one as version 0 and prints it as the version written in it; so its own
    leader changes of version 1, with directory ids, come out wrong or not at all. DecodeError where
    its tool dies.
    """
    if control_type not in _TABLE.records:
        return None
    _, message = _TABLE.records[control_type]
    values = message.read_version(Reader(value), 0)
    version = values["version"]
    assert isinstance(version, int)
    name = message.name + ":" * (message.name == "LeaderChange")
    return f" {name} {json_text(message.shown_version(values, version))}"
