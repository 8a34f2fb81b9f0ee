"""Records of __share_group_state (spec 11.1, --share-group-state-decoder)."""

from kstore.tools.decoders.coordinated import decode_coordinated
from kstore.tools.decoders.errors import Texts
from kstore.tools.decoders.schema import Table
from kstore.tools.decoders.tables import SHARES

_TABLE = Table(SHARES)


def decode_shares(key: bytes | None, value: bytes | None) -> Texts:
    """Key and payload as JSON. DecodeError."""
    return decode_coordinated(_TABLE, key, value)
