from collections.abc import Callable
from typing import Any, Final, final

__pyx_capi__: dict[str, object]  # what other extension modules cimport

ADVICE: Final[tuple[str, ...]]
TRACED: Final[tuple[str, ...]]

def fail_call(nth: int, error: int = 5, how: str = "error", *, own: bool = False) -> None:
    """For tests: lets the `nth` system call from here on (from 1; 0: none) fail with this errno.

    own: only the calls of this thread count.

    how: "error"; "half", where a write first lands in part; "kill", the process dies at that call by SIGKILL;
    "kill_half", it dies with a write half done."""

def calls_made() -> int:
    """How many system calls were made since fail_call."""

def trace_calls(callback: Callable[[str, str, int, int, Any], object] | None) -> None:
    """For tests: calls `callback(call, path, inode, position, detail)` for every call from here on that changes a file
    or a name, when it has succeeded, in whichever thread it was made; None ends that.

    call        | position, detail
    open        | 0, the mode: "a" and "w" make the file if it is missing, "x" made it, "w" emptied it
    write       | where, the bytes
    truncate    | the length, None
    allocate    | where, how many bytes: the file is at least that long now
    map         | 0, a descriptor: from here on the file changes in memory, without a call, until unmap
    unmap       | 0, None
    syncs, sync | 0, None: content and length are being brought to the disk, and are there
    rename      | 0, the new path
    unlink, make_directory | 0, None
    syncs_directory, sync_directory | 0, None: the names in it are being brought to the disk, and are there

    What was changed between the two calls of a sync may be on the disk or not. The inode is 0 for calls on names."""

def rename(source: str, target: str) -> None:
    """Gives a file another name, in place of a file that has it. OSError."""

def unlink(path: str, *, missing_ok: bool = False) -> None:
    """Removes a file's name. OSError."""

def make_directory(path: str) -> None:
    """Makes a directory and those above it that are missing, and their names durable. OSError."""

def make_empty_directory(path: str) -> None:
    """Makes one directory, in one that is there; its name is durable after sync_directory. FileExistsError, OSError."""

def remove_directory(path: str) -> None:
    """Removes an empty directory. OSError."""

def sync_directory(path: str) -> None:
    """Makes the names in a directory durable. OSError."""

def sync_file(path: str) -> bool:
    """Brings a file to the disk, by its name or that name with the suffix .deleted; False if there is none. OSError."""

def read_whole(path: str, most: int = ..., *, or_deleted: bool = ...) -> bytes:
    """The content of a small file; `or_deleted`: also by the name that it has once it is deleted. OSError; EFBIG for
    more than `most` bytes, which no such file has."""

def frees_descriptor(number: int) -> bool:
    """After another call has failed with this errno: whether it did for want of a descriptor, and there is one now."""

def set_mtime_ms(path: str, mtime_ms: int) -> None:
    """Sets the time of a file's last change. OSError."""

def write_whole(path: str, data: bytes, *, durable: bool = True) -> None:
    """Replaces a file's content at once: readers, and a crash, see the old or the new one. OSError.

    Kafka's way too: NAME.tmp is written, brought to the disk and renamed."""

@final
class Directory:
    """An open directory, for locks on it; closed when the last reference goes. OSError."""

    def __new__(cls, path: str) -> Directory: ...
    @property
    def fd(self) -> int: ...

@final
class File:
    """Owns a file descriptor; it is closed when the last reference goes, never under a reader.

    mode "r" reads, "r+" reads and writes, "a" also creates the file, "w" also empties it, "x" needs it absent. Only
    regular files: a pipe or a device of that name is an OSError, as is a symbolic link that would be written through.
    Thread-safe."""

    def __new__(cls, path: str, mode: str = "r") -> File: ...
    @property
    def path(self) -> str: ...
    @property
    def fd(self) -> int: ...
    def size(self) -> int:
        """The length of the file now, in bytes."""
    def mtime_ms(self) -> int:
        """Time of the last change of its content, in milliseconds."""
    def read(self, position: int, size: int) -> bytes:
        """A fresh copy of at most `size` bytes from `position`; fewer at the end of the file."""
    def write(self, position: int, data: bytes) -> None:
        """Writes all of `data` at `position`. OSError."""
    def truncate(self, size: int) -> None:
        """Sets the length to `size` bytes. OSError."""
    def sync(self) -> None:
        """Brings the file to the disk: content, length, times. OSError."""
    def send(self, target: int, position: int, size: int) -> int:
        """Sends up to `size` bytes from `position` to the descriptor `target` by sendfile: nothing is copied into the
        process. Returns how many it took, 0 at the end of the file. OSError (BlockingIOError where none fits now)."""
    def advise(self, position: int, size: int, advice: str) -> None:
        """Tells the system how these bytes will be read: "normal", "sequential", "willneed" or "dontneed".

        A hint: that it cannot be taken is no error. "sequential" holds for all who share this File."""
    def resident(self, position: int, size: int) -> bytes:
        """Which of these bytes are in the page cache: one byte for every page (of mmap.PAGESIZE) that they touch, 1 or
        0; none from the end of the file on. OSError where the system does not tell."""
    def next_data(self, position: int) -> int:
        """The first byte from `position` on that is not in a hole of the file; INT64_MAX if a hole is all that follows,
        `position` if that cannot be told."""
    def next_hole(self, position: int) -> int:
        """The first byte behind `position` that is in a hole, the end of the file included; INT64_MAX if that cannot be
        told."""
    def fileno(self) -> int:
        """The descriptor; it stays open as long as this object lives."""

@final
class FileHandle:
    """A file for reading, opened when it is first needed.

    All handles of the process together keep no more files open than `open_files` says: to open one, another is closed
    that was not used lately (each is passed over once after it was used, as the CLOCK algorithm does). It is opened
    again when it is needed; a file that took its name meanwhile is not mistaken for it. A File that someone else holds
    stays open, and is found again."""

    def pin(self, file: File | None = None) -> None:
        """Keeps the file open as long as the handle exists; one may be given. One that is not given is kept only while
        others keep less than half of what the system's limit allows."""
    def is_at(self, path: str) -> bool:
        """Whether this path stands for the file, which was open before."""

def open_files() -> tuple[int, int]:
    """(how many files of segments are open for reading, how many may be)."""

def is_crowded() -> bool:
    """Whether writers, iterators and slices hold half of the descriptors that the process may have, or more."""

def limit_open_files(most: int | None) -> None:
    """Lets no more files of segments stay open than this; None: half of what the system's limit allows."""

@final
class Traffic:
    """What goes into some logs and comes out of them, counted, and how long appends and syncs take: whoever counts has
    the GIL. Logs that have none are not counted."""

    def add(self, at: int, count: int) -> None:
        """Adds to one of the totals; IndexError."""
    def counts(self) -> list[int]:
        """The totals: records in, bytes in, records out, bytes out, and those that only `add` counts."""
    def times(self) -> list[tuple[list[int], int]]:
        """Of appends and of syncs: (how many took up to 1024 ns, up to 2048 ns and so on, the rest; the sum in ns)."""
