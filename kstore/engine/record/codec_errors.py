"""What is wrong with a compressed payload. A batch makes an error of its own from it, which says the file and
the position."""


class CodecError(Exception):
    """A payload that its codec does not accept: what is wrong, and the byte of the payload where."""

    def __init__(self, reason: str, at: int = 0, expected: object = None, found: object = None) -> None:
        self.reason = reason
        self.at = at
        self.expected = expected
        self.found = found
        super().__init__(reason)


class DecompressLimitError(Exception):
    """The payload unpacks to more than the cap."""


def error_of(codec: str, error: Exception) -> Exception:
    """What kstore raises for an error of the library that unpacks a codec: MemoryError, or CodecError."""
    text = str(error)
    if "Allocation error" in text or "Error -4" in text:  # ZSTD_error_memory_allocation, Z_MEM_ERROR
        return MemoryError(f"{codec}: {text}")
    return CodecError(f"{codec}: {text}")
