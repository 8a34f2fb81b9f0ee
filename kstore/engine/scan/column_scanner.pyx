# cython: binding=False
"""Reading on and on into columns: one pass over the bytes, the GIL taken only for what is not plain.

Plain is an uncompressed batch of magic 2 that is sound, in order, and no business of a transaction. All else
(the next segment, damage, codecs, old messages, markers) goes the way of Reader, a batch at a time, so both
read alike.
"""

from cpython.exc cimport PyErr_CheckSignals
from cython cimport final, no_gc_clear
from libc.stdint cimport INT64_MAX, int32_t, int64_t
from libc.string cimport memset

from kstore.engine.io.buffers cimport Buffer
from kstore.engine.record.batch cimport Record, Records
from kstore.engine.record.batch_walk cimport FAR
from kstore.engine.scan.batch_reader cimport LONGEST, Reader
from kstore.engine.scan.column_builder cimport (
    ROWS_DONE,
    ROWS_END,
    ROWS_FULL,
    ROWS_MEMORY,
    ColumnBuilder,
    Predicate,
    ks_filter,
    ks_run,
)
from libkstore.format cimport KS_BATCH_OVERHEAD, KS_CONTROL, KS_LOG_APPEND_TIME, ks_batch, ks_codec, ks_fault

from kstore.errors import CorruptRecordError, LogChangedError, RecordTooLargeError

cdef enum:
    SCAN_FULL = 1      # take the rows
    SCAN_END = 2       # nothing more is wanted
    SCAN_OTHER = 3     # the next batch is not plain, or not there
    SCAN_BEGIN = 4     # the current batch, sound and in order, is not plain
    SCAN_BROKEN = 5    # a record of the current batch does not parse
    SCAN_MEMORY = 6
    SCAN_PAUSE = 7     # long enough without a look at signals
    SCAN_LIMIT = 8     # the split ends here

cdef enum:
    VIEWED = 256 << 10  # bytes read at once where views keep them: who keeps one value keeps no more


@final
@no_gc_clear
cdef class ColumnScanner(Reader):
    """Iterates ColumnBatch objects; `configure` it first. One thread at a time.

    An error comes after the rows that lie before it, and again whenever it is asked for more."""

    cdef ColumnBuilder rows
    cdef Predicate predicate
    cdef Records source          # of the current batch, where it is not plain
    cdef ks_run run
    cdef ks_batch current        # whose records the run holds
    cdef ks_fault fault
    cdef Py_ssize_t old_at       # which message of a list of old ones is next; -1 without such a list
    cdef int64_t split_end        # a byte of the first segment where another scanner goes on, or -1
    cdef int64_t budget
    cdef bint views
    cdef bint watching           # transactions were aborted, so markers matter
    cdef readonly bint finished
    cdef readonly bint ended     # not at the end of a split: nothing behind it is wanted either
    cdef int64_t first_offset    # the base offset of the first batch met, or -1
    cdef Buffer lent             # the window's buffer, as far as batches hold it
    cdef int32_t lent_index      # its index in the blocks of the rows; 0: not among them
    cdef public object on_pause  # called after each look at signals, if it is not None

    def configure(
        self, ColumnBuilder rows not None, Predicate predicate not None, *, int64_t split_end=-1, int64_t after=-1,
        bint in_order=False,
    ):
        """`after`: the last offset before what is read here. in_order: base timestamps rise from batch to
        batch."""
        if self.rows is not None:
            raise RuntimeError("this scanner was configured before")
        self.rows = rows
        self.predicate = predicate
        self.split_end = split_end
        self.last_offset = after
        if in_order:
            self.latest = predicate.filter.latest
        self.views = rows.views
        if self.views:
            self.most_ahead = VIEWED
        self.old_at = -1
        self.first_offset = -1
        self.watching = self.aborted is not None and len(self.aborted) > 0
        if self.aborted is not None and not self.watching:
            self.aborted = None  # nothing to watch for: batches of transactions are plain then
        memset(&self.run, 0, sizeof(self.run))
        memset(&self.current, 0, sizeof(self.current))
        self.current.last_offset = -1
        if self.window.data is NULL:
            self.window.draw(rows.pool, self.most_ahead)
        return self

    @property
    def reached(self):
        """(position behind the last batch, its last offset, base offset of the first batch met or -1)."""
        return self.position, self.last_offset, self.first_offset

    @property
    def place(self):
        """(index of the segment, position in it) of what is read next."""
        return self.index, 0 if self.segment is None else self.position

    def __next__(self):
        if self.rows is None:
            raise RuntimeError("a scanner is configured before it is read")
        self.enter()
        try:
            if not self.finished:
                self.work()
            if self.rows.count:
                self.lent_index = 0
                wrong = self.rows.wrong_text()
                if wrong is None:
                    return self.rows.take()
                self.failure = ValueError(f"{self.segments[0].directory}: {wrong}")
                self.finished = True
        finally:
            self.busy = False
            self.tell_traffic()
        if self.failure is not None:
            raise self.failure
        raise StopIteration

    cdef int work(self) except -1:
        """Gathers rows until there are enough, or no more, or an error."""
        cdef int what
        try:
            self.rows.begin()
            while True:
                if self.old_at >= 0 and self.put_old():
                    return 0
                if self.finished:
                    return 0
                self.budget = LONGEST
                with nogil:
                    what = self.go_on()
                if what == SCAN_FULL:
                    return 0
                if what == SCAN_END or what == SCAN_LIMIT:
                    self.finished = True
                    self.ended = what == SCAN_END
                    return 0
                if what == SCAN_MEMORY:
                    raise MemoryError("columns of a scan")
                if what == SCAN_PAUSE:
                    PyErr_CheckSignals()
                    if self.on_pause is not None:
                        self.on_pause()
                elif what == SCAN_BROKEN:
                    self.tell_fault()
                elif what == SCAN_BEGIN:
                    self.begin_batch()
                elif self.segment is None and self.next_segment():
                    continue  # go_on() reads it without the GIL
                elif self.advance():
                    if self.first_offset < 0:
                        self.first_offset = self.batch.base_offset
                    self.begin_batch()
                else:
                    self.finished = self.ended = True
                    return 0
        except Exception as e:
            self.failure = e
            self.finished = True
        return 0

    cdef int go_on(self) noexcept nogil:
        """Decodes plain batches."""
        cdef const ks_filter *f = &self.predicate.filter
        cdef ks_fault fault
        cdef int64_t size
        cdef int status
        while True:
            status = ROWS_DONE
            if self.run.p is not NULL:
                if self.views and self.source is None:
                    if not self.window.lent:  # it went on to another buffer
                        self.lent_index = 0
                    self.run.block = self.window.data
                    self.run.block_index = self.lent_index if self.lent_index else self.rows.block_count + 1
                    self.run.block_used = False
                status = self.rows.decode(&self.run, &self.current, f, &self.fault)
                if self.run.block_used and not self.lent_index:
                    with gil:
                        if self.lend_window() < 0:
                            return SCAN_MEMORY
                if status == ROWS_FULL:
                    return SCAN_FULL
                if status == ROWS_END:
                    return SCAN_END
                if status == ROWS_MEMORY:
                    return SCAN_MEMORY
                if status != ROWS_DONE:
                    return SCAN_BROKEN
                self.run.p = NULL
            if self.split_end >= 0 and self.position >= self.split_end:
                return SCAN_LIMIT
            if self.segment is None:
                return SCAN_OTHER
            if self.budget < 0:
                return SCAN_PAUSE
            size = self.header(self.position, &fault)
            if size <= 0:
                return SCAN_OTHER
            self.budget -= size
            if self.batch.magic == 2:
                if self.batch.base_offset >= self.stop_offset:
                    return SCAN_END if self.ends_here(size) else SCAN_OTHER
                if self.batch.base_timestamp > self.latest:
                    return SCAN_END if self.check(self.position, size, &fault) == 0 else SCAN_OTHER
                if (
                    self.batch.max_timestamp < f.since
                    # then it is the timestamp of all; otherwise no header tells how early its records are
                    or (self.batch.attributes & KS_LOG_APPEND_TIME and self.batch.max_timestamp > f.latest)
                ) and not (self.watching and self.batch.attributes & KS_CONTROL):
                    # by its header's word alone: neither its bytes nor its checksum are looked at
                    if self.batch.base_offset < 0 or self.batch.last_offset < self.batch.base_offset:
                        return SCAN_OTHER
                    if self.in_order(self.position, size, &fault) != 0:
                        return SCAN_OTHER
                    if self.first_offset < 0:
                        self.first_offset = self.batch.base_offset
                    self.offset_before, self.last_offset = self.last_offset, self.batch.last_offset
                    self.position += size
                    continue
            if self.check(self.position, size, &fault) != 0:
                return SCAN_OTHER
            if self.first_offset < 0:
                self.first_offset = self.batch.base_offset
            self.at = self.position
            self.position += size
            self.offset_before, self.last_offset = self.last_offset, self.batch.last_offset
            if self.batch.last_offset < self.start_offset:
                continue
            self.read_bytes += size
            self.read_records += 1 if self.batch.magic < 2 else self.batch.records_count
            if self.batch.magic < 2 or ks_codec(&self.batch) or self.batch.records_count <= 0 or (
                self.watching and self.batch.producer_id >= 0
            ):
                return SCAN_BEGIN
            if self.batch.attributes & KS_CONTROL:
                continue
            if self.source is not None:
                with gil:
                    self.source = None
            self.run.start = self.run.p = self.window.at(self.at) + KS_BATCH_OVERHEAD
            self.run.end = self.window.at(self.at) + size
            self.run.left = self.batch.records_count
            self.run.position = self.at
            self.current = self.batch

    cdef int lend_window(self) noexcept:
        """Lets the rows hold the window's buffer, which views now point into. -1 where memory ran out."""
        try:
            if not self.window.lent:
                self.lent = Buffer.around(self.window.data, self.window.room, self.window.room, self.rows.pool)
                self.window.lend()
            self.lent_index = self.rows.add_block(self.lent)
        except MemoryError:
            return -1
        return 0

    cdef int begin_batch(self) except -1:
        """Puts the run on the current batch: unpacked, or a list of old messages, if it counts at all."""
        try:
            if not self.wanted() or (self.batch.magic == 2 and self.batch.attributes & KS_CONTROL):
                return 0
            self.source = self.records()
        except (CorruptRecordError, RecordTooLargeError) as e:
            return self.broken(e)
        self.current = self.batch
        self.run.position = self.at
        if self.source.legacy is not None:
            self.old_at = 0
            if self.source.legacy:
                self.current.base_offset = (<Record>self.source.legacy[0]).offset
            return 0
        self.run.block = NULL
        self.run.block_used = False
        self.run.start = self.run.p = self.source.p
        self.run.end = self.source.end
        self.run.left = self.source.left
        if self.source.owner is None:  # not unpacked: these bytes are the window's, and can be viewed
            self.source = None
        return 0

    cdef bint put_old(self) except -1:
        """Rows for old messages; True where there are enough rows for now, or none is wanted any more."""
        cdef list messages = self.source.legacy
        cdef int status
        while self.old_at < len(messages):
            if self.rows.is_full():
                return True
            status = self.rows.put_record(
                messages[self.old_at], &self.current, self.run.position, &self.predicate.filter
            )
            if status == ROWS_FULL:
                return True
            if status == ROWS_END:
                self.finished = self.ended = True
                return True
            self.old_at += 1
        self.old_at = -1
        return False

    cdef int tell_fault(self) except -1:
        """Reads the batch again as Reader does, which raises what is wrong with it."""
        self.run.p = NULL
        self.batch = self.current
        try:
            records = self.records()
            while records.next() is not None:
                pass
        except (CorruptRecordError, RecordTooLargeError) as e:
            self.broken(e)
        return 0

    cdef bint next_segment(self) except -1:
        """Passes by the segments, and the beginning of one, that hold nothing as late as what is wanted.

        Not where transactions were aborted: which batches count is known only from the markers before
        them."""
        cdef int64_t since = self.predicate.filter.since
        while Reader.next_segment(self):
            if self.split_end >= 0:
                self.window.stop = self.split_end
                self.begun = -FAR  # all of it is wanted
                return True
            if since < 0 or self.watching:
                return True
            try:
                start = self.segment.scan_start(self.start_offset, since)
            except CorruptRecordError:
                return True  # the walk meets it too, and says so
            if start is not None or self.index == len(self.segments) - 1:
                self.go_to(self.segment, start)
                return True
        return False


@final
cdef class CursorBatches:
    """Iterates what `make` makes of each batch of a scanner, up to `most` rows or a few more.

    `next_offset` moves when all else is done: from there to the loop of whoever iterates is C code, so no
    interrupt comes between: a batch behind which it is was given. An exception goes to `failed`, which raises
    it; if it does not, this is the end.
    """

    cdef object scanner, make, failed
    cdef int64_t left
    cdef readonly int64_t next_offset  # the offset behind the batch that it gave last, -1 before the first
    cdef readonly object change        # the LogChangedError at which it ended; None if it did not
    cdef readonly bint is_stopped      # it gives nothing any more
    cdef readonly bint is_done         # it has given `most` rows

    def __init__(self, scanner, make, failed=None, int64_t most=INT64_MAX):
        self.scanner, self.make, self.failed = scanner, make, failed
        self.next_offset, self.left = -1, most

    def stop(self):
        """Nothing more is given; from any thread."""
        self.is_stopped = True

    @property
    def skipped(self):
        """What on_error="skip" has left out so far."""
        return self.scanner.skipped

    def __iter__(self):
        return self

    def __next__(self):
        if self.is_stopped or self.change is not None:
            raise StopIteration
        if self.left <= 0:
            self.is_done = True
            raise StopIteration
        try:
            batch = next(self.scanner)
            behind = batch.column("offset").values[-1].item() + 1
            given = self.make(batch)
        except LogChangedError as e:
            self.change = e
        except StopIteration:
            raise
        except Exception as e:
            self.is_stopped = True  # whoever goes on reads what was not given again
            if self.failed is None:
                raise
            self.failed(e)
        else:
            self.left -= len(batch)
            self.next_offset = behind
            return given
        raise StopIteration
