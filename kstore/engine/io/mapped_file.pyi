from typing import final

from kstore.engine.io.file import File

@final
class MappedFile:
    """`size` bytes of `file`, whose length becomes that; unmapped when the last reference goes.

    The file is sparse: a page is touched only after `reserve` has got its block, because a store into a hole of a full
    disk kills the process. For the same reason nothing shortens the file below what was reserved and is still read.
    If another program does so, the mapping becomes zeros and `is_lost` says so, on Linux; see sigbus.h."""

    def __new__(cls, file: File, size: int) -> MappedFile: ...
    @property
    def size(self) -> int: ...
