# cython: binding=False
"""A column that has the same number in every row, beside the columns of batches."""

from cython cimport final, no_gc
from libc.stdint cimport int32_t, int64_t

from kstore.engine.columns.array cimport ArrayData, ColumnBatch, Field
from kstore.engine.io.buffer_pool cimport Buffer, ks_ensure, ks_vector


@final
@no_gc  # it refers to text and fields only
cdef class ConstantColumn:
    """The column `name`, of int32, at place `at` among the columns of `schema`; `with_it` is the schema then."""

    cdef readonly Field with_it
    cdef int at

    def __cinit__(self, str name not None, int at, Field schema not None):
        cdef list fields = list(schema.children)
        if not 0 <= at <= len(fields):
            raise ValueError(f"no place {at} among {len(fields)} columns")
        fields.insert(at, Field.of(name, b"i", False, (), None))
        self.at = at
        self.with_it = Field.of(schema.name, schema.format, schema.nullable, tuple(fields), None)

    def put(self, ColumnBatch batch not None, int32_t number):
        """The batch with this column, `number` in each row. Its other columns are shared with `batch`."""
        cdef list columns = list(batch.values.children)
        cdef int64_t i, rows = batch.values.length
        cdef ks_vector numbers
        if len(columns) + 1 != len(self.with_it.children):
            raise ValueError(f"{len(columns)} columns, not {len(self.with_it.children) - 1}")
        numbers.data = NULL
        numbers.size = numbers.room = 0
        if ks_ensure(&numbers, 4 * rows + 4) < 0:
            raise MemoryError()
        for i in range(rows):
            (<int32_t *>numbers.data)[i] = number
        numbers.size = 4 * rows
        column = ArrayData.of(self.with_it.children[self.at], rows, 0, (None, Buffer.of(&numbers, None)), ())
        columns.insert(self.at, column)
        return ColumnBatch(ArrayData.of(self.with_it, rows, 0, (None,), tuple(columns)))
