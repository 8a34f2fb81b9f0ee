NAMES: tuple[str, ...]

__pyx_capi__: dict[str, object]  # what other extension modules cimport

class CodecError(Exception):
    """A payload that its codec does not accept: what is wrong, and the byte of the payload where."""

    reason: str
    at: int
    expected: object
    found: object
    def __init__(self, reason: str, at: int = 0, expected: object = None, found: object = None) -> None: ...

class DecompressLimitError(Exception):
    """The payload unpacks to more than the cap."""

def decompress(codec: int, magic: int, data: bytes, limit: int) -> bytes | bytearray:
    """What the payload of a batch with this codec and magic unpacks to, bytes or bytearray: at most `limit` bytes.

    DecompressLimitError past the limit, CodecError for a payload that is no such stream or for an unknown codec id."""
