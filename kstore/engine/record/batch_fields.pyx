# cython: binding=False
"""The fields of batch headers: as columns, in which all records of a batch have one value, and as a table
for numpy."""

from cpython.buffer cimport PyBUF_SIMPLE, PyBuffer_Release, PyObject_GetBuffer
from libc.stdint cimport int16_t, int32_t, int64_t
from libc.string cimport memcpy, memset

from kstore.engine.columns.array cimport Field, ArrayData, dictionary_of
from kstore.engine.io.buffers cimport ReadWindow, ks_ensure, ks_vector
from kstore.engine.record.batch cimport raise_fault
from kstore.engine.record.batch_walk cimport FAR, LOOK, NEAR, WALK_DAMAGED, WALK_NONE, WALK_SYSTEM, step
from libkstore.format cimport ks_batch, ks_codec, ks_fault

from kstore.arguments import choice, elements
from kstore.engine.record.batch import TIMESTAMP_TYPES
from kstore.engine.record.codec import NAMES as CODECS
from kstore.libraries import library


cdef struct row:
    int64_t position
    ks_batch batch

cdef enum:
    NO_PLACE = -1

cdef row ANY_ROW


cdef int place(const void *field) noexcept:
    """Where a field of ANY_ROW is in it."""
    return <int>(<const char *>field - <const char *>&ANY_ROW)


# Name, Arrow's format, and where the field is in `row`. A field's number is its place here.
TABLE = (
    ("timestamp_type", "c", NO_PLACE),
    ("codec", "c", NO_PLACE),
    ("base_offset", "l", place(&ANY_ROW.batch.base_offset)),
    ("last_offset", "l", place(&ANY_ROW.batch.last_offset)),
    ("base_timestamp", "l", place(&ANY_ROW.batch.base_timestamp)),
    ("max_timestamp", "l", place(&ANY_ROW.batch.max_timestamp)),
    ("producer_id", "l", place(&ANY_ROW.batch.producer_id)),
    ("position", "l", place(&ANY_ROW.position)),
    ("size", "l", place(&ANY_ROW.batch.size)),
    ("crc", "I", place(&ANY_ROW.batch.crc)),
    ("leader_epoch", "i", place(&ANY_ROW.batch.leader_epoch)),
    ("base_sequence", "i", place(&ANY_ROW.batch.base_sequence)),
    ("records_count", "i", place(&ANY_ROW.batch.records_count)),
    ("producer_epoch", "s", place(&ANY_ROW.batch.producer_epoch)),
    ("attributes", "s", place(&ANY_ROW.batch.attributes)),
    ("magic", "c", place(&ANY_ROW.batch.magic)),
    ("last_offset_delta", "i", place(&ANY_ROW.batch.last_offset_delta)),  # no column: only numpy's table has it
)
NUMPY_KINDS = {"c": "i1", "s": "i2", "i": "i4", "I": "u4", "l": "i8"}
FIELDS = {name: number for number, (name, _, _) in enumerate(TABLE[:FIELD_COUNT])}

cdef enum:
    F_TIMESTAMP_TYPE = 0
    F_CODEC = 1

cdef int[FIELD_COUNT] WIDTHS
cdef int[FIELD_COUNT] PLACES
WIDTHS[:] = [int(NUMPY_KINDS[kind][1]) for _, kind, _ in TABLE[:FIELD_COUNT]]
PLACES[:] = [at for _, _, at in TABLE[:FIELD_COUNT]]

cdef ArrayData TIMESTAMP_TYPE_NAMES = dictionary_of(TIMESTAMP_TYPES)
cdef ArrayData CODEC_NAMES = dictionary_of(CODECS)


cdef Field header_field(str name):
    cdef int field = FIELDS[name]
    words = TIMESTAMP_TYPE_NAMES if field == F_TIMESTAMP_TYPE else CODEC_NAMES if field == F_CODEC else None
    return Field.of(name, TABLE[field][1].encode(), False, (), words)


cdef int field_width(int field) noexcept nogil:
    return WIDTHS[field]


cdef int64_t value_of(int field, const ks_batch *b, int64_t position, int kind) noexcept nogil:
    cdef const char *p
    if field == F_TIMESTAMP_TYPE:
        return kind
    if field == F_CODEC:
        return ks_codec(b)
    if PLACES[field] == 0:
        return position
    p = <const char *>b + PLACES[field] - sizeof(int64_t)
    if WIDTHS[field] == 8:
        return (<const int64_t *>p)[0]
    if WIDTHS[field] == 4:
        return (<const int32_t *>p)[0]
    if WIDTHS[field] == 2:
        return (<const int16_t *>p)[0]
    return p[0]


cdef int put_field(
    ks_vector *v, int field, int64_t more, const ks_batch *b, int64_t position, int kind
) noexcept nogil:
    """Appends the value of a field `more` times: 0, or -1 if memory ran out. `kind`: the number of the batch's
    timestamp type."""
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


cdef object header_layout = None


cdef object header_dtype():
    """The layout of `row` for numpy, made once (numpy is imported only when columns are asked for)."""
    global header_layout
    if header_layout is None:
        numpy = library("numpy")
        stored = sorted((at, name, NUMPY_KINDS[kind]) for name, kind, at in TABLE if at != NO_PLACE)
        offsets, names, formats = zip(*stored, strict=True)
        # Without memory, numpy raises for a correct layout, or ignores parts of it.
        try:
            layout = numpy.dtype(
                {"names": list(names), "formats": list(formats), "offsets": list(offsets), "itemsize": sizeof(row)}
            )
        except (TypeError, ValueError) as e:
            raise MemoryError("the layout of headers") from e
        made = [layout.fields[name][1] for name in names]
        if layout.itemsize != sizeof(row) or made != list(offsets):
            raise MemoryError("the layout of headers")
        header_layout = layout
    return header_layout


cdef struct projection:
    int count                    # of fields; 0: all, as they are in `row`
    int width
    int[FIELD_COUNT + 1] places
    int[FIELD_COUNT + 1] widths


cdef object project(fields, projection *p):
    """The layout of a table of these fields, in this order. TypeError, ValueError."""
    numpy = library("numpy")

    if isinstance(fields, str):
        raise TypeError(f"fields are names, such as [{fields!r}], not a str")
    known = {name: (kind, at) for name, kind, at in TABLE if at != NO_PLACE}
    names = [choice("fields", name, known) for name in elements("fields are names", fields)]
    if not names or len(set(names)) < len(names):
        raise ValueError(f"fields are one or more different names, not {names}")
    layout = numpy.dtype([(name, NUMPY_KINDS[known[name][0]]) for name in names])
    for name in names:
        p.places[p.count] = known[name][1]
        p.widths[p.count] = int(NUMPY_KINDS[known[name][0]][1])
        p.width += p.widths[p.count]
        p.count += 1
    if layout.itemsize != p.width:
        raise MemoryError("the layout of headers")
    return layout


cdef inline void put_some(char *target, const row *r, const projection *p) noexcept nogil:
    cdef const char *source
    cdef int i
    for i in range(p.count):
        source = <const char *>r + p.places[i]
        if p.widths[i] == 8:
            memcpy(target, source, 8)
        elif p.widths[i] == 4:
            memcpy(target, source, 4)
        else:
            memcpy(target, source, <size_t>p.widths[i])
        target += p.widths[i]


def header_table(ReadWindow w not None, str path not None, int64_t start, fields):
    """The headers of the batches that the window may show, from byte `start` on; see Segment.read_headers."""
    numpy = library("numpy")

    cdef ks_fault fault
    cdef int64_t position = start, size = 0, count = 0, room = 0, ahead = FAR
    cdef row one
    cdef row *target = &one
    cdef projection chosen
    cdef Py_buffer view
    memset(&chosen, 0, sizeof(chosen))
    if fields is None:
        layout = header_dtype()
        chosen.width = sizeof(row)
    else:
        layout = project(fields, &chosen)
    table = numpy.empty(0, dtype=layout)
    while True:
        # numpy asks for huge pages, which spares most of the page faults; its arrays are sized by what the
        # rest of the log would fill at the rate so far, so that the second is often the last. What is left
        # may be a hole.
        room = 1024 if count == 0 else count + <int64_t>min(
            1.05 * count * (w.limit - position) / (position - start), 64.0 * count
        )
        larger = numpy.empty(room + 64, dtype=layout)
        larger.view("u1")[:count * chosen.width] = table.view("u1")[:count * chosen.width]  # a row by field takes long
        table = larger
        room = len(table)
        PyObject_GetBuffer(table, &view, PyBUF_SIMPLE)
        try:
            with nogil:
                while count < room:
                    if chosen.count == 0:
                        target = <row *>view.buf + count
                    size = step(w, position, ahead, &target.batch, &fault)
                    if size < 0:
                        break
                    ahead = LOOK if size > NEAR else FAR
                    target.position = position
                    if chosen.count:
                        put_some(<char *>view.buf + count * chosen.width, target, &chosen)
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
