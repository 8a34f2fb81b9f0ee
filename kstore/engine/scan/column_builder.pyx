# cython: binding=False
"""Rows being gathered: records in, without the GIL, and from time to time a ColumnBatch out.

A record goes from the bytes of its batch straight into the buffers of the columns that are wanted. A
Predicate says which records match, by their bytes, before anything is copied. What is not wanted, or not
matched, costs the walk over its varints and nothing else.

The file is long because every column is filled by one class: its buffers are C fields that only its methods
see.
"""

from collections.abc import Mapping

from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_GET_SIZE
from cpython.mem cimport PyMem_RawFree, PyMem_RawMalloc, PyMem_RawRealloc
from cython cimport boundscheck, final, no_gc
from libc.stdint cimport INT32_MAX, INT64_MAX, INT64_MIN, int32_t, int64_t, uint8_t, uint32_t, uint64_t
from libc.string cimport memcpy, memset

from kstore.engine.columns.array cimport ColumnBatch, Field, ArrayData
from kstore.engine.io.buffers cimport Buffer, BufferPool, ks_ensure, ks_vector
from kstore.engine.record.batch cimport Record
from kstore.engine.record.batch_fields cimport field_width, header_field, put_field
from libkstore.build cimport ks_copy
from libkstore.columns cimport (
    KS_KEYS,
    KS_LISTS,
    KS_OFFSETS,
    KS_TIMESTAMPS,
    KS_VALUES,
    KS_VIEW,
    KS_VIEW_INLINE,
    KS_VIEWS,
    ks_column,
    ks_put_view,
    ks_table,
    ks_take_records,
)
from libkstore.format cimport (
    KS_E_COUNT,
    KS_LOG_APPEND_TIME,
    KS_OK,
    ks_any_record,
    ks_batch,
    ks_check_place,
    ks_fail,
    ks_fault,
    ks_header,
    ks_next_header,
    ks_next_record,
    ks_record,
)

from kstore.engine.io.buffers import POOL as _POOL
from kstore.engine.record.batch import TIMESTAMP_TYPES
from kstore.engine.record.batch_fields import FIELDS
from kstore.engine.record.text import java_text

cdef enum:
    LEAST_RECORD = 7   # bytes of an encoded record
    FIRST_ROWS = 1 << 16   # room in the first batch: one that is too large costs nothing, to let it grow does
    FIRST_KEYS = 256 << 10
    FIRST_BYTES = 2 << 20
    HEADER_COST = 16   # what a header counts for beside its bytes, so that empty ones cannot pile up

COLUMNS = ("offset", "timestamp", "timestamp_type", "key", "value", "headers", *list(FIELDS)[1:])


cdef Field field_of(str name, bint views, bint is_text, bint datetimes):
    cdef Field header
    cdef bytes cells = (b"v" if views else b"") + (b"u" if is_text else b"z")
    if name == "offset" or name == "timestamp":
        return Field.of(name, b"tsm:UTC" if datetimes and name == "timestamp" else b"l", False, (), None)
    if name == "key" or name == "value":
        return Field.of(name, cells, True, (), None)
    if name == "headers":
        pair = (Field.of("key", b"u", False, (), None), Field.of("value", b"z", True, (), None))
        header = Field.of("item", b"+s", False, pair, None)
        return Field.of(name, b"+l", False, (header,), None)
    if name not in FIELDS:
        raise ValueError(f"no column is named {name!r}; there are {', '.join(COLUMNS)}")
    return header_field(name)


cdef inline const uint8_t *behind_ascii(const uint8_t *p, const uint8_t *end) noexcept nogil:
    """The first byte that is not ASCII, or up to seven bytes before it."""
    cdef uint64_t word
    while end - p >= 8:
        memcpy(&word, p, 8)
        if word & 0x8080808080808080u:
            break
        p += 8
    return p


cdef bint is_text(const uint8_t *p, int64_t size) noexcept nogil:
    """Whether bytes are UTF-8 as Unicode has it: no surrogates, nothing longer than need be."""
    cdef const uint8_t *end = p + size
    cdef uint32_t point, least
    cdef int more
    while p < end:
        if p[0] < 0x80:
            p = behind_ascii(p + 1, end)
            continue
        if p[0] < 0xC2 or p[0] > 0xF4:
            return False
        more = 1 if p[0] < 0xE0 else 2 if p[0] < 0xF0 else 3
        least = 0x80 if more == 1 else 0x800 if more == 2 else 0x10000
        if end - p <= more:
            return False
        point = p[0] & (0x3F >> more)
        p += 1
        while more:
            if p[0] & 0xC0 != 0x80:
                return False
            point = (point << 6) | (p[0] & 0x3F)
            p += 1
            more -= 1
        if point < least or 0xD800 <= point <= 0xDFFF or point > 0x10FFFF:
            return False
    return True


# ---- cells -------------------------------------------------------------------------------------------------

cdef int mark_null(ks_bytes *c, int64_t at) noexcept nogil:
    """Marks the row that comes next as null. The bitmap is made at the first null, with all bits before it
    set."""
    cdef int64_t size = (at >> 3) + 1
    if size > c.validity.size:
        if ks_ensure(&c.validity, size + 64 - c.validity.size) < 0:
            return -1
        memset(c.validity.data + c.validity.size, 0xFF, <size_t>(size + 64 - c.validity.size))
        c.validity.size = size + 64
    c.validity.data[at >> 3] &= ~(1 << (at & 7))
    c.null_count += 1
    return 0


cdef inline int put_cell(ks_bytes *c, const uint8_t *data, int64_t size) noexcept nogil:
    """Copies a cell behind the others; size -1 is null. There is room for one in `cells`."""
    if size > 0:
        if ks_ensure(&c.data, size) < 0:
            return -1
        ks_copy(c.data.data + c.data.size, data, <size_t>size)
        c.data.size += size
    elif size < 0 and mark_null(c, c.count) < 0:
        return -1
    c.count += 1
    (<int32_t *>c.cells.data)[c.count] = <int32_t>c.data.size
    return 0


cdef inline int put_view(
    ks_bytes *c, const uint8_t *data, int32_t size, const uint8_t *end, ks_run *run
) noexcept nogil:
    """Appends a cell as a view: only a cell that cannot be viewed is copied, to buffer 0."""
    cdef const uint8_t *block = run.block
    cdef int32_t index = run.block_index
    if size < 0:
        if mark_null(c, c.count) < 0:
            return -1
    elif size > KS_VIEW_INLINE:
        if block is not NULL and data - block <= INT32_MAX:
            run.block_used = True
        else:
            if ks_ensure(&c.data, size) < 0:
                return -1
            block = c.data.data
            index = 0
            ks_copy(c.data.data + c.data.size, data, <size_t>size)
            data = block + c.data.size
            c.data.size += size
    ks_put_view(c.cells.data + c.count * KS_VIEW, data, size, end, block, index)
    c.count += 1
    return 0


cdef int64_t first_not_text(const ks_bytes *c, const uint8_t **blocks) noexcept nogil:
    """The first row whose cell is not UTF-8, or -1. `blocks` are those that views point into."""
    cdef const uint8_t *cell
    cdef const int32_t *ends = <const int32_t *>c.cells.data
    cdef const int32_t *view
    cdef int64_t row
    if not c.viewed and behind_ascii(c.data.data, c.data.data + c.data.size) + 8 > c.data.data + c.data.size:
        row = c.data.size & ~7
        while row < c.data.size and c.data.data[row] < 0x80:
            row += 1
        if row == c.data.size:
            return -1
    for row in range(c.count):
        if c.viewed:
            view = <const int32_t *>(c.cells.data + KS_VIEW * row)
            cell = <const uint8_t *>(view + 1)
            if view[0] > KS_VIEW_INLINE:
                cell = (c.data.data if view[2] == 0 else blocks[view[2] - 1]) + view[3]
            if not is_text(cell, view[0]):
                return row
        elif not is_text(c.data.data + ends[row], ends[row + 1] - ends[row]):
            return row
    return -1


cdef void free_bytes(ks_bytes *c) noexcept:
    PyMem_RawFree(c.cells.data)
    PyMem_RawFree(c.data.data)
    PyMem_RawFree(c.validity.data)


cdef int begin_bytes(ks_bytes *c, int64_t rows, BufferPool pool) except -1:
    """An empty column; the first end of ends is 0."""
    c.count = c.null_count = 0
    c.validity.size = 0
    if c.wanted:
        pool.prepare(&c.cells, KS_VIEW * rows if c.viewed else 4 * rows + 4)
        pool.prepare(&c.data, c.hint + (c.hint >> 4))
        if ks_ensure(&c.cells, KS_VIEW) < 0:
            raise MemoryError()
        memset(c.cells.data, 0, KS_VIEW)
    return 0


# ---- rows --------------------------------------------------------------------------------------------------


cdef inline int put_row(ColumnBuilder self, const ks_record *r, ks_run *run) noexcept nogil:
    """A row, for which there is room: 0, ROWS_FULL where offsets of 32 bits reach no further, or
    ROWS_MEMORY."""
    cdef int64_t at = self.count
    cdef int64_t added = (
        (r.key_size if self.key.wanted and r.key_size > 0 else 0)
        + (r.value_size if self.value.wanted and r.value_size > 0 else 0)
        + (r.end - r.headers if self.with_headers else 0)
    )
    if at and self.bytes + 2 * added > INT32_MAX:
        return ROWS_FULL
    if self.key.wanted:
        if self.views:
            if put_view(&self.key, r.key, r.key_size, r.end, run) < 0:
                return ROWS_MEMORY
        elif put_cell(&self.key, r.key, r.key_size) < 0:
            return ROWS_MEMORY
    if self.value.wanted:
        if self.views:
            if put_view(&self.value, r.value, r.value_size, r.end, run) < 0:
                return ROWS_MEMORY
        elif put_cell(&self.value, r.value, r.value_size) < 0:
            return ROWS_MEMORY
    if self.with_offset:
        (<int64_t *>self.offsets.data)[at] = r.offset
    if self.with_timestamp:
        (<int64_t *>self.timestamps.data)[at] = r.timestamp
    if self.with_headers:
        if r.headers_count:
            if self.put_headers(r) < 0:
                return ROWS_MEMORY
            added += HEADER_COST * <int64_t>r.headers_count
        (<int32_t *>self.lists.data)[at + 1] = <int32_t>self.header_name.count
    self.count = at + 1
    self.bytes += added
    return 0


cdef inline void lend(ks_column *column, const ks_bytes *c) noexcept nogil:
    column.bytes = c.data.data
    column.size = c.data.size
    column.room = c.data.room
    column.ends = <int32_t *>c.cells.data
    column.views = c.cells.data
    column.valid = c.validity.data
    column.valid_rows = 8 * c.validity.size
    column.nulls = 0


cdef inline void take_back(ks_bytes *c, const ks_column *column, int64_t count) noexcept nogil:
    if not c.viewed:
        c.data.size = column.size
    c.null_count += column.nulls
    c.count = count


cdef bytes exactly_bytes(object value, str what):
    if isinstance(value, (bytes, bytearray, memoryview)):
        return bytes(value)
    hint = f": {value!r}.encode()" if isinstance(value, str) else ""
    raise TypeError(f"{what} is bytes, not {type(value).__name__}{hint}")


@final
@no_gc  # it refers to bytes only, and points into them
cdef class Predicate:
    """start <= offset < stop, since <= timestamp < until, a key, how it begins, headers: all that are given.

    `header` is a name, a pair of a name and its value, or a mapping of such pairs that must all be there."""

    def __cinit__(
        self, int64_t start, int64_t stop, since=None, until=None, key=None, key_prefix=None, header=None
    ):
        cdef ks_filter *f = &self.filter
        self.owners = []
        f.start = start
        f.stop = stop
        f.since = INT64_MIN if since is None else min(max(since, INT64_MIN), INT64_MAX)
        f.latest = INT64_MAX if until is None else min(max(until - 1, INT64_MIN), INT64_MAX)
        if (since is not None and since > INT64_MAX) or (until is not None and until <= INT64_MIN):
            f.since = INT64_MAX  # no timestamp is there
            f.latest = INT64_MIN
        f.key_size = f.prefix_size = -1
        if key is not None:
            self.hold(exactly_bytes(key, "key"), &f.key, &f.key_size)
        if key_prefix is not None:
            self.hold(exactly_bytes(key_prefix, "key_prefix"), &f.prefix, &f.prefix_size)
        if header is None:
            pass
        elif isinstance(header, str):
            self.want_header(header, None, True)
        elif isinstance(header, Mapping):
            for name, value in header.items():
                self.want_header(name, value, False)
        elif isinstance(header, tuple) and len(header) == 2:
            self.want_header(header[0], header[1], False)
        else:
            raise TypeError("header is a name, a pair of name and value, or a mapping of such pairs")
        f.looks_inside = (
            since is not None or until is not None or f.key_size >= 0 or f.prefix_size >= 0 or f.wanted_count > 0
        )

    def __dealloc__(self):
        PyMem_RawFree(self.filter.wanted)

    cdef int hold(self, bytes text, const uint8_t **data, int64_t *size) except -1:
        """Has a text live as long as this object, and says where it is."""
        self.owners.append(text)
        data[0] = <const uint8_t *>PyBytes_AS_STRING(text)
        size[0] = PyBytes_GET_SIZE(text)
        return 0

    cdef int want_header(self, object name, object value, bint any_value) except -1:
        cdef ks_filter *f = &self.filter
        cdef ks_wanted *wanted
        if not isinstance(name, str):
            raise TypeError(f"the name of a header is a str, not {type(name).__name__}")
        try:
            raw = name.encode()
        except UnicodeEncodeError:
            raise ValueError(f"header: the name {name!r} has no UTF-8") from None
        wanted = <ks_wanted *>PyMem_RawRealloc(f.wanted, <size_t>(f.wanted_count + 1) * sizeof(ks_wanted))
        if wanted is NULL:
            raise MemoryError()
        f.wanted = wanted
        wanted = &f.wanted[f.wanted_count]
        self.hold(raw, &wanted.name, &wanted.name_size)
        wanted.value_size = ANY_VALUE if any_value else -1
        if value is not None:
            self.hold(exactly_bytes(value, "the value of a header"), &wanted.value, &wanted.value_size)
        f.wanted_count += 1
        return 0


@final
@no_gc  # it refers to text, buffers and a pool only, and needs the pool to the end
cdef class ColumnBuilder:
    """Columns under construction, for one thread at a time. A batch has at most `batch_rows` rows and, but
    for one record that has more by itself, about `batch_bytes` bytes of keys, values and headers."""

    def __cinit__(
        self, tuple columns not None, int64_t batch_rows, int64_t batch_bytes, bint views, tuple text=(),
        bint datetimes=False,
    ):
        fields = []
        if batch_rows < 1:
            raise ValueError(f"batch_rows {batch_rows} is not positive")
        if len(set(columns)) != len(columns):
            raise ValueError(f"a column is named twice: {', '.join(columns)}")
        for name in columns:
            fields.append(field_of(name, views, name in text, datetimes))
            if name in FIELDS:
                self.field_ids[self.field_count] = FIELDS[name]
                self.field_count += 1
        self.names = columns
        self.schema = Field.of("", b"+s", False, tuple(fields), None)
        self.most_rows = min(batch_rows, <int64_t>1 << 30)
        self.most_bytes = min(batch_bytes, <int64_t>1 << 30)
        self.views = views
        self.key_is_text = "key" in columns and "key" in text
        self.value_is_text = "value" in columns and "value" in text
        self.with_offset = "offset" in columns or self.key_is_text or self.value_is_text  # an error names it
        self.with_timestamp = "timestamp" in columns
        self.with_headers = self.header_name.wanted = self.header_value.wanted = "headers" in columns
        self.key.wanted = "key" in columns
        self.value.wanted = "value" in columns
        self.key.viewed = self.value.viewed = views
        self.pool = _POOL
        self.rows_hint = min(self.most_rows, <int64_t>FIRST_ROWS)
        self.key.hint = FIRST_KEYS
        self.value.hint = min(self.most_bytes, <int64_t>FIRST_BYTES)

    def __dealloc__(self):
        cdef int i
        PyMem_RawFree(self.offsets.data)
        PyMem_RawFree(self.timestamps.data)
        PyMem_RawFree(self.lists.data)
        for i in range(self.field_count):
            PyMem_RawFree(self.fields[i].data)
        free_bytes(&self.key)
        free_bytes(&self.value)
        free_bytes(&self.header_name)
        free_bytes(&self.header_value)

    cdef int begin(self) except -1:
        """Empty columns, once after every take()."""
        cdef int i
        if self.begun:
            return 0
        self.count = self.bytes = 0
        self.blocks = []
        self.block_count = 0
        begin_bytes(&self.key, self.rows_hint, self.pool)
        begin_bytes(&self.value, self.rows_hint, self.pool)
        begin_bytes(&self.header_name, 64, self.pool)
        begin_bytes(&self.header_value, 64, self.pool)
        if self.with_offset:
            self.pool.prepare(&self.offsets, 8 * self.rows_hint)
        if self.with_timestamp:
            self.pool.prepare(&self.timestamps, 8 * self.rows_hint)
        if self.with_headers:
            self.pool.prepare(&self.lists, 4 * self.rows_hint + 4)
            if ks_ensure(&self.lists, 8) < 0:
                raise MemoryError()
            memset(self.lists.data, 0, 8)
        for i in range(self.field_count):
            self.pool.prepare(&self.fields[i], self.rows_hint * field_width(self.field_ids[i]))
        self.begun = True
        return 0

    cdef bint is_full(self) noexcept nogil:
        return self.count >= self.most_rows or (self.bytes >= self.most_bytes and self.count > 0)

    cdef int make_room(self, int64_t more) noexcept nogil:
        """Room in what has a fixed width a row. Sizes there follow from the count of rows."""
        cdef int64_t rows = self.count
        if self.with_offset:
            self.offsets.size = 8 * rows
            if ks_ensure(&self.offsets, 8 * more) < 0:
                return -1
        if self.with_timestamp:
            self.timestamps.size = 8 * rows
            if ks_ensure(&self.timestamps, 8 * more) < 0:
                return -1
        if self.with_headers:
            self.lists.size = 4 * rows + 4
            if ks_ensure(&self.lists, 4 * more) < 0:
                return -1
        if self.key.wanted:
            self.key.cells.size = KS_VIEW * rows if self.views else 4 * rows + 4
            if ks_ensure(&self.key.cells, (KS_VIEW if self.views else 4) * more) < 0:
                return -1
        if self.value.wanted:
            self.value.cells.size = KS_VIEW * rows if self.views else 4 * rows + 4
            if ks_ensure(&self.value.cells, (KS_VIEW if self.views else 4) * more) < 0:
                return -1
        return 0

    cdef void put_plain(self, ks_run *run, const ks_batch *b, const ks_filter *f) noexcept nogil:
        """Rows for records as most are. It leaves off before any other record, and where bytes have no room:
        what is to be done there is for decode() to say."""
        cdef ks_table t
        cdef int columns = (
            (KS_OFFSETS if self.with_offset else 0)
            | (KS_TIMESTAMPS if self.with_timestamp else 0)
            | (KS_KEYS if self.key.wanted else 0)
            | (KS_VALUES if self.value.wanted else 0)
            | (KS_LISTS if self.with_headers else 0)
            | (KS_VIEWS if self.views and (self.key.wanted or self.value.wanted) else 0)
        )
        cdef int64_t before = self.key.data.size + self.value.data.size
        t.rows = self.count
        t.most_rows = self.most_rows
        t.most_bytes = before + self.most_bytes - self.bytes
        # a record outside its batch is not plain: no batch reaches to the largest number
        t.start = max(f.start, b.base_offset)
        t.stop = min(f.stop, b.last_offset + 1)
        t.offsets = <int64_t *>self.offsets.data
        t.timestamps = <int64_t *>self.timestamps.data
        t.lists = <int32_t *>self.lists.data
        t.list_end = <int32_t>self.header_name.count
        t.block = run.block
        t.block_index = run.block_index
        t.viewed = 0
        lend(&t.key, &self.key)
        lend(&t.value, &self.value)
        run.left -= ks_take_records(&t, &run.p, run.end, b, run.left, columns)
        if t.viewed:
            run.block_used = True
        self.count = t.rows
        self.bytes += t.key.size + t.value.size - before
        if self.key.wanted:
            take_back(&self.key, &t.key, t.rows)
        if self.value.wanted:
            take_back(&self.value, &t.value, t.rows)

    @boundscheck(False)
    cdef int decode(self, ks_run *run, const ks_batch *b, const ks_filter *f, ks_fault *fault) noexcept nogil:
        """Rows for the records of a run, as far as they match: ROWS_DONE, ROWS_FULL, ROWS_END, or a negative
        status.

        The run is where it stopped; on a fault, at the record that has it."""
        cdef ks_record r
        cdef const uint8_t *p
        cdef int64_t before = self.count
        cdef int64_t start = max(f.start, b.base_offset), stop = min(f.stop, b.last_offset + 1)
        cdef int status = ROWS_DONE
        cdef bint plain = not f.looks_inside and (
            not self.views or (run.block is not NULL and run.end - run.block <= INT32_MAX)
        )
        # a count that the bytes left cannot hold asks for no memory
        if self.make_room(min(min(<int64_t>run.left, (run.end - run.p) // LEAST_RECORD + 1),
                              self.most_rows - self.count)) < 0:
            return ROWS_MEMORY
        while True:
            if run.left == 0:
                if run.p != run.end:
                    status = ks_fail(fault, KS_E_COUNT, 0, b.records_count, <int64_t>b.records_count + 1)
                break
            if self.count >= self.most_rows or (self.bytes >= self.most_bytes and self.count):
                status = ROWS_FULL
                break
            if plain:
                self.put_plain(run, b, f)
                if run.left == 0 or self.count >= self.most_rows or self.bytes >= self.most_bytes:
                    continue
            p = run.p
            if plain:  # and this one is not, or has no room
                status = ks_any_record(&p, run.end, b, &r, fault)
            else:
                status = ks_next_record(&p, run.end, b, &r, fault)
            if status != KS_OK:
                break
            if r.offset >= stop:
                status = ks_check_place(b, &r, fault)
                if status == KS_OK:
                    status = ROWS_END
                break
            if r.offset < start:
                status = ks_check_place(b, &r, fault)
                if status != KS_OK:
                    break
                run.p = p
                run.left -= 1
                continue
            if f.looks_inside and not ks_matches(f, &r):
                run.p = p
                run.left -= 1
                continue
            status = put_row(self, &r, run)
            if status != KS_OK:
                break
            run.p = p
            run.left -= 1
        if self.field_count and self.count > before:
            if self.put_fields(self.count - before, b, run.position, 1 if b.attributes & KS_LOG_APPEND_TIME else 0) < 0:
                return ROWS_MEMORY
        return status

    cdef int put_headers(self, const ks_record *r) noexcept nogil:
        """The headers of a record, which ks_next_record has walked."""
        cdef const uint8_t *p = r.headers
        cdef const uint8_t *text
        cdef ks_header h
        cdef int32_t left = r.headers_count
        cdef int status
        while left > 0:
            left -= 1
            if ks_next_header(&p, r.end, &h) != KS_OK:
                break
            self.header_name.cells.size = 4 * self.header_name.count + 4
            self.header_value.cells.size = 4 * self.header_value.count + 4
            if ks_ensure(&self.header_name.cells, 4) < 0 or ks_ensure(&self.header_value.cells, 4) < 0:
                return -1
            if is_text(h.key, h.key_size):
                status = put_cell(&self.header_name, h.key, h.key_size)
            else:
                with gil:  # what no text is becomes what Java, and so Record, makes of it
                    name = java_text(h.key[: h.key_size]).encode()
                    text = <const uint8_t *>PyBytes_AS_STRING(name)
                    status = put_cell(&self.header_name, text, PyBytes_GET_SIZE(name))
            if status < 0 or put_cell(&self.header_value, h.value, h.value_size) < 0:
                return -1
        return 0

    cdef int put_fields(self, int64_t more, const ks_batch *b, int64_t position, int kind) noexcept nogil:
        """What the header of their batch says, for the last `more` rows."""
        cdef int n
        for n in range(self.field_count):
            if put_field(&self.fields[n], self.field_ids[n], more, b, position, kind) < 0:
                return -1
        return 0

    cdef int put_record(self, Record record, const ks_batch *b, int64_t position, const ks_filter *f) except -1:
        """A row for a record that is an object already: a message of magic 0 or 1. Not where rows are
        full."""
        cdef ks_record r
        cdef ks_run run
        memset(&run, 0, sizeof(run))
        memset(&r, 0, sizeof(r))
        r.offset = record.offset
        r.timestamp = record.timestamp
        r.key_size = r.value_size = -1
        if record.key is not None:
            r.key = <const uint8_t *>PyBytes_AS_STRING(record.key)
            r.key_size = <int32_t>PyBytes_GET_SIZE(record.key)
        if record.value is not None:
            r.value = <const uint8_t *>PyBytes_AS_STRING(record.value)
            r.value_size = <int32_t>PyBytes_GET_SIZE(record.value)
        if r.offset < f.start:
            return ROWS_DONE
        if r.offset >= f.stop:
            return ROWS_END
        if f.looks_inside and not ks_matches(f, &r):
            return ROWS_DONE
        cdef int status = ROWS_MEMORY if self.make_room(1) < 0 else put_row(self, &r, &run)
        if status == ROWS_MEMORY or (
            status == 0 and self.put_fields(1, b, position, TIMESTAMP_TYPES.index(record.timestamp_type)) < 0
        ):
            raise MemoryError()
        return status

    cdef int add_block(self, Buffer block) except -1:
        """Keeps bytes that views will point into, which count as if they were copied; returns their index."""
        self.blocks.append(block)
        self.block_count += 1
        self.bytes += block.room
        return self.block_count

    # ---- out ----

    cdef str wrong_text(self):
        """What is wrong with the first row whose text is not UTF-8; None if all are."""
        cdef Buffer block
        cdef const uint8_t **blocks
        cdef int64_t row = -1
        cdef str name
        if not (self.key_is_text or self.value_is_text):
            return None
        blocks = <const uint8_t **>PyMem_RawMalloc((self.block_count + 1) * sizeof(uint8_t *))
        if blocks is NULL:
            raise MemoryError()
        for n, block in enumerate(self.blocks):
            blocks[<Py_ssize_t>n] = block.data
        name = "key"
        with nogil:
            if self.key_is_text:
                row = first_not_text(&self.key, blocks)
        if row < 0 and self.value_is_text:
            name = "value"
            with nogil:
                row = first_not_text(&self.value, blocks)
        PyMem_RawFree(blocks)
        if row < 0:
            return None
        offset = (<const int64_t *>self.offsets.data)[row]
        return f"the {name} of the record at offset {offset} is not UTF-8: to read bytes, leave {name} out of text"

    cdef ColumnBatch take(self):
        """The rows so far; none are there afterwards."""
        cdef Field field
        cdef int n = 0
        columns = []
        for field in self.schema.children:
            if field.name == "offset":
                self.offsets.size = 8 * self.count
                columns.append(self.finish_fixed(field, &self.offsets))
            elif field.name == "timestamp":
                self.timestamps.size = 8 * self.count
                columns.append(self.finish_fixed(field, &self.timestamps))
            elif field.name == "key":
                columns.append(self.finish_bytes(field, &self.key))
            elif field.name == "value":
                columns.append(self.finish_bytes(field, &self.value))
            elif field.name == "headers":
                columns.append(self.finish_headers(field))
            else:
                columns.append(self.finish_fixed(field, &self.fields[n]))
                n += 1
        self.begun = False
        self.blocks = []
        self.rows_hint = max(self.count + (self.count >> 6), <int64_t>64)
        batch = ColumnBatch(ArrayData.of(self.schema, self.count, 0, (None,), tuple(columns)))
        self.count = 0
        return batch

    cdef ArrayData finish_fixed(self, Field field, ks_vector *v):
        return ArrayData.of(field, self.count, 0, (None, Buffer.of(v, self.pool)), ())

    cdef ArrayData finish_bytes(self, Field field, ks_bytes *c):
        cdef int64_t size = (c.count + 7) >> 3, room
        cdef ks_vector sizes
        cdef Buffer block
        validity = None
        if c.null_count:
            if c.validity.size < size:
                if ks_ensure(&c.validity, size - c.validity.size) < 0:
                    raise MemoryError()
                memset(c.validity.data + c.validity.size, 0xFF, <size_t>(size - c.validity.size))
            c.validity.size = size
            validity = Buffer.of(&c.validity, self.pool)
        c.hint = c.data.size
        c.cells.size = KS_VIEW * c.count if c.viewed else 4 * c.count + 4
        buffers = (validity, Buffer.of(&c.cells, self.pool), Buffer.of(&c.data, self.pool))
        if c.viewed:
            buffers += tuple(self.blocks)
            memset(&sizes, 0, sizeof(sizes))
            if ks_ensure(&sizes, 8 * (len(buffers) - 2)) < 0:
                raise MemoryError()
            for block in buffers[2:]:
                room = block.size
                memcpy(sizes.data + sizes.size, &room, 8)
                sizes.size += 8
            buffers += (Buffer.of(&sizes, None),)
        return ArrayData.of(field, c.count, c.null_count, buffers, ())

    cdef ArrayData finish_headers(self, Field field):
        cdef Field item = field.children[0]
        cdef int64_t count = self.header_name.count
        name = self.finish_bytes(item.children[0], &self.header_name)
        value = self.finish_bytes(item.children[1], &self.header_value)
        self.lists.size = 4 * self.count + 4
        inner = ArrayData.of(item, count, 0, (None,), (name, value))
        return ArrayData.of(field, self.count, 0, (None, Buffer.of(&self.lists, self.pool)), (inner,))
