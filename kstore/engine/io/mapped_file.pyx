# cython: binding=False
"""A file mapped into memory for writing, fixed for life: the index files of the segment that is written."""

from cpython.exc cimport PyErr_SetFromErrnoWithFilenameObject
from cython cimport final, no_gc
from libc.errno cimport EINTR, EIO, errno
from libc.stdint cimport int64_t, uint8_t
from posix.mman cimport (
    MADV_RANDOM,
    MAP_FAILED,
    MAP_SHARED,
    MS_SYNC,
    PROT_READ,
    PROT_WRITE,
    madvise,
    mmap,
    msync,
    munmap,
)

from kstore.engine.io.faults cimport MAP, SYNC, SYNCS, UNMAP, gate
from kstore.engine.io.file cimport File, note

cdef extern from "sigbus.h" nogil:
    int ks_add_mapping(void *start, size_t size, ks_mapped_state *state)
    void ks_remove_mapping(void *start)

cdef enum:
    STEP = 64 << 10  # blocks are had in steps of this many bytes


@final
@no_gc  # it refers to a file only
cdef class MappedFile:
    """`size` bytes of `file`, whose length becomes that; unmapped when the last reference goes.

    The file is sparse: a page is touched only after `reserve` has got its block, because a store into a hole
    of a full disk kills the process. For the same reason nothing shortens the file below what was reserved
    and is still read. If another program does so, the mapping becomes zeros and `is_lost` says so, on Linux;
    see sigbus.h.
    """

    def __cinit__(self, File file not None, int64_t size):
        cdef void *at
        if size <= 0:
            raise ValueError(f"a mapping of {size} bytes")
        self.file = file
        if file.resize(size) < 0:
            file.raise_errno()
        at = MAP_FAILED
        while at == MAP_FAILED:
            if gate(1) == 0:
                at = mmap(NULL, <size_t>size, PROT_READ | PROT_WRITE, MAP_SHARED, file.fd, 0)
            if at == MAP_FAILED and errno != EINTR:
                PyErr_SetFromErrnoWithFilenameObject(OSError, file.path)
        madvise(at, <size_t>size, MADV_RANDOM)  # a hint: otherwise the first touch reads megabytes of nothing ahead
        self.state.fd = file.fd
        self.state.length = size
        if ks_add_mapping(at, <size_t>size, &self.state) < 0:
            munmap(at, <size_t>size)
            raise MemoryError()
        self.data = <uint8_t *>at
        self.size = size
        note(MAP, file, 0, 0, NULL)

    def __dealloc__(self):
        if self.data is not NULL:
            if self.file is not None:
                note(UNMAP, self.file, 0, 0, NULL)
            ks_remove_mapping(self.data)
            munmap(self.data, <size_t>self.size)

    cdef int reserve_more(self, int64_t size) noexcept nogil:
        """What `reserve` does if they are not yet."""
        cdef uint8_t[512] zeros
        cdef int64_t until = min((size + STEP - 1) // STEP * STEP, self.size), at, n
        cdef int status
        status = self.file.allocate(self.reserved, until - self.reserved, False)
        if status > 0:  # no fallocate here: written zeros get blocks as well
            for at in range(512):
                zeros[at] = 0
            at = self.reserved
            while at < until:
                n = min(<int64_t>512, until - at)
                if self.file.pwrite(zeros, n, at) < n:
                    return -1
                at += n
        elif status < 0:
            return -1
        self.reserved = until
        return 0

    cdef int resize(self, int64_t size) noexcept nogil:
        """Gives the file another length; the mapping keeps its size. -1 with errno set."""
        cdef int64_t before = self.state.length
        if size < before:
            self.state.length = size
        if self.file.resize(size) < 0:
            self.state.length = before
            return -1
        self.state.length = size
        return 0

    cdef bint look(self) noexcept nogil:
        """The same as `is_lost`, after a look at the length of the file. A page behind its end need not be
        touched."""
        return ks_look(&self.state)

    cdef str loss(self):
        """What another program did to the file; None if that `is_lost` is not so."""
        return f"{self.file.path} was shortened by another program" if self.is_lost() else None

    cdef int sync(self) noexcept nogil:
        """Brings what was stored to the disk; -1 with errno set on failure, EIO if the mapping is lost."""
        if self.reserved == 0:
            return 0
        note(SYNCS, self.file, 0, 0, NULL)
        while gate(1) or msync(self.data, <size_t>self.reserved, MS_SYNC) < 0:
            if errno != EINTR:
                return -1
        if self.look():
            (&errno)[0] = EIO
            return -1
        note(SYNC, self.file, 0, 0, NULL)
        return 0
