from typing import Final, final

MODIFY: Final[int]

@final
class Inotify:
    """Gathers what happens to the names in some directories, and to the content of the files there.

    `fileno` becomes readable when there is something to `take`. OSError where the system has no inotify, or no more
    of it to give."""

    def __new__(cls) -> Inotify: ...
    def add(self, path: str) -> int:
        """Watches a directory; returns the number by which its events are known. OSError."""
    def read_events(self) -> list[tuple[int, int, str]]:
        """What has happened since: (number of the directory, event bits, name) each; the number is -1 where events
        were lost, the name empty where it concerns the directory itself. Does not wait. OSError."""
    def fileno(self) -> int:
        """The descriptor to wait on; it stays open as long as this object lives."""

@final
class EventFd:
    """An event with a descriptor: readable once it was set, until it is cleared. The descriptor is closed with the last
    reference, so a late `set` never reaches another file. `set` is C code, which no signal interrupts."""

    def fileno(self) -> int:
        """The descriptor to wait on."""
    def set(self) -> None:
        """Wakes the thread that waits, now or later."""
    def clear(self) -> None:
        """Forgets that it was set."""
