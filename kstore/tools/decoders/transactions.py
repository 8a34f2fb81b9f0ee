"""Records of __transaction_state (spec 11.1, --transaction-log-decoder)."""

from kstore.tools.decoders.coordinated import decode_coordinated
from kstore.tools.decoders.errors import Texts
from kstore.tools.decoders.schema import Table
from kstore.tools.decoders.tables import TRANSACTIONS

_TABLE = Table(TRANSACTIONS)


def decode_transactions(key: bytes | None, value: bytes | None) -> Texts:
    """Key and payload as JSON. DecodeError."""
    return decode_coordinated(_TABLE, key, value)
