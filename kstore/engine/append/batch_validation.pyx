# cython: binding=False
"""Batches that come in encoded: what Kafka checks before it appends them, and what it corrects (spec 6.3,
6.5).

The quick path handles what producers send mostly: v2 batches, not packed. Packed ones, and messages of magic
0 and 1, are only marked here (`rebuild`); log/write/log_validator.py unpacks them.
"""

from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_FromStringAndSize, PyBytes_GET_SIZE
from libc.stdint cimport int64_t, uint8_t
from libc.string cimport memset

from kstore.engine.io.file cimport SMALL
from kstore.engine.record.batch cimport Record, Records, raise_fault
from kstore.engine.record.header_limit cimport ks_headers_fit
from libkstore.build cimport ks_put_crc
from libkstore.format cimport (
    KS_ATTRIBUTES_AT,
    KS_BATCH_OVERHEAD,
    KS_CONTROL,
    KS_E_COUNT,
    KS_E_SHORT,
    KS_E_STRAY,
    KS_LOG_APPEND_TIME,
    KS_MAGIC_END,
    KS_MAX_TIMESTAMP_AT,
    KS_OK,
    ks_batch,
    ks_check_batch,
    ks_codec,
    ks_entry_size,
    ks_fail,
    ks_fault,
    ks_next_record,
    ks_parse_header,
    ks_record,
    ks_store_u16,
    ks_store_u64,
)

from kstore.arguments import MAX_MESSAGE_BYTES_NAME as _MAX_MESSAGE_BYTES
from kstore.engine.record.batch import REASONS, RecordBatch
from kstore.errors import (
    CorruptRecordError,
    InvalidRecordError,
    InvalidTimestampError,
    OffsetsOutOfOrderError,
    RecordTooLargeError,
    UnsupportedCodecError,
)

NO_KEY = "no key, and cleanup_policy is compact"

cdef enum:
    ARRIVAL_BROKEN = -1        # a ks_fault tells
    ARRIVAL_RECORDS = -2       # the fault lies in a record
    ARRIVAL_HEADER = -3        # what a producer may not put into a header
    ARRIVAL_TOO_LARGE = -4
    ARRIVAL_ORDER = -5
    ARRIVAL_REFUSED = -6       # a record that the topic's rules do not allow
    ARRIVAL_CODEC = -7         # a codec that Kafka does not know
    ARRIVAL_UNREADABLE = -8    # more headers in a record than readers make objects of
    ARRIVAL_TIME = -9          # a record that is later than the largest timestamp in its header


cdef bint within(const ks_rules *rules, int64_t timestamp, int64_t now) noexcept nogil:
    return now - timestamp <= rules.before_max_ms and timestamp - now <= rules.after_max_ms


cdef int check_header(const ks_batch *b, const ks_rules *rules) noexcept nogil:
    """What a leader, and for clients the broker, asks of a header."""
    if b.size > rules.max_message_bytes:
        return ARRIVAL_TOO_LARGE
    if not rules.client or b.magic < 2:
        return 0
    if (
        b.base_offset != 0
        or b.last_offset_delta < 0
        or b.records_count <= 0
        or b.last_offset_delta + <int64_t>1 != b.records_count
        or b.attributes & KS_CONTROL
        or (b.producer_id >= 0 and b.base_sequence < 0)
    ):
        return ARRIVAL_HEADER
    return 0


cdef void put_timestamps(uint8_t *p, ks_batch *b, int64_t largest, bint stamped) noexcept nogil:
    """Gives a v2 batch this largest timestamp and timestamp type, and the checksum that goes with them."""
    b.max_timestamp = largest
    b.attributes = <short>(b.attributes & ~KS_LOG_APPEND_TIME | (KS_LOG_APPEND_TIME if stamped else 0))
    ks_store_u16(p + KS_ATTRIBUTES_AT, <unsigned short>b.attributes)
    ks_store_u64(p + KS_MAX_TIMESTAMP_AT, <unsigned long long>largest)
    ks_put_crc(p, b.size)


def with_timestamps(bytes data not None, int64_t largest, bint stamped):
    """A whole v2 batch with this largest timestamp and timestamp type. CorruptRecordError."""
    cdef ks_batch b
    cdef ks_fault fault
    cdef bytes copy = PyBytes_FromStringAndSize(PyBytes_AS_STRING(data), PyBytes_GET_SIZE(data))
    cdef uint8_t *p = <uint8_t *>PyBytes_AS_STRING(copy)
    memset(&b, 0, sizeof(b))
    memset(&fault, 0, sizeof(fault))
    if ks_parse_header(p, p + PyBytes_GET_SIZE(copy), &b, &fault) != KS_OK:
        raise_fault(&fault, "a batch", 0, -1)
    if b.magic != 2 or b.size != PyBytes_GET_SIZE(copy):
        raise ValueError(f"not one v2 batch: magic {b.magic}, {b.size} of {PyBytes_GET_SIZE(copy)} bytes")
    put_timestamps(p, &b, largest, stamped)
    return copy


cdef int check_records(uint8_t *p, ks_batch *b, const ks_rules *rules, int64_t now, ks_fault *fault) noexcept nogil:
    """The records of a v2 batch that is not packed; its timestamp type and largest timestamp are put
    right."""
    cdef const uint8_t *q = p + KS_BATCH_OVERHEAD
    cdef const uint8_t *end = p + b.size
    cdef ks_record r
    cdef int64_t largest = -1
    cdef bint stamped = b.attributes & KS_LOG_APPEND_TIME
    for _ in range(b.records_count):
        if ks_next_record(&q, end, b, &r, fault) != KS_OK:
            fault.at += <size_t>(q - p)
            return ARRIVAL_RECORDS
        if not b.base_offset <= r.offset <= b.last_offset:  # beyond Kafka, which appends it: readers say it is damaged
            ks_fail(fault, KS_E_STRAY, <size_t>(q - p), b.last_offset, r.offset)
            return ARRIVAL_RECORDS
        if r.headers_count and not ks_headers_fit(r.headers_count, r.end - r.headers, rules.unpacked_max):
            return ARRIVAL_UNREADABLE
        if rules.keys_required and r.key_size < 0 and not b.attributes & KS_CONTROL:
            return ARRIVAL_REFUSED
        if not rules.log_append_time and r.timestamp != -1:
            if not within(rules, r.timestamp, now):
                return ARRIVAL_REFUSED
        elif stamped:
            return ARRIVAL_REFUSED
        if r.timestamp > largest:
            largest = r.timestamp
    if q != end:
        ks_fail(fault, KS_E_COUNT, <size_t>(q - p), b.records_count, b.records_count + 1)
        return ARRIVAL_RECORDS
    if rules.log_append_time:
        largest = now
    if b.max_timestamp != largest or stamped != rules.log_append_time:
        put_timestamps(p, b, largest, rules.log_append_time)
    return 0


cdef int check_kept(
    const uint8_t *q, const uint8_t *end, const ks_batch *b, const ks_rules *rules, ks_fault *fault
) noexcept nogil:
    """The records of a v2 batch, unpacked, that is appended as it is: whether readers, and lookups by time,
    find them.

    Beyond Kafka, whose followers look at headers only."""
    cdef const uint8_t *start = q
    cdef ks_record r
    if b.records_count <= 0:  # of none, Kafka does not touch the body
        ks_fail(fault, KS_E_COUNT, 0, 0, b.records_count)
        return ARRIVAL_RECORDS if b.records_count else 0
    for _ in range(b.records_count):
        if ks_next_record(&q, end, b, &r, fault) != KS_OK:
            fault.at += <size_t>(q - start)
            return ARRIVAL_RECORDS
        if not b.base_offset <= r.offset <= b.last_offset:
            ks_fail(fault, KS_E_STRAY, <size_t>(q - start), b.last_offset, r.offset)
            return ARRIVAL_RECORDS
        if r.headers_count and not ks_headers_fit(r.headers_count, r.end - r.headers, rules.unpacked_max):
            return ARRIVAL_UNREADABLE
        if r.timestamp > b.max_timestamp:
            ks_fail(fault, KS_E_STRAY, 0, r.timestamp, b.max_timestamp)
            return ARRIVAL_TIME
    if q != end:
        ks_fail(fault, KS_E_COUNT, <size_t>(q - start), b.records_count, <int64_t>b.records_count + 1)
        return ARRIVAL_RECORDS
    return 0


cdef int check_packed(const uint8_t *p, const ks_batch *b, const ks_rules *rules, int64_t at, ks_fault *fault) except 1:
    """Checks what `check_kept` does in a batch that must be unpacked for it, or a message of magic 0 or 1."""
    cdef Records records = Records.__new__(Records)
    cdef Record record
    records.limit = rules.unpacked_max
    try:
        records.begin(p, b, "", at)
    except CorruptRecordError as e:
        raise InvalidRecordError(f"batch at byte {at}: {e}") from e
    if b.magic == 2:
        return check_kept(records.p, records.end, b, rules, fault)
    for record in records.legacy:
        if b.magic == 1 and record.timestamp > b.max_timestamp:
            ks_fail(fault, KS_E_STRAY, 0, record.timestamp, b.max_timestamp)
            return ARRIVAL_TIME
    return 0


cdef int check_all_packed(
    const uint8_t *p, const ks_rules *rules, const ks_arrival *arrival, int64_t *at, ks_batch *b, ks_fault *fault
) except 1:
    """check_packed of each batch that was found and needs it."""
    cdef int status
    at[0] = 0
    while at[0] < arrival.size:
        if ks_parse_header(p + at[0], p + arrival.size, b, fault) != KS_OK:
            return ARRIVAL_BROKEN
        if b.magic < 2 or ks_codec(b):
            status = check_packed(p + at[0], b, rules, at[0], fault)
            if status < 0:
                return status
        at[0] += b.size
    return 0


cdef int walk(
    uint8_t *p, int64_t size, const ks_rules *rules, int64_t now, ks_arrival *arrival, ks_batch *b, ks_fault *fault
) noexcept nogil:
    """Checks batch after batch, up to the first that is refused: 0, or why that one is, its header in b."""
    cdef int64_t at = 0, whole, last = -1
    cdef int status
    while size - at >= KS_MAGIC_END:
        status = ks_entry_size(p + at, p + size, &whole, fault)
        if status == KS_E_SHORT:
            return 0
        if status != KS_OK or ks_check_batch(p + at, p + size, b, fault) != KS_OK:
            return ARRIVAL_BROKEN
        if ks_codec(b) > 4:
            return ARRIVAL_CODEC
        if rules.follower:
            if rules.newest_epoch >= 0 and b.leader_epoch != -1 and b.leader_epoch > rules.newest_epoch:
                return 0
            if b.last_offset <= last or (b.magic == 2 and b.base_offset <= last):
                return ARRIVAL_ORDER
            last = b.last_offset
            if b.magic < 2 or ks_codec(b):
                arrival.packed = True
            else:
                status = check_kept(p + at + KS_BATCH_OVERHEAD, p + at + b.size, b, rules, fault)
                if status < 0:
                    if status == ARRIVAL_RECORDS:
                        fault.at += KS_BATCH_OVERHEAD
                    return status
        else:
            status = check_header(b, rules)
            if status < 0:
                return status
            if b.magic < 2 or ks_codec(b) or (rules.codec > 0 and not b.attributes & KS_CONTROL):
                arrival.rebuild = True
            else:
                status = check_records(p + at, b, rules, now, fault)
                if status < 0:
                    return status
        if arrival.count == 0:
            arrival.first_offset = b.base_offset if b.magic == 2 else -1
            arrival.first_last_offset = b.last_offset
        arrival.last = b[0]
        arrival.max_timestamp = max(arrival.max_timestamp, b.max_timestamp)
        arrival.producers = arrival.producers or b.producer_id >= 0
        arrival.count += 1
        at += whole
        arrival.size = at
    return 0


cdef int check_incoming(uint8_t *p, int64_t size, const ks_rules *rules, int64_t now, ks_arrival *arrival) except -1:
    """Checks the batches in p .. p + size, which are ours to correct. A last one that was cut is left out.

    Raises as PartitionLog.append_batches says. The GIL is free while it runs, where that pays."""
    cdef ks_batch b
    cdef ks_fault fault
    cdef int64_t at
    cdef int status
    memset(arrival, 0, sizeof(arrival[0]))
    memset(&fault, 0, sizeof(fault))
    memset(&b, 0, sizeof(b))
    arrival.max_timestamp = -1
    arrival.first_offset = -1
    if size < SMALL:
        status = walk(p, size, rules, now, arrival, &b, &fault)
    else:
        with nogil:
            status = walk(p, size, rules, now, arrival, &b, &fault)
    at = arrival.size
    if status == 0 and arrival.packed:
        status = check_all_packed(p, rules, arrival, &at, &b, &fault)
    if status == ARRIVAL_BROKEN:
        raise_fault(&fault, "batches to be appended", at, -1)
    if status == ARRIVAL_RECORDS:
        raise InvalidRecordError(
            f"batch at byte {at}: {REASONS[fault.status]} at byte {fault.at}: expected {fault.expected}, "
            f"found {fault.found}"
        )
    if status == ARRIVAL_TOO_LARGE:
        raise RecordTooLargeError(
            f"batch larger than {_MAX_MESSAGE_BYTES}",
            size=b.size,
            limit=rules.max_message_bytes,
            position=at,
        )
    if status == ARRIVAL_TIME:
        raise InvalidTimestampError(
            f"batch at byte {at}: its largest timestamp is {fault.found}, and a record has {fault.expected}: "
            "lookups by time would not find it"
        )
    if status == ARRIVAL_UNREADABLE:
        raise RecordTooLargeError(
            "the headers of a record take more memory than max_decompressed_bytes",
            size=b.size,
            limit=rules.unpacked_max,
            position=at,
        )
    if status == ARRIVAL_ORDER:
        raise OffsetsOutOfOrderError(
            f"batch at byte {at}: offsets {b.base_offset} to {b.last_offset} after {arrival.last.last_offset}"
        )
    if status == ARRIVAL_CODEC:
        raise UnsupportedCodecError(
            "compression codec", file="batches to be appended", position=at, expected="0 to 4", found=ks_codec(&b)
        )
    if status == ARRIVAL_HEADER:
        raise_header(&b, at)
    if status == ARRIVAL_REFUSED:
        raise_refused(RecordBatch(PyBytes_FromStringAndSize(<char *>p + at, b.size)), rules, now, at)
    return 0


cdef int raise_header(const ks_batch *b, int64_t at) except -1:
    if b.base_offset != 0:
        what = f"base offset {b.base_offset} from a producer is not 0 (keep_offsets=True appends as a follower)"
    elif b.attributes & KS_CONTROL:
        what = "a control batch from a producer (origin=\"coordinator\" appends transaction markers)"
    elif b.last_offset_delta < 0 or b.records_count <= 0 or b.last_offset_delta + 1 != b.records_count:
        what = f"{b.records_count} records for offsets up to delta {b.last_offset_delta}"
    else:
        what = f"producer id {b.producer_id} with base sequence {b.base_sequence}"
    raise InvalidRecordError(f"batch at byte {at}: {what}")


cdef int raise_refused(batch, const ks_rules *rules, int64_t now, int64_t at) except -1:
    refuse_records(batch, batch.records(), rules.keys_required, rules.log_append_time, rules.before_max_ms,
                   rules.after_max_ms, now, at)


def refuse_records(
    batch, records, bint keys_required, bint log_append_time, int64_t before_max_ms, int64_t after_max_ms, int64_t now,
    int64_t at,
):
    """Raises for the records that a topic's rules do not allow, naming all of them (spec 6.5)."""
    stamped = batch.timestamp_type == "LogAppendTime"
    errors = []
    late = False
    for slot, record in enumerate(records):
        if keys_required and record.key is None and not batch.is_control:
            errors.append((slot, NO_KEY))
        elif not log_append_time and record.timestamp != -1:
            if now - record.timestamp > before_max_ms or record.timestamp - now > after_max_ms:
                errors.append((slot, f"timestamp {record.timestamp} is too far from now, {now}"))
                late = True
        elif stamped:
            errors.append((slot, "a producer may not stamp a batch LogAppendTime"))
            late = True
    if errors:
        text = "; ".join(f"record {slot}: {what}" for slot, what in errors[:3])
        more = f" and {len(errors) - 3} more" if len(errors) > 3 else ""
        kind = InvalidTimestampError if late else InvalidRecordError
        raise kind(f"batch at byte {at}: {text}{more}", errors)
