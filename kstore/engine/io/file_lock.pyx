# cython: binding=False
"""A lock that one thread of one process has at a time, on a file that all of them open."""

from cpython.exc cimport PyErr_CheckSignals
from cython cimport final, no_gc
from libc.errno cimport EINTR, errno

from kstore.engine.io.file cimport File
from kstore.engine.io.mutex cimport Mutex


cdef extern from "<fcntl.h>" nogil:
    """
    static int ks_lock_first_byte(int fd, short kind)
    {
        struct flock lock = {.l_type = kind, .l_whence = SEEK_SET, .l_start = 0, .l_len = 1};
        return fcntl(fd, kind == F_UNLCK ? F_OFD_SETLK : F_OFD_SETLKW, &lock);
    }
    """
    enum:
        F_UNLCK
        F_WRLCK
    int ks_lock_first_byte(int fd, short kind)


@final
@no_gc  # it refers to a file and a mutex only
cdef class FileLock:
    """`with lock:` is for one thread of one process at a time. The system releases the lock of a process that
    dies. Entering and leaving are C code, which no signal interrupts; a signal handler that raises ends the
    waiting. OSError. ReentrantCallError, as for a Mutex."""

    cdef readonly File file
    cdef Mutex mutex

    def __cinit__(self, str path not None):
        self.file = File(path, "a")
        self.mutex = Mutex()

    def __enter__(self):
        cdef int status = -1
        self.mutex.acquire()
        try:
            while True:
                with nogil:
                    status = ks_lock_first_byte(self.file.fd, F_WRLCK)
                if status == 0:
                    return
                if errno != EINTR:
                    self.file.raise_errno()
                PyErr_CheckSignals()
        finally:
            if status < 0:
                self.mutex.leave()

    def __exit__(self, kind, error, trace):
        ks_lock_first_byte(self.file.fd, F_UNLCK)
        self.mutex.leave()
