# cython: binding=False, embedsignature=True
"""Record batches and the records in them (spec 2), over include/kstore/format.h.

A batch is a view of bytes that it owns; a record is a copy, so that keeping one keeps nothing else alive.
"""

from cpython.buffer cimport PyBUF_SIMPLE, PyBuffer_Release, PyObject_GetBuffer
from cpython.bytearray cimport PyByteArray_AS_STRING, PyByteArray_GET_SIZE
from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_FromStringAndSize, PyBytes_GET_SIZE
from cython cimport final, freelist, no_gc
from libc.stdint cimport INT64_MIN, int16_t, int32_t, int64_t, uint32_t, uint8_t

from kstore.engine.record.codec cimport decompress_at
from kstore.engine.record.header_limit cimport HEADER_OBJECTS, ks_headers_fit
from libkstore.crc32c cimport ks_crc32c
from libkstore.format cimport (
    KS_ATTRIBUTES_AT,
    KS_BATCH_OVERHEAD,
    KS_CONTROL,
    KS_DELETE_HORIZON,
    KS_E_COUNT,
    KS_E_CRC,
    KS_E_LENGTH,
    KS_E_MAGIC,
    KS_E_OFFSET,
    KS_E_SHORT,
    KS_E_SIZE,
    KS_E_STRAY,
    KS_E_VARINT,
    KS_LOG_APPEND_TIME,
    KS_LOG_OVERHEAD,
    KS_MIN_SIZE,
    KS_OK,
    KS_TRANSACTIONAL,
    ks_add64,
    ks_batch,
    ks_batch_crc,
    ks_check_batch,
    ks_check_place,
    ks_codec,
    ks_fail,
    ks_fault,
    ks_header,
    ks_load_i16,
    ks_load_i32,
    ks_next_header,
    ks_next_record,
    ks_parse_header,
    ks_parse_message,
    ks_record,
    ks_sequence_after,
)

from kstore.arguments import MAX_DECOMPRESSED_BYTES, boolean, choice, elements, integer, milliseconds
from kstore.engine.record.codec import NAMES as CODECS, CodecError, DecompressLimitError
from kstore.engine.record.text import java_text
from kstore.errors import CorruptRecordError, RecordTooLargeError, UnsupportedCodecError

CREATE_TIME, LOG_APPEND_TIME, NO_TIMESTAMP_TYPE = TIMESTAMP_TYPES = ("CreateTime", "LogAppendTime", "NoTimestampType")
CONTROL_TYPES = (
    "ABORT", "COMMIT", "LEADER_CHANGE", "SNAPSHOT_HEADER", "SNAPSHOT_FOOTER", "KRAFT_VERSION", "KRAFT_VOTERS",
)

REASONS = {
    KS_E_SHORT: "the bytes end inside a batch",
    KS_E_SIZE: "size field of a batch",
    KS_E_MAGIC: "magic of a batch",
    KS_E_CRC: "checksum of a batch",
    KS_E_VARINT: "varint of a record",
    KS_E_LENGTH: "length in a record",
    KS_E_COUNT: "number of records in a batch",
    KS_E_OFFSET: "offsets of a batch",
    KS_E_STRAY: "offset of a record, outside those of its batch",
}

cdef tuple NO_HEADERS = ()
cdef tuple TIMESTAMP_TYPE = TIMESTAMP_TYPES


cdef int raise_fault(const ks_fault *fault, str file, int64_t position, int64_t offset) except -1:
    """Raises what a parser of format.h found wrong with the bytes at `position` of `file`."""
    raise CorruptRecordError(
        REASONS[fault.status],
        file=file,
        position=position + <int64_t>fault.at,
        offset=offset,
        expected=f"at least {fault.expected}" if fault.status == KS_E_SIZE else fault.expected,
        found=fault.found,
    )


cdef tuple make_headers(const ks_record *r):
    """The headers of a record that ks_next_record accepted. Other threads, signal handlers and the collector
    run meanwhile: whoever calls this keeps them from moving its bytes."""
    cdef const uint8_t *p = r.headers
    cdef ks_header h
    headers = []
    for _ in range(r.headers_count):
        if ks_next_header(&p, r.end, &h) != KS_OK:
            break
        headers.append((
            java_text(PyBytes_FromStringAndSize(<const char *>h.key, h.key_size)),
            None if h.value_size < 0 else PyBytes_FromStringAndSize(<const char *>h.value, h.value_size),
        ))
    return tuple(headers)


cdef Record make_record(const ks_batch *b, const ks_record *r, timestamp):
    """`timestamp` is r's as an object: batches share one among their records."""
    cdef Record record = Record.__new__(Record)
    record.offset = r.offset
    record.timestamp = timestamp
    if r.key_size >= 0:
        record.key = PyBytes_FromStringAndSize(<const char *>r.key, r.key_size)
    if r.value_size >= 0:
        record.value = PyBytes_FromStringAndSize(<const char *>r.value, r.value_size)
    record.headers = make_headers(r) if r.headers_count else NO_HEADERS
    record.timestamp_type = TIMESTAMP_TYPE[2 if b.magic == 0 else 1 if b.attributes & KS_LOG_APPEND_TIME else 0]
    return record


cdef tuple given_headers(object headers):
    """Headers given for a Record: pairs or a mapping. TypeError."""
    pairs = []
    given = () if headers is None else headers.items() if hasattr(headers, "items") else headers
    for pair in elements("headers are pairs of a str and bytes or None", given):
        if not isinstance(pair, (tuple, list)) or len(pair) != 2 or not isinstance(pair[0], str):
            raise TypeError(f"headers are pairs of a str and bytes or None, not {pair!r:.80}")
        name, value = pair
        if value is not None and not isinstance(value, (bytes, bytearray, memoryview)):
            cure = ": encode it" if isinstance(value, str) else ""
            raise TypeError(f"the value of header {name!r} is bytes-like or None, not {type(value).__name__}{cure}")
        pairs.append((name, None if value is None else bytes(value)))
    return tuple(pairs)


@final
@freelist(256)
@no_gc  # it refers to bytes, text and numbers only, so it is in no cycle
cdef class Record:
    """One record: offset, timestamp (ms since 1970; -1 for none), timestamp_type, key, value, headers.

    key and value are bytes or None. headers is a tuple of (name, value) pairs; a value may be None, and bytes
    of a name that are not UTF-8 become U+FFFD. timestamp_type is "CreateTime", "LogAppendTime", or
    "NoTimestampType" (the oldest format has no timestamps). A record is a copy, and keeps nothing else in
    memory. Records can be compared, pickled and made: Record(offset=0, timestamp=1711530458631, value=b"v").
    The offset must be given.
    """

    def __init__(
        self, offset, timestamp=-1, timestamp_type="CreateTime", bytes key=None, bytes value=None, headers=()
    ):
        # Most records are made by make_record, which does not come by here.
        self.offset = integer("offset", offset)
        self.timestamp = milliseconds("timestamp", timestamp, -(2**63))
        kind = choice("timestamp_type", timestamp_type, TIMESTAMP_TYPES)
        self.timestamp_type = TIMESTAMP_TYPE[TIMESTAMP_TYPE.index(kind)]
        self.key = key
        self.value = value
        self.headers = given_headers(headers)

    def __reduce__(self):
        return Record, self._fields()

    def _fields(self):
        return self.offset, self.timestamp, self.timestamp_type, self.key, self.value, self.headers

    def __eq__(self, other):
        if not isinstance(other, Record):
            return NotImplemented
        return self._fields() == (<Record>other)._fields()

    def __hash__(self):
        return hash(self._fields())

    def __repr__(self):
        return (
            f"Record(offset={self.offset}, timestamp={self.timestamp}, timestamp_type={self.timestamp_type!r}, "
            f"key={self.key!r}, value={self.value!r}, headers={self.headers!r})"
        )


# Python sees the fields of Record as members, as it does those of a class with __slots__: the interpreter
# reads such a one in a single step (LOAD_ATTR_SLOT). A getter, which is what Cython makes of `readonly`,
# costs a look-up in the type and three calls at each use, 10 ns.
cdef extern from *:
    """
    #include <stddef.h>
    #include <structmember.h>

    static int ks_add_members(PyTypeObject *type, PyMemberDef *member)
    {
        for (; member->name; member++) {
            PyObject *descriptor = PyDescr_NewMember(type, member);
            int status = descriptor ? PyDict_SetItemString(type->tp_dict, member->name, descriptor) : -1;
            Py_XDECREF(descriptor);
            if (status)
                return status;
        }
        PyType_Modified(type);
        return 0;
    }

    #define KS_MEMBER(type, field) {#field, T_OBJECT_EX, offsetof(type, field), READONLY, NULL}
    #define ks_show_fields(record) __extension__ ({ \
        typedef __typeof__(*(record)) type; \
        static PyMemberDef members[] = { \
            KS_MEMBER(type, offset), KS_MEMBER(type, timestamp), KS_MEMBER(type, timestamp_type), \
            KS_MEMBER(type, key), KS_MEMBER(type, value), KS_MEMBER(type, headers), {NULL, 0, 0, 0, NULL} \
        }; \
        ks_add_members(Py_TYPE(record), members); \
    })
    """
    int ks_show_fields(Record) except -1

ks_show_fields(Record.__new__(Record))


cdef const uint8_t *view_unpacked(object raw, const uint8_t **end) noexcept:
    """Where the bytes of what unpack() gave begin and end, for as long as it lives."""
    cdef const uint8_t *p
    if isinstance(raw, bytes):
        p = <const uint8_t *>PyBytes_AS_STRING(raw)
        end[0] = p + PyBytes_GET_SIZE(raw)
    else:
        p = <const uint8_t *>PyByteArray_AS_STRING(raw)
        end[0] = p + PyByteArray_GET_SIZE(raw)
    return p


@final
@no_gc  # it refers to bytes, numbers and records only, and points into the bytes
cdef class Records:
    """A cursor. `begin` puts it on a batch whose bytes are all there; `next` gives records until None."""

    cdef int begin(self, const uint8_t *p, const ks_batch *batch, str file, int64_t position) except -1:
        cdef ks_fault fault
        self.batch = batch[0]
        self.file = file
        self.position = position
        self.owner = None
        self.legacy = None
        if batch.magic < 2:
            self.legacy = [message[0] for message in self.messages(p)]
            self.left = 0
            return self.check_messages()
        self.left = batch.records_count
        if self.left < 0:
            ks_fail(&fault, KS_E_COUNT, 57, 0, self.left)
            self.fault(&fault)
        self.time = self.timestamp = batch.base_timestamp
        self.start = p + KS_BATCH_OVERHEAD
        self.end = p + batch.size
        if ks_codec(batch) and self.left:
            self.owner = self.unpacked(self.start, self.end - self.start, KS_BATCH_OVERHEAD)
            self.start = view_unpacked(self.owner, &self.end)
        self.p = self.start
        if self.left == 0:  # Kafka does not touch the body then
            self.p = self.end
        return 0

    cdef int check_messages(self) except -1:
        """CorruptRecordError unless the offsets in a compressed message rise to its own, by which it is
        looked up.

        Not where that is 0 and no log is read: so old producers sent it, and left it to the broker to put it
        right."""
        cdef Record record
        cdef int64_t offset, last = -1
        if ks_codec(&self.batch) and not (self.batch.last_offset == 0 and not self.file):
            for record in self.legacy:
                offset = record.offset
                if offset <= last or offset > self.batch.last_offset:
                    self.inner_fault(
                        "offset of a message in a compressed one", f"{last + 1} to {self.batch.last_offset}", offset
                    )
                last = offset
            if last != self.batch.last_offset:
                self.inner_fault("offset of the last message in a compressed one", self.batch.last_offset, last)
        return 0

    cdef int check_after(self, int64_t last) except -1:
        """CorruptRecordError if the messages begin at an offset of the batch before them, which ends at
        `last`."""
        cdef int64_t first = (<Record>self.legacy[0]).offset
        if first <= last:
            self.inner_fault("first offset in a compressed message", f"at least {last + 1}", first)
        return 0

    cdef int check_headers(self, const ks_record *r) except -1:
        """RecordTooLargeError where the headers would need more memory as objects than the limit on what a
        batch unpacks to: they may have two bytes each in the file."""
        if not ks_headers_fit(r.headers_count, r.end - r.headers, self.limit):
            raise RecordTooLargeError(
                f"the {r.headers_count} headers of record {r.offset} take more memory than max_decompressed_bytes",
                size=<int64_t>r.headers_count * HEADER_OBJECTS + (r.end - r.headers),
                limit=self.limit,
                file=self.file,
                position=self.position,
            )
        return 0

    cdef Record next(self):
        cdef ks_record r
        cdef ks_fault fault
        cdef const uint8_t *p = self.p
        if self.legacy is not None:
            if self.left == len(self.legacy):
                return None
            self.left += 1
            self.offset = (<Record>self.legacy[self.left - 1]).offset
            return self.legacy[self.left - 1]
        if self.left == 0:
            self.check_end()
            return None
        if ks_next_record(&p, self.end, &self.batch, &r, &fault) != KS_OK:
            self.fault(&fault)
        if ks_check_place(&self.batch, &r, &fault) != KS_OK and not self.anywhere:
            self.fault(&fault)
        if r.headers_count:
            self.check_headers(&r)
        self.p = p
        self.left -= 1
        self.offset = r.offset
        if r.timestamp != self.timestamp:
            self.time = self.timestamp = r.timestamp
        return make_record(&self.batch, &r, self.time)

    cdef int check_end(self) except -1:
        """CorruptRecordError where bytes follow the last record."""
        cdef ks_fault fault
        if self.p != self.end:
            ks_fail(&fault, KS_E_COUNT, 0, self.batch.records_count, <int64_t>self.batch.records_count + 1)
            self.fault(&fault)
        return 0

    cdef Record first_from(self, int64_t offset):
        """The first record with at least this offset, or None; no object is made of those before."""
        return self.first_since(INT64_MIN, offset)

    cdef Record first_since(self, int64_t timestamp, int64_t offset):
        """The first record with at least this timestamp and at least this offset, or None."""
        cdef ks_record r
        cdef ks_fault fault
        cdef const uint8_t *p = self.p
        cdef Record record
        if self.legacy is not None:
            for record in self.legacy:
                if record.timestamp >= timestamp and record.offset >= offset:
                    return record
            return None
        while self.left:
            if (
                ks_next_record(&p, self.end, &self.batch, &r, &fault) != KS_OK
                or ks_check_place(&self.batch, &r, &fault) != KS_OK
            ):
                self.fault(&fault)
            self.p = p
            self.left -= 1
            if r.offset >= offset and r.timestamp >= timestamp:
                if r.headers_count:
                    self.check_headers(&r)
                return make_record(&self.batch, &r, r.timestamp)
        self.check_end()
        return None

    cdef int fault(self, const ks_fault *fault) except -1:
        """Raises for the record at p. Unpacked records have no byte of the file: the batch's is named."""
        cdef int64_t at = self.p - self.start if self.p is not NULL else 0
        if fault.at == 57 and fault.status == KS_E_COUNT:  # the count in the header
            return raise_fault(fault, self.file, self.position, self.batch.base_offset)
        if self.owner is None:
            return raise_fault(fault, self.file, self.position + KS_BATCH_OVERHEAD + at, self.batch.base_offset)
        raise CorruptRecordError(
            f"{REASONS[fault.status]} (byte {at + <int64_t>fault.at} of the unpacked records)",
            file=self.file,
            position=self.position,
            offset=self.batch.base_offset,
            expected=fault.expected,
            found=fault.found,
        )

    cdef object unpacked(self, const uint8_t *payload, int64_t size, int64_t at):
        """The payload, which begins at byte `at` of the batch, unpacked; errors say where in the file."""
        cdef int codec = ks_codec(&self.batch)
        try:
            return decompress_at(codec, self.batch.magic, payload, size, self.limit)
        except CodecError as e:
            raise (UnsupportedCodecError if codec > 4 else CorruptRecordError)(
                e.reason,
                file=self.file,
                position=self.position + at + e.at,
                offset=self.batch.base_offset,
                expected=e.expected,
                found=e.found,
            ) from None
        except DecompressLimitError as e:
            raise RecordTooLargeError(
                f"a {CODECS[codec]} batch unpacks to more than max_decompressed_bytes",
                size=e.args[0],
                limit=self.limit,
                file=self.file,
                position=self.position,
            ) from None

    cdef int inner_fault(self, str reason, expected, found) except -1:
        raise CorruptRecordError(
            reason,
            file=self.file,
            position=self.position,
            offset=self.batch.base_offset,
            expected=expected,
            found=found,
        )

    cdef list messages(self, const uint8_t *p):
        """(Record, stored crc, whether it is right) of a message of magic 0 or 1, or of those in a
        wrapper."""
        cdef ks_record r
        cdef ks_fault fault
        cdef ks_batch inner
        cdef const uint8_t *q
        cdef const uint8_t *end
        cdef int64_t base = 0
        cdef Record record
        if ks_parse_message(p, &self.batch, &r, &fault) != KS_OK:
            raise_fault(&fault, self.file, self.position, self.batch.base_offset)
        if ks_codec(&self.batch) == 0:
            crc = ks_batch_crc(p, &self.batch)
            return [(make_record(&self.batch, &r, r.timestamp), self.batch.crc, crc == self.batch.crc)]
        if r.value is NULL:
            self.inner_fault("value of a compressed message", "bytes", "null")
        unpacked = self.unpacked(r.value, r.value_size, r.value - p)
        q = view_unpacked(unpacked, &end)
        found = []
        while end - q >= KS_LOG_OVERHEAD:
            if ks_load_i32(q + 8) < KS_MIN_SIZE:
                self.inner_fault("size of a message in a compressed one", KS_MIN_SIZE, ks_load_i32(q + 8))
            if <int64_t>ks_load_i32(q + 8) + KS_LOG_OVERHEAD > end - q:
                break  # a partial entry at the end is ignored
            if ks_parse_header(q, end, &inner, &fault) != KS_OK:
                self.inner_fault(f"{REASONS[fault.status]} in a compressed message", fault.expected, fault.found)
            if inner.magic == 2 or ks_codec(&inner):
                self.inner_fault("message in a compressed one", "an uncompressed message", "a compressed one")
            if ks_parse_message(q, &inner, &r, &fault) != KS_OK:
                self.inner_fault(f"{REASONS[fault.status]} in a compressed message", fault.expected, fault.found)
            crc = ks_batch_crc(q, &inner)
            if self.batch.magic == 1:
                inner.attributes = (inner.attributes & ~KS_LOG_APPEND_TIME) | (
                    self.batch.attributes & KS_LOG_APPEND_TIME
                )
                if self.batch.attributes & KS_LOG_APPEND_TIME:
                    r.timestamp = self.batch.max_timestamp
            found.append((make_record(&inner, &r, r.timestamp), inner.crc, crc == inner.crc))
            q += inner.size
        if not found:
            self.inner_fault("messages in a compressed one", "at least 1", 0)
        if self.batch.magic == 1:  # inner offsets are relative; the wrapper has the last one's
            last = found[-1][0].offset
            if self.batch.last_offset < last and self.batch.last_offset != 0:
                self.inner_fault("offset of a compressed message", f"at least {last}", self.batch.last_offset)
            if self.batch.last_offset != 0:  # an old librdkafka wrote 0
                base = self.batch.last_offset - last
            for message in found:
                record = message[0]
                record.offset = ks_add64(base, record.offset)
        return found


@final
cdef class RecordBatch:
    """One batch as it is stored: a batch of Kafka's current format, or a message of the old formats (magic 0
    and 1).

    A compressed message of an old format, which holds others, counts as one batch. `data` holds the bytes.
    The header can be read even if the batch is damaged; `ensure_valid` checks it, and iterating checks it
    first. Fields that the old formats do not have are -1.
    """

    def __init__(
        self, bytes data not None, *, str file not None="", int64_t position=0,
        int64_t max_decompressed_bytes=MAX_DECOMPRESSED_BYTES,
    ):
        cdef ks_batch header
        cdef ks_fault fault
        cdef const uint8_t *p = <const uint8_t *>PyBytes_AS_STRING(data)
        if self.data is not None:
            raise TypeError("a RecordBatch does not change: make another one")
        if ks_parse_header(p, p + PyBytes_GET_SIZE(data), &header, &fault) != KS_OK:
            raise_fault(&fault, file, position, -1)
        if header.size > PyBytes_GET_SIZE(data):
            ks_fail(&fault, KS_E_SHORT, 0, header.size, PyBytes_GET_SIZE(data))
            raise_fault(&fault, file, position, header.base_offset)
        self.header = header
        self.data = data[: header.size]
        self.file = file
        self.position = position
        self.max_decompressed_bytes = max_decompressed_bytes

    @staticmethod
    cdef RecordBatch new(const uint8_t *p, const ks_batch *header, str file, int64_t position, int64_t limit):
        cdef RecordBatch batch = RecordBatch.__new__(RecordBatch)
        batch.header = header[0]
        batch.data = PyBytes_FromStringAndSize(<const char *>p, header.size)
        batch.file = file
        batch.position = position
        batch.max_decompressed_bytes = limit
        return batch

    cdef const uint8_t *start(self) except NULL:
        """Where its bytes begin. TypeError where __init__ did not run: then there are none, and the header is
        empty."""
        if self.data is None:
            raise TypeError("this RecordBatch was made without its __init__")
        return <const uint8_t *>PyBytes_AS_STRING(self.data)

    cdef Records cursor(self):
        cdef const uint8_t *start = self.start()
        cdef Records records = Records.__new__(Records)
        records.limit = self.max_decompressed_bytes
        records.begin(start, &self.header, self.file, self.position)
        return records

    @property
    def base_offset(self):
        """Offset of the first record as first written; of a compressed message of magic 0/1 it costs
        unpacking it."""
        if self.header.magic < 2 and ks_codec(&self.header):
            return self.messages()[0][0].offset
        return self.header.base_offset

    @property
    def last_offset(self):
        """Offset of the last record as first written; compaction may have removed that record."""
        return self.header.last_offset

    @property
    def next_offset(self):
        """The offset behind this batch: last_offset + 1."""
        return ks_add64(self.header.last_offset, 1)

    @property
    def size(self):
        """Bytes of the whole entry."""
        return self.header.size

    @property
    def magic(self):
        """The version of the format: 2, or 0 and 1 for messages of the old formats."""
        return self.header.magic

    @property
    def crc(self):
        """The stored checksum, as an unsigned number."""
        return self.header.crc

    @property
    def is_valid(self):
        """Whether the stored checksum matches the bytes."""
        return ks_batch_crc(self.start(), &self.header) == self.header.crc

    @property
    def attributes(self):
        """The flags as they are stored, a number of 16 bits (section 2.1 of docs/spec.md)."""
        return self.header.attributes

    @property
    def codec(self):
        """"none", "gzip", "snappy", "lz4" or "zstd". UnsupportedCodecError if the number of the codec is
        unknown."""
        cdef int codec = ks_codec(&self.header)
        if codec > 4:
            raise UnsupportedCodecError(
                "codec of a batch",
                file=self.file,
                position=self.position + KS_ATTRIBUTES_AT,
                offset=self.header.base_offset,
                expected="0 to 4",
                found=codec,
            )
        return CODECS[codec]

    @property
    def timestamp_type(self):
        """"CreateTime", "LogAppendTime" or, for magic 0, "NoTimestampType"."""
        if self.header.magic == 0:
            return NO_TIMESTAMP_TYPE
        return LOG_APPEND_TIME if self.header.attributes & KS_LOG_APPEND_TIME else CREATE_TIME

    @property
    def base_timestamp(self):
        """As it is stored: the timestamp of the first record, or the delete horizon if compaction has set
        one."""
        return self.header.base_timestamp

    @property
    def max_timestamp(self):
        """The largest timestamp of its records, in ms since 1970, as the header has it; -1 if there is
        none."""
        return self.header.max_timestamp

    @property
    def delete_horizon_ms(self):
        """The time after which compaction may remove the tombstones of this batch; None if it has set
        none."""
        if self.header.magic == 2 and self.header.attributes & KS_DELETE_HORIZON:
            return self.header.base_timestamp
        return None

    @property
    def is_transactional(self):
        """Whether it belongs to a transaction."""
        return self.header.magic == 2 and bool(self.header.attributes & KS_TRANSACTIONAL)

    @property
    def is_control(self):
        """Whether it holds the marker of a transaction, or another control record, instead of data."""
        return self.header.magic == 2 and bool(self.header.attributes & KS_CONTROL)

    @property
    def leader_epoch(self):
        """The leader epoch in which it was appended; -1 if it has none. No checksum covers it."""
        return self.header.leader_epoch

    @property
    def producer_id(self):
        """The id of an idempotent or transactional producer; -1 if it has none."""
        return self.header.producer_id

    @property
    def producer_epoch(self):
        """The epoch of that producer; -1 if it has none."""
        return self.header.producer_epoch

    @property
    def base_sequence(self):
        """The sequence number of the first record, counted by its producer; -1 if it has none."""
        return self.header.base_sequence

    @property
    def last_sequence(self):
        """The sequence number of the last record; -1 if it has none."""
        if self.header.base_sequence == -1:
            return -1
        return ks_sequence_after(self.header.base_sequence, self.header.last_offset_delta)

    @property
    def last_offset_delta(self):
        """last_offset - base_offset of the batch as first written."""
        return self.header.last_offset_delta

    @property
    def records_count(self):
        """Records in here, as the header has it; -1 for messages of magic 0 and 1."""
        return self.header.records_count

    def sequence_of(self, Record record not None):
        """The sequence number of one of its records; -1 if the producer is not idempotent."""
        if self.header.base_sequence < 0:
            return -1
        return ks_sequence_after(self.header.base_sequence, <int32_t>(<int64_t>record.offset - self.header.base_offset))

    def ensure_valid(self):
        """CorruptRecordError unless sizes, magic, checksum and offsets are right. Records are not looked
        at."""
        cdef ks_batch header
        cdef ks_fault fault
        cdef const uint8_t *p = self.start()
        if ks_check_batch(p, p + PyBytes_GET_SIZE(self.data), &header, &fault) != KS_OK:
            raise_fault(&fault, self.file, self.position, self.header.base_offset)

    def records(self, *, verify=True):
        """A list of its records, also those of a control batch. verify=False does not check the checksum
        first.

        CorruptRecordError if it is damaged; RecordTooLargeError if it unpacks to more than
        max_decompressed_bytes.
        """
        if boolean("verify", verify):
            self.ensure_valid()
        found, error = self.sound_records()
        if error is not None:
            raise error
        return found

    def first_offset(self):
        """Where its offsets begin. That of a compressed message of an old format is in its first record; if
        that cannot be read, the offset in its header."""
        if self.header.magic < 2 and ks_codec(&self.header):
            found, _ = self.sound_records()
            if found:
                return found[0].offset
        return self.header.base_offset

    def sound_records(self):
        """(a list of its records up to the first that is damaged, the error of that one, or None). The
        checksum is not checked."""
        found = []
        try:
            cursor = self.cursor()
            record = cursor.next()
            while record is not None:
                found.append(record)
                record = cursor.next()
        except (CorruptRecordError, RecordTooLargeError) as e:
            return found, e
        return found, None

    def unverified(self):
        """An iterator of its records that does not check the checksum: if it is not compressed, those before
        damage come first.

        As in Kafka, the last record is not given if bytes follow it. CorruptRecordError if it is damaged;
        RecordTooLargeError if it unpacks to more than max_decompressed_bytes.
        """
        if self.header.magic < 2 or ks_codec(&self.header):
            yield from self.records(verify=False)
            return
        cdef Records cursor = self.cursor()
        cursor.anywhere = True
        record = cursor.next()
        while record is not None:
            if cursor.left == 0:
                cursor.next()  # None, or an error about bytes that are left
            yield record
            record = cursor.next()

    def __iter__(self):
        return iter(self.records())

    def messages(self):
        """The messages of a batch of an old format (magic 0 or 1): a list of (Record, stored checksum,
        whether it matches).
        """
        if self.header.magic == 2:
            raise ValueError("a batch of magic 2 has records, not messages")
        cdef const uint8_t *start = self.start()
        cdef Records records = Records.__new__(Records)
        records.limit = self.max_decompressed_bytes
        records.batch = self.header
        records.file = self.file
        records.position = self.position
        return records.messages(start)

    def __eq__(self, other):
        return self.data == (<RecordBatch>other).data if isinstance(other, RecordBatch) else NotImplemented

    def __hash__(self):
        return hash(self.data)

    def __repr__(self):
        return (
            f"RecordBatch(base_offset={self.header.base_offset}, last_offset={self.header.last_offset}, "
            f"size={self.header.size}, magic={self.header.magic}, position={self.position})"
        )


def control_type(bytes key, str file="", int64_t position=0):
    """The id of a control record's type from its key (spec 2.4): 0 ABORT, 1 COMMIT, ..., -1 unknown."""
    if key is None or PyBytes_GET_SIZE(key) < 4:
        raise CorruptRecordError(
            "key of a control record", file=file, position=position, expected="at least 4 bytes", found=key
        )
    cdef const uint8_t *p = <const uint8_t *>PyBytes_AS_STRING(key)
    if ks_load_i16(p) < 0:
        raise CorruptRecordError(
            "version of a control record", file=file, position=position, expected="0 or more", found=ks_load_i16(p)
        )
    cdef int16_t kind = ks_load_i16(p + 2)
    return kind if 0 <= kind < 7 else -1


def crc32c(data, uint32_t value=0, /):
    """The CRC-32C (Castagnoli) of `data`, a contiguous buffer, going on from `value`, an earlier result."""
    cdef Py_buffer view
    cdef uint32_t result
    PyObject_GetBuffer(data, &view, PyBUF_SIMPLE)
    try:
        if view.len < 65536:  # below this, giving up the GIL costs more than it frees
            result = ks_crc32c(value, view.buf, <size_t>view.len)
        else:
            with nogil:
                result = ks_crc32c(value, view.buf, <size_t>view.len)
    finally:
        PyBuffer_Release(&view)
    return result
