from libc.stdint cimport int64_t, uint64_t, uint8_t

from kstore.engine.io.buffers cimport ReadWindow, ks_vector
from kstore.engine.record.batch cimport Records
from kstore.engine.segment.segment cimport Segment
from libkstore.format cimport (
    KS_CODEC_MASK,
    KS_CONTROL,
    KS_OK,
    KS_TRANSACTIONAL,
    ks_batch,
    ks_check_place,
    ks_fault,
    ks_next_record,
    ks_record,
)

cdef enum:
    TOGETHER = 32          # records whose slots of the map are fetched from memory at a time

cdef enum:                 # statuses of what runs without the GIL, beside KS_OK and KS_E_*
    MAP_FULL = 1
    NO_MEMORY = 2


cdef extern from "offset_map.h" nogil:
    ctypedef struct ks_key_hash:
        pass
    ctypedef struct ks_offset_map:
        int64_t used
        int64_t slot_count
    int ks_map_grow(ks_offset_map *m, int64_t slot_count)
    int ks_map_init(ks_offset_map *m, int64_t slot_count, const uint8_t *secret)
    void ks_map_free(ks_offset_map *m)
    ks_key_hash ks_hash_key(const ks_offset_map *m, const uint8_t *key, size_t size)
    ks_key_hash ks_hash_with(const uint64_t *secret, const uint8_t *key, size_t size)
    void ks_map_prefetch(const ks_offset_map *m, ks_key_hash hash)
    void ks_map_put(ks_offset_map *m, ks_key_hash hash, int64_t offset)
    int64_t ks_map_get(const ks_offset_map *m, ks_key_hash hash)


cdef class OffsetMap:
    cdef ks_offset_map map
    cdef int64_t most_slots
    cdef bint places
    cdef ks_vector starts           # uint32_t, of batches whose records have places
    cdef readonly int64_t latest_offset
    cdef int64_t max_entries

    cdef int make_room(self) noexcept nogil


cdef class SegmentWalk:
    cdef OffsetMap map
    cdef object transactions  # says of RecordBatches in order whether their records may go: CleanedTransactions
    cdef Segment segment
    cdef ReadWindow window
    cdef int64_t position
    cdef int64_t last        # the last offset of the batch before
    cdef int64_t fault_at    # the byte of the segment that a fault's `at` is counted from
    cdef Records cursor      # of a batch that is compressed, or of an old format

    cdef int check_made(self) except -1
    cdef int enter(self, Segment segment, int64_t position) except -1
    cdef int64_t next_batch(self, ks_batch *b, ks_fault *fault) noexcept nogil
    cdef int64_t walk(self, int64_t most) except -1
    cdef void pass_batch(self, const ks_batch *b) noexcept nogil
    cdef int take_plain(self, const uint8_t *p, const ks_batch *b, ks_fault *fault) noexcept nogil
    cdef int take_other(self, const uint8_t *p, const ks_batch *b, ks_fault *fault) except -100
    cdef int end_walk(self, int64_t status, const ks_batch *b, ks_fault *fault) except -1
    cdef int fail(self, int status, const ks_batch *b, const ks_fault *fault) except -1
    cdef bint can_discard(self, const uint8_t *p, const ks_batch *b) except -1
    cdef int unpack(self, const uint8_t *p, const ks_batch *b, const uint8_t **start, const uint8_t **end) except -1


cdef inline bint is_plain(const ks_batch *b) noexcept nogil:
    """Whether nothing needs to be known of a batch beside its bytes."""
    return b.magic == 2 and b.producer_id < 0 and not b.attributes & (KS_CODEC_MASK | KS_TRANSACTIONAL | KS_CONTROL)


cdef inline int parse(
    const uint8_t **p, const uint8_t *end, const ks_batch *b, ks_record *r, ks_fault *fault
) noexcept nogil:
    cdef int status = ks_next_record(p, end, b, r, fault)
    return status if status != KS_OK else ks_check_place(b, r, fault)
