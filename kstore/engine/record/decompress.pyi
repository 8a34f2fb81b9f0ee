NAMES: tuple[str, ...]

__pyx_capi__: dict[str, object]  # what other extension modules cimport

def decompress(codec: int, magic: int, data: bytes, limit: int) -> bytes | bytearray:
    """What the payload of a batch with this codec and magic unpacks to, bytes or bytearray: at most `limit` bytes.

    DecompressLimitError past the limit, CodecError for a payload that is no such stream or for an unknown codec id."""
