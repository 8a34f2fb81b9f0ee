# cython: binding=False
"""Faults for tests: the Nth system call fails, stops half way or kills the process (`fail_call`), and a tracer
receives each call that changes something (`trace_calls`).

Every call on files passes `gate` first. It costs one comparison while no test has asked for a fault.
"""

import errno as _errno

from cpython.bytes cimport PyBytes_FromStringAndSize
from libc.errno cimport errno
from libc.stdint cimport int64_t, uint8_t
from posix.signal cimport kill
from posix.stat cimport fstat, struct_stat
from posix.unistd cimport getpid

cdef extern from "<pthread.h>" nogil:
    ctypedef unsigned long pthread_t
    pthread_t pthread_self()
    int pthread_equal(pthread_t a, pthread_t b)

cdef extern from "<signal.h>" nogil:
    int SIGKILL

# The kinds of calls that a tracer gets: the numbers in faults.pxd.
TRACED = ("write", "truncate", "allocate", "map", "unmap", "syncs", "sync")

cdef int64_t countdown = 0     # calls left until one fails; 0: none will
cdef int64_t made = 0
cdef int failing_how = 0       # 0 error, 1 stop half way, 2 be killed, 3 be killed half way
cdef bint own_only = False     # only calls of `own_thread` count
cdef pthread_t own_thread


cdef int count_call(int kind) noexcept nogil:
    """What `gate` does while calls are counted."""
    global countdown, made
    if own_only and not pthread_equal(pthread_self(), own_thread):
        return 0
    made += 1
    if countdown == 0:
        return 0
    countdown -= 1
    if countdown:
        return 0
    if failing_how == 2 or (failing_how == 3 and kind != WRITES):
        kill(getpid(), SIGKILL)
    if failing_how == 3:
        return 2
    if failing_how == 1 and kind == WRITES:
        return 1
    (&errno)[0] = failing_errno
    return -1


def fail_call(int64_t nth, int error=_errno.EIO, str how="error", *, bint own=False):
    """For tests: lets the `nth` system call from here on (from 1; 0: none) fail with this errno.

    own: only the calls of this thread count.

    how: "error"; "half", where a write first lands in part; "kill", the process dies at that call by SIGKILL;
    "kill_half", it dies with a write half done.
    """
    global countdown, made, failing_errno, failing_how, counting, own_only, own_thread
    failing_how = ("error", "half", "kill", "kill_half").index(how)
    failing_errno = error
    made = 0
    countdown = nth
    own_only = own
    own_thread = pthread_self()
    counting = True


def calls_made():
    """How many system calls were made since fail_call."""
    return made


def trace_calls(callback):
    """For tests: calls `callback(call, path, inode, position, detail)` for every call from here on that
    changes a file or a name, when it has succeeded, in whichever thread it was made; None ends that.

    call        | position, detail
    open        | 0, the mode: "a" and "w" make the file if it is missing, "x" made it, "w" emptied it
    write       | where, the bytes
    truncate    | the length, None
    allocate    | where, how many bytes: the file is at least that long now
    map         | 0, a descriptor: from here on the file changes in memory, without a call, until unmap
    unmap       | 0, None
    syncs, sync | 0, None: content and length are being brought to the disk, and are there
    rename      | 0, the new path
    unlink, make_directory | 0, None
    syncs_directory, sync_directory | 0, None: the names in it are being brought to the disk, and are there

    What was changed between the two calls of a sync may be on the disk or not. The inode is 0 for calls on
    names.
    """
    global tracing, tracer
    tracing = False
    tracer = callback
    tracing = callback is not None


cdef void trace(int call, str path, int fd, int64_t position, int64_t size, const uint8_t *data) noexcept with gil:
    cdef struct_stat st
    st.st_ino = 0
    if fd >= 0:
        fstat(fd, &st)
    callback = tracer
    if callback is not None:
        if data is not NULL:
            detail = PyBytes_FromStringAndSize(<const char *>data, size)
        else:
            detail = fd if call == MAP else size if call == ALLOCATE else None
        callback(TRACED[call], path, st.st_ino, position, detail)


cdef int note_name(str call, str path, detail=None) except -1:
    """Tells the tracer, if there is one, of a call on a name."""
    if tracing:
        tracer(call, path, 0, 0, detail)
    return 0
