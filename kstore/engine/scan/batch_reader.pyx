# cython: binding=False
"""Reading on and on: batch after batch over segments, and the records in them.

Order is checked as well as checksums, because the CRC of a v2 batch does not cover its offsets: a batch must
begin above the one before it, and end below the one after it, below the next segment and below the end of the
log. A batch that seems to lie behind what is wanted ends the reading only where its neighbours bear it out.

The file is long because most of it tells apart the ways in which a log can be damaged or can change during a
read.
"""

from kstore.light_typing import NamedTuple

from cpython.exc cimport PyErr_CheckSignals
from cpython.ref cimport Py_INCREF, PyObject
from cpython.tuple cimport PyTuple_SET_ITEM
from cython cimport final, no_gc_clear
from libc.stdint cimport INT64_MAX, int64_t

from kstore.engine.io.traffic cimport BYTES_OUT, RECORDS_OUT, Traffic, monotonic_ns
from kstore.engine.record.batch cimport Record, RecordBatch, Records, raise_fault
from kstore.engine.record.batch_walk cimport WALK_DAMAGED, FAR, WALK_NONE, WALK_SYSTEM, step
from kstore.engine.segment.index cimport OffsetIndex, TimeIndex
from kstore.engine.segment.walks cimport SegmentEnd
from libkstore.format cimport (
    KS_BATCH_OVERHEAD,
    KS_CONTROL,
    KS_E_OFFSET,
    KS_E_SHORT,
    KS_MAGIC_END,
    KS_MIN_SIZE,
    KS_OK,
    KS_TRANSACTIONAL,
    ks_check_batch,
    ks_codec,
    ks_fail,
    ks_fault,
    ks_load_i32,
    ks_load_i64,
)

from kstore.engine.record.batch import control_type
from kstore.errors import CorruptFileError, CorruptRecordError, LogChangedError, RecordTooLargeError

cdef extern from "Python.h":
    object PyType_GenericAlloc(type kind, Py_ssize_t count)
    PyObject *PyIter_Next(object records) except? NULL

cdef extern from *:
    """
    /* From 3.14 on a tuple remembers its hash. The one reference is that of the caller's variable. */
    #if PY_VERSION_HEX < 0x030E0000 && !defined(Py_GIL_DISABLED)
    #define ks_is_unshared(made) (Py_REFCNT(made) == 1)
    #else
    #define ks_is_unshared(made) 0
    #endif
    /* Puts None, or a new reference to a record, in the place of the record. */
    static void ks_give_item(PyObject *made, PyObject *record) {
        PyObject *old = PyTuple_GET_ITEM(made, 2);
        PyTuple_SET_ITEM(made, 2, record);
        Py_DECREF(old);
    }
    static void ks_take_item(PyObject *made) {
        ks_give_item(made, Py_NewRef(Py_None));
    }
    /* NULL at the end and for an error: ks_check_end tells them apart. */
    static PyObject *ks_next_of(PyObject *iterator) {
        return Py_TYPE(iterator)->tp_iternext(iterator);
    }
    static int ks_check_end(void) {
        if (!PyErr_Occurred())
            return 0;
        if (!PyErr_ExceptionMatches(PyExc_StopIteration))
            return -1;
        PyErr_Clear();
        return 0;
    }
    """
    bint is_unshared "ks_is_unshared"(PyObject *made) noexcept
    void give_item "ks_give_item"(PyObject *made, PyObject *record) noexcept
    void take_item "ks_take_item"(PyObject *made) noexcept
    PyObject *next_of "ks_next_of"(object iterator) noexcept
    int check_end "ks_check_end"() except -1

cdef enum:
    SOON = 128 << 10  # bytes read at once to begin with: who stops soon has not read much more
    STEPS = 4 << 20  # bytes tried one by one, as the beginning of a batch, between two looks at signals
    SIZE_END = 12  # bytes of a batch that may begin in a hole: at least one up to the end of its size is not 0


class Skipped(NamedTuple):
    """What on_error="skip" left out: `size` bytes at byte `position` of `file`, because of `error`."""

    file: str
    position: int
    size: int
    error: Exception


@no_gc_clear  # C code that runs below it relies on its attributes; whatever cycle it is in, others break it
cdef class Reader:
    """Walks the batches of segments, from the first with last offset >= start_offset, while base offset <
    stop_offset.

    `first_position` and `byte_limit` narrow it to a part of the first segment (a slice). `end_offset` is
    where the log ends: a batch that reaches it is damaged. `after`: the last offset of the batch before, if
    it is known to end there. `ends_at_change`: where a file is no longer what the segment shows, it ends, and
    `change` says why; else it raises that. One thread at a time.

    `next_offset` is the offset behind what it gave last, -1 before the first. After stop() it gives nothing.
    """

    def __cinit__(
        self,
        tuple segments not None,
        int64_t start_offset=0,
        int64_t stop_offset=INT64_MAX,
        *,
        int64_t first_position=-1,
        int64_t byte_limit=-1,
        int64_t end_offset=INT64_MAX,
        str on_error="raise",
        bint control=False,
        aborted=None,
        pages=None,
        Traffic traffic=None,
        int64_t after=-1,
        bint ends_at_change=False,
    ):
        if on_error not in ("raise", "skip"):
            raise ValueError(f'on_error is "raise" or "skip", not {on_error!r}')
        self.segments = segments
        self.start_offset = start_offset
        self.stop_offset = stop_offset
        self.end_offset = end_offset
        self.skip = on_error == "skip"
        self.control = control
        self.skipped = []
        self.last_offset = self.offset_before = after
        self.at = self.next_offset = -1
        self.ends_at_change = ends_at_change
        self.window = ReadWindow.__new__(ReadWindow)
        self.index = -1
        self.end = byte_limit
        self.position = first_position
        self.strict_tail = byte_limit < 0
        self.pages = pages
        self.traffic = traffic
        self.mark = self.latest = INT64_MAX
        self.most_ahead = FAR
        self.patience = LONGEST
        if aborted is not None:
            self.aborted = sorted(((first, pid, marker) for pid, first, marker in aborted), reverse=True)
            self.aborting = {}

    def __repr__(self):
        stop = "the end" if self.stop_offset == INT64_MAX else self.stop_offset
        directory = self.segments[0].directory if self.segments else "an empty log"
        return f"<{type(self).__name__} of {directory}: offsets {self.start_offset} to {stop} (exclusive)>"

    def stop(self):
        """Nothing more is given; from any thread."""
        self.is_stopped = True

    cdef int enter(self) except -1:
        """Begins a step of the iteration; `busy` is put back behind it. RuntimeError where another is under
        way: in another thread, or below a signal handler."""
        if self.busy:
            raise RuntimeError("this iterator is being read already; each thread needs one of its own")
        self.busy = True
        return 0

    cdef void tell_traffic(self) noexcept:
        if self.traffic is not None:
            self.traffic.totals[BYTES_OUT] += self.read_bytes
            self.traffic.totals[RECORDS_OUT] += self.read_records
        self.read_bytes = self.read_records = 0

    cdef bint next_segment(self) except -1:
        """Opens the next segment; False after the last. `index` moves on once it is open, or is passed over: after
        an exception the next call begins with it again."""
        cdef int64_t limit = 0
        cdef Py_ssize_t at
        cdef Segment segment
        while True:
            self.segment = None
            at = self.index + 1
            if at >= len(self.segments) or (<Segment?>self.segments[at]).base_offset >= self.stop_offset:
                if self.pages is not None:
                    self.pages.leave()
                if self.skip:
                    self.index = at
                return False
            segment = self.segments[at]
            self.bound = min(segment.end_offset, self.end_offset)
            self.least = -1
            try:
                limit = segment.limit()
                self.window.reset(segment.files.opened(), limit, segment.origin)
                if self.window.file.fill is not None:
                    self.window.reach = self.window.stop = self.reach(segment)
                if at == 0 and self.position >= 0:
                    limit = limit if self.end < 0 else min(limit, self.position + self.end)
                    self.window.limit = limit
                    if not self.strict_tail:
                        self.least = self.start_offset
                else:
                    if at == 0 and self.start_offset > segment.base_offset:
                        self.least = self.start_offset
                    self.go_to(segment, segment.scan_start(self.start_offset))
                self.begun = self.position
                if self.pages is not None:
                    self.mark = self.pages.enter(segment, self.position, limit)
            except (CorruptRecordError, OSError) as e:
                # A file that cannot be read at this moment need not be damaged.
                if not self.skip or not isinstance(e, (CorruptRecordError, FileNotFoundError)) or (
                    self.ends_at_change and isinstance(e, LogChangedError)
                ):
                    self.tell_of(segment, e)
                if not isinstance(e, CorruptRecordError):
                    self.skipped.append(Skipped(segment.path, 0, 0, e))
                    self.index = at
                    continue
                self.position = self.begun = 0  # the batch wanted is behind damage: go there from the start
                self.least = -1
                if self.at < 0:
                    self.last_offset = self.offset_before = -1
            self.end = limit
            self.index = at
            self.segment = segment
            return True

    cdef int64_t reach(self, Segment segment) except -1:
        """A byte of a segment, as near as its indexes have one, behind all batches that are wanted."""
        cdef int64_t slot, stop = self.stop_offset
        cdef TimeIndex times
        cdef OffsetIndex offsets
        if self.latest < INT64_MAX:
            times = segment.times()
            slot = times.floor(self.latest) + 1
            if slot < times.count:
                stop = min(stop, times.offset_at(slot) + 1)
        if stop >= segment.end_offset:
            return segment.limit()
        offsets = segment.offsets()
        slot = offsets.floor(stop - 1) + 2  # the entry before it is of the batch that has the offset, or of a later one
        return min(offsets.position_at(slot), segment.limit()) if slot < offsets.count else segment.limit()

    cdef int64_t ahead(self, int64_t position) noexcept nogil:
        """How much to read at once at `position`: as much again as has been passed, from SOON to
        most_ahead."""
        return min(max(position - self.begun, <int64_t>SOON), self.most_ahead)

    cdef void bring(self, int64_t position, int64_t size) noexcept:
        """Lets other threads run while bytes are read that header() or check() would read with the GIL
        held."""
        if not self.window.holds(position, size):
            with nogil:
                self.window.fill(position, size, self.ahead(position))

    cdef int64_t header(self, int64_t position, ks_fault *fault) noexcept nogil:
        """Size of what is at `position`, its header in self.batch; WALK_NONE at the end, WALK_DAMAGED,
        WALK_SYSTEM."""
        return step(self.window, position, self.ahead(position), &self.batch, fault)

    cdef int check(self, int64_t position, int64_t size, ks_fault *fault) noexcept nogil:
        """0 if the batch at `position` is sound and in order; else WALK_DAMAGED or WALK_SYSTEM."""
        cdef int64_t have = self.window.fill(position, size, self.ahead(position))
        cdef int status
        if have < 0:
            return WALK_SYSTEM
        status = ks_check_batch(self.window.at(position), self.window.at(position) + have, &self.batch, fault)
        # `in_order` reports a negative base offset, with the one that is expected
        if status != KS_OK and not (status == KS_E_OFFSET and self.batch.base_offset < 0):
            return WALK_DAMAGED
        return self.in_order(position, size, fault)

    cdef int in_order(self, int64_t position, int64_t size, ks_fault *fault) noexcept nogil:
        """What `check` returns, for the offsets alone; only the header, in self.batch, must have been read."""
        cdef int64_t have, following
        cdef bint follows_on
        if self.batch.base_offset <= self.last_offset or self.batch.base_offset < self.segment.base_offset:
            ks_fail(fault, KS_E_OFFSET, 0, max(self.last_offset + 1, self.segment.base_offset), self.batch.base_offset)
            return WALK_DAMAGED
        if self.batch.last_offset >= self.bound:
            ks_fail(fault, KS_E_OFFSET, 0, self.bound - 1, self.batch.last_offset)
            return WALK_DAMAGED
        if self.batch.last_offset < self.least:  # the first batch that holds what is wanted was looked up
            ks_fail(fault, KS_E_OFFSET, 0, self.least, self.batch.last_offset)
            return WALK_DAMAGED
        # Two batches that overlap contradict each other, and the one that follows on from the batch before is
        # believed.
        follows_on = self.batch.base_offset == max(self.last_offset + 1, self.segment.base_offset)
        if not follows_on and self.segment._limit - position > size + KS_MAGIC_END:
            self.window.limit = self.segment._limit  # what follows a slice counts here
            have = self.window.fill(position, size + KS_MAGIC_END, self.ahead(position))
            self.window.limit = self.end
            if have < 0:
                return WALK_SYSTEM
            if have < size + KS_MAGIC_END:
                return 0
            following = ks_load_i64(self.window.at(position + size))
            # only where a batch seems to begin there; damage there is reported when the reader reaches it
            if (
                self.batch.last_offset >= following > self.last_offset
                and ks_load_i32(self.window.at(position + size) + 8) >= KS_MIN_SIZE
                and following >= self.segment.base_offset
                and self.window.at(position + size)[16] <= 2
            ):
                ks_fail(fault, KS_E_OFFSET, 0, following - 1, self.batch.last_offset)
                return WALK_DAMAGED
        return 0

    cdef bint ends_here(self, int64_t size) noexcept nogil:
        """Whether the batch at self.position, whose header is in self.batch, lies behind what is wanted. Its
        offset, which no checksum covers, must fit its neighbours."""
        cdef ks_fault fault
        return (
            self.batch.base_offset >= self.stop_offset
            and self.batch.magic == 2
            and self.batch.last_offset >= self.batch.base_offset
            and self.in_order(self.position, size, &fault) == 0
        )

    cdef int go_to(self, Segment segment, start) except -1:
        """Goes to where a scan of a segment begins; behind its last whole batch if nothing in it is
        wanted."""
        cdef SegmentEnd end
        if start is not None:
            self.position = self.begun = start.position
            return 0
        end = segment.end()
        self.position = self.begun = end.position
        self.last_offset = max(self.last_offset, end.next_offset - 1)
        return 0

    cdef bint ends_early(self) noexcept:
        """Whether offsets are missing that the log is known to have, and bytes are left where no batch is."""
        cdef int64_t wanted = min(self.stop_offset, self.end_offset)
        return self.end_offset < INT64_MAX and max(self.last_offset + 1, self.start_offset) < wanted

    cdef bint is_shortened(self) except -1:
        """Whether bytes of the slice are no longer in the file."""
        return self.segment.files.opened().length() < self.segment.origin + self.end

    cdef int tell(self, error) except -1:
        """Raises an error of the current segment; of a view, LogChangedError if a change of the file is the
        cause."""
        return self.tell_of(self.segment, error)

    cdef int tell_of(self, Segment segment, error) except -1:
        """Does what `tell` does, for another segment."""
        change = None
        if self.strict_tail and self.end_offset < INT64_MAX and isinstance(error, CorruptFileError):
            change = change_of(segment, max(self.last_offset + 1, self.start_offset))
        if change is not None:
            raise change from error
        raise error

    cdef int64_t resume(self, int64_t position) except -1:
        """The first byte from `position` on where a sound batch begins in order, or the end."""
        return self.search(position, self.end, 64 << 20)

    cdef int64_t search(self, int64_t position, int64_t until, int64_t spare) except -1:
        """The first byte from `position` on where a sound batch in order begins that ends at `until` or
        before; `until` if there is none.

        Bytes made to look like many large batches must not make this take the square of their number, nor a
        few of them the size of a hole: what is read for checksums is bounded, and past the bound the rest
        counts as damaged. `spare`: the bytes that may be read beyond 32 times those that are searched."""
        cdef int64_t budget = 32 * min(until - position, self.segment.files.opened().allocated()) + spare
        cdef int64_t origin = self.segment.origin, data, turn
        cdef int status = 1
        while status > 0 and position < until and budget >= 0:
            PyErr_CheckSignals()
            data = self.segment.files.opened().next_data(origin + position) - origin
            position = max(position, data - SIZE_END + 1)
            if position < data:
                turn = data
            else:
                turn = self.segment.files.opened().next_hole(origin + position) - origin
            with nogil:
                status = self.try_each(&position, min(min(turn, position + STEPS), until), until, &budget)
        if status == WALK_SYSTEM:
            self.window.raise_failure(-1)
        return min(position, until) if budget >= 0 else until

    cdef int try_each(self, int64_t *position, int64_t until, int64_t end, int64_t *budget) noexcept nogil:
        """Moves `position` up to `until`, or to a sound batch in order that ends at `end` or before: 0 then,
        WALK_SYSTEM on failure, else 1.

        `budget` is the bytes that checksums may still cost; not many more than LONGEST of them are spent
        here."""
        cdef ks_fault fault
        cdef int64_t size, least = budget[0] - LONGEST
        cdef int status
        while position[0] < until:
            size = self.header(position[0], &fault)
            if size == WALK_SYSTEM:
                return WALK_SYSTEM
            if size > 0 and position[0] + size <= end and self.batch.base_offset > self.last_offset:
                budget[0] -= size
                if budget[0] < 0:
                    return 1
                status = self.check(position[0], size, &fault)
                if status == 0 or status == WALK_SYSTEM:
                    return status
            position[0] += 1
            if budget[0] < least:
                return 1
        return 1

    cdef int64_t walk_to(self, int64_t position, int64_t until) noexcept nogil:
        """How far sound batches in order lead from a byte: to `until`, or to a byte before it where none
        is."""
        cdef ks_fault fault
        cdef int64_t size, before = self.last_offset
        while position < until:
            size = self.header(position, &fault)
            if size <= 0 or position + size > until or self.check(position, size, &fault):
                break
            self.last_offset = self.batch.last_offset
            position += size
        self.last_offset = before
        return position

    cdef int64_t sound_inside(self, int64_t position, int64_t until) except -1:
        """The first byte behind `position` from which sound batches lead to `until`, which is the end of the
        batch at `position` if its length is right; `until` if there is none.

        A record may have batches as its value: these do not lead there, because of what follows a value."""
        cdef int64_t first = position, reached = position
        while reached < until:
            first = self.search(reached + 1, until, 0)
            with nogil:
                reached = self.walk_to(first, until)
        return first

    cdef int leave_out(self, int64_t position, int64_t size, error) except -1:
        """Skips what is wrong at `position`. If a sound batch or the end follows where it should end: up to
        there, or to sound batches that lead there, as its length may be wrong. Else to the next sound batch
        found byte by byte."""
        cdef ks_fault fault
        cdef int64_t to = position + size if size > 0 else self.end, following
        PyErr_CheckSignals()
        cdef bint good = to == self.end and size > 0
        if size > 0 and not good:
            following = self.header(to, &fault)
            good = (
                following > 0
                and self.check(to, following, &fault) != WALK_SYSTEM
                and self.batch.base_offset > self.last_offset
            )
        to = self.sound_inside(position, to) if good else self.resume(position + 1)
        self.skipped.append(Skipped(self.segment.path, position, to - position, error))
        self.position = to
        return 0

    cdef bint advance(self) except -1:
        """Puts the next batch in order into self.batch, its bytes at self.window.at(self.at). False at the
        end."""
        cdef ks_fault fault
        cdef int64_t size
        cdef int status = 0
        while True:
            if self.patience < 0:
                self.patience = LONGEST
                PyErr_CheckSignals()
            if self.segment is None and not self.next_segment():
                return False
            self.bring(self.position, KS_BATCH_OVERHEAD)
            size = self.header(self.position, &fault)
            if size > 0:
                if self.batch.base_offset >= self.stop_offset and self.ends_here(size):
                    return False
                self.bring(self.position, size)
                status = self.check(self.position, size, &fault)
                if status == 0:
                    if self.position + size >= self.mark:
                        # Python code: if an interrupt ends it, the next call reads this batch again.
                        self.mark = self.pages.advance(self.position + size)
                    self.at = self.position
                    self.position += size
                    self.patience -= size
                    self.offset_before, self.last_offset = self.last_offset, self.batch.last_offset
                    if self.batch.last_offset < self.start_offset:
                        continue
                    self.read_bytes += size
                    self.read_records += 1 if self.batch.magic < 2 else self.batch.records_count
                    self.tell_traffic()
                    return True
                if status == WALK_SYSTEM:
                    self.window.raise_failure(-1)
            elif size == WALK_SYSTEM:
                self.window.raise_failure(-1)
            elif size == WALK_NONE:
                if self.position >= self.end or (not self.strict_tail and not self.is_shortened()) or (
                    # a torn tail ends the last segment in silence, as in Kafka, unless sound batches follow
                    # it
                    self.strict_tail
                    and self.index == len(self.segments) - 1
                    and not self.ends_early()
                    and self.resume(self.position + 1) >= self.end
                ):
                    self.segment = None
                    continue
                ks_fail(&fault, KS_E_SHORT, 0, -1, self.end - self.position)
            try:
                if size == WALK_NONE:
                    raise CorruptRecordError(
                        "the log was truncated while it was read" if self.is_shortened() else
                        "a batch that ends behind the segment, and more is there or should be",
                        file=self.segment.path,
                        position=self.position,
                        offset=self.last_offset + 1,
                        expected="a whole batch",
                        found=f"{self.end - self.position} bytes",
                    )
                raise_fault(&fault, self.segment.path, self.position, self.batch.base_offset if size > 0 else -1)
            except CorruptRecordError as e:
                if not self.skip:
                    self.tell(e)
                if size > 0 and status == WALK_DAMAGED and fault.status == KS_E_OFFSET and (
                    self.begun == self.position > 0
                ) and (
                    self.last_offset < 0 and self.strict_tail
                ):
                    # Which of two batches that contradict each other is wrong, only the batches before them
                    # show.
                    self.position = self.begun = 0
                    self.least = -1
                    continue
                self.leave_out(self.position, size, e)

    cdef bint wanted(self) except -1:
        """Whether readers of committed data see the current batch; keeps track of aborted transactions (spec
        7.2)."""
        cdef Record marker
        if self.aborted is None or self.batch.producer_id < 0:
            return True
        while self.aborted and self.aborted[len(self.aborted) - 1][0] <= self.batch.last_offset:
            _, producer_id, offset = self.aborted.pop()
            self.aborting[producer_id] = offset
        end = self.aborting.get(self.batch.producer_id) if self.aborting else None
        if end is not None and end < self.batch.base_offset:
            del self.aborting[self.batch.producer_id]  # its marker was left out, or is gone
        elif end is not None and end <= self.batch.last_offset and not self.batch.attributes & KS_CONTROL:
            self.aborting[self.batch.producer_id] = INT64_MAX  # the index is wrong: no marker is there
        if self.batch.attributes & KS_CONTROL:
            if self.aborting:
                records = self.records()
                marker = records.next()
                try:
                    if marker is not None and control_type(marker.key) == 0:
                        self.aborting.pop(self.batch.producer_id, None)
                except CorruptRecordError:
                    pass  # no marker that anyone can read, so it ends nothing
            return True
        return not (self.batch.attributes & KS_TRANSACTIONAL and self.batch.producer_id in self.aborting)

    cdef int broken(self, error) except -1:
        """The current batch's bytes are as written, but its records do not parse: notes it, or raises, now
        and whenever more is asked for."""
        if not self.skip:
            self.failure = error
            raise error
        self.skipped.append(Skipped(self.segment.path, self.at, self.batch.size, error))
        PyErr_CheckSignals()
        return 0

    cdef Records records(self):
        cdef Records records = self.unpacked()
        if records.legacy:  # only now it is known where a compressed message of an old format begins
            records.check_after(self.offset_before)
        return records

    cdef Records unpacked(self):
        cdef Records records = Records.__new__(Records)
        records.limit = self.segment.max_decompressed_bytes
        records.begin(self.window.at(self.at), &self.batch, self.segment.files.log_path(), self.at)
        return records

    cdef int check_begin(self) except -1:
        """CorruptRecordError if a compressed message begins in the batch before. Unpacking it raises for other
        damage."""
        cdef Records records
        try:
            records = self.unpacked()
        except (CorruptRecordError, RecordTooLargeError):
            return 0
        return records.check_after(self.offset_before)

    def __iter__(self):
        return self


@final
@no_gc_clear
cdef class BatchReader(Reader):
    """An iterator of RecordBatch objects. log.batches() and slice.batches() make one.

    Control batches are included. `skipped` lists what on_error="skip" left out. One thread at a time.
    """

    def __next__(self):
        self.enter()
        try:
            if self.failure is not None:
                raise self.failure
            while not self.is_stopped and self.advance():
                try:
                    if self.wanted():
                        if self.batch.magic < 2 and ks_codec(&self.batch):
                            self.check_begin()
                        batch = RecordBatch.new(
                            self.window.at(self.at), &self.batch, self.segment.files.log_path(), self.at,
                            self.segment.max_decompressed_bytes,
                        )
                        self.next_offset = self.batch.last_offset + 1
                        return batch
                except (CorruptRecordError, RecordTooLargeError) as e:  # a marker that cannot be read
                    self.broken(e)
        except LogChangedError as e:
            if not self.ends_at_change:
                raise
            self.change = e
        finally:
            self.busy = False
        raise StopIteration


@final
@no_gc_clear
cdef class RecordReader(Reader):
    """An iterator of Record objects. log.records() and slice.records() make one.

    `skipped` lists what on_error="skip" left out: of a batch that is damaged in its middle, the records
    before are given. One thread at a time.
    """

    cdef Records cursor

    def __next__(self):
        cdef Record record
        while not self.is_stopped:
            if self.cursor is None:
                self.enter()
                try:
                    if not self.next_batch():
                        raise StopIteration
                except LogChangedError as e:
                    if not self.ends_at_change:
                        raise
                    self.change = e
                    break
                finally:
                    self.busy = False
            self.enter()  # Python code runs where a record has headers, and must not move their bytes
            try:
                try:
                    record = self.cursor.next()
                finally:
                    self.busy = False
            except (CorruptRecordError, RecordTooLargeError) as e:
                self.cursor = None
                self.broken(e)
                continue
            if record is None:
                self.cursor = None
            elif self.cursor.offset >= self.start_offset:
                if self.cursor.offset >= self.stop_offset:
                    raise StopIteration
                self.next_offset = self.cursor.offset + 1
                return record
        raise StopIteration

    cdef bint next_batch(self) except -1:
        """Puts the cursor on the records of the next batch that has any for us. False at the end."""
        if self.failure is not None:
            raise self.failure
        while self.advance():
            try:
                if self.wanted() and (
                    self.control or self.batch.magic != 2 or not self.batch.attributes & KS_CONTROL
                ):
                    self.cursor = self.records()
                    return True
            except (CorruptRecordError, RecordTooLargeError) as e:
                self.broken(e)
        return False


@final
cdef class TopicRecords:
    """An iterator of tuples (topic, partition, record) of a subclass of tuple, for `count` records of what an
    iterator of iterators gives; for so many more, and more, until `least_ns` have passed. An exception goes
    to `failed`, which raises it; if it does not, this is the end.

    As zip() does, it uses a tuple again to which there is no other reference: one of the last two, because a
    loop holds one.
    The record in it goes before the next is made, which gets its memory."""

    cdef type kind
    cdef object topic, partition, readers, failed, last, before
    cdef object reader  # None: the next one is to be asked for
    cdef int64_t left, count
    cdef int64_t until  # in ns

    def __init__(
        self, type kind not None, topic, partition, readers, int64_t count, failed, *, int64_t least_ns=0
    ):
        if not issubclass(kind, tuple):
            raise TypeError(f"{kind!r} is no kind of tuple")
        self.kind, self.topic, self.partition = kind, topic, partition
        self.readers, self.failed, self.left, self.count = iter(readers), failed, count, count
        self.until = monotonic_ns() + least_ns
        self.reader = self.last = self.before = None

    def __iter__(self):
        return self

    def __next__(self):
        cdef PyObject *found = NULL
        if self.left <= 0:  # enough; or the end, or made without __init__
            if self.count <= 0 or monotonic_ns() >= self.until:
                raise StopIteration
            self.left = self.count
        reader = self.reader  # kept here, as is the tuple: a signal handler may come by here while the reader reads
        if self.last is not None and is_unshared(<PyObject *>self.last):
            made = self.last
        else:
            if self.before is not None and is_unshared(<PyObject *>self.before):
                made = self.before
            elif self.kind is None:  # the collector was here
                raise StopIteration
            else:
                made = self.made()  # before the record is taken: if there is no memory, it is still to come
            self.last, self.before = made, self.last
        take_item(<PyObject *>made)
        if reader is not None:
            found = next_of(reader)
        if found is NULL:
            found = self.next_found()
            if found is NULL:
                self.left = self.count = 0
                self.reader = self.last = self.before = None
                raise StopIteration
        self.left -= 1
        give_item(<PyObject *>made, found)
        return made

    cdef PyObject *next_found(self) except? NULL:
        """The record that comes when a reader has given none, with or without an error; NULL if there are no
        more."""
        cdef PyObject *found = NULL
        try:
            check_end()
            while found is NULL:
                self.reader = None
                reader = next(self.readers, None)
                if reader is None:
                    return NULL
                self.reader = reader = iter(reader)
                found = PyIter_Next(reader)
        except Exception as e:
            self.failed(e)
        return found

    cdef object made(self):
        made = PyType_GenericAlloc(self.kind, 3)
        set_item(made, 0, self.topic)
        set_item(made, 1, self.partition)
        set_item(made, 2, None)
        return made


cdef void set_item(object made, Py_ssize_t at, object item) noexcept:
    Py_INCREF(item)
    PyTuple_SET_ITEM(made, at, item)


def change_of(Segment segment not None, int64_t offset):
    """A LogChangedError if the .log of a segment was replaced, shortened or deleted since it was opened; None
    if it is as it was."""
    try:
        if not segment.files.is_at_its_name():
            return segment.files.changed("it was replaced", offset)
        if segment.files.opened().length() < segment.origin + segment.limit():
            return segment.files.changed("it was truncated", offset)
    except FileNotFoundError:
        return segment.files.changed("it was deleted", offset)
    return None
