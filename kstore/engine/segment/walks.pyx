# cython: binding=False
"""Walks from batch to batch of a segment: over all, as recovery does (spec 8.4), or over the last ones."""

from kstore.light_typing import NamedTuple

from cython cimport final
from libc.stdint cimport INT32_MAX, INT64_MAX, int32_t, int64_t, uint8_t
from libc.string cimport memset

from kstore.engine.io.buffers cimport ReadWindow
from kstore.engine.record.batch cimport raise_fault
from kstore.engine.record.batch_walk cimport FAR, LOOK, NEAR, WALK_DAMAGED, WALK_SYSTEM, step
from kstore.engine.segment.index cimport INDEX_MEMORY, OffsetIndex, TimeIndex, index_batch, ks_index_state
from libkstore.format cimport (
    KS_BATCH_OVERHEAD,
    KS_CONTROL,
    KS_E_CRC,
    KS_E_LENGTH,
    KS_E_OFFSET,
    KS_OK,
    ks_batch,
    ks_check_batch,
    ks_codec,
    ks_fail,
    ks_fault,
    ks_load_i16,
    ks_next_record,
    ks_record,
)

from kstore.engine.segment.index import TimestampOffset
from kstore.errors import CorruptRecordError


@final
cdef class SegmentEnd:
    """How a segment ends.

    `next_offset` follows its last batch that counts, `position` is the byte where that batch ends, and
    `tail_bytes` is the number of bytes behind it. A batch whose offsets contradict those of its neighbours
    does not count. `last_position` is the byte where that batch begins, -1 if there is none; `last_header` is
    its header, and `leader_epoch` is -1 if the header has none.
    """

    def __cinit__(self):
        self.last_position = self.leader_epoch = -1


class RecoveryWalk(NamedTuple):
    """What a walk over every batch of a segment found; the indexes are those that recovery would write.

    It ends at the first byte that recovery would cut off; `error` says what is wrong there, None where
    nothing is left. `disordered`: an offset did not rise at an index entry. `overflow`: an offset lies more
    than 2^31 - 1 above the base, so the segment must be split. `torn`: the bytes end inside a batch.
    """

    valid_bytes: int
    next_offset: int
    batch_count: int
    offset_index: OffsetIndex
    time_index: TimeIndex
    max_timestamp: TimestampOffset
    leader_epochs: list[tuple[int, int]]
    error: CorruptRecordError | None
    disordered: bool
    overflow: bool
    has_producers: bool
    torn: bool


cdef int check_marker(const uint8_t *p, const ks_batch *b, ks_fault *fault) noexcept nogil:
    """What recovery reads of a transaction marker: its first record's key, and the version of its value (spec
    2.4).

    A value too short to be one is let pass, though Kafka fails on it (and cannot open such a log at all)."""
    cdef const uint8_t *q = p + KS_BATCH_OVERHEAD
    cdef ks_record r
    if b.magic < 2 or not b.attributes & KS_CONTROL or b.producer_id < 0 or b.records_count <= 0 or ks_codec(b):
        return KS_OK
    if ks_next_record(&q, p + b.size, b, &r, fault) != KS_OK:
        fault.at += KS_BATCH_OVERHEAD
        return fault.status
    if r.key_size < 4:
        return ks_fail(fault, KS_E_LENGTH, KS_BATCH_OVERHEAD, 4, r.key_size)
    if ks_load_i16(r.key) < 0:
        return ks_fail(fault, KS_E_LENGTH, <size_t>(r.key - p), 0, ks_load_i16(r.key))
    if r.value_size >= 2 and ks_load_i16(r.value) < 0:
        return ks_fail(fault, KS_E_LENGTH, <size_t>(r.value - p), 0, ks_load_i16(r.value))
    return KS_OK


cdef object error_of(const ks_fault *fault, str path, int64_t position, int64_t offset):
    try:
        raise_fault(fault, path, position, offset)
    except CorruptRecordError as e:
        return e


cdef object recovery_walk(
    ReadWindow w, str path, int64_t base_offset, int64_t end_offset, int64_t interval, bint verify,
    OffsetIndex offsets=None, TimeIndex times=None,
):
    """A RecoveryWalk of what the window may show, checksums verified if asked. The GIL is free meanwhile.

    `offsets` and `times`, if they are given: the indexes up to the batch that the last entry of `offsets`
    names. The walk begins there, and adds to them.

    Offsets that do not rise from batch to batch are damage too (Kafka does not look); of two batches that
    contradict each other the one out of line is blamed.
    """
    cdef ks_batch b
    cdef ks_fault fault
    cdef int64_t position = 0, size = 0, have, count = 0, next_offset = base_offset
    cdef ks_index_state indexed
    cdef int64_t ahead = FAR, previous = -1, last = base_offset - 1
    cdef int32_t epoch = -1
    cdef int put = 0
    cdef bint overflow = False
    cdef bint producers = False
    cdef bint unordered = False
    cdef bint follows_on = True  # whether the last batch began right behind the one before
    epochs = []
    memset(&fault, 0, sizeof(fault))
    indexed.since_entry = 0
    if offsets is None:
        offsets = OffsetIndex(base_offset)
        times = TimeIndex(base_offset)
    if offsets.count:
        position = offsets.position_at(offsets.count - 1)
    indexed.max_timestamp, indexed.max_timestamp_offset = times.last_entry
    with nogil:
        while True:
            size = step(w, position, ahead, &b, &fault)
            if size < 0:
                break
            if verify:
                have = w.fill(position, size, FAR)
                if have < 0:
                    size = WALK_SYSTEM
                    break
                if (
                    ks_check_batch(w.at(position), w.at(position) + have, &b, &fault) != KS_OK
                    or check_marker(w.at(position), &b, &fault) != KS_OK
                ):
                    size = WALK_DAMAGED
                    break
            else:  # large batches: step over their records instead of reading them
                ahead = LOOK if size > NEAR else FAR
            if b.base_offset <= last or b.last_offset >= end_offset:
                unordered = True
                break
            if b.last_offset - base_offset > INT32_MAX:
                overflow = True
                break
            put = index_batch(&indexed, offsets, times, interval, INT64_MAX, INT64_MAX, &b, position)
            if put:
                break
            if b.leader_epoch > epoch and b.magic == 2:
                epoch = b.leader_epoch
                with gil:
                    epochs.append((epoch, b.base_offset))
            producers = producers or b.producer_id >= 0
            count += 1
            follows_on = b.base_offset == last + 1
            last = b.last_offset
            next_offset = last + 1
            previous = position
            position += size
    if size == WALK_SYSTEM:
        w.raise_failure(-1)
    if put == INDEX_MEMORY:  # no damage
        raise MemoryError()
    if unordered and not follows_on and b.base_offset <= last:  # the batch before is the one out of line
        ks_fail(&fault, KS_E_OFFSET, 0, b.base_offset - 1, last)
        error = error_of(&fault, path, previous, -1)
        w.reset(w.file, previous, w.origin)
        return recovery_walk(w, path, base_offset, end_offset, interval, verify)._replace(error=error)
    error = None
    if unordered:
        if b.base_offset != last + 1:
            ks_fail(&fault, KS_E_OFFSET, 0, last + 1, b.base_offset)
        else:  # it reaches to where the next segment begins
            ks_fail(&fault, KS_E_OFFSET, 0, end_offset - 1, b.last_offset)
        size = WALK_DAMAGED
    if put or overflow:
        ks_fail(&fault, KS_E_OFFSET, 0, offsets.last_offset + 1, b.last_offset)
        size = WALK_DAMAGED
    if size == WALK_DAMAGED:
        error = error_of(&fault, path, position, b.base_offset if fault.status == KS_E_CRC else -1)
    elif position < w.limit:
        error = CorruptRecordError(
            "the bytes end inside a batch",
            file=path,
            position=position,
            offset=next_offset,
            expected="a whole batch",
            found=f"{w.limit - position} bytes",
        )
    if times.put(indexed.max_timestamp, indexed.max_timestamp_offset) == INDEX_MEMORY:
        raise MemoryError()
    return RecoveryWalk(
        position, next_offset, count, offsets, times,
        TimestampOffset(indexed.max_timestamp, indexed.max_timestamp_offset), epochs, error,
        put != 0, overflow, producers, error is not None and size != WALK_DAMAGED,
    )


cdef SegmentEnd walk_to_end(ReadWindow w, int64_t base_offset, OffsetIndex index):
    """The end of the segment in the window, by headers from the last index entry on. If its `next_offset` is
    not above the offset of that entry, the index does not fit the log. OSError, MemoryError."""
    cdef SegmentEnd end = SegmentEnd.__new__(SegmentEnd)
    cdef ks_batch b
    cdef ks_fault fault
    cdef int64_t slot = index.count - 1, size, position = index.position_at(slot) if slot >= 0 else 0
    cdef int64_t named = index.offset_at(slot) if slot >= 0 else -1
    cdef int64_t last = base_offset - 1, last_size = 0, have
    cdef int64_t rival = -2, rival_at = 0  # the last offset of the batch before, if that contradicts those before it
    cdef bint sure = True  # the last batch began where the one before it ended, or the index names it
    while True:
        size = step(w, position, NEAR, &b, &fault)
        if size < 0:
            break
        if b.last_offset >= b.base_offset and (b.base_offset > last or not sure or b.base_offset == rival + 1):
            sure = b.base_offset in (last + 1, rival + 1) or b.last_offset == named
            last = b.last_offset
            end.last_position, last_size = position, size
            end.leader_epoch = b.leader_epoch if b.magic == 2 else -1
            rival = -2
        else:
            rival = b.last_offset
            rival_at = position
        position += size
    if size == WALK_SYSTEM:
        w.raise_failure(-1)
    end.next_offset = max(last + 1, base_offset)
    end.position = position if rival == -2 else rival_at
    end.tail_bytes = w.limit - end.position
    if end.last_position >= 0:
        size = min(last_size, <int64_t>KS_BATCH_OVERHEAD)
        have = w.fill(end.last_position, size, size)
        if have < 0:
            w.raise_failure(have)
        end.last_header = w.at(end.last_position)[:min(size, have)]
    return end


cdef int64_t whole_until(ReadWindow w, int64_t start, int64_t end, OffsetIndex index) except -1:
    """The last byte up to `end` where a batch ends, from the batch that begins at `start` on; headers only.
    `start` if that batch ends behind `end`. OSError."""
    cdef ks_batch b
    cdef ks_fault fault
    cdef int64_t position = start, size, slot = index.floor_position(end + 1)
    if slot >= 0 and index.position_at(slot) > start:  # a hint: it counts if the batch there is the one it names
        position = index.position_at(slot)
        if step(w, position, LOOK, &b, &fault) < 0 or b.last_offset != index.offset_at(slot):
            position = start
    while True:
        size = step(w, position, 4096, &b, &fault)
        if size == WALK_SYSTEM:
            w.raise_failure(-1)
        if size < 0 or position + size > end:
            return position
        position += size
