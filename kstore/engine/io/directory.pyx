# cython: binding=False
"""Directories: made, removed, open for locks, and listed; the names in them: given, removed and made durable. Of a
directory of segments, names of 20 digits and a known ending are sorted out as they are read.

A log of 10,000 segments has 40,000 files, and whoever opens it lists them twice: most of that time goes to
the kernel, so no Python object is made of a name that only says a number.
"""

import os

from cpython.exc cimport PyErr_SetFromErrnoWithFilenameObject
from cpython.mem cimport PyMem_RawFree, PyMem_RawRealloc
from cython cimport final, no_gc
from libc.errno cimport EINTR, ENOENT, EPERM, errno
from libc.stdint cimport INT64_MAX, int64_t, uint8_t, uint64_t
from libc.stdio cimport rename as c_rename
from libc.stdlib cimport qsort
from libc.string cimport memcmp, memcpy, strlen
from posix.fcntl cimport O_DIRECTORY, O_RDONLY, open as c_open
from posix.unistd cimport close as c_close, fsync, link as c_link, unlink as c_unlink

from kstore.engine.io.faults cimport CHANGES, READS, gate, note_name
from kstore.engine.io.file cimport File, encoded, makes_room, opened_count

cdef extern from "<fcntl.h>" nogil:
    int O_CLOEXEC

cdef extern from "Python.h":
    object PyErr_SetFromErrnoWithFilenameObjects(object kind, object first, object second)
    str PyUnicode_DecodeFSDefaultAndSize(const char *name, Py_ssize_t size)

cdef extern from "<dirent.h>" nogil:
    ctypedef struct DIR:
        pass
    struct dirent:
        uint64_t d_ino
        unsigned char d_type
        char *d_name
    int DT_REG
    DIR *opendir(const char *name)
    dirent *readdir(DIR *directory)
    int closedir(DIR *directory)
    int dirfd(DIR *directory)

cdef extern from "<sys/vfs.h>" nogil:
    struct struct_statfs "statfs":
        long f_type
    int fstatfs(int fd, struct_statfs *found)

cdef extern from "<sys/stat.h>" nogil:
    struct struct_stat "stat":
        uint64_t st_dev
    int fstat(int fd, struct_stat *found)

cdef enum:
    DIGITS = 20
    MOST_KINDS = 16
    MOST_ENDING = 32

# File systems whose listings give the inode that stat() gives: ext2 to ext4, XFS, Btrfs, tmpfs, F2FS.
cdef long[5] FAITHFUL = [0xEF53, 0x58465342, 0x9123683E, 0x01021994, 0xF2F52010]

ctypedef struct entry:
    int64_t number
    uint64_t inode  # 0: not known
    int kind

ctypedef struct listing:
    entry *entries
    int64_t count, room
    uint8_t *others  # names, each with the zero behind it
    int64_t others_size, others_room
    uint64_t digest
    uint64_t device
    bint faithful

ctypedef struct endings:
    int count
    int[MOST_KINDS] sizes
    char[MOST_KINDS][MOST_ENDING] texts


cdef int by_number(const void *a, const void *b) noexcept nogil:
    cdef const entry *x = <const entry *>a
    cdef const entry *y = <const entry *>b
    return (x.number > y.number) - (x.number < y.number)


cdef uint64_t mixed(uint64_t x) noexcept nogil:
    """One to one, each bit of the outcome hangs on all of x (the last step of murmur3)."""
    x = (x ^ (x >> 33)) * <uint64_t>0xFF51AFD7ED558CCD
    x = (x ^ (x >> 33)) * <uint64_t>0xC4CEB9FE1A85EC53
    return x ^ (x >> 33)


cdef uint64_t digest_of(const char *name, size_t size, uint64_t inode) noexcept nogil:
    cdef uint64_t h = mixed(inode + size)
    cdef size_t i
    for i in range(size):
        h = (h ^ <uint8_t>name[i]) * <uint64_t>0x100000001B3
    return mixed(h)


cdef int64_t number_of(const char *name, size_t size) noexcept nogil:
    """What 20 digits and a dot at the start of a name say, if it is an int64; else -1."""
    cdef uint64_t n = 0
    cdef int i
    if size <= DIGITS or name[DIGITS] != c'.' or name[0] != c'0':
        return -1
    for i in range(DIGITS):
        if not c'0' <= name[i] <= c'9':
            return -1
        n = 10 * n + <uint64_t>(name[i] - c'0')
    return <int64_t>n if n <= <uint64_t>INT64_MAX else -1


cdef int kind_of(const char *ending, size_t size, const endings *kinds) noexcept nogil:
    cdef int i
    for i in range(kinds.count):
        if size == <size_t>kinds.sizes[i] and memcmp(ending, kinds.texts[i], size) == 0:
            return i
    return -1


cdef int take(listing *found, const dirent *e, const endings *kinds) noexcept nogil:
    """Adds a name; -1 without memory."""
    cdef size_t size = strlen(e.d_name)
    cdef uint64_t inode = e.d_ino if found.faithful and e.d_type == DT_REG else 0
    cdef int64_t number, room
    cdef int kind
    cdef void *grown
    if e.d_name[0] == c'.' and (size == 1 or (size == 2 and e.d_name[1] == c'.')):
        return 0
    found.digest += digest_of(e.d_name, size, inode)
    if kinds is NULL:
        return 0
    number = number_of(e.d_name, size)
    kind = kind_of(e.d_name + DIGITS, size - DIGITS, kinds) if number >= 0 else -1
    if kind >= 0:
        if found.count == found.room:
            room = 2 * found.room + 1024
            grown = PyMem_RawRealloc(found.entries, <size_t>room * sizeof(entry))
            if grown is NULL:
                return -1
            found.entries, found.room = <entry *>grown, room
        found.entries[found.count] = entry(number, inode, kind)
        found.count += 1
        return 0
    size += 1
    if found.others_size + <int64_t>size > found.others_room:
        room = 2 * found.others_room + 4096 + <int64_t>size
        grown = PyMem_RawRealloc(found.others, <size_t>room)
        if grown is NULL:
            return -1
        found.others, found.others_room = <uint8_t *>grown, room
    memcpy(found.others + found.others_size, e.d_name, size)
    found.others_size += <int64_t>size
    return 0


cdef int walk(const char *path, listing *found, const endings *kinds) noexcept nogil:
    """Reads the whole directory: 0, or an errno, or -1 without memory."""
    cdef DIR *directory = opendir(path)
    cdef dirent *e
    cdef struct_statfs fs
    cdef struct_stat st
    cdef int status = 0, i
    if directory is NULL:
        return errno
    if fstatfs(dirfd(directory), &fs) == 0 and fstat(dirfd(directory), &st) == 0:
        found.device = st.st_dev
        for i in range(5):
            found.faithful |= fs.f_type == FAITHFUL[i]
    while True:
        (&errno)[0] = 0
        e = readdir(directory)
        if e is NULL:
            status = errno
            break
        if take(found, e, kinds) < 0:
            status = -1
            break
    closedir(directory)
    return status


cdef int checked(int status, str path) except -1:
    if status < 0:
        raise MemoryError()
    if status:
        raise OSError(status, os.strerror(status), path)
    return 0


def digest(str path not None):
    """A number that is another one as soon as a name in the directory, or the file that it stands for, is
    another. OSError."""
    cdef bytes kept = encoded(path)
    cdef const char *name = kept
    cdef listing found = listing(NULL, 0, 0, NULL, 0, 0, 0, 0, False)
    cdef int status
    with nogil:
        status = walk(name, &found, NULL)
    checked(status, path)
    return found.digest


def read_directory(str path not None, tuple kinds not None):
    """The names in a directory, as (files, others, inodes, device, digest). OSError.

    files: for each number whose 20 digits and one of `kinds`, such as ".log", are a name: 1 << i for each
    kinds[i] that it has, in order of the numbers. others: the other names. inodes: for each number the inode
    of the file of kinds[0], and `device` theirs, as far as the file system is known to tell the right one.
    digest: what digest() gives."""
    cdef bytes kept = encoded(path)
    cdef const char *name = kept
    cdef listing found = listing(NULL, 0, 0, NULL, 0, 0, 0, 0, False)
    cdef endings known
    cdef dict files = {}, inodes = {}
    cdef list others = []
    cdef int status, bits = 0
    cdef int64_t i, at = 0
    cdef size_t size
    cdef bytes ending
    cdef entry *e
    known.count = 0
    for kind in kinds:
        ending = kind.encode()
        if len(ending) > MOST_ENDING or known.count == MOST_KINDS:
            raise ValueError(f"too many kinds, or one too long: {kinds}")
        memcpy(known.texts[known.count], <const char *>ending, <size_t>len(ending))
        known.sizes[known.count] = <int>len(ending)
        known.count += 1
    try:
        with nogil:
            status = walk(name, &found, &known)
            if status == 0 and found.count:
                qsort(found.entries, <size_t>found.count, sizeof(entry), by_number)
        checked(status, path)
        for i in range(found.count):
            e = &found.entries[i]
            bits |= 1 << e.kind
            if e.kind == 0 and e.inode:
                inodes[e.number] = e.inode
            if i + 1 == found.count or found.entries[i + 1].number != e.number:
                files[e.number] = bits
                bits = 0
        while at < found.others_size:
            size = strlen(<const char *>found.others + at)
            others.append(PyUnicode_DecodeFSDefaultAndSize(<char *>found.others + at, <Py_ssize_t>size))
            at += <int64_t>size + 1
    finally:
        PyMem_RawFree(found.entries)
        PyMem_RawFree(found.others)
    return files, others, inodes, found.device, found.digest


@no_gc  # it refers to nothing
@final
cdef class Directory:
    """An open directory, for locks on it; closed when the last reference goes. OSError."""

    cdef readonly int fd

    def __cinit__(self, str path not None):
        global opened_count
        self.fd = -1
        cdef bytes name = encoded(path)
        while True:
            self.fd = c_open(name, O_RDONLY | O_DIRECTORY | O_CLOEXEC)
            if self.fd >= 0 or not makes_room():
                break
        if self.fd < 0:
            PyErr_SetFromErrnoWithFilenameObject(OSError, path)
        opened_count += 1

    def __dealloc__(self):
        global opened_count
        if self.fd >= 0:
            c_close(self.fd)
            opened_count -= 1


def make_directory(str path not None):
    """Makes a directory and those above it that are missing, and their names durable. OSError."""
    if os.path.isdir(path):
        return
    parent = os.path.dirname(os.path.abspath(path))
    make_directory(parent)
    pass_gate(path)
    os.makedirs(path, exist_ok=True)
    note_name("make_directory", path)
    sync_directory(parent)


def make_empty_directory(str path not None):
    """Makes one directory, in one that is there; its name is durable after sync_directory. FileExistsError,
    OSError."""
    pass_gate(path)
    os.mkdir(path)
    note_name("make_directory", path)


def remove_directory(str path not None):
    """Removes an empty directory. OSError."""
    pass_gate(path)
    os.rmdir(path)
    note_name("unlink", path)


# ---- names -------------------------------------------------------------------------------------------------


cdef int pass_gate(str path) except -1:
    """A change that Python makes, before it is made. OSError."""
    while gate(CHANGES):
        if errno != EINTR:
            PyErr_SetFromErrnoWithFilenameObject(OSError, path)
    return 0


def rename(str source not None, str target not None, *, bint replaces=True):
    """Gives a file another name, in place of a file that has it. OSError; FileExistsError without `replaces`,
    if a file has the name, whichever process made it."""
    cdef bytes a = encoded(source), b = encoded(target)
    while gate(CHANGES) or (c_rename(a, b) if replaces else c_link(a, b)) < 0:
        if errno == EPERM and not replaces:  # a file system without hard links
            replaces = True
        elif errno != EINTR:
            PyErr_SetFromErrnoWithFilenameObjects(OSError, source, target)
    if not replaces:
        c_unlink(a)
    note_name("rename", source, target)


def unlink(str path not None, *, bint missing_ok=False):
    """Removes a file's name. OSError."""
    cdef bytes name = encoded(path)
    while gate(CHANGES) or c_unlink(name) < 0:
        if errno == ENOENT and missing_ok:
            return
        if errno != EINTR:
            PyErr_SetFromErrnoWithFilenameObject(OSError, path)
    note_name("unlink", path)


def sync_directory(str path not None):
    """Makes the names in a directory durable. OSError."""
    cdef bytes name = encoded(path)
    cdef const char *raw = name
    cdef int fd = -1, status = -1
    note_name("syncs_directory", path)
    while True:
        with nogil:
            while True:
                if fd < 0 and gate(READS) == 0:
                    fd = c_open(raw, O_RDONLY | O_DIRECTORY | O_CLOEXEC)
                if fd >= 0:
                    status = -1 if gate(CHANGES) else fsync(fd)
                if status == 0 or errno != EINTR:
                    break
        if fd >= 0 or not makes_room():
            break
    error = errno
    if fd >= 0:
        c_close(fd)
    if status < 0:
        raise OSError(error, os.strerror(error), path)
    note_name("sync_directory", path)


def set_mtime_ms(str path not None, int64_t mtime_ms, int ns=0):
    """Sets the time of a file's last change, to so many nanoseconds after a millisecond. OSError."""
    pass_gate(path)
    os.utime(path, ns=(mtime_ms * 1000000 + ns, mtime_ms * 1000000 + ns))


def take_mode(File file not None, str path not None):
    """Gives a new file the mode and the owner of the one at a path, if there is one. Who may not give it the
    owner leaves its own. OSError."""
    try:
        wanted = os.stat(path)
    except FileNotFoundError:
        return
    found = os.fstat(file.fd)
    if (found.st_uid, found.st_gid) != (wanted.st_uid, wanted.st_gid):
        pass_gate(file.path)
        try:
            os.fchown(file.fd, wanted.st_uid, wanted.st_gid)
        except PermissionError:
            pass
    if (found.st_mode ^ wanted.st_mode) & 0o777:
        pass_gate(file.path)
        os.fchmod(file.fd, wanted.st_mode & 0o777)


def new_draft(str draft not None, str like not None):
    """A new, empty file that is to be renamed to the name of another, with the mode and the owner of the file
    `like`, if that is there. Every file that replaces one begins here. OSError.

    What has the name of the draft is removed, not written to: a crash has left it, or it is a link to a file
    of others.
    """
    try:
        file = File(draft, "x")
    except FileExistsError:
        unlink(draft)
        file = File(draft, "x")
    take_mode(file, like)
    return file


def write_whole(str path not None, bytes data not None, *, bint durable=True, bint replaces=True):
    """Replaces a file's content at once: readers, and a crash, see the old or the new one. OSError.

    Kafka's way too: NAME.tmp is written, brought to the disk and renamed. Without `replaces`, several
    processes may try at once: one succeeds, the others get a FileExistsError."""
    draft = path + ".tmp" if replaces else f"{path}.{os.urandom(8).hex()}.tmp"
    directory = os.path.dirname(os.path.abspath(path))  # before anything is done: a signal may interrupt these
    try:
        file = new_draft(draft, path)
        file.write(0, data)
        if durable:
            file.sync()
        rename(draft, path, replaces=replaces)
    except OSError:
        if os.path.exists(draft):
            os.unlink(draft)
            note_name("unlink", draft)
        raise
    if durable:
        sync_directory(directory)
