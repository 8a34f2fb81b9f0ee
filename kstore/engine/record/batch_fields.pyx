"""The fields of batch headers: as columns that say the same of all records of a batch, and as a table for numpy."""

from cpython.buffer cimport PyBUF_SIMPLE, PyBuffer_Release, PyObject_GetBuffer
from libc.stdint cimport int16_t, int32_t, int64_t
from libc.string cimport memset

from kstore.engine.columns.array cimport Field, Values, words_of
from kstore.engine.io.buffer_pool cimport ks_ensure, ks_vector
from kstore.engine.io.read_window cimport ReadWindow
from kstore.engine.record.batch cimport raise_fault
from kstore.engine.record.batch_walk cimport FAR, LOOK, NEAR, WALK_DAMAGED, WALK_NONE, WALK_SYSTEM, step
from libkstore.format cimport ks_batch, ks_codec, ks_fault

from kstore.engine.record.batch import TIMESTAMP_TYPES
from kstore.engine.record.decompress import NAMES as CODECS


cdef enum:
    F_TIMESTAMP_TYPE, F_CODEC, F_BASE_OFFSET, F_LAST_OFFSET, F_BASE_TIMESTAMP, F_MAX_TIMESTAMP, F_PRODUCER_ID
    F_POSITION, F_SIZE, F_CRC, F_LEADER_EPOCH, F_BASE_SEQUENCE, F_RECORDS_COUNT, F_PRODUCER_EPOCH, F_ATTRIBUTES
    F_MAGIC

FIELDS = {
    "timestamp_type": F_TIMESTAMP_TYPE,
    "codec": F_CODEC,
    "base_offset": F_BASE_OFFSET,
    "last_offset": F_LAST_OFFSET,
    "base_timestamp": F_BASE_TIMESTAMP,
    "max_timestamp": F_MAX_TIMESTAMP,
    "producer_id": F_PRODUCER_ID,
    "position": F_POSITION,
    "size": F_SIZE,
    "crc": F_CRC,
    "leader_epoch": F_LEADER_EPOCH,
    "base_sequence": F_BASE_SEQUENCE,
    "records_count": F_RECORDS_COUNT,
    "producer_epoch": F_PRODUCER_EPOCH,
    "attributes": F_ATTRIBUTES,
    "magic": F_MAGIC,
}
cdef bytes FORMATS = b"cclllllllIiiissc"   # Arrow's, by number

cdef int[FIELD_COUNT] WIDTHS
WIDTHS[:] = [1, 1, 8, 8, 8, 8, 8, 8, 8, 4, 4, 4, 4, 2, 2, 1]

cdef Values TIME_WORDS = words_of(TIMESTAMP_TYPES)
cdef Values CODEC_WORDS = words_of(CODECS)


cdef Field header_field(str name):
    cdef int field = FIELDS[name]
    words = TIME_WORDS if field == F_TIMESTAMP_TYPE else CODEC_WORDS if field == F_CODEC else None
    return Field.of(name, FORMATS[field : field + 1], False, (), words)


cdef int field_width(int field) noexcept nogil:
    return WIDTHS[field]


cdef int64_t value_of(int field, const ks_batch *b, int64_t position, int kind) noexcept nogil:
    if field == F_TIMESTAMP_TYPE:
        return kind
    if field == F_CODEC:
        return ks_codec(b)
    if field == F_BASE_OFFSET:
        return b.base_offset
    if field == F_LAST_OFFSET:
        return b.last_offset
    if field == F_BASE_TIMESTAMP:
        return b.base_timestamp
    if field == F_MAX_TIMESTAMP:
        return b.max_timestamp
    if field == F_PRODUCER_ID:
        return b.producer_id
    if field == F_POSITION:
        return position
    if field == F_SIZE:
        return b.size
    if field == F_CRC:
        return b.crc
    if field == F_LEADER_EPOCH:
        return b.leader_epoch
    if field == F_BASE_SEQUENCE:
        return b.base_sequence
    if field == F_RECORDS_COUNT:
        return b.records_count
    if field == F_PRODUCER_EPOCH:
        return b.producer_epoch
    if field == F_ATTRIBUTES:
        return b.attributes
    return b.magic


cdef int put_field(
    ks_vector *v, int field, int64_t more, const ks_batch *b, int64_t position, int kind
) noexcept nogil:
    """The same `more` times: 0, or -1 where memory ran out. `kind`: the number of the batch's timestamp type."""
    cdef int width = WIDTHS[field]
    cdef int64_t value = value_of(field, b, position, kind), i
    if ks_ensure(v, more * width) < 0:
        return -1
    if width == 1:
        memset(v.data + v.size, <int>(value & 0xFF), <size_t>more)
    elif width == 2:
        for i in range(more):
            (<int16_t *>(v.data + v.size))[i] = <int16_t>value
    elif width == 4:
        for i in range(more):
            (<int32_t *>(v.data + v.size))[i] = <int32_t>value
    else:
        for i in range(more):
            (<int64_t *>(v.data + v.size))[i] = value
    v.size += more * width
    return 0


cdef struct row:
    int64_t position
    ks_batch batch


cdef object header_layout = None


cdef object header_dtype():
    """The layout of `row` for numpy, made once (numpy is imported only when columns are asked for)."""
    global header_layout
    if header_layout is None:
        import numpy

        fields = (
            ("base_offset", "i8"), ("last_offset", "i8"), ("base_timestamp", "i8"), ("max_timestamp", "i8"),
            ("producer_id", "i8"), ("size", "i8"), ("crc", "u4"), ("leader_epoch", "i4"),
            ("last_offset_delta", "i4"), ("base_sequence", "i4"), ("records_count", "i4"), ("producer_epoch", "i2"),
            ("attributes", "i2"), ("magic", "i1"),
        )
        names, formats, offsets, at = ["position"], ["i8"], [0], 8
        for name, kind in fields:  # ks_batch has its widest fields first, so there is no padding between them
            names.append(name)
            formats.append(kind)
            offsets.append(at)
            at += int(kind[1])
        header_layout = numpy.dtype(
            {"names": names, "formats": formats, "offsets": offsets, "itemsize": sizeof(row)}
        )
    return header_layout


cdef object header_table(ReadWindow w, str path, int64_t start):
    """The headers of the batches that the window may show, from byte `start` on; see Segment.read_headers."""
    import numpy

    cdef ks_fault fault
    cdef int64_t position = start, size = 0, count = 0, room = 0, ahead = FAR
    cdef row *rows = NULL
    cdef Py_buffer view
    table = numpy.empty(0, dtype=header_dtype())
    while True:
        # numpy asks for huge pages, which spares most of the page faults; its arrays are sized by what the rest
        # of the log would fill at the rate so far, so that the second is often the last. What is left may be a hole.
        room = 1024 if count == 0 else count + <int64_t>min(
            1.05 * count * (w.limit - position) / (position - start), 64.0 * count
        )
        larger = numpy.empty(room + 64, dtype=header_dtype())
        larger.view("u1")[:count * sizeof(row)] = table.view("u1")[:count * sizeof(row)]  # a row by field takes long
        table = larger
        room = len(table)
        PyObject_GetBuffer(table, &view, PyBUF_SIMPLE)
        try:
            rows = <row *>view.buf
            with nogil:
                while count < room:
                    size = step(w, position, ahead, &rows[count].batch, &fault)
                    if size < 0:
                        break
                    ahead = LOOK if size > NEAR else FAR
                    rows[count].position = position
                    count += 1
                    position += size
        finally:
            PyBuffer_Release(&view)
        if size == WALK_SYSTEM:
            w.raise_failure(-1)
        if size == WALK_DAMAGED:
            raise_fault(&fault, path, position, -1)
        if size == WALK_NONE:
            return table[:count]
