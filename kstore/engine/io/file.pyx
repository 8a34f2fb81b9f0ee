# cython: binding=False
"""Files: every system call that kstore makes on them is here; those on their names are in directory.pyx.

Reads and writes are by position, so threads and forks share a File without harm.
"""

import errno as _errno
import os
import sys
import weakref

from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_FromStringAndSize, PyBytes_GET_SIZE
from cpython.exc cimport PyErr_CheckSignals, PyErr_SetFromErrno, PyErr_SetFromErrnoWithFilenameObject
from cpython.mem cimport PyMem_RawRealloc
from cython cimport final, no_gc
from libc.errno cimport EINTR, ELOOP, EMFILE, ENFILE, ENOENT, ENOSYS, ENXIO, EOPNOTSUPP, errno
from libc.stdint cimport INT64_MAX, int64_t, uint64_t, uint8_t
from libc.string cimport strlen
from posix.fcntl cimport O_CREAT, O_EXCL, O_RDONLY, O_RDWR, O_TRUNC, open as c_open
from posix.resource cimport RLIMIT_NOFILE, getrlimit, rlimit
from posix.signal cimport kill
from posix.stat cimport S_ISREG, fstat, stat, struct_stat
from posix.unistd cimport close as c_close, fdatasync, fsync, ftruncate, getpid

from kstore.engine.io.faults cimport (
    ALLOCATE,
    CHANGES,
    READS,
    SYNC,
    SYNCS,
    TRUNCATE,
    WRITE,
    WRITES,
    failing_errno,
    gate,
    trace,
    tracer,
    tracing,
)

from kstore.engine.io.sources import SOURCES, filler

cdef extern from "<fcntl.h>" nogil:
    int O_CLOEXEC
    int O_NOFOLLOW
    int O_NONBLOCK

cdef extern from "<signal.h>" nogil:
    int SIGKILL

cdef extern from "system.h" nogil:
    int SEEK_DATA
    int SEEK_HOLE
    void ks_write_back(int fd, int64_t position, int64_t size)
    int ks_fallocate(int fd, int keep_size, int64_t position, int64_t size)
    ssize_t ks_copy(int source, int target, int64_t position, size_t size)
    ssize_t ks_sendfile(int target, int fd, int64_t position, size_t size)
    int ks_advise(int fd, int64_t position, int64_t size, int advice)
    int ks_resident(int fd, int64_t position, size_t size, unsigned char *into)

cdef extern from "<unistd.h>" nogil:
    int system_errno "errno"
    ssize_t c_pread "pread"(int fd, void *buf, size_t count, int64_t offset)
    int64_t c_lseek "lseek"(int fd, int64_t offset, int whence)
    ssize_t c_pwrite "pwrite"(int fd, const void *buf, size_t count, int64_t offset)

cdef enum:
    MOST = 1 << 30  # bytes of one system call: Linux stops a little below 2 GiB

if not getattr(sys, "_is_gil_enabled", lambda: True)():  # a Python without that function always has one
    raise ImportError("kstore needs the GIL, which guards its table of open files: leave out PYTHON_GIL=0 and -X gil=0")

ADVICE = ("normal", "sequential", "willneed", "dontneed")
cdef int64_t page_size = os.sysconf("SC_PAGESIZE")


cdef void note(int call, File file, int64_t position, int64_t size, const uint8_t *data) noexcept nogil:
    """Tells the tracer, if there is one, of a call on a file."""
    if tracing:
        trace(call, file.path, file.fd, position, size, data)


# ---- files -------------------------------------------------------------------------------------------------

# The handles whose files are open and may be closed. They are borrowed: a handle leaves when it is freed.
cdef void **idle = NULL
cdef Py_ssize_t idle_count = 0, idle_room = 0, hand = 0
cdef int64_t most_idle = -1    # -1: as the system's limit allows


cdef inline bint mode_reads(int flags) noexcept nogil:
    return flags & (O_RDWR | O_CREAT) == 0


cdef bytes encoded(str path):
    """A path as the system takes it. ValueError for a NUL byte, where C would end it: it would be another
    file's."""
    cdef bytes name = path.encode("utf-8", "surrogateescape")
    if strlen(PyBytes_AS_STRING(name)) != <size_t>PyBytes_GET_SIZE(name):
        raise ValueError(f"embedded null byte in the path {path!r}")  # as Python's own calls say
    return name


cdef int get_status(File file, struct_stat *status) except -1:
    """Gets the status of an open file. OSError."""
    while gate(READS) or fstat(file.fd, status) < 0:
        if errno != EINTR:
            file.raise_errno()
    return 0


cdef bint finds(str path, struct_stat *status) except -1:
    """Gets the status of the file at a path; False if there is none. OSError."""
    cdef bytes name = encoded(path)
    cdef const char *raw = name
    cdef int outcome
    with nogil:
        outcome = stat(raw, status)
    if outcome < 0 and errno != ENOENT:
        PyErr_SetFromErrnoWithFilenameObject(OSError, path)
    return outcome == 0


def stamp_at(str path not None):
    """The inode, its change time in ns and the size of the file at a path, which differ after the file was
    replaced; None if there is none. OSError."""
    cdef struct_stat status
    if not finds(path, &status):
        return None
    return (
        status.st_ino,
        <int64_t>status.st_ctim.tv_sec * 1000000000 + <int64_t>status.st_ctim.tv_nsec,
        <int64_t>status.st_size,
    )


@no_gc  # it refers to a str only
@final
cdef class File:
    """Owns a file descriptor; it is closed when the last reference goes, never under a reader.

    mode "r" reads, "r+" reads and writes, "a" also creates the file, "w" also empties it, "x" needs it
    absent. Only regular files: a pipe or a device of that name is an OSError, as is a symbolic link that
    would be written through. Thread-safe.
    """

    def __cinit__(self, str path not None, str mode="r"):
        global opened_count
        self.fd = -1
        self.path = path
        cdef bytes name = encoded(path)
        cdef const char *raw = name
        cdef int flags
        cdef struct_stat st
        if mode == "r":
            flags = O_RDONLY
        elif mode == "r+":
            flags = O_RDWR
        elif mode == "a":
            flags = O_RDWR | O_CREAT
        elif mode == "w":
            flags = O_RDWR | O_CREAT | O_TRUNC
        elif mode == "x":
            flags = O_RDWR | O_CREAT | O_EXCL
        else:
            raise ValueError(f"mode is r, r+, a, w or x, not {mode!r}")
        flags |= O_CLOEXEC | O_NONBLOCK  # so that a pipe does not wait for its other end
        if mode != "r":
            flags |= O_NOFOLLOW
        while True:
            with nogil:
                while True:
                    if gate(READS if mode_reads(flags) else CHANGES) == 0:
                        self.fd = c_open(raw, flags, 0o644)
                    if self.fd >= 0 or errno != EINTR:
                        break
            if self.fd >= 0 or not makes_room():
                break
        if self.fd < 0 and errno == ELOOP and mode != "r":
            raise OSError(_errno.ELOOP, "a symbolic link is not written through", path)
        if self.fd < 0:
            PyErr_SetFromErrnoWithFilenameObject(OSError, path)
        opened_count += 1
        if fstat(self.fd, &st) < 0:
            PyErr_SetFromErrnoWithFilenameObject(OSError, path)
        if not S_ISREG(st.st_mode):
            raise OSError(_errno.EINVAL, "not a regular file", path)
        if tracing and not mode_reads(flags):
            tracer("open", path, st.st_ino, 0, mode)
        if SOURCES:
            self.fill = filler(path, mode)

    def __dealloc__(self):
        global opened_count
        if self.fd >= 0:
            c_close(self.fd)
            opened_count -= 1

    cdef int raise_errno(self) except -1:
        if self.failure is not None:
            failure, self.failure = self.failure, None
            raise failure
        PyErr_SetFromErrnoWithFilenameObject(OSError, self.path)

    cdef int filled(self, int64_t position, int64_t size, int64_t reach) noexcept nogil:
        """Has bytes that are elsewhere put where they belong, and more up to `reach` if that is wise; -1 with
        errno set."""
        global system_errno
        with gil:
            try:
                self.fill(position, size, reach)
            except BaseException as e:  # also an interrupt: the bytes are not there
                self.failure = e
                system_errno = _errno.EIO
                return -1
        return 0

    cdef int64_t pread(self, uint8_t *into, int64_t size, int64_t position) noexcept nogil:
        """Reads until `size` bytes or the end of the file; -1 with errno set on failure."""
        cdef int64_t done = 0
        cdef ssize_t n
        if self.fill is not None and self.filled(position, size, 0) < 0:
            return -1
        while done < size:
            n = -1 if gate(READS) else c_pread(
                self.fd, into + done, <size_t>min(size - done, <int64_t>MOST), position + done
            )
            if n < 0:
                if errno == EINTR:
                    continue
                return -1
            if n == 0:
                break
            done += n
        return done

    cdef int64_t read_into(self, uint8_t *into, int64_t size, int64_t position) except -1:
        """Reads as `pread` does, and raises OSError; the GIL is released only for reads that take long."""
        cdef int64_t done
        if size < 32768:
            done = self.pread(into, size, position)
        else:
            with nogil:
                done = self.pread(into, size, position)
        if done < 0:
            self.raise_errno()
        return done

    cdef int64_t pwrite(self, const uint8_t *data, int64_t size, int64_t position) noexcept nogil:
        """Writes all of it. Returns how many bytes have landed for certain: fewer than `size` with errno
        set."""
        cdef int64_t done = 0
        cdef ssize_t n
        cdef int how
        while done < size:
            how = gate(WRITES)
            if how == 0:
                n = c_pwrite(self.fd, data + done, <size_t>min(size - done, <int64_t>MOST), position + done)
            elif how < 0:
                n = -1
            else:
                n = c_pwrite(self.fd, data + done, <size_t>((size - done) // 2), position + done)
                if how == 2:
                    kill(getpid(), SIGKILL)
                (&errno)[0] = failing_errno
                return done + max(n, <ssize_t>0)
            if n < 0:
                if errno == EINTR:
                    continue
                return done
            note(WRITE, self, position + done, n, data + done)
            done += n
        return done

    cdef void write_back(self, int64_t position, int64_t size) noexcept nogil:
        """Has the system begin to bring these bytes to the disk, so that a sync later finds less to do. A
        hint."""
        ks_write_back(self.fd, position, size)

    cdef int resize(self, int64_t size) noexcept nogil:
        """Sets the length; -1 with errno set on failure."""
        while True:
            if gate(CHANGES) == 0 and ftruncate(self.fd, size) == 0:
                note(TRUNCATE, self, size, 0, NULL)
                return 0
            if errno != EINTR:
                return -1

    cdef int allocate(self, int64_t position, int64_t size, bint keep_size) noexcept nogil:
        """Gives the range its blocks, so that writing there cannot find the disk full. -1 with errno set on
        failure.

        1 where the file system has no such call. keep_size leaves the length as it is."""
        while True:
            if gate(CHANGES) == 0 and ks_fallocate(self.fd, keep_size, position, size) == 0:
                if not keep_size:
                    note(ALLOCATE, self, position, size, NULL)
                return 0
            if errno == EOPNOTSUPP or errno == ENOSYS:
                return 1
            if errno != EINTR:
                return -1

    cdef int datasync(self) noexcept nogil:
        """Brings content and length to the disk. -1 with errno set on failure, which must never be tried
        again."""
        note(SYNCS, self, 0, 0, NULL)
        while True:
            if gate(CHANGES) == 0 and fdatasync(self.fd) == 0:
                note(SYNC, self, 0, 0, NULL)
                return 0
            if errno != EINTR:
                return -1

    cdef int sync_all(self) noexcept nogil:
        """Does what `datasync` does, and brings the rest of the inode to the disk."""
        note(SYNCS, self, 0, 0, NULL)
        while True:
            if gate(CHANGES) == 0 and fsync(self.fd) == 0:
                note(SYNC, self, 0, 0, NULL)
                return 0
            if errno != EINTR:
                return -1

    cdef int64_t length(self) except -1:
        cdef struct_stat st
        get_status(self, &st)
        return <int64_t>st.st_size

    cdef int64_t allocated(self) except -1:
        """How many bytes of it are on the disk, about: its holes are not."""
        cdef struct_stat st
        get_status(self, &st)
        return <int64_t>st.st_blocks * 512

    cpdef int64_t next_data(self, int64_t position) noexcept:
        """The first byte from `position` on that is not in a hole of the file; INT64_MAX if a hole is all
        that follows, `position` if that cannot be told."""
        if gate(READS):
            return position
        cdef int64_t found = c_lseek(self.fd, position, SEEK_DATA)  # reads and writes do not go by where this leaves it
        return max(found, position) if found >= 0 else INT64_MAX if errno == ENXIO else position

    cpdef int64_t next_hole(self, int64_t position) noexcept:
        """The first byte behind `position` that is in a hole, the end of the file included; INT64_MAX if that
        cannot be told."""
        cdef int64_t found = -1 if gate(READS) else c_lseek(self.fd, position, SEEK_HOLE)
        return found if found > position else INT64_MAX

    def size(self):
        """The length of the file now, in bytes."""
        return self.length()

    def is_at(self, str path not None):
        """Whether a path leads to this file. OSError."""
        cdef struct_stat mine, there
        if fstat(self.fd, &mine) < 0:
            self.raise_errno()
        return finds(path, &there) and there.st_ino == mine.st_ino and there.st_dev == mine.st_dev

    def mtime_ms(self):
        """Time of the last change of its content, in milliseconds."""
        cdef struct_stat st
        get_status(self, &st)
        return <int64_t>st.st_mtime * 1000 + <int64_t>(st.st_mtim.tv_nsec // 1000000)

    def read(self, int64_t position, int64_t size):
        """A fresh copy of at most `size` bytes from `position`; fewer at the end of the file."""
        if position < 0 or size < 0:
            raise ValueError(f"position {position} and size {size} must not be negative")
        size = max(<int64_t>0, min(size, self.length() - position))
        cdef bytes data = PyBytes_FromStringAndSize(NULL, size)
        cdef int64_t done = self.read_into(<uint8_t *>PyBytes_AS_STRING(data), size, position)
        return data if done == size else data[:done]

    def write(self, int64_t position, bytes data not None):
        """Writes all of `data` at `position`. OSError."""
        cdef const uint8_t *p = <const uint8_t *>PyBytes_AS_STRING(data)
        cdef int64_t size = PyBytes_GET_SIZE(data), done
        with nogil:
            done = self.pwrite(p, size, position)
        if done < size:
            self.raise_errno()

    def begin_as(self, File source not None, int64_t size):
        """Copies the first `size` bytes of another file to the beginning of this one. Where the file system
        can, both files share them. OSError."""
        cdef int64_t done = 0
        cdef ssize_t n = 1
        if source.fill is not None:
            source.fill(0, size, size)
        while n > 0 and done < size and not tracing:  # a tracer gets the bytes that are written
            with nogil:
                n = -1 if gate(WRITES) else ks_copy(source.fd, self.fd, done, <size_t>min(size - done, <int64_t>MOST))
            done += max(n, <ssize_t>0)
        while done < size:  # the file systems cannot do it, or a call failed: what is wrong shows again
            data = source.read(done, min(size - done, <int64_t>(1 << 20)))
            if not data:
                raise OSError(_errno.EIO, f"the file has only {done} bytes, not {size}", source.path)
            self.write(done, data)
            done += len(data)

    def truncate(self, int64_t size):
        """Sets the length to `size` bytes. OSError."""
        cdef int status
        with nogil:
            status = self.resize(size)
        if status < 0:
            self.raise_errno()

    def sync(self, *, bint data_only=False):
        """Brings the file to the disk: content, length and, unless `data_only`, times. OSError, after which it must
        not be tried again."""
        cdef int status
        with nogil:
            status = self.datasync() if data_only else self.sync_all()
        if status < 0:
            self.raise_errno()

    def send(self, int target, int64_t position, int64_t size):
        """Sends up to `size` bytes from `position` to the descriptor `target` by sendfile: nothing is copied
        into the process. Returns how many it took, 0 at the end of the file. OSError (BlockingIOError where
        none fits now)."""
        cdef ssize_t n
        cdef int how
        if position < 0 or size < 0:
            raise ValueError(f"position {position} and size {size} must not be negative")
        size = min(size, <int64_t>MOST)
        if self.fill is not None:
            self.fill(position, size, 0)
        while True:
            how = gate(WRITES)
            n = -1
            if how >= 0:
                with nogil:
                    n = ks_sendfile(target, self.fd, position, <size_t>(size if how == 0 else size // 2))
            if how == 2:
                kill(getpid(), SIGKILL)
            if n >= 0:
                return n
            if errno != EINTR:
                PyErr_SetFromErrno(OSError)  # it is the socket that fails, mostly
            PyErr_CheckSignals()

    def advise(self, int64_t position, int64_t size, str advice not None):
        """Tells the system how these bytes will be read: "normal", "sequential", "willneed" or "dontneed".

        A hint: that it cannot be taken is no error. "sequential" holds for all who share this File."""
        cdef int kind = ADVICE.index(advice)
        with nogil:
            ks_advise(self.fd, position, size, kind)

    def resident(self, int64_t position, int64_t size):
        """Which of these bytes are in the page cache: one byte for every page (of mmap.PAGESIZE) that they
        touch, 1 or 0; none from the end of the file on. OSError where the system does not tell."""
        cdef int64_t first = position // page_size * page_size
        cdef int64_t until = min(position + size, self.length()), i, count
        cdef int status
        if position < 0 or until <= first or size <= 0:
            return b""
        count = (until - first + page_size - 1) // page_size
        cdef bytes pages = PyBytes_FromStringAndSize(NULL, count)
        cdef unsigned char *at = <unsigned char *>PyBytes_AS_STRING(pages)
        with nogil:
            status = -1 if gate(READS) else ks_resident(self.fd, first, <size_t>(until - first), at)
            if status == 0:
                for i in range(count):
                    at[i] &= 1
        if status < 0:
            self.raise_errno()
        return pages

    def fileno(self):
        """The descriptor; it stays open as long as this object lives."""
        return self.fd

    def __repr__(self):
        return f"File({self.path!r})"


def frees_descriptor(int number):
    """After another call has failed with this errno: whether it did for want of a descriptor, and there is
    one now."""
    (&errno)[0] = number
    return makes_room()


cdef File either_name(str path):
    """A file for reading by its name, or by that name with the suffix .deleted, which retention gives before
    unlinking.

    Only for a file that is known to have had the name: what an earlier one of that name has left may still be
    there."""
    try:
        return File(path)
    except FileNotFoundError:
        try:
            return File(path + ".deleted")
        except FileNotFoundError:
            raise FileNotFoundError(_errno.ENOENT, "No such file or directory", path) from None


def sync_file(str path not None):
    """Brings a file to the disk, by its name or that name with the suffix .deleted; False if there is none.
    OSError."""
    try:
        file = either_name(path)
    except FileNotFoundError:
        return False
    file.sync()
    return True


def read_whole(str path not None, int64_t most=1 << 28, *, bint or_deleted=False):
    """The content of a small file; `or_deleted`: also by the name that it has once it is deleted. OSError;
    EFBIG for more than `most` bytes, which no such file has."""
    cdef File file = either_name(path) if or_deleted else File(path)
    cdef int64_t size = file.length()
    if size > most:
        raise OSError(_errno.EFBIG, f"more than {most} bytes", path)
    cdef bytes data = PyBytes_FromStringAndSize(NULL, size)
    return data[:file.read_into(<uint8_t *>PyBytes_AS_STRING(data), size, 0)]


# ---- files that are open while they are needed -------------------------------------------------------------

@no_gc  # it refers to a file and what goes with it, which are in no cycle
@final
cdef class FileHandle:
    """A file for reading, opened when it is first needed.

    All handles of the process together keep no more files open than `open_files` says: to open one, another
    is closed that was not used lately (each is passed over once after it was used, as the CLOCK algorithm
    does). It is opened again when it is needed; a file that took its name meanwhile is not mistaken for it. A
    File that someone else holds stays open, and is found again.
    """

    def __cinit__(self):
        self.slot = -1

    def __dealloc__(self):
        self.leave()

    cdef File open(self, str path):
        """What `at` does if the file is not open."""
        global idle, idle_count, idle_room
        cdef File file = None if self.closed is None else self.closed()
        cdef void **more
        while idle_count >= most_to_keep() and close_one():
            pass
        if file is None:
            try:
                file = self.find(path)
            except FileNotFoundError:
                # Between its looks at two names another thread may have kept the file open, and given both to
                # others.
                if self.file is None:
                    raise
        if self.file is not None:  # another thread was quicker
            return self.file
        if idle_count == idle_room:
            more = <void **>PyMem_RawRealloc(idle, <size_t>(2 * idle_room + 64) * sizeof(void *))
            if more is NULL:
                raise MemoryError()
            idle = more
            idle_room = 2 * idle_room + 64
        idle[idle_count] = <void *>self
        self.slot = idle_count
        idle_count += 1
        self.used = True
        self.closed = None
        self.file = file
        return file

    cdef File find(self, str path):
        """Opens the file that this handle stands for, also where it was given the suffix .deleted and another
        has its name."""
        cdef struct_stat st
        cdef File file = either_name(path)
        if fstat(file.fd, &st) < 0:
            file.raise_errno()
        if self.inode == 0:
            self.device, self.inode = st.st_dev, st.st_ino
        elif self.inode != <uint64_t>st.st_ino or self.device != <uint64_t>st.st_dev:
            try:
                file = File(path + ".deleted")
                if fstat(file.fd, &st) < 0:
                    file.raise_errno()
            except FileNotFoundError:
                pass
            if self.inode != <uint64_t>st.st_ino or self.device != <uint64_t>st.st_dev:
                raise FileNotFoundError(_errno.ENOENT, "another file has its name now", path)
        return file

    def know(self, str path not None):
        """Takes note which file the path stands for now, unless one is known. FileNotFoundError, OSError."""
        if self.inode == 0:
            found = os.stat(path)
            self.device, self.inode = found.st_dev, found.st_ino

    cdef void be(self, uint64_t device, uint64_t inode) noexcept:
        """Stands for the file with these numbers, unless one is known."""
        if self.inode == 0:
            self.device, self.inode = device, inode

    cdef void leave(self) noexcept:
        """Is no longer among those that may be closed."""
        global idle_count
        if self.slot < 0:
            return
        idle_count -= 1
        if self.slot < idle_count:
            idle[self.slot] = idle[idle_count]
            (<FileHandle>idle[self.slot]).slot = self.slot
        self.slot = -1

    cdef void let_go(self) noexcept:
        """Closes the file, unless someone else has it."""
        cdef File file = self.file
        self.leave()
        self.spare = None
        self.file = None
        try:
            self.closed = weakref.ref(file)
        except MemoryError:
            pass

    def pin(self, File file=None):
        """Keeps the file open as long as the handle exists; one may be given. One that is not given is kept
        only while others keep less than half of what the system's limit allows."""
        if file is not None:
            self.leave()
            self.file = file
        elif self.file is not None and opened_count - idle_count < limit_of_system() // 2:
            self.leave()

    def is_at(self, str path not None):
        """Whether this path stands for the file, which was open before."""
        cdef struct_stat there
        if self.file is not None:
            return self.file.is_at(path)
        return finds(path, &there) and there.st_ino == self.inode and there.st_dev == self.device


cdef bint close_one() noexcept:
    """Closes a file that was not used lately; False if there is none to close."""
    global hand
    cdef Py_ssize_t steps = 2 * idle_count
    cdef FileHandle handle
    while steps > 0 and idle_count > 0:
        hand = hand if hand < idle_count else 0
        handle = <FileHandle>idle[hand]
        if not handle.used:
            handle.let_go()
            return True
        handle.used = False
        hand += 1
        steps -= 1
    return False


cdef bint makes_room() noexcept:
    """After a call that has failed: whether it did for want of a descriptor, and there is one now."""
    return (errno == EMFILE or errno == ENFILE) and close_one()


cdef int64_t limit_of_system() noexcept:
    """How many descriptors the process may have."""
    cdef rlimit limit
    if getrlimit(RLIMIT_NOFILE, &limit) != 0 or limit.rlim_cur > 1 << 30:
        return 1 << 30
    return <int64_t>limit.rlim_cur


cdef int64_t most_to_keep() noexcept:
    """How many handles may have an open file. Unless it was set, half of the descriptors that the process may
    have; fewer where they would have more than three quarters together with what is held open otherwise."""
    cdef int64_t limit
    if most_idle >= 0:
        return most_idle
    limit = limit_of_system()
    return max(min(limit // 2, limit * 3 // 4 - (opened_count - idle_count)), <int64_t>4)


def open_files():
    """(how many files of segments are open for reading, how many may be)."""
    return idle_count, most_to_keep()


def is_crowded():
    """Whether writers, iterators and slices hold half of the descriptors that the process may have, or
    more."""
    return opened_count - idle_count >= limit_of_system() // 2


def limit_open_files(most):
    """Lets no more files of segments stay open than this; None: half of what the system's limit allows."""
    global most_idle
    most_idle = -1 if most is None else most
    while idle_count > most_to_keep() and close_one():
        pass
