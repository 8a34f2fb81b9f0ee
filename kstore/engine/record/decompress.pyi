NAMES: tuple[str, ...]

__pyx_capi__: dict[str, object]  # what other extension modules cimport

def decompress(codec: int, magic: int, data: bytes, limit: int) -> bytes | bytearray: ...
