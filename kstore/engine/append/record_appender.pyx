# cython: binding=False, embedsignature=True
"""What is appended: records, encoded here, and batches that others encoded, checked.

How batches are checked that must be decompressed for it, and what their producers may do, is left to the
hooks (AppendHooks in log/write/append_hooks.py).

The file is long because one record, columns of records and encoded batches are appended by one class, in one
buffer.
"""

from kstore.light_typing import NamedTuple

from cpython.buffer cimport PyBUF_SIMPLE, PyBuffer_Release, PyObject_GetBuffer
from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_CheckExact, PyBytes_FromStringAndSize, PyBytes_GET_SIZE
from cpython.exc cimport PyErr_SetFromErrnoWithFilenameObject
from cpython.ref cimport Py_INCREF
from libc.stdint cimport INT16_MAX, INT32_MAX, INT64_MAX, int32_t, int64_t, uint8_t
from libc.string cimport memcpy, memmove

from kstore.engine.append.batch_validation cimport check_incoming, ks_arrival, ks_rules
from kstore.engine.append.log_appender cimport LogAppender
from kstore.engine.columns.binary_input cimport BinaryInput, ks_cell, ks_cells, ks_cells_are_alike
from kstore.engine.columns.column_input cimport HeaderInput
from kstore.engine.columns.column_input cimport TimestampInput, moment
from kstore.engine.io.file cimport SMALL
from kstore.engine.io.traffic cimport took
from kstore.engine.record.batch cimport raise_fault
from kstore.engine.record.batch_builder cimport BUILD_HEADERS, BatchBuilder, ks_columns, ks_fields, read_fields
from kstore.engine.record.codec cimport compress_bound
from kstore.engine.record.header_limit cimport HEADER_OBJECTS, ks_encoded_headers_fit
from kstore.engine.segment.active_segment cimport ROLL_NOT
from libkstore.build cimport KS_RECORD_OVERHEAD, ks_put_offset, ks_record_body, ks_varlong_size
from libkstore.format cimport KS_BATCH_OVERHEAD, KS_LOG_APPEND_TIME, KS_OK, ks_batch, ks_fault, ks_parse_header

from kstore.arguments import MAX_MESSAGE_BYTES_NAME as _MAX_MESSAGE_BYTES
from kstore.arguments import SEGMENT_BYTES_NAME as _SEGMENT_BYTES
from kstore.arguments import boolean, choice, integer
from kstore.engine.append.batch_validation import NO_KEY
from kstore.engine.record.batch import RecordBatch
from kstore.errors import (
    CorruptRecordError,
    InvalidRecordError,
    InvalidTimestampError,
    OffsetsOutOfOrderError,
    RecordTooLargeError,
    UnexpectedAppendOffsetError,
)

cdef enum:
    JOINED = 1 << 20       # batches of one call are written together up to so many bytes: the page cache keeps large
    #                        writes in few pieces, quicker to make and to read
    BATCH_BYTES = 16384    # as many has a batch of `extend` by default
    MOST_KEPT = 4 << 20    # a larger buffer is let go after the call
    APPEND_BAD_TIMESTAMP = -1
    APPEND_NO_KEY = -2


class Appended(NamedTuple):
    """The result of `append_batches`: the first and last offset that the batches have now, and the number of
    batches.

    `duplicate` is True if nothing was written because producers had sent all of these batches before; the
    offsets are those that they got then. If they had sent some of them, only the others are appended, and the
    result is about these.
    """

    first_offset: int
    last_offset: int
    batch_count: int
    duplicate: bool = False


cdef extern from "Python.h":
    object allocated "PyType_GenericAlloc"(type kind, Py_ssize_t items)
    void put_item "PyTuple_SET_ITEM"(object items, Py_ssize_t i, object item)


cdef object appended(int64_t first_offset, int64_t last_offset, int64_t batch_count):
    """An Appended. What is made for every call is made without the Python code that is in a NamedTuple's
    __new__."""
    made = allocated(Appended, 4)
    set_item(made, 0, first_offset)
    set_item(made, 1, last_offset)
    set_item(made, 2, batch_count)
    set_item(made, 3, False)
    return made


cdef inline void set_item(object items, Py_ssize_t i, object item):
    Py_INCREF(item)  # put_item takes it over
    put_item(items, i, item)


cdef int header_at(const uint8_t *p, const uint8_t *end, ks_batch *b) except -1:
    """The header of a batch that was checked before."""
    cdef ks_fault fault
    if ks_parse_header(p, end, b, &fault) != KS_OK:
        raise_fault(&fault, "batches to be appended", 0, -1)
    return 0


cdef int64_t first_of(const ks_arrival *found) noexcept nogil:
    """The first offset of what arrived, or the least that it can be (of a packed message of magic 0 or 1)."""
    return found.first_offset if found.first_offset >= 0 else found.first_last_offset - INT32_MAX


cdef class RecordAppender(LogAppender):
    """A log that takes records and batches. Thread-safe: one thread at a time is in here."""

    # ---- appending records ---------------------------------------------------------------------------------

    def append(self, value, key=None, timestamp=None, headers=None):
        """Appends one record and returns its offset.

        value, key: bytes-like, or None. In a compacted log a value of None deletes the key. timestamp:
        milliseconds since 1970, or a datetime with a time zone. None: the time of the append; -1: no
        timestamp. headers: (str, bytes or None) pairs, or a mapping.

        With durability "group" or "each" the record is on the disk when this returns.

        Raises:
            InvalidTimestampError: the configuration does not allow the timestamp.
            InvalidRecordError: cleanup_policy is compact, and there is no key.
            RecordTooLargeError: the record is larger than max_message_bytes, or a reader with this
                max_decompressed_bytes would refuse it.
            OSError: it could not be written. After any of these the log is as it was.
        """
        cdef BatchBuilder builder = self.builder
        cdef ks_fields f
        cdef int64_t now, at, offset, given = 0, began
        cdef int status
        made = read_fields(value, key, headers, &f)
        if timestamp is not None:
            given = moment(timestamp)  # before the mutex: it may run Python code
        began = self.begun()
        self.acquire_to_append()
        try:
            self._log_end.check_usable()
            now = self.now(timestamp is None or self.log_append_time)
            if timestamp is None:
                at = now
            else:
                at = self.check_timestamp(given, now)
            if self.keys_required and f.key_size < 0:
                raise InvalidRecordError(NO_KEY)
            self.refuse_offsets(1)
            offset = self._log_end.offset
            builder.used = 0
            status = builder.begin(offset, self._leader_epoch, KS_LOG_APPEND_TIME if self.log_append_time else 0)
            if status == 0:
                status = builder.add(at, &f)
            if status < 0:
                builder.raise_status(
                    status, f"record larger than {_MAX_MESSAGE_BYTES}",
                    f.key_size + f.value_size + f.headers_size, self.max_message_bytes,
                )
            builder.finish()
            self.refuse_size(builder.used)
            self.place(&builder.batch, now)
            self.write_out(builder.data, builder.used)
            self.settle()
        finally:
            self._log_end.end_append()
        del made
        self.keep_promise(offset + 1, began)
        return offset

    cdef int64_t append_built(self, BatchBuilder built) except -1:
        """Appends a batch that was finished elsewhere; its base offset. It is not waited for to be
        durable."""
        cdef int64_t now, began = self.begun()
        self._log_end.acquire()
        try:
            self._log_end.check_usable()
            self.refuse_offsets(built.batch.records_count)
            now = self.now()
            built.batch.base_offset = self._log_end.offset
            built.batch.last_offset = self._log_end.offset + built.batch.last_offset_delta
            built.batch.leader_epoch = self._leader_epoch
            ks_put_offset(built.data, self._log_end.offset, self._leader_epoch)
            self.refuse_size(built.used)
            self.place(&built.batch, now)
            self.write_out(built.data, built.used)
            self.settle()
            if self._log_end.traffic is not None and began:
                took(&self._log_end.traffic.appends, began)
            return built.batch.base_offset
        finally:
            self._log_end.end_append()

    def extend(self, values, keys=None, timestamps=None, headers=None, *, batch_bytes=BATCH_BYTES):
        """Appends many records in batches of up to `batch_bytes`, and returns the range of their offsets.

        values and keys: sequences of bytes-like objects or None, numpy arrays (S, V, or two-dimensional
        uint8), or an object that exports Arrow binary, string or fixed-size binary (PyCapsule interface).
        Elements of an S array have no zero bytes at their end, as in numpy: use V (array.view("V8") of an S8)
        to append all bytes. timestamps: integers of ms, datetimes with a time zone,
        numpy datetime64 or int64, Arrow timestamps, or one int or datetime for all; None for now. A null of
        Arrow is a record without a timestamp (-1). headers: pairs for all records, or one such sequence for
        each. The GIL is free while records are encoded and written. Arrays are not copied: do not change them
        meanwhile.

        Each batch is written whole or not at all. An error in an argument is raised before anything is
        written. After an error of the system, the batches before it stay, and `log_end_offset` is their end.
        """
        cdef BinaryInput value_cells = BinaryInput.of(values, "values", -1)
        cdef int64_t count = value_cells.cells.count
        cdef BinaryInput key_cells = BinaryInput.of(keys, "keys", count)
        cdef HeaderInput header_lists = HeaderInput.of(headers, count)
        cdef TimestampInput times = TimestampInput.of(timestamps, count, 0)  # before the mutex: it may run Python code
        cdef ks_columns columns
        cdef BatchBuilder builder = self.builder
        cdef int64_t now, first = 0, i = 0, sent = 0, filled = 0
        cdef int64_t start
        cdef int attributes
        cdef int64_t most = self.most_of(integer("batch_bytes", batch_bytes))
        cdef int64_t began = self.begun()
        self.acquire_to_append()
        try:
            self._log_end.check_usable()
            self.refuse_offsets(count)
            now = self.now()
            self.set_columns(&columns, value_cells, key_cells, times, timestamps is None, now)
            self.check_columns(&columns, header_lists, most, now)
            attributes = KS_LOG_APPEND_TIME if self.log_append_time else 0
            first = start = self._log_end.offset
            builder.used = 0
            with nogil:
                while i < count:
                    filled = builder.begin(start, self._leader_epoch, attributes)
                    if filled == 0:
                        filled = builder.fill(&columns, header_lists, i, most)
                    if filled < 0:
                        with gil:
                            self.refuse_build(<int>filled, &columns, i + builder.batch.records_count)
                    builder.finish()
                    i += filled
                    start += filled
                    if (
                        builder.batch.size > self.max_message_bytes
                        or builder.batch.size > self.segment_bytes
                        or self._log_end.active.roll_reason(
                            builder.batch.size, builder.batch.max_timestamp, builder.batch.last_offset, now,
                            self.segment_bytes, self.segment_ms,
                        ) != ROLL_NOT
                        or self._log_end.active.time_map is None
                        or builder.batch.leader_epoch != self._log_end.known_epoch
                        or self._log_end.active.reserve(1) < 0
                    ):
                        with gil:
                            self.refuse_size(builder.batch.size)
                            if builder.start > sent:
                                self.write_out(builder.data + sent, builder.start - sent)
                            sent = builder.start
                            self.place(&builder.batch, now)
                    else:
                        self._log_end.active.stage(&builder.batch)
                    if builder.used - sent >= JOINED or i == count:
                        with gil:
                            self.write_out(builder.data + sent, builder.used - sent)
                        builder.used = sent = 0
            self.settle()
        finally:
            self._log_end.end_append()
        self.keep_promise(first + count, began)
        return range(first, first + count)

    def check_extend(self, values, keys=None, timestamps=None, headers=None):
        """Checks these columns as extend() does, and appends nothing. LogStore calls it before it extends several
        logs at once. The errors are those of extend()."""
        cdef BinaryInput value_cells = BinaryInput.of(values, "values", -1)
        cdef int64_t count = value_cells.cells.count
        cdef BinaryInput key_cells = BinaryInput.of(keys, "keys", count)
        cdef HeaderInput header_lists = HeaderInput.of(headers, count)
        cdef TimestampInput times = TimestampInput.of(timestamps, count, 0)
        cdef ks_columns columns
        cdef int64_t now
        self._log_end.acquire()
        try:
            self._log_end.check_usable()
            self.refuse_offsets(count)
            now = self.now()
            self.set_columns(&columns, value_cells, key_cells, times, timestamps is None, now)
            self.check_columns(&columns, header_lists, self.most_of(BATCH_BYTES), now)
        finally:
            self._log_end.release()

    cdef void set_columns(
        self, ks_columns *columns, BinaryInput values, BinaryInput keys, TimestampInput times, bint without_times,
        int64_t now,
    ) noexcept:
        """The columns of `extend` as they were given; the log's time where it sets the times or none are
        given."""
        columns.values = &values.cells
        columns.keys = &keys.cells
        columns.timestamps = NULL
        if not self.log_append_time:
            columns.timestamps = times.data
        columns.timestamp = now if self.log_append_time or without_times else times.constant
        columns.count = values.cells.count

    cdef int64_t most_of(self, int64_t batch_bytes) noexcept nogil:
        """How many bytes a batch of several records may have: so few that packing cannot make it too
        large."""
        cdef int64_t limit = min(self.max_message_bytes, self.segment_bytes)
        if self.builder.codec:
            limit = min(limit, max(self.builder.unpacked_max, <int64_t>1))
            limit -= compress_bound(self.builder.codec, limit) - limit
        return min(batch_bytes, limit)

    cdef int check_columns(
        self, const ks_columns *columns, HeaderInput headers, int64_t most, int64_t now
    ) except -1:
        """Whether all records can be appended, in batches of `most` bytes; RecordTooLargeError,
        InvalidRecordError, InvalidTimestampError."""
        cdef int64_t i = 0, large = -1
        cdef int64_t safe = self.most_of(INT64_MAX) - KS_BATCH_OVERHEAD - KS_RECORD_OVERHEAD - headers.size
        cdef int status
        with nogil:
            status = self.wrong_record(columns, now, safe, &i, &large)
        if status < 0:
            self.refuse_record(columns, i, status, now)
        if headers.size > self.builder.unpacked_max // HEADER_OBJECTS:
            self.check_headers(columns, headers)
        if large >= 0:
            self.check_large(columns, headers, large, most, now)
        return 0

    cdef int check_headers(self, const ks_columns *columns, HeaderInput headers) except -1:
        """RecordTooLargeError for the first record with more headers than readers make objects of."""
        cdef const uint8_t *encoded
        cdef int64_t i, size = 0
        for i in range(columns.count):
            encoded = headers.headers_at(i, &size)
            if not ks_encoded_headers_fit(encoded, size, self.builder.unpacked_max):
                self.refuse_build(BUILD_HEADERS, columns, i)
            if headers.ends is NULL:  # all have equal headers
                return 0
        return 0

    cdef int refuse_build(self, int status, const ks_columns *columns, int64_t i) except -1:
        """Raises why a batch could not be built, at record `i`."""
        cdef int64_t key_size = 0, value_size = 0
        ks_cell(columns.values, i, &value_size)
        ks_cell(columns.keys, i, &key_size)
        self.builder.raise_status(
            status,
            f"record {i}"
            if status == BUILD_HEADERS
            else f"record {i} larger than {_MAX_MESSAGE_BYTES} or {_SEGMENT_BYTES}",
            max(key_size, <int64_t>0) + max(value_size, <int64_t>0),
            min(self.max_message_bytes, self.segment_bytes),
        )

    cdef int check_large(
        self, const ks_columns *columns, HeaderInput headers, int64_t first, int64_t most, int64_t now
    ) except -1:
        """Whether each record, from one on, can be appended that is too large for a batch with others. What
        may be small enough when it is packed is packed to see it."""
        cdef BatchBuilder builder = self.builder
        cdef int64_t i, key_size = 0, value_size = 0, headers_size = 0, size, status
        cdef int64_t limit = min(self.max_message_bytes, self.segment_bytes), safe = self.most_of(INT64_MAX)
        for i in range(first, columns.count):
            ks_cell(columns.values, i, &value_size)
            ks_cell(columns.keys, i, &key_size)
            headers.headers_at(i, &headers_size)
            size = <int64_t>ks_record_body(0, 0, key_size, value_size, headers_size)
            size += KS_BATCH_OVERHEAD + <int64_t>ks_varlong_size(size)
            if size <= most or size <= safe:
                continue
            if builder.codec:
                builder.used = 0
                status = builder.begin(0, self._leader_epoch, 0)
                if status == 0:
                    status = builder.fill(columns, headers, i, 0)
                if status < 0:
                    self.refuse_build(<int>status, columns, i)
                builder.finish()
                builder.used = 0
                size = builder.batch.size
            if size > limit:
                raise RecordTooLargeError(
                    f"record {i} larger than {_MAX_MESSAGE_BYTES} or {_SEGMENT_BYTES}, as a batch",
                    size=size,
                    limit=limit,
                )
        return 0

    cdef int wrong_record(
        self, const ks_columns *columns, int64_t now, int64_t safe, int64_t *slot, int64_t *large
    ) noexcept nogil:
        """What is wrong with the first record, in `slot`, that cannot be appended; 0 if all can. `large` is
        the first one with more than `safe` bytes of key and value."""
        cdef ks_cells values = columns.values[0], keys = columns.keys[0]
        cdef const int64_t *timestamps = columns.timestamps  # NULL for one time for all
        cdef int64_t i, at = -1 if self.log_append_time else columns.timestamp
        cdef int64_t count = columns.count, first_large = count, key_size = 0, value_size = 0
        cdef bint alike = ks_cells_are_alike(&values) and ks_cells_are_alike(&keys)
        cdef int64_t oldest = now - self.before_max_ms if self.before_max_ms < now else 0
        cdef int64_t newest = now + min(self.after_max_ms, INT64_MAX - max(now, <int64_t>0))
        cdef bint keys_required = self.keys_required
        cdef int status = 0
        for i in range(count):
            if i == 0 or not alike:
                ks_cell(&values, i, &value_size)
                ks_cell(&keys, i, &key_size)
                if value_size + key_size > safe and i < first_large:
                    first_large = i
                if keys_required and key_size < 0:
                    status = APPEND_NO_KEY
                    break
            if timestamps is not NULL:
                at = timestamps[i]
            if at >= 0 and (at < oldest or at > newest):
                status = APPEND_BAD_TIMESTAMP
                break
        if status:
            slot[0] = i
        if first_large < count:
            large[0] = first_large
        return status

    cdef int refuse_record(self, const ks_columns *columns, int64_t i, int status, int64_t now) except -1:
        if status == APPEND_NO_KEY:
            raise InvalidRecordError(f"record {i}: {NO_KEY}")
        at = columns.timestamps[i] if columns.timestamps is not NULL else columns.timestamp
        try:
            self.check_timestamp(at, now)
        except InvalidTimestampError as e:
            raise InvalidTimestampError(f"record {i}: {e}") from None
        raise InvalidTimestampError(f"record {i}: timestamp {at}")

    # ---- appending batches ---------------------------------------------------------------------------------

    def append_batches(
        self, encoded, *, keep_offsets=False, leader_epoch=None, origin="client", transaction_version=-1
    ):
        """Appends batches that a producer or another log has encoded; returns an Appended.

        encoded: bytes-like, whole batches one after another. A last one that is cut short is ignored. Each is
        checked as a broker checks it (sections 6.3 and 6.5 of docs/spec.md) before the first is written:
        size, checksum, header, records, timestamps, producer. Then it gets its offset, in a part of the
        header that the checksum does not cover; the records are not changed. Each batch is appended as a
        whole or not at all. keep_offsets: True does what a follower does: the batches keep their offsets,
        which must increase from log_end_offset on, and their leader epochs. Batches of a higher epoch than
        `leader_epoch` are not appended. Beyond what a follower checks, records must be readable, and none
        later than the largest timestamp in its batch's header, by which lookups by time go:
        InvalidRecordError, InvalidTimestampError. The configuration's rules for records are not applied.
        leader_epoch: the leader epoch to write into the batches. Default: that of the log. origin: "client",
        or "coordinator", which may also append transaction markers and any sequence number.
        transaction_version: that of the transactions that markers end, 0 to 2.

        CorruptRecordError, InvalidRecordError, InvalidTimestampError, RecordTooLargeError,
        OffsetsOutOfOrderError, UnexpectedAppendOffsetError, the errors about producers and transactions,
        OSError: the log is unchanged; after an error of the system, the batches before it may stay, and
        `log_end_offset` is their end. LogFailedError: the log refuses to write until it is opened again.
        """
        cdef ks_rules rules
        cdef ks_arrival found
        cdef BatchBuilder builder = self.builder
        cdef int64_t now, first, last, began
        cdef int32_t epoch
        keep_offsets = boolean("keep_offsets", keep_offsets)
        choice("origin", origin, ("client", "coordinator"))
        if leader_epoch is not None:
            leader_epoch = integer("leader_epoch", leader_epoch, -1, INT32_MAX)
        transaction_version = integer("transaction_version", transaction_version, -1, INT16_MAX)
        rules.follower = keep_offsets
        rules.client = not keep_offsets and origin == "client"
        began = self.begun()
        self.acquire_to_append()
        try:
            self._log_end.check_usable()
            now = self.now(not keep_offsets)  # a follower needs it for rolling only
            epoch = self._leader_epoch if leader_epoch is None else leader_epoch
            rules.newest_epoch = -1 if leader_epoch is None else epoch
            rules.max_message_bytes = self.max_message_bytes
            rules.unpacked_max = self.builder.unpacked_max
            rules.before_max_ms = self.before_max_ms
            rules.after_max_ms = self.after_max_ms
            rules.log_append_time = self.log_append_time
            rules.keys_required = self.keys_required
            rules.codec = self.target_codec
            self.take(encoded, keep_offsets)
            check_incoming(self.given, self.given_size, &rules, now, &found)
            self.given_size = found.size
            if found.rebuild:
                encoded = self.hooks.validate(PyBytes_FromStringAndSize(<char *>self.given, found.size), now)
                self.take(encoded, False)
            if found.count == 0:
                if not keep_offsets and self.given_size == 0 and len(encoded):  # a follower's fetch may end inside one
                    raise CorruptRecordError(
                        "nothing to append", file="the argument", position=0, expected="a whole batch",
                        found=f"{len(encoded)} bytes that hold none",
                    )
                return Appended(self._log_end.offset, self._log_end.offset - 1, 0)
            if keep_offsets:
                first = found.first_offset if found.first_offset >= 0 else found.first_last_offset
                if first < self._log_end.offset:
                    raise UnexpectedAppendOffsetError(first, found.last.last_offset, self._log_end.offset)
            else:
                first = self._log_end.offset
                self.number(first, epoch)
            if found.producers:
                batches = self.parsed()
                self.roll_first(&found, keep_offsets, now)  # Kafka finds out about retries only after this
                analyzed_as = "replication" if keep_offsets else origin
                change = None
                try:  # no `with`: Cython's ends the process if there is no memory for a traceback
                    retries = self.hooks.analyze(batches, analyzed_as, transaction_version)
                    if len(retries) == len(batches):
                        known = retries.values()
                        return Appended(min(known).first_offset, max(k.last_offset for k in known), 0, True)
                    if retries:
                        self.leave_out(retries)
                        check_incoming(self.given, self.given_size, &rules, now, &found)
                        self.number(first, epoch)
                        batches = self.parsed()
                        self.hooks.analyze(batches, analyzed_as, transaction_version)
                    change = self._log_end.unfinished("an append of producers", is_append=True).__enter__()
                    last = self.put_accounted(&found, keep_offsets, batches, now, change)
                except BaseException as e:
                    if change is not None:
                        change.__exit__(type(e), e, None)
                    if self._log_end.refusal is None:
                        self.hooks.forget_analysis()  # else a part is in the log, and readers wait where they are
                    raise
                change.__exit__(None, None, None)
            elif keep_offsets:
                last = self.put_joined(&found, now)
            else:
                last = self.put_each(now)
            self.settle()
        finally:
            if builder is not None and builder.room > MOST_KEPT:
                self.builder = builder.emptied()
            self._log_end.end_append()
        self.keep_promise(last + 1, began)
        return appended(first, last, found.count)

    cdef int take(self, encoded, bint as_they_are) except -1:
        """Points at bytes-like batches (given, given_size), in the builder's buffer, where no other thread
        changes them.

        `as_they_are`: we do not change them either, so bytes need no copy; the caller keeps them alive."""
        cdef BatchBuilder builder = self.builder
        cdef Py_buffer view
        cdef int status
        if as_they_are and PyBytes_CheckExact(encoded):
            self.given = <uint8_t *>PyBytes_AS_STRING(encoded)
            self.given_size = PyBytes_GET_SIZE(encoded)
            return 0
        if isinstance(encoded, memoryview) and not encoded.c_contiguous:
            encoded = encoded.tobytes()
        PyObject_GetBuffer(encoded, &view, PyBUF_SIMPLE)
        try:
            builder.used = builder.start = 0
            status = builder.ensure(view.len)
            if status < 0:
                builder.raise_status(status, "batches to append larger than 2^31 - 1 bytes", view.len, INT32_MAX)
            if 0 < view.len < SMALL:
                memcpy(builder.data, view.buf, <size_t>view.len)
            elif view.len:
                with nogil:
                    memcpy(builder.data, view.buf, <size_t>view.len)
            builder.used = view.len
        finally:
            PyBuffer_Release(&view)
        self.given = builder.data
        self.given_size = builder.used
        return 0

    cdef int number(self, int64_t offset, int32_t epoch) except -1:
        """Gives the batches given, which were checked, their offsets and the leader's epoch."""
        cdef ks_batch b
        cdef int64_t at = 0
        while at < self.given_size:
            header_at(self.given + at, self.given + self.given_size, &b)
            self.refuse_size(b.size)  # what was converted may have grown
            self.refuse_offsets(offset - self._log_end.offset + b.last_offset_delta + <int64_t>1)
            ks_put_offset(self.given + at, offset, epoch)
            offset += b.last_offset_delta + <int64_t>1
            at += b.size
        return 0

    cdef list parsed(self):
        """The batches given as RecordBatches, for the Python code that watches producers."""
        cdef ks_batch b
        cdef int64_t at = 0
        batches = []
        while at < self.given_size:
            header_at(self.given + at, self.given + self.given_size, &b)
            batches.append(RecordBatch(PyBytes_FromStringAndSize(<char *>self.given + at, b.size)))
            at += b.size
        return batches

    cdef int leave_out(self, dict retries) except -1:
        """Takes the batches at these places out of those given, which are in the builder's buffer. The others
        begin at offset 0 again, as a client has to say."""
        cdef ks_batch b
        cdef int64_t at = 0, kept = 0
        cdef Py_ssize_t place = 0
        while at < self.given_size:
            header_at(self.given + at, self.given + self.given_size, &b)
            if place not in retries:
                memmove(self.given + kept, self.given + at, <size_t>b.size)
                ks_put_offset(self.given + kept, 0, -1)
                kept += b.size
            at += b.size
            place += 1
        self.given_size = kept
        return 0

    cdef int roll_first(self, const ks_arrival *found, bint joined, int64_t now) except -1:
        """Begins the segment that the first batch given, or all of them, need (spec 5.1)."""
        cdef ks_batch b
        if joined:
            b = found.last
            b.size = self.given_size
            b.max_timestamp = found.max_timestamp
        else:
            header_at(self.given, self.given + self.given_size, &b)
        cdef int reason = self._log_end.active.roll_reason(
            b.size, b.max_timestamp, b.last_offset, now, self.segment_bytes, self.segment_ms
        )
        if reason != ROLL_NOT:
            self.roll_for(reason, max(first_of(found) if joined else b.base_offset, <int64_t>0))
        return 0

    cdef int64_t put_accounted(
        self, const ks_arrival *found, bint joined, list batches, int64_t now, change
    ) except -1:
        """Writes the batches given, and takes their producers into account; the last offset.

        Where the disk is full half way, those that were written are accounted for. Any other failure between
        the two would leave producers of which the log knows less than it holds: `change` stays unfinished, so
        nothing is written after it."""
        self.is_accounting = False
        try:
            return self.put_joined(found, now) if joined else self.put_each(now, batches)
        finally:
            # the log has a part, or all, of what was given
            if self._log_end.failure is None and not self.is_accounting:
                self._log_end.active.unstage()
                self.account(batches)
                change.undone()

    cdef int account(self, list batches) except -1:
        """Takes the producers of those batches into account that are in the log, and takes these from the
        list."""
        written = [batch for batch in batches if batch.last_offset < self._log_end.offset]
        del batches[:len(written)]
        self.is_accounting = True
        self.hooks.account(written)
        self.is_accounting = False
        return 0

    cdef int64_t put_each(self, int64_t now, list batches=None) except -1:
        """Places and writes the batches given, each as an append of its own; the last offset. `batches`: the
        same, if their producers are to be taken into account before a segment begins, whose snapshot has
        them."""
        cdef ks_batch b
        cdef int64_t at = 0, sent = 0
        while at < self.given_size:
            header_at(self.given + at, self.given + self.given_size, &b)
            if at > sent and self._log_end.active.roll_reason(
                b.size, b.max_timestamp, b.last_offset, now, self.segment_bytes, self.segment_ms
            ) != ROLL_NOT:
                self.write_out(self.given + sent, at - sent)
                sent = at
                if batches is not None:
                    self.account(batches)
            self.place(&b, now)
            at += b.size
        self.write_out(self.given + sent, at - sent)
        return b.last_offset

    cdef int64_t put_joined(self, const ks_arrival *found, int64_t now) except -1:
        """Places and writes the batches given as one append: one decision to roll, one write (spec 6.2)."""
        cdef int64_t last = found.last.last_offset
        if self.given_size > self.segment_bytes:
            raise RecordTooLargeError(
                f"append larger than {_SEGMENT_BYTES}",
                size=self.given_size,
                limit=self.segment_bytes,
            )
        self.note_epochs(found)
        self.roll_first(found, True, now)
        if last - self._log_end.active.base_offset > INT32_MAX:
            raise OffsetsOutOfOrderError(
                f"offset {last} is too far above {self._log_end.active.base_offset}, where its segment begins"
            )
        self._log_end.active.prepare()
        if self._log_end.active.reserve(found.count) < 0:
            PyErr_SetFromErrnoWithFilenameObject(OSError, self._log_end.active.path)
        self.stage_given(found)
        self.write_out(self.given, self.given_size)
        return last

    cdef int note_epochs(self, const ks_arrival *found) except -1:
        cdef ks_batch b
        cdef int64_t at = 0
        if found.count == 1:
            return self.note_epoch(&found.last)
        while at < self.given_size:
            header_at(self.given + at, self.given + self.given_size, &b)
            self.note_epoch(&b)
            at += b.size
        return 0

    cdef int stage_given(self, const ks_arrival *found) except -1:
        cdef ks_batch b
        cdef int64_t at = 0
        if found.count == 1:
            self._log_end.active.stage(&found.last)
            return 0
        while at < self.given_size:
            header_at(self.given + at, self.given + self.given_size, &b)
            self._log_end.active.stage(&b)
            at += b.size
        return 0
