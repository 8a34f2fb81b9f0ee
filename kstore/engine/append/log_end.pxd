from libc.stdint cimport int32_t, int64_t

from kstore.engine.append.shared_end cimport SharedEnd, ks_moment
from kstore.engine.io.traffic cimport Traffic
from kstore.engine.io.owned_lock cimport ks_owned_lock
from kstore.engine.segment.active_segment cimport ActiveSegment

cdef extern from "gate.h" nogil:
    ctypedef struct ks_gate:
        int64_t reached
        int leading
        int failed
    void ks_gate_init(ks_gate *g)
    void ks_gate_destroy(ks_gate *g)
    int ks_gate_enter(ks_gate *g, int64_t offset)
    void ks_gate_set(ks_gate *g, int64_t reached)
    void ks_gate_leave(ks_gate *g, int64_t reached, int failed)


cdef class LogEnd:
    cdef ks_owned_lock mutex
    cdef unsigned long leader      # the thread that syncs for all; 0 for none
    cdef readonly ActiveSegment active  # None until the log is open
    cdef readonly object sealed    # the segments before the active one
    cdef readonly tuple segments   # (sealed, active), replaced as one: readers take no lock
    cdef readonly int64_t offset   # the log end offset
    cdef public int64_t start      # the log start offset; changed with the mutex held
    cdef public int64_t generation  # the number of the last truncation that is complete
    cdef readonly SharedEnd shared  # what other processes that write the log see of it; None if there are none
    cdef object others             # called if they have changed more than the end
    cdef bint is_in_step           # while the mutex is held: nothing that other processes have done is missing here
    cdef bint was_deleted          # another process had deleted the topic when this one left the others
    cdef bint has_told             # the others know that this process refuses to write
    cdef readonly int durability   # a place in DURABILITY: whether an append waits until it is durable
    cdef int32_t known_epoch       # the leader epoch of the last batch; -1 if it is to be noted again
    cdef str failure               # why nothing is written any more; None if there is no reason
    cdef str change                # a change under way: where it is broken off, nothing more is written
    cdef readonly bint is_closed
    cdef ks_gate commit
    cdef int64_t sync_ceiling      # what the sync under way can make durable at most: truncation lowers it
    cdef list unsynced
    cdef bint names_unsynced
    cdef int64_t unsynced_from     # the first segment that has files among them
    cdef int64_t syncing_from      # the first segment with files in the sync under way
    cdef list of_others            # paths of files of segments that other processes have made, perhaps not on the disk
    cdef int64_t of_others_from    # the first of these segments
    cdef public Traffic traffic    # None: nothing is counted
    cdef unsigned long gathering   # the thread that syncs for what it appends later, for all of it at once; 0 for none
    cdef list waiting              # events to set at the next change; None for none

    cdef int acquire(self) except -1
    cdef int take_mutex(self, bint looks) except -1
    cdef void release(self) noexcept
    cdef int enter_shared(self, bint looks) except -1
    cdef int check_there(self) except -1
    cdef int look_at_others(self) except -1
    cdef int recover_for_others(self, bint has_failed) except -1
    cdef int take_in(self) except -1
    cdef list owed(self)
    cdef void leave_shared(self) noexcept
    cdef void end_append(self) noexcept
    cdef int notify(self) except -1
    cdef int enter_gate(self, int64_t offset) except -2
    cdef int sync_closed(self) except -1
    cdef int wait_durable(self, int64_t offset) except -1
    cdef int lead(self, bint sealed, int64_t offset) except -1
    cdef int64_t sync_with_others(self, bint sealed, int64_t offset) except -1
    cdef void fail_sync(self, object error) noexcept
    cdef void moment_now(self, ks_moment *moment) noexcept
    cdef void publish_moment(self) noexcept
    cdef int end_change(self, bint is_append) except -1
    cdef int64_t sync_once(self, bint sealed) except -1
    cpdef int check_usable(self) except -1
    cpdef int refuse_reentrance(self) except -1
