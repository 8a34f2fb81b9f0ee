from typing_extensions import Buffer

NAMES: tuple[str, ...]

__pyx_capi__: dict[str, object]  # what other extension modules cimport

class CodecError(Exception):
    reason: str
    at: int
    expected: object
    found: object
    def __init__(self, reason: str, at: int = 0, expected: object = None, found: object = None) -> None: ...

class DecompressLimitError(Exception): ...

def decompress(codec: int, magic: int, data: bytes, limit: int) -> bytes | bytearray: ...
def compress(codec: int, data: Buffer, level: int | None = None) -> bytes: ...
