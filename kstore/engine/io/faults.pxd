from libc.stdint cimport int64_t, uint8_t

cdef enum:
    READS = 0      # looks at something
    CHANGES = 1    # changes something
    WRITES = 2     # may land in part

cdef enum:
    WRITE = 0      # places in faults.TRACED
    TRUNCATE
    ALLOCATE
    MAP
    UNMAP
    SYNCS
    SYNC

cdef bint counting       # calls, one of which may fail
cdef int failing_errno
cdef bint tracing
cdef object tracer

cdef int count_call(int kind) noexcept nogil


cdef inline int gate(int kind) noexcept nogil:
    """0: go on. -1: fail, errno is set. 1: do half of it, then fail as the disk would. 2: do half, then
    die."""
    return count_call(kind) if counting else 0


cdef void trace(int call, str path, int fd, int64_t position, int64_t size, const uint8_t *data) noexcept with gil
cdef int note_name(str call, str path, detail=*) except -1
