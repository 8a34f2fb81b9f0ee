"""The content of a file with the state of a share group: how much of it is sound, and the state that it leads
to."""

from __future__ import annotations

import struct
import time

from kstore.engine.io.file import read_whole
from kstore.engine.record.batch_builder import encode_batch
from kstore.engine.share.share_state import ShareState, encode_value, take_updates
from kstore.errors import CorruptRecordError
from kstore.light_typing import TYPE_CHECKING
from kstore.log.files.stored_batches import (
    LEAST,
    has_batch,
    has_gap,
    size_at,
    sound_batches,
    synced_at,
    with_size,
)

if TYPE_CHECKING:
    from typing import TypeAlias

    _Keys: TypeAlias = tuple[bytes, bytes]  # of updates and of snapshots

_SNAPSHOT, _UPDATE = 0, 1  # versions of the key
_SHORT, _INT = struct.Struct(">h"), struct.Struct(">i")

MOST_BYTES = 1 << 24  # more than a file ever has
_ATTEMPTS = 5
_MOST_ZEROS = 8  # at the end of a batch, and more


def encode_keys(group: str, topic_id: bytes, partition: int) -> _Keys:
    """The keys of updates and of snapshots."""
    rest = _SHORT.pack(len(group)) + group.encode() + topic_id + _INT.pack(partition)
    return _SHORT.pack(_UPDATE) + rest, _SHORT.pack(_SNAPSHOT) + rest


class StateContent:
    """The sound batches of a file, from its beginning."""

    def __init__(self, path: str, keys: _Keys) -> None:
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
        try:
            size, next_offset, synced, epoch = take_updates(self.state, data, self.next_offset, *self.keys)
        except ValueError as e:
            what, position = e.args
            raise self.corrupt("an update of the state of this group and partition", what, position) from None
        self.end, self.next_offset = self.end + size, next_offset
        self.synced = max(self.synced, synced)
        if epoch >= 0:
            self.snapshot_epoch = epoch
        return size

    def check_torn(self, rest: bytes) -> None:
        """Raise CorruptRecordError unless what follows the end is zeros, or a batch of a writer that was
        killed, or one that a power cut has left in part."""
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

    def corrupt(self, expected: str, found: str, behind: int = 0) -> CorruptRecordError:
        """An error at the end of the sound batches, or so many bytes behind it."""
        return CorruptRecordError(
            "state of a share group",
            file=self.path,
            position=self.end + behind,
            expected=expected,
            found=found,
        )


def encode_state(state: ShareState, keys: _Keys, snapshot_epoch: int, base_offset: int) -> bytes:
    """A file with a state: one snapshot."""
    now = time.time_ns() // 1_000_000
    value = encode_value(state.snapshot(), snapshot_epoch, now)
    return encode_batch([(now, keys[True], value, None)], base_offset=base_offset)


def read_state(path: str, keys: _Keys) -> ShareState:
    """The state in a file, without its lock. FileNotFoundError, CorruptRecordError, OSError."""
    for attempt in range(_ATTEMPTS):
        content = StateContent(path, keys)
        data = read_whole(path, MOST_BYTES)
        try:
            content.check_torn(data[content.take(data) :])
        except CorruptRecordError:  # a worker is writing this very batch, perhaps
            if attempt == _ATTEMPTS - 1:
                raise
            continue
        break
    return content.state
