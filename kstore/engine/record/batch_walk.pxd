# From batch to batch through a window.

from libc.stdint cimport int64_t

from kstore.engine.io.buffers cimport ReadWindow
from libkstore.format cimport (
    KS_BATCH_OVERHEAD,
    KS_E_SIZE,
    KS_LOG_OVERHEAD,
    KS_MAGIC_END,
    KS_MIN_SIZE,
    KS_OK,
    ks_batch,
    ks_fail,
    ks_fault,
    ks_load_i32,
    ks_parse_header,
)

cdef enum:
    WALK_NONE = -1             # no such batch
    WALK_DAMAGED = -3          # a ks_fault says how; -2 is left to `except -2`
    WALK_SYSTEM = -4           # errno, or out of memory

cdef enum:
    LOOK = 64             # enough of a batch for its header
    NEAR = 32 << 10       # what a lookup reads where the index does not tell how far the batch goes
    FAR = 1 << 20         # what a walk over everything reads at once; the kernel copies smaller pieces more slowly


cdef inline int64_t step(ReadWindow w, int64_t position, int64_t ahead, ks_batch *b, ks_fault *fault) noexcept nogil:
    """Reads the header at `position` as Kafka's file iteration does (spec 2.0): its entry's size, or a
    negative status.

    WALK_NONE where the bytes left cannot hold a whole entry.
    """
    cdef int64_t have, size
    if w.limit - position <= KS_MAGIC_END:  # the window may hold more: what follows is looked at too
        return WALK_NONE
    have = w.fill(position, min(<int64_t>KS_BATCH_OVERHEAD, w.limit - position), ahead)
    if have < 0:
        return WALK_SYSTEM
    if have <= KS_MAGIC_END:
        return WALK_NONE
    size = <int64_t>ks_load_i32(w.at(position) + 8) + KS_LOG_OVERHEAD
    if size < KS_MIN_SIZE + KS_LOG_OVERHEAD:
        ks_fail(fault, KS_E_SIZE, 8, KS_MIN_SIZE, size - KS_LOG_OVERHEAD)
        return WALK_DAMAGED
    if size > w.limit - position:
        return WALK_NONE
    if ks_parse_header(w.at(position), w.at(position) + have, b, fault) != KS_OK:
        return WALK_DAMAGED
    return size
