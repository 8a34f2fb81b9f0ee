from libc.stdint cimport int64_t, uint8_t

cdef object materialised(object values, str what, int64_t count)
cdef object numpy_of(object values)
cdef object pinned(object source, const uint8_t **data, int64_t *size)
cdef const uint8_t *empty_cell() noexcept nogil
cdef str of_record(int64_t i)
cdef int check_count(str what, int64_t found, int64_t count) except -1
cdef int refuse_mask(object array, str what) except -1
