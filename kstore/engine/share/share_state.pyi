from collections.abc import Collection
from types import TracebackType
from typing import Final, TypeAlias, final

from kstore.engine.io.file import File

AVAILABLE: Final[int]
ACQUIRED: Final[int]
ACKNOWLEDGED: Final[int]
ARCHIVED: Final[int]
FOREVER: Final[int]

_StateBatch: TypeAlias = tuple[int, int, int, int, int, int]

@final
class Update:
    """A change of a state, or with `is_snapshot` a whole state.

    `batches`: changes of ranges of records, as in Kafka's records: (first offset, last offset, state,
    delivery count, worker, until). `until` is the time in ms at which the lock of the worker expires if the
    record is acquired, else the time from which on it is available. `start_offset`: all records below it are
    done; -1 if it does not change. `leader_epoch` and `generation` are those of the log position at the end
    of the delivered records; -1 if they do not change."""

    def __init__(
        self,
        batches: tuple[_StateBatch, ...],
        start_offset: int = -1,
        leader_epoch: int = -1,
        generation: int = -1,
        *,
        is_snapshot: bool = False,
    ) -> None: ...
    @property
    def batches(self) -> tuple[_StateBatch, ...]: ...
    @property
    def start_offset(self) -> int: ...
    @property
    def leader_epoch(self) -> int: ...
    @property
    def generation(self) -> int: ...
    @property
    def is_snapshot(self) -> bool: ...
    def __eq__(self, other: object, /) -> bool: ...

@final
class ShareState:
    """What a share group has done in a partition.

    Records below `end` were delivered; those of them that are not in `in_flight` are done, so a slow record
    keeps nothing but itself. `in_flight` has (state, delivery count, worker, until) by offset, in ascending
    order."""

    def __new__(cls) -> ShareState: ...
    @property
    def end(self) -> int: ...
    @property
    def leader_epoch(self) -> int: ...
    @property
    def generation(self) -> int: ...
    @property
    def in_flight(self) -> dict[int, tuple[int, int, int, int]]: ...
    @property
    def start(self) -> int:
        """The offset of the first record that is not done."""
    def available(self, now: int, dead: Collection[int]) -> int | None:
        """The offset of the first record that was delivered and is to be delivered again, or None: it was
        released, its lock has expired, or its worker is among the dead ones."""
    def due_in_ms(self, now: int) -> int:
        """In how many ms a record in flight may become available, unless its worker dies."""
    def look_again(self) -> None:
        """A worker has died: the next call of `available` looks at all records."""
    def workers(self) -> set[int]:
        """The workers that have acquired records."""
    def deliveries(self, offset: int) -> int:
        """How often a record in flight was delivered; 0 for another one."""
    def holds(self, offset: int, delivery_count: int, worker: int) -> bool:
        """Whether a worker has still acquired a record, by its delivery of this number."""
    def acquire(
        self, offset: int, worker: int, until: int, leader_epoch: int = -1, generation: int = -1
    ) -> Update:
        """Deliver a record to a worker. Offsets between the end and a new record have no record."""
    def finish(self, offset: int, state: int) -> Update:
        """End a record in flight: ACKNOWLEDGED or ARCHIVED."""
    def release(self, offset: int, until: int) -> Update:
        """Make a record in flight available again, from a time on."""
    def renew(self, offset: int, until: int) -> Update:
        """Set the time at which the lock of an acquired record expires."""
    def snapshot(self) -> Update:
        """The whole state."""
    def truncated(self, end: int, leader_epoch: int, generation: int) -> Update:
        """The whole state, for a log that has lost all records from an offset on: others may have their
        offsets."""
    def apply(self, update: Update) -> None:
        """Take in an update. ValueError for one that no state leads to. Applying it again changes nothing."""

def encode_value(update: Update, snapshot_epoch: int, now: int) -> bytes:
    """The value of a ShareSnapshot or ShareUpdate record, of version 0.

    Kafka's records have neither the worker and the time of a record in flight nor the generation of a log.
    They are tagged fields, which Kafka's decoders skip."""

def decode_value(value: bytes, *, is_snapshot: bool) -> tuple[Update, int]:
    """The update that a value has, and its snapshot epoch. ValueError for one that `encode_value` does not
    make."""

def take_updates(
    state: ShareState, data: bytes, next_offset: int, update: bytes, snapshot: bytes
) -> tuple[int, int, int, int]:
    """Applies the updates of the sound batches at the beginning of `data`: their size, the offset behind
    them, how many bytes of the file were synced according to them (-1: unknown), and the epoch of the last
    snapshot (-1: none).

    next_offset: of the first batch; -1: any. update, snapshot: the keys of the records. ValueError for a
    sound batch with anything else in it; its second argument is the position of the batch."""

UNCHANGED: Final[int]
GROWN: Final[int]
REPLACED: Final[int]

@final
class FileLock:
    """`with lock:` is for one thread of one process at a time. The system releases the lock of a process that
    dies. Entering and leaving are C code, which no signal interrupts; a signal handler that raises ends the
    waiting. OSError. ReentrantCallError, as for a Mutex."""

    def __new__(cls, path: str) -> FileLock: ...
    @property
    def file(self) -> File: ...
    def __enter__(self) -> None: ...
    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None: ...

def look_behind(file: File, position: int) -> int:
    """Whether a file has other bytes than zeros from a position on, GROWN; or REPLACED if it has no name any
    more, because another file was renamed over it. Else UNCHANGED. OSError."""

def write_batch(
    file: File,
    position: int,
    key: bytes,
    value: bytes,
    timestamp: int,
    base_offset: int,
    producer_id: int,
    base_sequence: int,
) -> int:
    """Writes a batch of one record at a position, and returns its size. OSError."""
