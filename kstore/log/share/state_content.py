"""The content of a file with the state of a share group: how much of it is sound, and the state that it leads to."""

from __future__ import annotations

from kstore.engine.io.file import read_whole
from kstore.engine.record.batch import RecordBatch
from kstore.engine.share.share_state import ShareState
from kstore.errors import CorruptRecordError
from kstore.light_typing import TYPE_CHECKING
from kstore.log.files.stored_batches import (
    LEAST,
    has_batch,
    has_gap,
    is_sound,
    size_at,
    sound_batches,
    synced_at,
    with_size,
)
from kstore.log.share.state_records import decode

if TYPE_CHECKING:
    from kstore.log.share.state_records import Keys

_ATTEMPTS = 5
_MOST_ZEROS = 8  # at the end of a batch, and more


class StateContent:
    """The sound batches of a file, from its beginning."""

    def __init__(self, path: str, keys: Keys) -> None:
        self.path = path
        self.keys = keys
        self.state = ShareState()
        self.end = 0  # of the sound batches, in bytes
        self.next_offset = -1  # of the next batch; -1: any
        self.synced = 0  # bytes, according to the batches
        self.snapshot_epoch = 0

    def take(self, data: bytes) -> int:
        """Add the sound batches at the beginning of `data`, which follows the end. Return their size.
        CorruptRecordError for a batch that is sound and has no update of this state."""
        at = 0
        while LEAST <= (size := size_at(data, at)) <= len(data) - at:
            batch = RecordBatch(data[at : at + size], file=self.path, position=self.end)
            if not is_sound(batch) or batch.base_offset != self.next_offset >= 0:
                break
            for record in batch.records(verify=False):
                update, epoch = decode(record, self.keys, self.path, self.end)
                try:
                    self.state.apply(update)
                except ValueError as e:
                    raise self.corrupt("an update of the state", str(e)) from None
                if update.is_snapshot:
                    self.snapshot_epoch = epoch
            at += size
            self.end, self.next_offset = self.end + size, batch.next_offset
            self.synced = max(self.synced, synced_at(batch))
        return at

    def check_torn(self, rest: bytes) -> None:
        """Raise CorruptRecordError unless what follows the end is zeros, or a batch of a writer that was killed,
        or one that a power cut has left in part."""
        written = len(rest.rstrip(b"\0"))
        if not written:
            return
        later = sound_batches(rest, 1)
        durable = max([self.synced, *(synced_at(batch) for _, batch in later)])
        size = size_at(rest, 0)
        if self.end < durable:
            is_torn = False
        elif later:
            is_torn = has_gap(rest, 0, later[0][0], self.end, 1)
        elif LEAST <= size <= len(rest):
            is_torn = written <= size - _MOST_ZEROS or has_gap(rest, 0, size, self.end, 1)
        else:  # a whole batch with a wrong size is not torn. Zeros may belong to it
            is_torn = not any(has_batch(with_size(rest[: written + zeros])) for zeros in range(_MOST_ZEROS))
        if not is_torn:
            raise self.corrupt("a batch of a share group's state", "damage")

    def corrupt(self, expected: str, found: str) -> CorruptRecordError:
        """An error at the end of the sound batches."""
        return CorruptRecordError(
            "state of a share group", file=self.path, position=self.end, expected=expected, found=found
        )


def read_state(path: str, keys: Keys) -> ShareState:
    """The state in a file, without its lock. FileNotFoundError, CorruptRecordError, OSError."""
    for attempt in range(_ATTEMPTS):
        content = StateContent(path, keys)
        data = read_whole(path)
        try:
            content.check_torn(data[content.take(data) :])
        except CorruptRecordError:  # a worker is writing this very batch, perhaps
            if attempt == _ATTEMPTS - 1:
                raise
            continue
        break
    return content.state
