"""The log start offset of a log that is open for writing, and what its directory's checkpoints say."""

from __future__ import annotations

from kstore.light_typing import TYPE_CHECKING

if TYPE_CHECKING:
    from kstore.engine.append.log_end import LogEnd
    from kstore.log.files.log_directory import PartitionLease


class StoredOffsets:
    """The log start offset and the recovery point of a log, in memory and in the checkpoints.

    Methods that write raise OSError: then the checkpoints say what they said before, or what they are to say.
    They are called with `log_end.held()`.
    """

    def __init__(self, lease: PartitionLease, log_end: LogEnd, start: int, recovery_point: int) -> None:
        self._lease = lease
        self._log_end = log_end
        log_end.start = start
        self._largest = recovery_point  # what the checkpoint says of the recovery point at most
        self._written = -1  # the recovery point that this object has written; -1 if that is not known

    @property
    def start(self) -> int:
        """The log start offset."""
        return self._log_end.start

    @start.setter
    def start(self, offset: int) -> None:
        self._log_end.start = offset

    def forget_written(self) -> None:
        """Other processes may have written the recovery point."""
        self._largest = max(self._largest, self._log_end.durable_offset)
        self._written = -1

    @property
    def first_base(self) -> int:
        """The base offset of the first segment."""
        sealed, active = self._log_end.segments
        return int(sealed[0].base_offset if sealed else active.base_offset)

    def is_below_recovery_point(self, offset: int) -> bool:
        """Whether the checkpoint may say that an opening need not look at this offset. Other processes of a
        shared log write it, too."""
        return offset <= max(self._largest, self._log_end.stored)

    def is_behind(self) -> bool:
        """Whether an opening after a crash would recover whole segments that are durable."""
        end = self._log_end
        return self._written < end.active.base_offset <= end.durable_offset

    def store(self, recovery_point: int | None = None) -> None:
        """Writes both as they are now; another recovery point if the files are known to be on the disk."""
        point = self._log_end.recovery_point if recovery_point is None else recovery_point
        self.write(point, self._start_to_store())

    def store_lowered_start(self) -> None:
        """Writes both as they are now, and a log start offset also where one is kept for a broker."""
        start = self.start if self._lease.keeps_log_start else self._start_to_store()
        self.write(self._log_end.recovery_point, start)

    def lower_recovery_point(self, point: int) -> None:
        """Before the bytes from `point` on go, the checkpoints must not say that they are there."""
        self.write(min(self._log_end.recovery_point, point), self._start_to_store())

    def write(self, recovery_point: int, log_start_offset: int | None) -> None:
        """Writes both, durably. A log start offset of None takes its line out."""
        self._largest = max(self._largest, recovery_point)
        self._written = -1
        self._log_end.note_stored(max(recovery_point, self._log_end.stored))  # if this process dies now
        self._lease.store(recovery_point, log_start_offset)
        self._largest = self._written = recovery_point
        self._log_end.note_stored(recovery_point)

    def _start_to_store(self) -> int | None:
        """The log start offset, where the first segment does not begin with it."""
        return self.start if self.start > self.first_base else None
