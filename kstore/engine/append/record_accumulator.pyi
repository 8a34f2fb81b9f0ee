from datetime import datetime
from typing import Final, Self, final

from kstore.engine.append.record_appender import RecordAppender
from kstore.typed import BytesLike, Headers

NO_KEY: Final[str]

TOO_LARGE: Final[str]

class PendingBatch:
    """A batch that is being gathered, or was appended: its tickets learn from it where their records are."""

@final
class Ticket:
    """What append() of an appender returns: wait() waits until the record is in the log, `offset` is its
    offset then."""

    @property
    def offset(self) -> int | None:
        """The offset of the record; None as long as it is not in the log."""
    def wait(self, timeout: float | None = None) -> int:
        """Waits until the record is in the log, and returns its offset.

        If the durability of the log is "group" or "each", the record is on the disk then. A batch is appended
        after the linger_ms of the appender at the latest; flush() of the appender appends it at once. In
        asyncio: `await asyncio.to_thread(ticket.wait)`.

        TimeoutError after `timeout` seconds; the time that the disk takes does not count. OSError if the
        batch could not be written: the next append, flush or wait tries again. RecordTooLargeError if the log
        takes no batch of this size any more: its configuration was changed. LogClosedError if the appender
        was closed before."""

class RecordAccumulator:
    """Gathers records in one batch and appends it when it is full. Thread-safe.

    `_began` is called before the first record of a batch is taken, with the mutex held, unless a batch is
    awaited. The deriving class calls `_append_due` after a while, and again as long as that returns True."""

    def __new__(cls, log: RecordAppender, batch_bytes: int = 16384, **options: object) -> Self: ...
    def append(
        self,
        value: BytesLike | None,
        key: BytesLike | None = None,
        timestamp: int | datetime | None = None,
        headers: Headers | None = None,
    ) -> Ticket:
        """Takes one record and returns its Ticket, whose wait() gives the offset. Arguments as for
        log.append.

        The record is in the log when its batch is full, linger_ms is over, or flush() is called. OSError if a
        full batch cannot be written: this record was not taken then, and the next call tries to write that
        batch again. A record that is too large is refused at once, with RecordTooLargeError."""
    def flush(self) -> int:
        """Appends the records that were gathered, and returns the log end offset after that.

        If the durability of the log is "group" or "each", they are on the disk then. RecordTooLargeError,
        once, if the log has refused a batch since the last call, as lower limits make it. LogFailedError in a
        child of fork: what was gathered is appended by the parent."""
    def _began(self) -> None: ...
    @property
    def gathered_count(self) -> int:
        """How many records are not in the log yet. Takes no lock."""
    def _append_due(self) -> bool: ...
    def _close(self) -> None: ...
    @property
    def _is_closed(self) -> bool: ...
    def _leave_to_parent(self) -> None: ...
