from typing import final

from kstore.engine.io.file import File

def file_system_of(path: str) -> int:
    """The number of the kind of file system that a file is on; 0 if the system does not say."""

@final
class SharedDirectory:
    is_clean: bool
    def __init__(self, file: File, *, is_first: bool) -> None: ...
    @property
    def changes(self) -> int: ...
    def note_change(self) -> None: ...

@final
class SharedEnd:
    """The state that the processes of a log share. The caller has the file locked, so that no other process
    enters or leaves. `is_first`: no other process has it. LogFailedError if another program has damaged the
    file."""

    def __init__(self, file: File, *, is_first: bool) -> None: ...
    @property
    def number(self) -> int: ...
