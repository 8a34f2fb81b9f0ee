# cython: binding=False
"""The files of one segment: NAME.log, and NAME.index, NAME.timeindex, NAME.txnindex beside it (spec 1.2).

A compaction and a deletion rename files, so a segment has more names than one. All of them are known here.
"""

import errno
import os

from cython cimport final, no_gc_clear
from libc.stdint cimport int64_t, uint64_t

from kstore.engine.io.file cimport File, FileHandle

from kstore.errors import CorruptIndexError, LogChangedError


cdef enum:
    LEAST_BATCH = 26  # bytes: a message of magic 0 with neither key nor value


@final
@no_gc_clear  # it uses its handle to the end; what may be in a cycle with it can be cleared
cdef class SegmentFiles:
    """The files of a segment by name, and the .log once it is open. Segments of one .log share it.

    `suffixes` gives the suffix of files that are named otherwise, such as .swap, by kind. `base_offset` is the
    number in the name. `key_index` is the index of the keys in the .log, once a lookup has made it.
    """

    def __cinit__(self, str directory not None, str stem not None, int64_t base_offset=0, dict suffixes=None):
        self.directory = directory
        self.stem = stem
        self.base_offset = base_offset
        self.suffixes = suffixes
        self.handle = FileHandle()

    def path_of(self, str kind):
        """The path of a file by its kind: ".log", ".index", ".timeindex" or ".txnindex"."""
        return f"{self.directory}/{self.stem}{kind}{self.suffixes.get(kind, '') if self.suffixes else ''}"

    cdef str make_log_path(self):
        self.known_path = self.path_of(".log")
        return self.known_path

    cdef File open(self):
        """What `opened` does if the .log is not open."""
        cdef str path = self.log_path()
        try:
            return self.handle.at(path)
        except FileNotFoundError as e:
            if self.take_final_names():
                return self.open()
            if os.path.islink(path) and not os.path.exists(path):
                # no FileNotFoundError: the log is there, and its file was not deleted
                what = f"a symbolic link to {os.readlink(path)}, where no file is"
                raise OSError(errno.EINVAL, what, path) from None
            what = "it was deleted" if e.strerror.startswith("No such") else e.strerror
            raise self.changed(what, self.base_offset) from None

    cdef bint take_final_names(self) except -1:
        """Whether the files were called .swap, which the .log is no longer: from now on they are known by
        their final names, under which a further compaction may have set them aside already."""
        if not self.suffixes or self.suffixes.get(".log", ".swap") != ".swap" or self.handle.inode == 0:
            return False
        self.suffixes = self.known_path = None
        return True

    cdef object changed(self, str what, int64_t offset):
        """The error for a .log that is no longer what it was."""
        return LogChangedError(self.log_path(), offset, self.base_offset, self.base_offset, what)

    def remember(self, uint64_t device=0, uint64_t inode=0):
        """Notes which file the .log is, so that it is found again once it has the suffix .deleted and another
        file has its name. It is the file of that name, or if an inode is given the one with these numbers.
        OSError."""
        if inode:
            self.handle.be(device, inode)
            return
        try:
            self.handle.know(self.log_path())
        except FileNotFoundError:
            self.opened()  # which says why

    def keep_open(self):
        """Opens the .log and keeps it open as long as a segment has it, because its name will go. If the
        process has too many descriptors, it may be closed nevertheless."""
        self.opened()
        self.handle.pin()

    cdef bytes contents(self, str kind, int64_t width, str absent=None):
        """All of an index file. If there is none: None, or CorruptIndexError that says `absent`.

        CorruptIndexError if the log has fewer batches than the file has room for entries of this width: it
        may be sparse, and larger than memory."""
        cdef File file = self.index_file(kind)
        cdef int64_t size, most
        if file is None:
            if absent is None:
                return None
            raise CorruptIndexError(absent, file=self.path_of(kind), position=0)
        size = file.length()
        most = width * (self.opened().length() // LEAST_BATCH + 2)
        if size > most:
            raise CorruptIndexError(
                "size of an index", file=self.path_of(kind), position=most, expected=f"at most {most}", found=size
            )
        return file.read(0, size)

    cdef File index_file(self, str kind):
        """An index file; None if there is none.

        An index gets the suffix .deleted after its .log did. So if the .log has its name, the index has its
        own, and a .deleted file was left by an earlier segment. LogChangedError if the .log is gone: an index
        that is missing may be gone, too. Only a .txnindex is checked like that. Another index is compared with
        the batches, or made anew by a segment that still has the .log open."""
        cdef File file
        cdef bint replaced_again = False
        path = self.path_of(kind)
        try:
            file = File(path)
            if kind != ".txnindex":
                return file
        except FileNotFoundError:
            file = None
        if self.is_at_its_name():
            return file
        try:
            file = File(path + ".deleted")
            if kind != ".txnindex":
                return file
        except FileNotFoundError:
            file = None  # or the next compaction of this name has removed it, and comes to the .log
            replaced_again = os.path.lexists(f"{self.directory}/{self.stem}.log.swap")
        if self.handle.is_at(self.log_path() + ".deleted") and not replaced_again:
            return file
        if self.take_final_names():
            return self.index_file(kind)
        if kind != ".txnindex":
            self.opened()
            return None
        raise self.changed("it was deleted", self.base_offset)

    def is_at_its_name(self):
        """Whether the name of the .log stands for the file that is open here."""
        if self.handle.inode == 0:
            self.opened()
        return self.handle.is_at(self.log_path())

    def is_there(self):
        """Whether a .log has the name, this one or another. A compaction puts NAME.swap in the place of NAME:
        so NAME is asked for twice."""
        cdef str path = f"{self.directory}/{self.stem}.log"
        return any(map(os.path.lexists, (path, path + ".swap", path)))

    def is_replaced(self):
        """Whether the name of the .log stands for another file than the one that was open here: a compaction
        leaves it so."""
        return self.handle.inode != 0 and os.path.exists(self.log_path()) and not self.handle.is_at(self.log_path())
