from libc.stdint cimport int64_t, uint64_t, uint8_t


cdef enum:
    SMALL = 32 << 10   # With fewer bytes to copy, check or write the GIL is kept: to release it takes longer.


cdef class File

cdef int64_t opened_count  # descriptors of all Files and Directories, those of the handles included

cdef bytes encoded(str path)
cdef bint makes_room() noexcept
cdef void note(int call, File file, int64_t position, int64_t size, const uint8_t *data) noexcept nogil


cdef class File:
    cdef readonly str path
    cdef readonly int fd
    cdef object fill       # puts bytes from elsewhere into this file before they are read; mostly None
    cdef object failure    # what it raised
    cdef object __weakref__

    cdef int filled(self, int64_t position, int64_t size, int64_t reach) noexcept nogil
    cdef int64_t pread(self, uint8_t *into, int64_t size, int64_t position) noexcept nogil
    cdef int64_t read_into(self, uint8_t *into, int64_t size, int64_t position) except -1
    cdef int64_t length(self) except -1
    cdef int64_t allocated(self) except -1
    cpdef int64_t next_data(self, int64_t position) noexcept
    cpdef int64_t next_hole(self, int64_t position) noexcept
    cdef int64_t pwrite(self, const uint8_t *data, int64_t size, int64_t position) noexcept nogil
    cdef void write_back(self, int64_t position, int64_t size) noexcept nogil
    cdef int resize(self, int64_t size) noexcept nogil
    cdef int allocate(self, int64_t position, int64_t size, bint keep_size) noexcept nogil
    cdef int datasync(self) noexcept nogil
    cdef int sync_all(self) noexcept nogil
    cdef int raise_errno(self) except -1


cdef class FileHandle:
    cdef File file          # None while it is closed
    cdef object spare       # what goes with the open file, and refers to it
    cdef bint used          # since it was last looked at for closing
    cdef Py_ssize_t slot    # among those that may be closed, or -1
    cdef object closed      # a weak reference to the File that was let go
    cdef uint64_t device
    cdef uint64_t inode     # 0: it was never open

    cdef File open(self, str path)
    cdef File find(self, str path)
    cdef void be(self, uint64_t device, uint64_t inode) noexcept
    cdef void leave(self) noexcept
    cdef void let_go(self) noexcept

    cdef inline File at(self, str path):
        """The open file. FileNotFoundError, also if another file has its name now; OSError."""
        if self.file is None:
            return self.open(path)
        self.used = True
        return self.file
