"""Decoders of the records of Kafka's internal topics, with the output of Kafka's dump tool (spec 11).

A decoder takes the key and the value of a record and returns the texts that kafka-dump-log of 4.3.1 prints
after " key: " and " payload: ", or None if it prints nothing. For a record that Kafka's tool skips, it raises
SkippedError, which has the remark that the tool prints; for one at which the tool ends, DecodeError.
"""

from collections.abc import Callable
from typing import Final

from kstore.messages.errors import DecodeError, SkippedError, Texts
from kstore.messages.remote import decode_remote
from kstore.messages.topics import (
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
    """Key and payload as Kafka prints them, or its remark for a skipped record. DecodeError."""
    try:
        return DECODERS[name](key, value)
    except SkippedError as skipped:
        return skipped.texts(offset)
