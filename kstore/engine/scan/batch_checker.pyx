# cython: binding=False
"""Reading every batch and every record of a segment once, for a check: tables of headers, with what the records say.

The GIL is free while plain batches are read: those that are not compressed, are sound and of magic 2.
"""

from cpython.exc cimport PyErr_CheckSignals
from cython cimport final, no_gc_clear
from libc.stdint cimport INT64_MIN, int8_t, int32_t, int64_t, uint8_t

from kstore.engine.io.buffers cimport Buffer, BufferPool
from kstore.engine.record.batch cimport Record, Records
from kstore.engine.record.batch_walk cimport FAR
from kstore.engine.scan.batch_reader cimport LONGEST, Reader
from libkstore.format cimport (
    KS_BATCH_OVERHEAD,
    KS_CONTROL,
    KS_E_COUNT,
    KS_OK,
    ks_batch,
    ks_check_place,
    ks_codec,
    ks_fail,
    ks_fault,
    ks_load_i16,
    ks_load_i32,
    ks_next_record,
    ks_record,
)

from kstore.engine.io.buffers import POOL
from kstore.engine.record.batch_fields import NUMPY_KINDS, TABLE
from kstore.errors import CorruptRecordError, RecordTooLargeError
from kstore.libraries import library

cdef enum:
    CHECK_FULL = 1   # the table is full
    CHECK_OTHER = 2  # the next batch is not plain, or not there
    CHECK_BEGIN = 3  # the records of the current batch must be unpacked
    CHECK_BROKEN = 4  # a record of the current batch does not parse
    CHECK_PAUSE = 5  # long enough without a look at signals

cdef enum:
    ROWS = 1 << 12  # of a table, which fits in a processor's cache
    MOST_ERRORS = 1000

cdef struct row:
    int64_t position
    ks_batch batch
    int64_t latest       # the largest timestamp of a record
    int64_t last_record  # the offset of the last record, -1 without records
    int32_t coordinator_epoch
    int8_t marker        # 0: abort, 1: commit, -1: no marker, or of another kind
    int8_t is_broken     # the records do not parse

cdef row ANY_ROW


cdef int place(const void *field) noexcept:
    return <int>(<const char *>field - <const char *>&ANY_ROW)


cdef object layout = None


def row_layout():
    """The layout of `row` for numpy, made once: the fields of headers, and those of records."""
    global layout
    if layout is None:
        fields = [(at, name, NUMPY_KINDS[kind]) for name, kind, at in TABLE if at >= 0]
        fields += [
            (place(&ANY_ROW.latest), "latest", "i8"),
            (place(&ANY_ROW.last_record), "last_record", "i8"),
            (place(&ANY_ROW.coordinator_epoch), "coordinator_epoch", "i4"),
            (place(&ANY_ROW.marker), "marker", "i1"),
            (place(&ANY_ROW.is_broken), "is_broken", "i1"),
        ]
        offsets, names, formats = zip(*sorted(fields), strict=True)
        layout = library("numpy").dtype(
            {"names": list(names), "formats": list(formats), "offsets": list(offsets), "itemsize": sizeof(row)}
        )
    return layout


cdef int look_through(row *r, const uint8_t *p, const uint8_t *end, ks_fault *fault) noexcept nogil:
    """Reads all records of a batch, which are from p to end. Not KS_OK where one is damaged."""
    cdef ks_record record
    cdef const ks_batch *b = &r.batch
    cdef int32_t i
    cdef int status
    for i in range(b.records_count):
        status = ks_next_record(&p, end, b, &record, fault)
        if status == KS_OK:
            status = ks_check_place(b, &record, fault)
        if status != KS_OK:
            return status
        if record.timestamp > r.latest:
            r.latest = record.timestamp
        if record.offset <= r.last_record:
            return ks_fail(fault, KS_E_COUNT, 0, r.last_record + 1, record.offset)
        r.last_record = record.offset
        if i == 0 and b.attributes & KS_CONTROL and record.key_size >= 4:
            r.marker = <int8_t>ks_load_i16(record.key + 2) if 0 <= ks_load_i16(record.key + 2) <= 1 else -1
            r.coordinator_epoch = ks_load_i32(record.value + 2) if record.value_size >= 6 else -1
    if p != end and b.records_count > 0:
        return ks_fail(fault, KS_E_COUNT, 0, b.records_count, <int64_t>b.records_count + 1)
    return KS_OK


@final
@no_gc_clear
cdef class BatchChecker(Reader):
    """An iterator of tables of batches, as numpy structured arrays. What is damaged is skipped: see `skipped`.

    Columns: those of Segment.read_headers(), `latest` (the largest timestamp of the records, the smallest int64
    without records), `last_record` (the offset of the last one, or -1), `marker` (0: abort, 1: commit, else
    -1), `coordinator_epoch`, and `is_broken` (the records do not parse: `errors` has the reason of the first
    ones, by position).
    """

    cdef readonly dict errors

    def __init__(self, *args, **options):
        self.errors = {}
        self.window.draw(POOL, FAR)  # pages of new memory would cost as much as the checksums

    @property
    def end_position(self):
        """The byte behind the last batch."""
        return self.position

    def __next__(self):
        cdef Buffer table
        cdef int64_t room = 0
        cdef uint8_t *data
        cdef row *rows
        cdef int64_t count = 0
        cdef int what
        self.enter()
        try:
            data = (<BufferPool>POOL).take(ROWS * sizeof(row), &room)
            if data is NULL:
                raise MemoryError()
            table = Buffer.around(data, 0, room, POOL)
            rows = <row *>data
            while count < ROWS:
                if self.patience < 0:
                    self.patience = LONGEST
                    PyErr_CheckSignals()
                with nogil:
                    what = self.go_on(rows, &count)
                if what == CHECK_FULL:
                    break
                if what == CHECK_OTHER:
                    if self.segment is None and self.next_segment():
                        continue
                    if not self.advance():
                        break
                    self.take(&rows[count])
                    what = CHECK_BEGIN
                if what == CHECK_BEGIN or what == CHECK_BROKEN:
                    self.look_again(&rows[count])
                    count += 1
        finally:
            self.busy = False
        if count == 0:
            raise StopIteration
        table.size = count * sizeof(row)
        return library("numpy").frombuffer(table, dtype=row_layout())

    cdef int64_t ahead(self, int64_t position) noexcept nogil:
        return self.most_ahead  # all is read: a buffer that grows would be another one each time

    cdef void take(self, row *r) noexcept nogil:
        r.position = self.at
        r.batch = self.batch
        r.latest = INT64_MIN
        r.last_record = r.coordinator_epoch = -1
        r.marker = -1
        r.is_broken = 0

    cdef int go_on(self, row *rows, int64_t *count) noexcept nogil:
        """Checks plain batches, and their records."""
        cdef ks_fault fault
        cdef const uint8_t *p
        cdef int64_t size
        while count[0] < ROWS:
            if self.segment is None:
                return CHECK_OTHER
            if self.patience < 0:
                return CHECK_PAUSE
            size = self.header(self.position, &fault)
            if size <= 0 or self.check(self.position, size, &fault) != 0:
                return CHECK_OTHER
            self.at = self.position
            self.position += size
            self.patience -= size
            self.offset_before, self.last_offset = self.last_offset, self.batch.last_offset
            self.take(&rows[count[0]])
            if self.batch.magic < 2 or ks_codec(&self.batch):
                return CHECK_BEGIN
            p = self.window.at(self.at)
            if self.batch.records_count < 0 or (
                look_through(&rows[count[0]], p + KS_BATCH_OVERHEAD, p + size, &fault) != KS_OK
            ):
                return CHECK_BROKEN
            count[0] += 1
        return CHECK_FULL

    cdef int look_again(self, row *r) except -1:
        """Reads the records of the current batch with the GIL: compressed ones, old messages, damaged ones."""
        cdef Records records
        cdef Record record
        cdef ks_fault fault
        cdef const uint8_t *p
        cdef const uint8_t *end
        cdef int status
        self.take(r)
        try:
            records = self.records()
            if records.legacy is not None:
                for record in records.legacy:
                    r.latest = max(r.latest, <int64_t>record.timestamp)
                    r.last_record = record.offset
                return 0
            p, end = records.p, records.end
            with nogil:
                status = look_through(r, p, end, &fault)
            if status == KS_OK:
                return 0
            while records.next() is not None:
                pass
            raise CorruptRecordError(
                "the offsets of records in a batch do not rise",
                file=self.segment.path,
                position=self.at,
                offset=self.batch.base_offset,
                expected=f"at least {fault.expected}",
                found=fault.found,
            )
        except (CorruptRecordError, RecordTooLargeError) as e:
            r.is_broken = 1
            if len(self.errors) < MOST_ERRORS:
                self.errors[self.at] = e
        return 0
