"""What the records of Kafka's internal topics say, in the words of its dump tool (spec 11).

For lines of `kstore dump`: a decoder takes a record's key and value and gives the texts that
kafka-dump-log of 4.3.1 prints after " key: " and " payload: ", None where it prints neither. A
record that it cannot decode raises SkippedError, which knows the remark that Kafka prints instead;
DecodeError where Kafka's tool would end.
"""

from collections.abc import Callable
from typing import Final

from kstore.tools.decoders.errors import DecodeError, SkippedError, Texts
from kstore.tools.decoders.remote import decode_remote
from kstore.tools.decoders.topics import (
    control_text,
    decode_metadata,
    decode_offsets,
    decode_shares,
    decode_transactions,
)

__all__ = ["DECODERS", "DecodeError", "SkippedError", "control_text", "record_texts"]

DECODERS: Final[dict[str, Callable[[bytes | None, bytes | None], Texts]]] = {
    "offsets": decode_offsets,
    "transaction-log": decode_transactions,
    "cluster-metadata": decode_metadata,
    "remote-log-metadata": decode_remote,
    "share-group-state": decode_shares,
}


def record_texts(name: str, key: bytes | None, value: bytes | None, offset: int) -> Texts:
    """Key and payload as Kafka prints them, its remark for what it skips. DecodeError."""
    try:
        return DECODERS[name](key, value)
    except SkippedError as skipped:
        return skipped.texts(offset)
