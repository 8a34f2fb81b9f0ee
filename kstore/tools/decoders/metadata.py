"""Records of __cluster_metadata and of its snapshots (spec 11.1, --cluster-metadata-decoder)."""

from kstore.tools.decoders.errors import DecodeError, SkippedError, Texts
from kstore.tools.decoders.framed import read_framed
from kstore.tools.decoders.json_text import json_text
from kstore.tools.decoders.schema import Table
from kstore.tools.decoders.tables import METADATA

_TABLE = Table(METADATA)


def decode_metadata(key: bytes | None, value: bytes | None) -> Texts:
    """The payload as JSON; keys are not shown. SkippedError."""
    try:
        message, version, values = read_framed(_TABLE, value)
    except DecodeError as error:
        raise SkippedError("Error at ", f", skipping. {error.reason}", as_payload=True) from error
    data = message.shown_version(values, version)
    return None, json_text({"type": message.name, "version": version, "data": data})
