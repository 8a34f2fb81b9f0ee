from libc.stdint cimport int64_t

from kstore.engine.columns.array cimport Field
from kstore.engine.io.buffers cimport ks_vector
from libkstore.format cimport ks_batch


cdef enum:
    FIELD_COUNT = 16

cdef Field header_field(str name)
cdef int field_width(int field) noexcept nogil
cdef int put_field(
    ks_vector *v, int field, int64_t more, const ks_batch *b, int64_t position, int kind
) noexcept nogil
