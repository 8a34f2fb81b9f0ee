from libc.stdint cimport int64_t, uint32_t, uint64_t

from kstore.engine.io.file cimport File
from kstore.engine.io.buffers cimport MappedFile
from kstore.engine.segment.active_segment cimport ks_extent

cdef extern from "shared_lock.h" nogil:
    enum:
        KS_LOCK_TAKEN
        KS_LOCK_INHERITED
        KS_LOCK_BUSY
        KS_LOCK_NEEDLESS
    bint ks_shared_lock_try(uint32_t *word, uint32_t me)
    int ks_shared_lock_acquire(uint32_t *word, uint32_t me, int fd, const int64_t *done, int64_t least)
    void ks_shared_lock_release(uint32_t *word, int woken)

cdef enum:
    BROKEN_CHANGE = 1   # a change in several steps is under way, or was broken off: the log must be recovered
    BROKEN_APPEND = 2   # the process that had the lock died: what follows the published end must be looked at

# The end of the log at one moment.
cdef struct ks_moment:
    int64_t base_offset     # of the active segment
    int64_t offset          # the log end offset
    int64_t start           # the log start offset
    int64_t generation      # the number of the last truncation
    ks_extent extent
    uint64_t number         # of this moment: `moves`, while it is the last one
    uint64_t check          # of what is before

cdef struct ks_shared:
    char[8] magic
    uint32_t lock           # of all that follows
    uint32_t sync_lock      # of the process that syncs
    uint32_t numbers        # given to processes so far
    uint32_t broken         # BROKEN_CHANGE, BROKEN_APPEND
    uint32_t has_failed     # a sync failed: nothing more is written
    uint32_t is_deleted     # the topic was deleted: nothing more is done with the log
    uint64_t moves          # how often the end was published; the last one is in moments[moves & 1]
    uint64_t changes        # of anything but the end: segments, epochs, options
    uint64_t producers      # appends of batches that have producers
    uint64_t cuts           # how often records were removed from the end, so that a sync under way says nothing
    int64_t durable         # every record below this offset is on the disk
    int64_t stored          # the recovery point in the checkpoint: every file before it is on the disk
    ks_moment[2] moments


cdef struct ks_shared_directory:
    char[8] magic
    uint32_t is_clean
    uint64_t changes        # of topics


cdef class SharedDirectory:
    cdef MappedFile map
    cdef ks_shared_directory *state


cdef class SharedEnd:
    cdef File file
    cdef MappedFile map
    cdef ks_shared *state
    cdef readonly uint32_t number   # of this process
    cdef uint64_t moves             # as they were when this process looked last
    cdef uint64_t changes
    cdef uint64_t producers
    cdef uint64_t cuts

    cdef bint is_behind(self) noexcept nogil
    cdef bint is_whole(self) noexcept nogil
    cdef bint is_sound(self) noexcept nogil
    cdef int acquire(self) except -1
    cdef void release(self) noexcept nogil
    cdef bint begin_sync(self, int64_t offset) except -1
    cdef void end_sync(self) noexcept nogil
    cdef int wait_for(self, uint32_t *word, const int64_t *done, int64_t least) except -1
    cdef ks_moment *now(self) noexcept nogil
    cdef void publish(self, ks_moment *moment) noexcept nogil
