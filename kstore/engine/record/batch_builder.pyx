# cython: binding=False, embedsignature=True
"""Records in, encoded v2 batches out (spec 2.2, 2.3), over include/kstore/build.h."""

from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_CheckExact, PyBytes_FromStringAndSize, PyBytes_GET_SIZE
from cpython.mem cimport PyMem_RawFree, PyMem_RawMalloc, PyMem_RawRealloc
from cython cimport final
from libc.stdint cimport INT16_MAX, INT32_MAX, INT64_MAX, int32_t, int64_t, uint8_t
from libc.string cimport memcpy

from kstore.engine.columns.binary_input cimport CELLS_POINTERS, ks_cell, ks_cells
from kstore.engine.columns.column_input cimport HeaderInput
from kstore.engine.columns.column_input cimport moment
from kstore.engine.record.codec cimport level_of, compress_bound, compress_into
from kstore.engine.record.header_limit cimport ks_encoded_headers_fit
from libkstore.build cimport KS_RECORD_OVERHEAD, ks_put_header, ks_put_record, ks_record_body, ks_varlong_size
from libkstore.format cimport (
    KS_BATCH_OVERHEAD,
    KS_CONTROL,
    KS_DELETE_HORIZON,
    KS_LOG_APPEND_TIME,
    KS_TRANSACTIONAL,
    ks_batch,
    ks_write_varlong,
)


from kstore.arguments import boolean, choice, each_of, elements, integer, is_datetime, moment as any_moment
from kstore.engine.record.codec import NAMES as CODECS
from kstore.errors import RecordTooLargeError

cdef const uint8_t *NO_HEADERS = <const uint8_t *>b"\0"

cdef enum:
    FIRST_ROOM = 64 << 10
    AHEAD = 12         # records: the memory of one that comes so much later is asked for now
    CACHE_LINE = 64

cdef extern from *:
    void ks_prefetch "__builtin_prefetch"(const void *) noexcept nogil


cdef inline void fetch_ahead(const ks_cells *cells, int64_t i) noexcept nogil:
    """Asks for the memory of a cell that lies anywhere, which no processor foresees: its first two lines."""
    cdef int64_t size
    cdef const uint8_t *cell = ks_cell(cells, i, &size)
    ks_prefetch(cell)  # a hint: it may be NULL, and the cell may end before
    ks_prefetch(<const void *>(<size_t>cell + CACHE_LINE))


cdef inline bint is_scattered(const ks_cells *cells) noexcept nogil:
    """Whether the cells do not lie one behind the other."""
    return cells.kind == CELLS_POINTERS or cells.rows is not NULL


cdef bytes varint(int64_t value):
    cdef uint8_t[10] out
    return PyBytes_FromStringAndSize(<char *>out, <Py_ssize_t>ks_write_varlong(out, value))


cdef bytes encode_headers(object headers):
    """The headers of one record as they lie in it, their count included. TypeError, ValueError."""
    if headers is None:
        return b"\0"
    pairs = headers.items() if hasattr(headers, "items") else headers
    pairs = elements("headers are pairs of a str and bytes or None", pairs)
    parts = [varint(len(pairs))]
    for pair in pairs:
        if not isinstance(pair, (tuple, list)) or len(pair) != 2:
            raise TypeError(f"headers are pairs of a str and bytes or None, not {pair!r:.80}")
        name, value = pair
        if not isinstance(name, str):
            raise TypeError(f"the name of a header is a str, not {type(name).__name__}")
        try:
            raw = name.encode()
        except UnicodeEncodeError:
            raise ValueError(f"headers: the name {name!r} has no UTF-8") from None
        parts += (varint(len(raw)), raw)
        if value is None:
            parts.append(varint(-1))
        else:
            raw = as_bytes(value, f"the value of header {name!r}")
            parts += (varint(len(raw)), raw)
    return b"".join(parts)


cdef bytes as_bytes(value, str what):
    if isinstance(value, str):
        raise TypeError(f"{what} is bytes, not str: encode it")
    try:
        view = memoryview(value)
    except TypeError:
        raise TypeError(f"{what} is bytes-like or None, not {type(value).__name__}") from None
    if "O" in view.format:
        raise TypeError(f"{what} is bytes-like or None, not an array of objects: their bytes are pointers")
    return bytes(view)


cdef object read_fields(object value, object key, object headers, ks_fields *f):
    """Points `f` at a record's fields. Value and key must outlive it, and so must what is returned.
    TypeError."""
    cdef bytes data
    made = None
    f.value = NULL
    f.value_size = -1
    f.key = NULL
    f.key_size = -1
    f.headers = NO_HEADERS
    f.headers_size = 1
    if value is not None:
        if PyBytes_CheckExact(value):
            data = value
        else:
            data = as_bytes(value, "value")
            made = (data,)
        f.value = <const uint8_t *>PyBytes_AS_STRING(data)
        f.value_size = PyBytes_GET_SIZE(data)
    if key is not None:
        if PyBytes_CheckExact(key):
            data = key
        else:
            data = as_bytes(key, "key")
            made = (made, data)
        f.key = <const uint8_t *>PyBytes_AS_STRING(data)
        f.key_size = PyBytes_GET_SIZE(data)
    if headers is not None:
        data = encode_headers(headers)
        made = (made, data)
        f.headers = <const uint8_t *>PyBytes_AS_STRING(data)
        f.headers_size = PyBytes_GET_SIZE(data)
    return made


@final
cdef class BatchBuilder:
    """A buffer of encoded batches that grows; the last one may be open. For one thread at a time.

    `begin` opens a batch, `add` (or `put`, if the record's size is known) adds records, `finish` closes it.
    Statuses are 0, or one of BUILD_NO_MEMORY, BUILD_TOO_LARGE and BUILD_HEADERS.
    """

    def __cinit__(self):
        self.unpacked_max = INT64_MAX

    def __dealloc__(self):
        PyMem_RawFree(self.data)

    cdef int ensure(self, int64_t more) noexcept nogil:
        cdef int64_t room
        cdef uint8_t *grown
        if self.used + more - self.start > INT32_MAX:
            return BUILD_TOO_LARGE
        if self.used + more <= self.room:
            return 0
        room = max(self.used + more + (more >> 3), max(2 * self.room, <int64_t>FIRST_ROOM))
        grown = <uint8_t *>PyMem_RawRealloc(self.data, <size_t>room)
        if grown is NULL:
            return BUILD_NO_MEMORY
        self.data = grown
        self.room = room
        return 0

    cdef BatchBuilder emptied(self):
        """A new one with this codec and no buffer."""
        cdef BatchBuilder builder = BatchBuilder.__new__(BatchBuilder)
        builder.codec = self.codec
        builder.level = self.level
        builder.unpacked_max = self.unpacked_max
        return builder

    cdef int raise_status(self, int status, str what, int64_t size, int64_t limit) except -1:
        """Raises what a negative status of this class stands for; `what`, `size` and `limit` are of a record
        or batch that is too large."""
        if status == BUILD_NO_MEMORY:
            raise MemoryError("no memory for a batch")
        if status == BUILD_HEADERS:
            raise RecordTooLargeError(
                f"{what}: its headers take more memory than max_decompressed_bytes", size=size, limit=self.unpacked_max
            )
        raise RecordTooLargeError(what, size=size, limit=limit)

    cdef int begin(self, int64_t base_offset, int32_t leader_epoch, int attributes) noexcept nogil:
        cdef ks_batch *b = &self.batch
        self.start = self.used
        cdef int status = self.ensure(KS_BATCH_OVERHEAD)
        if status < 0:
            return status
        self.used += KS_BATCH_OVERHEAD
        b.base_offset = base_offset
        b.leader_epoch = leader_epoch
        b.attributes = <short>(attributes | self.codec)
        b.base_timestamp = -1
        b.max_timestamp = -1
        b.producer_id = -1
        b.producer_epoch = -1
        b.base_sequence = -1
        b.records_count = 0
        b.last_offset_delta = -1
        b.magic = 2
        return 0

    cdef int put(
        self, size_t body, int64_t timestamp, const uint8_t *key, int64_t key_size, const uint8_t *value,
        int64_t value_size, const uint8_t *headers, int64_t headers_size,
    ) noexcept nogil:
        cdef ks_batch *b = &self.batch
        cdef uint8_t *p
        cdef int status = BUILD_TOO_LARGE if body > INT32_MAX else self.ensure(<int64_t>body + 5)
        if status < 0:
            return status
        if not ks_encoded_headers_fit(headers, headers_size, self.unpacked_max):
            return BUILD_HEADERS
        if b.records_count == 0:
            b.base_timestamp = timestamp
        if timestamp > b.max_timestamp:
            b.max_timestamp = timestamp
        b.last_offset_delta += 1
        p = self.data + self.used
        self.used += ks_put_record(
            p, body, timestamp - b.base_timestamp, b.last_offset_delta, key, key_size, value, value_size, headers,
            headers_size,
        ) - p
        b.records_count += 1
        return 0

    cdef int add(self, int64_t timestamp, const ks_fields *f) noexcept nogil:
        cdef int64_t delta = timestamp - self.batch.base_timestamp if self.batch.records_count else 0
        cdef size_t body = ks_record_body(
            delta, self.batch.last_offset_delta + 1, f.key_size, f.value_size, f.headers_size
        )
        return self.put(body, timestamp, f.key, f.key_size, f.value, f.value_size, f.headers, f.headers_size)

    cdef int64_t fill(self, const ks_columns *columns, HeaderInput headers, int64_t first, int64_t most) noexcept nogil:
        """Adds records of `columns` to the batch just begun, from the first on, at least one, while it has at
        most `most` bytes; how many, or a negative status: then records_count says how many went well.

        What is touched a record lies in locals: what is written through a pointer to bytes may alias all
        else."""
        cdef ks_batch *b = &self.batch
        cdef ks_cells values = columns.values[0], keys = columns.keys[0]
        cdef const int64_t *timestamps = columns.timestamps
        cdef int64_t timestamp = columns.timestamp, base = 0, newest = -1
        cdef int64_t value_size = 0, key_size = 0, headers_size = 0, n = 0, whole
        cdef int64_t left = min(columns.count - first, <int64_t>INT32_MAX)  # offsets within a batch are int32
        cdef const uint8_t *value
        cdef const uint8_t *key
        cdef const uint8_t *header
        cdef uint8_t *p = self.data + self.used
        cdef uint8_t *start = self.data + self.start
        cdef uint8_t *end = self.data + self.room
        cdef size_t body
        cdef bint scattered = is_scattered(&values), scattered_keys = is_scattered(&keys)
        cdef int status
        while n < left:
            if scattered and n + AHEAD < left:
                fetch_ahead(&values, first + n + AHEAD)
                if scattered_keys:
                    fetch_ahead(&keys, first + n + AHEAD)
            value = ks_cell(&values, first + n, &value_size)
            key = ks_cell(&keys, first + n, &key_size)
            header = headers.headers_at(first + n, &headers_size)
            if timestamps is not NULL:
                timestamp = timestamps[first + n]
            if n == 0:
                base = timestamp
            body = ks_record_body(timestamp - base, n, key_size, value_size, headers_size)
            whole = <int64_t>body + <int64_t>ks_varlong_size(<int64_t>body)
            if n and p - start + whole > most:
                break
            if body > INT32_MAX or whole > end - p:
                self.used = p - self.data
                status = BUILD_TOO_LARGE if body > INT32_MAX else self.ensure(whole)
                if status < 0:
                    b.records_count = <int32_t>n
                    return status
                p = self.data + self.used
                start = self.data + self.start
                end = self.data + self.room
            p = ks_put_record(p, body, timestamp - base, n, key, key_size, value, value_size, header, headers_size)
            newest = max(newest, timestamp)
            n += 1
        self.used = p - self.data
        b.base_timestamp = base
        b.max_timestamp = newest
        b.last_offset_delta = <int32_t>(n - 1)
        b.records_count = <int32_t>n
        return n

    cdef int finish(self) except -1 nogil:
        """Closes the open batch: packs its records, where there is a codec, and writes its header."""
        cdef ks_batch *b = &self.batch
        if self.codec:
            with gil:
                self.pack()
        b.size = self.used - self.start
        b.last_offset = b.base_offset + b.last_offset_delta
        ks_put_header(self.data + self.start, b)
        return 0

    cdef int pack(self) except -1:
        cdef int64_t at = self.start + KS_BATCH_OVERHEAD, size = self.used - at, packed
        cdef int64_t bound = compress_bound(self.codec, size)
        cdef uint8_t *scratch
        cdef int status
        if size > self.unpacked_max:
            raise RecordTooLargeError(
                "the records of a batch that is to be compressed are larger than max_decompressed_bytes",
                size=size,
                limit=self.unpacked_max,
            )
        scratch = <uint8_t *>PyMem_RawMalloc(<size_t>bound)
        if scratch is NULL:
            raise MemoryError("no memory to compress a batch")
        try:
            packed = compress_into(self.codec, self.level, self.data + at, size, scratch, bound)
            self.used = at
            status = self.ensure(packed)
            if status < 0:
                self.raise_status(status, "a compressed batch is larger than 2^31 - 1 bytes", packed, INT32_MAX)
            memcpy(self.data + at, scratch, <size_t>packed)
            self.used += packed
        finally:
            PyMem_RawFree(scratch)
        return 0


def encode_batch(
    records,
    *,
    base_offset=0,
    codec="none",
    level=None,
    leader_epoch=-1,
    producer_id=-1,
    producer_epoch=-1,
    base_sequence=-1,
    transactional=False,
    control=False,
    log_append_time=None,
    offset_deltas=None,
    last_offset_delta=None,
    delete_horizon=None,
):
    """Encodes (timestamp, key, value, headers) records as one batch, byte for byte as Kafka's producer does.

    Offsets increase by one from `base_offset`, or are `base_offset` plus `offset_deltas`. `last_offset_delta`
    may be above the last one, as after compaction. codec is "none", "gzip", "snappy", "lz4" or "zstd"; level
    None is Kafka's default. `log_append_time` makes a batch with that time for all records. `delete_horizon`
    is the time after which compaction may remove tombstones. Timestamps are milliseconds since 1970, -1 for
    none, or datetimes with a time zone.

    TypeError for an argument of a wrong type, ValueError for one that is out of range or does not match the
    others, OverflowError if it does not fit into a batch.
    """
    cdef BatchBuilder builder = BatchBuilder.__new__(BatchBuilder)
    cdef ks_batch *b = &builder.batch
    cdef int attributes = 0
    cdef int64_t timestamp, delta, last = -1
    cdef ks_fields f
    cdef uint8_t *p
    cdef size_t body
    transactional, control = boolean("transactional", transactional), boolean("control", control)
    choice("codec", codec, CODECS)
    base_offset = integer("base_offset", base_offset)
    leader_epoch = integer("leader_epoch", leader_epoch, -1, INT32_MAX)
    producer_id = integer("producer_id", producer_id, -1)
    producer_epoch = integer("producer_epoch", producer_epoch, -1, INT16_MAX)
    base_sequence = integer("base_sequence", base_sequence, -1, INT32_MAX)
    if last_offset_delta is not None:
        last_offset_delta = integer("last_offset_delta", last_offset_delta, 0, INT32_MAX)
    if log_append_time is not None:
        log_append_time = time_given("log_append_time", log_append_time)
    if delete_horizon is not None:
        delete_horizon = time_given("delete_horizon", delete_horizon)
    if producer_id >= 0 and producer_epoch < 0:
        raise ValueError(f"producer id {producer_id} needs an epoch, not {producer_epoch}")
    if producer_id >= 0 and base_sequence < 0 and not control:
        raise ValueError(f"producer id {producer_id} needs a base sequence, not {base_sequence}")
    if transactional and producer_id < 0:
        raise ValueError("a transactional batch needs a producer id")
    builder.codec = CODECS.index(codec)
    if level is None or builder.codec == 0:
        builder.level = default_level(builder.codec)
    else:
        builder.level = level_of(builder.codec, integer("level", level, -INT32_MAX, INT32_MAX))
    attributes |= KS_TRANSACTIONAL if transactional else 0
    attributes |= KS_CONTROL if control else 0
    attributes |= KS_LOG_APPEND_TIME if log_append_time is not None else 0
    attributes |= KS_DELETE_HORIZON if delete_horizon is not None else 0
    if builder.begin(base_offset, leader_epoch, attributes) < 0:
        raise MemoryError("no memory for a batch")
    b.producer_id = producer_id
    b.producer_epoch = <short>producer_epoch
    b.base_sequence = base_sequence
    deltas = None if offset_deltas is None else each_of("offset_deltas is an iterable of int", offset_deltas)
    for record in each_of("records is an iterable of (timestamp, key, value, headers)", records):
        try:
            given, key, value, headers = record
        except (TypeError, ValueError):
            raise TypeError(
                f"record {b.records_count} is (timestamp, key, value, headers), not {record!r:.80}"
            ) from None
        timestamp = moment(given)
        delta = b.records_count if deltas is None else next_delta(deltas)
        if not last < delta <= INT32_MAX:
            raise ValueError(f"offset delta {delta} after {last}")
        last = delta
        made = read_fields(value, key, headers, &f)
        if b.records_count == 0:
            b.base_timestamp = timestamp if delete_horizon is None else delete_horizon
        body = ks_record_body(
            timestamp - b.base_timestamp, delta, f.key_size, f.value_size, f.headers_size
        )
        if body > INT32_MAX or builder.used + <int64_t>body + KS_RECORD_OVERHEAD - builder.start > INT32_MAX:
            raise OverflowError("a batch holds at most 2^31 - 1 bytes")
        if builder.ensure(<int64_t>body + KS_RECORD_OVERHEAD) < 0:
            raise MemoryError("no memory for a batch")
        p = builder.data + builder.used
        builder.used += ks_put_record(
            p, body, timestamp - b.base_timestamp, delta, f.key, f.key_size, f.value, f.value_size, f.headers,
            f.headers_size,
        ) - p
        del made
        b.max_timestamp = max(b.max_timestamp, timestamp)
        b.records_count += 1
    if base_offset > INT64_MAX - max(last, <int64_t>0) or (
        last_offset_delta is not None and (last_offset_delta < last or base_offset > INT64_MAX - last_offset_delta)
    ):
        raise ValueError(f"offsets from {base_offset} on, the last delta {last}, last_offset_delta {last_offset_delta}")
    b.last_offset_delta = <int32_t>max(last, <int64_t>0) if last_offset_delta is None else last_offset_delta
    if log_append_time is not None:
        b.max_timestamp = log_append_time
    builder.finish()
    return PyBytes_FromStringAndSize(<char *>builder.data, builder.used)


cdef int64_t time_given(name, value) except? -2:
    # a datetime before 1970 is no timestamp, though -1 is
    return any_moment(name, value, 0 if is_datetime(value) else -1)


cdef int64_t next_delta(deltas) except? -1:
    try:
        return integer("an offset delta", next(deltas), 0, INT32_MAX)
    except StopIteration:
        raise ValueError("offset_deltas: fewer than records") from None


cdef int default_level(int codec):
    """What Kafka takes where a topic says nothing (spec 2.6)."""
    return 9 if codec == 3 else 3 if codec == 4 else -1
