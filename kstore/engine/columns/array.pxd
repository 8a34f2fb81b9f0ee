from libc.stdint cimport int64_t

from kstore.engine.io.buffers cimport Buffer


cdef class Field:
    cdef readonly str name
    cdef readonly bytes format
    cdef readonly bint nullable
    cdef readonly tuple children
    cdef readonly ArrayData dictionary

    @staticmethod
    cdef Field of(str name, bytes format, bint nullable, tuple children, ArrayData dictionary)


cdef class ArrayData:
    cdef readonly Field field
    cdef readonly int64_t length
    cdef readonly int64_t null_count
    cdef readonly tuple buffers     # of Buffer or None, as Arrow orders them
    cdef readonly tuple children

    cdef object array(self, int at, object dtype, int64_t count)

    @staticmethod
    cdef ArrayData of(Field field, int64_t length, int64_t null_count, tuple buffers, tuple children)


cdef class ColumnBatch:
    cdef readonly ArrayData values


cdef ArrayData dictionary_of(tuple words)
