# cython: binding=False
"""The end of a log that several processes write, in a small file that all of them map.

The file has a lock, the end of the log at the last moment it was free, and counters that tell a process which
of the things that it knows of the log have changed. It has no meaning once the last process has closed it.
"""

import os

from cpython.exc cimport PyErr_CheckSignals
from cython cimport final, no_gc
from libc.limits cimport INT_MAX
from libc.stdint cimport int64_t, uint32_t, uint64_t
from libc.string cimport memcmp, memcpy, memset

from kstore.engine.io.file cimport File
from kstore.engine.io.buffers cimport MappedFile

from kstore.errors import LogFailedError

cdef extern from *:
    """
    #define ks_load(at) __atomic_load_n(at, __ATOMIC_ACQUIRE)
    #define ks_store(at, value) __atomic_store_n(at, value, __ATOMIC_RELEASE)
    static inline uint64_t ks_check_of(const void *words, size_t count) {
        uint64_t check = 0x9E3779B97F4A7C15u;
        for (size_t i = 0; i < count; i++)
            check = (check ^ ((const uint64_t *)words)[i]) * 0x100000001B3u;
        return check;
    }
    """
    uint64_t ks_load(const uint64_t *at) nogil
    uint64_t ks_check_of(const void *words, size_t count) nogil
    void ks_store(uint64_t *at, uint64_t value) nogil


cdef extern from "<sys/vfs.h>" nogil:
    struct struct_statfs "statfs":
        long f_type
    int statfs(const char *path, struct_statfs *found)

cdef enum:
    SIZE = 4096
    WORDS = sizeof(ks_moment) // 8 - 1  # all but the check

cdef char *MAGIC = b"kstore\x00\x02"


cdef MappedFile mapped(File file, bint is_first):
    """The first bytes of a shared file, which are MAGIC and zeros if no other process has it. LogFailedError if
    another program has damaged it."""
    cdef MappedFile found = MappedFile(file, SIZE)
    if found.reserve(SIZE) < 0:
        file.raise_errno()
    if is_first:
        memset(found.data, 0, SIZE)
        memcpy(found.data, MAGIC, 8)
    elif memcmp(found.data, MAGIC, 8) != 0:
        raise LogFailedError(f"{file.path} was damaged by another program, or made by another version of kstore")
    return found


@final
@no_gc  # it refers to a file only
cdef class SharedDirectory:
    """What the processes that write in a log directory share, in a small file that all of them map. The caller
    has the directory locked if `is_first`. LogFailedError if another program has damaged the file."""

    def __cinit__(self, File file not None, *, bint is_first):
        self.map = mapped(file, is_first)
        self.state = <ks_shared_directory *>self.map.data

    @property
    def is_clean(self):
        """Whether a partition that no process has open was closed cleanly, unless its own shared file is left."""
        return self.state.is_clean != 0

    @is_clean.setter
    def is_clean(self, bint is_clean):
        self.state.is_clean = is_clean

    @property
    def changes(self):
        """How often topics were changed."""
        return ks_load(&self.state.changes)

    def note_change(self):
        """Topics were changed; the caller has them locked."""
        self.state.changes += 1


def file_system_of(str path not None):
    """The number of the kind of file system that a path is on; 0 if the system does not say."""
    cdef struct_statfs found
    return found.f_type & 0xFFFFFFFF if statfs(os.fsencode(path), &found) == 0 else 0


@final
@no_gc  # it refers to files only
cdef class SharedEnd:
    """The state that the processes of a log share. The caller has the file locked, so that no other process
    enters or leaves. `is_first`: no other process has it. LogFailedError if another program has damaged the
    file."""

    def __cinit__(self, File file not None, *, bint is_first):
        self.file = file
        self.map = mapped(file, is_first)
        self.state = <ks_shared *>self.map.data
        self.state.numbers += 1
        self.number = self.state.numbers

    def mark_deleted(self):
        """The topic was deleted: the processes that have the log open do nothing more with it."""
        self.acquire()
        self.state.is_deleted = 1
        self.release()

    cdef bint is_behind(self) noexcept nogil:
        """Whether other processes have changed anything since this one looked last."""
        return (
            ks_load(&self.state.moves) != self.moves
            or self.now().number != self.moves  # a damaged file
            or ks_load(&self.state.changes) != self.changes
            or self.state.broken != 0
            or self.state.has_failed != 0
            or self.state.is_deleted != 0
        )

    cdef bint is_whole(self) noexcept nogil:
        """Whether no other program has shortened the file, or replaced what it holds."""
        return not self.map.is_lost() and memcmp(self.state.magic, MAGIC, 8) == 0

    cdef bint is_sound(self) noexcept nogil:
        """Whether no other program has changed the end of the log; the lock is held."""
        return self.now().number == self.state.moves and self.now().check == ks_check_of(self.now(), WORDS)

    cdef int acquire(self) except -1:
        """Takes the lock: KS_LOCK_TAKEN, or KS_LOCK_INHERITED from a process that died with it. What a signal
        handler raises ends the waiting."""
        if ks_shared_lock_try(&self.state.lock, self.number):
            return KS_LOCK_TAKEN
        return self.wait_for(&self.state.lock, NULL, 0)

    cdef void release(self) noexcept nogil:
        ks_shared_lock_release(&self.state.lock, 1)

    cdef bint begin_sync(self, int64_t offset) except -1:
        """Whether this process has to sync what lies below `offset`, and then call `end_sync`. False once another
        one has done it. What a signal handler raises ends the waiting."""
        return self.wait_for(&self.state.sync_lock, &self.state.durable, offset) != KS_LOCK_NEEDLESS

    cdef void end_sync(self) noexcept nogil:
        ks_shared_lock_release(&self.state.sync_lock, INT_MAX)

    cdef int wait_for(self, uint32_t *word, const int64_t *done, int64_t least) except -1:
        cdef int status
        while True:
            with nogil:
                status = ks_shared_lock_acquire(word, self.number, self.file.fd, done, least)
            if status != KS_LOCK_BUSY:
                return status
            PyErr_CheckSignals()

    cdef ks_moment *now(self) noexcept nogil:
        """The end of the log; the lock is held."""
        return &self.state.moments[self.state.moves & 1]

    cdef void publish(self, ks_moment *moment) noexcept nogil:
        """The end of the log is this now; the lock is held. A process that is killed here leaves the end
        before or this one."""
        moment.number = self.state.moves + 1
        moment.check = ks_check_of(moment, WORDS)
        self.state.moments[moment.number & 1] = moment[0]
        ks_store(&self.state.moves, moment.number)
        self.moves = moment.number
