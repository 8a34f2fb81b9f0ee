from libc.stdint cimport int64_t

from kstore.engine.io.file cimport File, FileHandle


cdef class SegmentFiles:
    cdef readonly str directory
    cdef readonly str stem
    cdef readonly int64_t base_offset
    cdef readonly dict suffixes
    cdef public object key_index
    cdef FileHandle handle          # of the .log
    cdef str known_path             # of the .log; None until it is asked for

    cdef str make_log_path(self)
    cdef File open(self)
    cdef bint take_final_names(self) except -1
    cdef object changed(self, str what, int64_t offset)
    cdef File index_file(self, str kind)
    cdef bytes contents(self, str kind, int64_t width, str absent=*)

    cdef inline str log_path(self):
        return self.make_log_path() if self.known_path is None else self.known_path

    cdef inline File opened(self):
        """The .log, open. OSError; LogChangedError if the file was deleted."""
        if self.handle.file is None:
            return self.open()
        self.handle.used = True
        return self.handle.file
