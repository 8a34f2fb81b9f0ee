# cython: binding=False
"""The log cleaner: segments without the records that an OffsetMap supersedes (spec 10).

A SegmentCleaner goes through segments and writes what stays of them, a part at each call of `run`, as a
MapBuilder reads them.
"""

from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_GET_SIZE
from cpython.exc cimport PyErr_SetFromErrnoWithFilenameObject
from cpython.mem cimport PyMem_RawFree
from cython cimport final, no_gc_clear
from libc.stdint cimport INT32_MAX, INT64_MAX, int32_t, int64_t, uint64_t, uint8_t
from libc.string cimport memcpy, memset

from kstore.engine.compact.last_offsets cimport (
    NO_MEMORY,
    TOGETHER,
    OffsetMap,
    SegmentWalk,
    ks_hash_key,
    ks_key_hash,
    ks_map_get,
    ks_map_prefetch,
    parse,
)
from kstore.engine.io.buffers cimport ks_ensure, ks_vector
from kstore.engine.io.file cimport File
from kstore.engine.record.batch cimport Record
from kstore.engine.record.codec cimport compress_bound, compress_into, level_of
from kstore.engine.segment.index cimport INDEX_MEMORY, OffsetIndex, TimeIndex, index_batch, ks_index_state
from kstore.engine.segment.segment cimport Segment
from libkstore.build cimport KS_RECORD_OVERHEAD, ks_put_header, ks_put_record, ks_record_body
from libkstore.format cimport (
    KS_BATCH_OVERHEAD,
    KS_CODEC_MASK,
    KS_CONTROL,
    KS_DELETE_HORIZON,
    KS_E_COUNT,
    KS_LOG_APPEND_TIME,
    KS_OK,
    KS_TRANSACTIONAL,
    ks_batch,
    ks_codec,
    ks_fail,
    ks_fault,
    ks_record,
)

from kstore.engine.segment.index import TimestampOffset
from kstore.errors import OffsetOverflowError, RecordTooLargeError

cdef enum:
    WRITE_AT = 1 << 20     # bytes that are written at once

cdef enum:                 # statuses of what runs without the GIL, beside those of offset_map.pxd
    OVERFLOW = 3
    UNWRITTEN = 4
    OVERSIZED = 5
    RAISED = 6             # `error` has it

cdef enum:                 # what becomes of a record: 0 if it goes, 1 if it stays
    BLANK = 2              # it stays without its value and headers

cdef enum:
    NOT_KNOWN = -1         # of a producer

cdef const uint8_t *NO_HEADERS = <const uint8_t *>b"\0"


cdef inline const uint8_t *headers_of(const ks_record *r) noexcept nogil:
    """Where the headers of a record begin with their count."""
    cdef const uint8_t *p = r.headers - 1
    if r.headers_count == 0:
        return NO_HEADERS
    if r.value_size >= 0:
        return r.value + r.value_size
    while p[-1] & 0x80:  # before it lies the end of another number
        p -= 1
    return p


cdef struct ks_tally:        # of one source segment
    int64_t bytes_read
    int64_t bytes_written
    int64_t records_read
    int64_t records_written
    int64_t superseded       # a later record has their key
    int64_t deleted          # records without a value whose time is over
    int64_t keyless
    int64_t aborted          # of transactions that were aborted
    int64_t markers


@final
@no_gc_clear
cdef class SegmentCleaner(SegmentWalk):
    """Writes what stays of segments to one new segment (spec 10.6, 10.8).

    `producers` has the offset of the last record of each producer id, or -2 - its epoch if only that is
    known: the batch with it stays, if without records. So does the batch that ends before `upper_bound`.
    Batches are copied as they are unless records go or a delete horizon is set: then they are encoded anew.

    After `erase` it is not the map that says what goes, every batch stays, if without records, and no horizon
    is set.
    """

    cdef dict producers
    cdef int64_t now
    cdef int64_t delete_retention
    cdef int64_t upper_bound
    cdef int64_t index_interval
    cdef int64_t offset_limit
    cdef int64_t time_limit
    cdef bint retain_legacy
    cdef File log                # None: nothing is written
    cdef int64_t base_offset
    cdef readonly int64_t size   # of the new segment, as far as it was made
    cdef int64_t written
    cdef OffsetIndex offsets
    cdef TimeIndex times
    cdef ks_index_state indexed
    cdef ks_vector out           # what is not written yet
    cdef ks_vector body          # records to be packed
    cdef ks_vector flags         # of each record of a batch, whether it stays
    cdef int64_t kept
    cdef int64_t newest          # the offset of the last record that stays
    cdef bint tombstones         # whether one that stays has no value
    cdef ks_tally tally
    cdef object error            # what a step without the GIL has met
    cdef bint erases
    cdef bint blanks             # erased records stay without value and headers
    cdef bint touched            # whether a record of this batch is erased
    cdef bytes erased            # keeps the offsets of erased records, in order
    cdef const int64_t *erased_next
    cdef const int64_t *erased_end

    def __init__(
        self, OffsetMap map not None, transactions not None, dict producers not None, *,
        int64_t now_ms, int64_t delete_retention_ms, int64_t upper_bound, int64_t index_interval_bytes,
        int64_t segment_index_bytes,
    ):
        self.map = map
        self.transactions = transactions
        self.producers = producers
        self.now = now_ms
        self.delete_retention = delete_retention_ms
        self.upper_bound = upper_bound
        self.index_interval = index_interval_bytes
        self.offset_limit = segment_index_bytes // 8
        self.time_limit = segment_index_bytes // 12 - 1

    def __dealloc__(self):
        PyMem_RawFree(self.out.data)
        PyMem_RawFree(self.body.data)
        PyMem_RawFree(self.flags.data)

    def begin(self, File log, int64_t base_offset):
        """Begins a new segment, in this file; None: only its size and indexes are found out."""
        self.log = log
        self.base_offset = base_offset
        self.size = self.written = 0
        self.out.size = 0
        self.offsets = OffsetIndex(base_offset)
        self.times = TimeIndex(base_offset)
        self.indexed.since_entry = 0
        self.indexed.max_timestamp = -1
        self.indexed.max_timestamp_offset = base_offset

    cdef int check_begun(self) except -1:
        if self.times is None:
            raise TypeError("no new segment was begun")
        return 0

    def open(self, Segment source not None, bint retain_legacy):
        """Goes on with a segment. `retain_legacy`: records without a value stay, if they are of an old
        format."""
        self.enter(source, 0)
        self.retain_legacy = retain_legacy
        if self.erases:
            self.erased_next = <const int64_t *>PyBytes_AS_STRING(self.erased)
            self.erased_end = self.erased_next + PyBytes_GET_SIZE(self.erased) // 8
        memset(&self.tally, 0, sizeof(self.tally))

    def erase(self, bytes offsets not None, bint blanks):
        """The records at these offsets, as int64s in order, go from the segment that is opened next; with
        `blanks` only their values and headers do."""
        self.erases = True
        self.erased = offsets
        self.blanks = blanks

    def run(self, int64_t most):
        """Goes through batches of about `most` bytes; (bytes read, bytes made of them), 0 read at the
        segment's end.

        CorruptRecordError, OSError. OffsetOverflowError if an offset is too far from the base offset."""
        cdef int64_t made = self.size, done
        self.check_made()
        self.check_begun()
        done = self.walk(most)
        self.tally.bytes_read += done
        self.tally.bytes_written += self.size - made
        return done, self.size - made

    def finish(self):
        """Writes what is left of the new segment, and completes its time index. OSError."""
        cdef int status
        self.check_begun()
        with nogil:
            status = self.write_out()
        if status != KS_OK:
            PyErr_SetFromErrnoWithFilenameObject(OSError, self.log.path)
        self.times.put(self.indexed.max_timestamp, self.indexed.max_timestamp_offset)

    @property
    def offset_index(self):
        """The OffsetIndex of the new segment."""
        return self.offsets

    @property
    def time_index(self):
        """Its TimeIndex."""
        return self.times

    @property
    def max_timestamp(self):
        """The largest timestamp of the new segment, as TimestampOffset."""
        return TimestampOffset(self.indexed.max_timestamp, self.indexed.max_timestamp_offset)

    @property
    def counts(self):
        """What became of the segment opened last, as a dict: bytes and records read and written, why records
        went."""
        return self.tally

    cdef int fail(self, int status, const ks_batch *b, const ks_fault *fault) except -1:
        if status == RAISED:
            raise self.error
        if status == OVERFLOW:
            raise OffsetOverflowError(
                "%s: offset %d is more than 2^31 - 1 above the base offset of its segment, %d"
                % (self.segment.path, b.last_offset, self.base_offset)
            )
        if status == UNWRITTEN:
            PyErr_SetFromErrnoWithFilenameObject(OSError, self.log.path)
        if status == OVERSIZED:
            raise RecordTooLargeError(
                "a batch that gets a delete horizon", size=1 << 31, limit=INT32_MAX, file=self.segment.path,
                position=self.position,
            )
        return SegmentWalk.fail(self, status, b, fault)

    # ---- which records stay --------------------------------------------------------------------------------

    cdef inline bint stays(
        self, int64_t offset, bint has_key, const ks_key_hash *hash, bint has_value, bint may_be_deleted
    ) noexcept nogil:
        """Whether a record of data stays. `may_be_deleted`: the time of records without a value is over."""
        if offset > self.map.latest_offset:
            return True
        if not has_key:
            self.tally.keyless += 1
            return False
        if offset < ks_map_get(&self.map.map, hash[0]):
            self.tally.superseded += 1
            return False
        if not has_value and may_be_deleted:
            self.tally.deleted += 1
            return False
        return True

    cdef inline int left_of(self, int64_t offset) noexcept nogil:
        """What is left of a record that the map lets stay."""
        while self.erased_next < self.erased_end and self.erased_next[0] < offset:
            self.erased_next += 1
        if self.erased_next == self.erased_end or self.erased_next[0] != offset:
            return 1
        self.touched = True
        return BLANK if self.blanks else 0

    cdef inline void keep(self, int64_t offset, bint has_value) noexcept nogil:
        self.kept += 1
        self.newest = offset
        self.tombstones = self.tombstones or not has_value

    cdef int filter(self, const uint8_t *p, const uint8_t *end, const ks_batch *b, ks_fault *fault) noexcept nogil:
        """Decides of each record of a v2 batch whether it stays: `flags`, `kept`, `newest`, `tombstones`."""
        cdef ks_record records[TOGETHER]
        cdef ks_key_hash hashes[TOGETHER]
        cdef const uint8_t *start = p
        cdef int64_t left = b.records_count, horizon = INT64_MAX
        cdef bint control = b.attributes & KS_CONTROL
        cdef bint over
        cdef int stays, i, n, status
        self.flags.size = self.kept = 0
        self.tombstones = self.touched = False
        self.newest = -1
        if left < 0:
            return ks_fail(fault, KS_E_COUNT, 57, 0, left)
        if b.attributes & KS_DELETE_HORIZON:
            horizon = b.base_timestamp
        over = horizon <= self.now and b.attributes & KS_DELETE_HORIZON
        self.tally.records_read += left
        while left:
            n = <int>min(left, <int64_t>TOGETHER)
            left -= n
            if ks_ensure(&self.flags, n) < 0:
                return NO_MEMORY
            for i in range(n):
                status = parse(&p, end, b, &records[i], fault)
                if status != KS_OK:
                    fault.at += p - start + KS_BATCH_OVERHEAD
                    return status
                if records[i].key_size >= 0 and not control:
                    hashes[i] = ks_hash_key(&self.map.map, records[i].key, <size_t>records[i].key_size)
                    ks_map_prefetch(&self.map.map, hashes[i])
            for i in range(n):
                stays = control or self.stays(
                    records[i].offset, records[i].key_size >= 0, &hashes[i], records[i].value_size >= 0, over
                )
                if stays and not control:
                    stays = self.left_of(records[i].offset)
                self.flags.data[self.flags.size] = stays
                self.flags.size += 1
                if stays:
                    self.keep(records[i].offset, records[i].value_size >= 0)
        if p != end and b.records_count:
            return ks_fail(fault, KS_E_COUNT, 57, b.records_count, b.records_count + 1)
        return KS_OK

    # ---- what is made of a batch ---------------------------------------------------------------------------

    cdef int take_plain(self, const uint8_t *p, const ks_batch *b, ks_fault *fault) noexcept nogil:
        return self.put_filtered(p, p + KS_BATCH_OVERHEAD, p + b.size, b, self.ends_at_bound(b), False, fault)

    cdef int take_other(self, const uint8_t *p, const ks_batch *b, ks_fault *fault) except -100:
        cdef const uint8_t *start
        cdef const uint8_t *end
        cdef bint control = b.magic == 2 and b.attributes & KS_CONTROL
        cdef bint can_discard = not self.erases and self.can_discard(p, b)
        cdef bint discard = can_discard
        cdef bint keep_empty = self.ends_at_bound(b) or (b.producer_id >= 0 and self.is_last_of_producer(b))
        cdef int status
        if control:
            discard = can_discard and b.attributes & KS_DELETE_HORIZON and b.base_timestamp <= self.now
        if b.magic < 2:
            return self.take_legacy(p, b, keep_empty)
        if discard:
            self.tally.records_read += max(b.records_count, 0)
            if control:
                self.tally.markers += max(b.records_count, 0)
            else:
                self.tally.aborted += max(b.records_count, 0)
            return self.put_empty(b) if keep_empty else KS_OK
        self.unpack(p, b, &start, &end)
        with nogil:
            status = self.put_filtered(p, start, end, b, keep_empty, control and can_discard, fault)
        if ks_codec(b):
            fault.at = 0  # unpacked records have no byte of the file
        return status

    cdef inline bint ends_at_bound(self, const ks_batch *b) noexcept nogil:
        """Whether the batch ends before the upper bound: it stays, if without records. In an erasure all
        do."""
        return self.erases or b.last_offset + 1 == self.upper_bound

    cdef int put_filtered(
        self, const uint8_t *p, const uint8_t *start, const uint8_t *end, const ks_batch *b, bint keep_empty,
        bint unneeded, ks_fault *fault,
    ) noexcept nogil:
        """What stays of a v2 batch at `p`, whose records lie from `start` to `end`, unpacked.

        `keep_empty`: its header stays if no record does. `unneeded`: it is a marker that goes at its delete
        horizon."""
        cdef int status = self.filter(start, end, b, fault)
        cdef bint stamp
        if status != KS_OK:
            return status
        if self.erases and not self.touched:
            return self.put_copy(p, b)
        if self.kept == 0:
            return self.put_empty(b) if keep_empty else KS_OK
        stamp = not self.erases and (self.tombstones or unneeded) and not b.attributes & KS_DELETE_HORIZON
        if self.kept == b.records_count and not stamp and not self.erases:
            return self.put_copy(p, b)
        return self.put_rebuilt(start, end, b, stamp)

    cdef bint is_last_of_producer(self, const ks_batch *b) except -1:
        """Whether a writer needs this batch to know its producer again (spec 10.8)."""
        cdef int64_t known = self.producers.get(b.producer_id, NOT_KNOWN)
        if known >= 0:
            return b.last_offset == known
        return known != NOT_KNOWN and b.attributes & KS_CONTROL and b.producer_epoch == -known - 2

    cdef int64_t new_horizon(self) noexcept nogil:
        if self.delete_retention > INT64_MAX - self.now:
            return INT64_MAX
        return self.now + self.delete_retention

    cdef int take_legacy(self, const uint8_t *p, const ks_batch *b, bint keep_empty) except -100:
        """A message of an old format, compressed ones included: what stays becomes one batch of magic 2."""
        cdef ks_batch made = b[0]
        cdef ks_key_hash hash
        cdef Record record
        cdef int64_t offset
        cdef int stays, status
        self.kept = 0
        self.tombstones = self.touched = False
        self.newest = -1
        self.cursor.begin(p, b, self.segment.path, self.position)
        chosen = []
        for record in self.cursor.legacy:
            offset = record.offset
            key = record.key
            if key is not None:
                hash = ks_hash_key(
                    &self.map.map, <const uint8_t *>PyBytes_AS_STRING(key), <size_t>PyBytes_GET_SIZE(key)
                )
            stays = self.stays(offset, key is not None, &hash, record.value is not None, not self.retain_legacy)
            self.tally.records_read += 1
            if stays:
                stays = self.left_of(offset)
            if stays:
                self.keep(offset, record.value is not None)
                chosen.append((record, record.value if stays == 1 else None))
        if self.erases and not self.touched:
            return self.put_copy(p, b)
        made.magic = 2
        made.attributes &= KS_LOG_APPEND_TIME | KS_CODEC_MASK
        made.leader_epoch = -1
        made.base_offset = made.last_offset
        made.last_offset_delta = 0
        if not chosen:
            return self.put_empty(&made) if keep_empty else KS_OK
        made.base_offset = (<Record>chosen[0][0]).offset
        if not self.erases:
            made.last_offset = self.newest
        if made.last_offset - made.base_offset > INT32_MAX:
            return OVERFLOW
        made.last_offset_delta = <int32_t>(made.last_offset - made.base_offset)
        status = self.begin_batch(&made, self.tombstones and not self.erases, (<Record>chosen[0][0]).timestamp)
        for record, value in chosen:
            if status == KS_OK:
                status = self.put_record(
                    &made, record.timestamp, record.offset,
                    NULL if record.key is None else <uint8_t *>PyBytes_AS_STRING(record.key),
                    -1 if record.key is None else PyBytes_GET_SIZE(record.key),
                    NULL if value is None else <uint8_t *>PyBytes_AS_STRING(value),
                    -1 if value is None else PyBytes_GET_SIZE(value),
                    NO_HEADERS, 1,
                )
        return self.end_batch(&made) if status == KS_OK else status

    # ---- writing batches -----------------------------------------------------------------------------------

    cdef int put_copy(self, const uint8_t *p, const ks_batch *b) noexcept nogil:
        if ks_ensure(&self.out, b.size) < 0:
            return NO_MEMORY
        memcpy(self.out.data + self.out.size, p, <size_t>b.size)
        self.tally.records_written += b.records_count
        return self.add(b, b.last_offset)

    cdef int put_empty(self, const ks_batch *b) noexcept nogil:
        """The header alone, which keeps the offsets, and the producer's last sequence number (spec 2.3)."""
        cdef ks_batch made = b[0]
        if ks_ensure(&self.out, KS_BATCH_OVERHEAD) < 0:
            return NO_MEMORY
        made.size = KS_BATCH_OVERHEAD
        made.attributes &= KS_LOG_APPEND_TIME | KS_TRANSACTIONAL | KS_CONTROL
        made.base_timestamp = -1
        made.records_count = 0
        ks_put_header(self.out.data + self.out.size, &made)
        return self.add(&made, made.last_offset)

    cdef int put_rebuilt(
        self, const uint8_t *p, const uint8_t *end, const ks_batch *b, bint stamp
    ) noexcept nogil:
        """A v2 batch of the records that `flags` names, with a delete horizon if `stamp` says so."""
        cdef ks_batch made = b[0]
        cdef ks_record r
        cdef ks_fault fault
        cdef ks_vector *to
        cdef const uint8_t *q
        cdef int64_t i, flag
        cdef bint begun = False
        cdef bint as_they_are = False
        cdef int status
        memset(&r, 0, sizeof(r))
        for i in range(b.records_count):
            q = p
            parse(&p, end, b, &r, &fault)  # it was parsed before
            flag = self.flags.data[i]
            if not flag:
                continue
            if flag == BLANK:
                r.value_size = -1
                r.headers_count = 0
            if not begun:
                begun = True
                status = self.begin_batch(&made, stamp, r.timestamp)
                if status != KS_OK:
                    return status
                as_they_are = made.base_timestamp == b.base_timestamp and not b.attributes & KS_LOG_APPEND_TIME
            if as_they_are and flag == 1:
                to = &self.body if ks_codec(b) else &self.out
                if ks_ensure(to, p - q) < 0:
                    return NO_MEMORY
                memcpy(to.data + to.size, q, <size_t>(p - q))
                to.size += p - q
                made.records_count += 1
                made.max_timestamp = max(made.max_timestamp, r.timestamp)
            else:
                status = self.put_record(
                    &made, r.timestamp, r.offset, r.key, r.key_size, r.value, r.value_size,
                    headers_of(&r), r.end - headers_of(&r) if r.headers_count else 1,
                )
                if status != KS_OK:
                    return status
        return self.end_batch(&made)

    cdef int begin_batch(self, ks_batch *made, bint stamp, int64_t first_timestamp) noexcept nogil:
        """Makes room for a header, and sets base timestamp and delete horizon."""
        if ks_ensure(&self.out, KS_BATCH_OVERHEAD) < 0:
            return NO_MEMORY
        if not ks_codec(made):
            self.out.size += KS_BATCH_OVERHEAD  # end_batch finds the header by what was counted in
        self.body.size = 0
        made.records_count = 0
        if not made.attributes & KS_LOG_APPEND_TIME:
            made.max_timestamp = -1
        if stamp:
            made.attributes |= KS_DELETE_HORIZON
            made.base_timestamp = self.new_horizon()
        elif not made.attributes & KS_DELETE_HORIZON:
            made.base_timestamp = first_timestamp
        return KS_OK

    cdef int put_record(
        self, ks_batch *made, int64_t timestamp, int64_t offset, const uint8_t *key, int64_t key_size,
        const uint8_t *value, int64_t value_size, const uint8_t *headers, int64_t headers_size,
    ) noexcept nogil:
        cdef ks_vector *to = &self.body if ks_codec(made) else &self.out
        cdef int64_t timestamp_delta = <int64_t>(<uint64_t>timestamp - <uint64_t>made.base_timestamp)
        cdef size_t body = ks_record_body(
            timestamp_delta, offset - made.base_offset, key_size, value_size, headers_size
        )
        if body > INT32_MAX:
            return OVERSIZED
        if ks_ensure(to, <int64_t>body + KS_RECORD_OVERHEAD) < 0:
            return NO_MEMORY
        to.size = ks_put_record(
            to.data + to.size, body, timestamp_delta, offset - made.base_offset, key, key_size, value, value_size,
            headers, headers_size,
        ) - to.data
        made.records_count += 1
        if not made.attributes & KS_LOG_APPEND_TIME:
            made.max_timestamp = max(made.max_timestamp, timestamp)
        return KS_OK

    cdef int end_batch(self, ks_batch *made) noexcept nogil:
        """Packs the records, where there is a codec, and writes the header."""
        cdef int64_t start = self.size - self.written
        cdef int status = KS_OK
        if ks_codec(made):
            with gil:
                status = self.pack(made)
            if status != KS_OK:
                return status
        made.size = self.out.size - start
        if made.size > INT32_MAX:
            return OVERSIZED
        ks_put_header(self.out.data + start, made)
        self.out.size = start
        self.tally.records_written += made.records_count
        return self.add(made, self.newest)

    cdef int pack(self, const ks_batch *made) noexcept:
        """Packs `body` behind the room for a header. An exception is kept for `fail`."""
        cdef int codec = ks_codec(made)
        cdef int64_t bound = compress_bound(codec, self.body.size)
        if ks_ensure(&self.out, KS_BATCH_OVERHEAD + bound) < 0:
            return NO_MEMORY
        self.out.size += KS_BATCH_OVERHEAD
        try:
            self.out.size += compress_into(
                codec, level_of(codec, None), self.body.data, self.body.size, self.out.data + self.out.size, bound
            )
        except BaseException as e:
            self.error = e
            return RAISED
        return KS_OK

    cdef int add(self, const ks_batch *b, int64_t largest) noexcept nogil:
        """Counts in a batch that lies at the end of `out`."""
        cdef int status
        if largest - self.base_offset > INT32_MAX:
            return OVERFLOW
        status = index_batch(
            &self.indexed, self.offsets, self.times, self.index_interval, self.offset_limit, self.time_limit, b,
            self.size,
        )
        if status:
            return NO_MEMORY if status == INDEX_MEMORY else OVERFLOW
        self.out.size += b.size
        self.size += b.size
        return self.write_out() if self.out.size >= WRITE_AT else KS_OK

    cdef int write_out(self) noexcept nogil:
        cdef int64_t size = self.out.size
        if self.log is not None:
            if self.log.pwrite(self.out.data, size, self.written) < size:
                return UNWRITTEN
            self.log.write_back(self.written, size)  # the disk works while the next batches are looked at
        self.written += size
        self.out.size = 0
        return KS_OK
