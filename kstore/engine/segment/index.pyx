# cython: binding=False, embedsignature=True
"""The three indexes of a segment (spec 3), held in memory.

offset index       8 bytes an entry: i32 offset - base_offset, i32 position of the batch whose last offset it is
time index        12 bytes an entry: i64 largest timestamp so far, i32 offset - base_offset
transaction index 34 bytes an entry: i16 version, i64 producer id, first, last and last stable offset

IndexEntries is what the first two have in common: entries of one size, as they are in the file. They are in
memory of their own, or in a mapped file, where they are appended. A view of a mapped index has a count of its
own, which no append changes. A reader copies the entries once (2 MB for a segment of 1 GiB) instead of
mapping the file: a broker shortens index files when it rolls, and a map of a shortened file kills the
process. The writer, who owns its files, maps them; if another program shortens them nevertheless,
entries become zeros.

The file is long because the three share their entries and their errors.
"""

from kstore.light_typing import NamedTuple

from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_FromStringAndSize, PyBytes_GET_SIZE
from cpython.long cimport PyLong_AsLongLongAndOverflow, PyLong_CheckExact
from cpython.mem cimport PyMem_RawFree, PyMem_RawRealloc
from cython cimport final, no_gc, no_gc_clear
from libc.stdint cimport INT32_MAX, INT64_MAX, INT64_MIN, int32_t, int64_t, uint32_t, uint64_t, uint8_t
from libc.string cimport memcpy

from kstore.engine.io.buffers cimport MappedFile
from libkstore.format cimport (
    KS_ABORTED_ENTRY,
    KS_OFFSET_ENTRY,
    KS_TIME_ENTRY,
    ks_aborted_txn,
    ks_load_i32,
    ks_parse_aborted_txn,
    ks_store_u32,
    ks_store_u64,
)

from kstore.arguments import integer
from kstore.errors import CorruptIndexError


cdef int64_t int64_of(str name, value) except? -2:
    """What a caller gave, as an int64. TypeError for what is no int, ValueError out of range."""
    cdef int overflow = 0
    cdef int64_t number
    if PyLong_CheckExact(value):
        number = PyLong_AsLongLongAndOverflow(value, &overflow)
        if not overflow:
            return number
    return integer(name, value, INT64_MIN, INT64_MAX)


@no_gc  # it refers to text and a file only, so it is in no cycle; the collector would take the mapping away first
cdef class IndexEntries:
    """Entries whose offsets are relative to `base_offset`. Readers may share them; appending is for one at a
    time."""

    def __dealloc__(self):
        PyMem_RawFree(self.own)

    @final
    cdef int begin(
        self, str what, int64_t width, int64_t base_offset, bytes entries, str path, int64_t max_entries
    ) except -1:
        """What both kinds begin with: entries as they are in a file, copied. CorruptIndexError if not
        whole."""
        cdef int64_t size = PyBytes_GET_SIZE(entries)
        self.base_offset = base_offset
        self.path = path
        self.max_entries = max_entries
        self.width = width
        if size % width:
            raise CorruptIndexError(
                f"size of {what}", file=path, position=size, expected=f"a multiple of {width}", found=size
            )
        return self.copy_from(<const uint8_t *>PyBytes_AS_STRING(entries), size)

    @final
    cdef int copy_from(self, const uint8_t *data, int64_t size) except -1:
        """Takes over whole entries as they are in a file."""
        self.count = self.room = size // self.width
        if size:
            self.own = <uint8_t *>PyMem_RawRealloc(NULL, <size_t>size)
            if self.own is NULL:
                raise MemoryError()
            self.data = self.own
            memcpy(self.data, data, <size_t>size)
        return 0

    @final
    cdef IndexEntries mapped(self, MappedFile owner):
        """An index of this kind that appends to a mapped file, after these entries. OSError: no room."""
        cdef int64_t size = self.count * self.width
        cdef IndexEntries index = type(self)(
            self.base_offset, path=owner.file.path, max_entries=owner.size // self.width
        )
        index.owner = owner
        index.data = owner.data
        index.room = index.max_entries
        if owner.reserve(size) < 0:
            owner.file.raise_errno()
        if size:
            memcpy(index.data, self.data, <size_t>size)
        index.count = self.count
        return index

    @final
    cdef IndexEntries view(self, int64_t count):
        """The first `count` entries of a mapped index, which no append changes any more."""
        cdef IndexEntries index = type(self)(self.base_offset, path=self.path, max_entries=self.max_entries)
        index.owner = self.owner
        index.data = self.data
        index.shown = True
        index.count = index.room = count
        return index

    @final
    cdef int one_more(self, int64_t offset) noexcept nogil:
        """Sees to it that an entry of this offset can be put behind the last: 0 or why not."""
        cdef int64_t more
        cdef uint8_t *data
        if offset < self.base_offset or <uint64_t>(offset - self.base_offset) > <uint64_t>INT32_MAX:
            return INDEX_RANGE
        if self.shown:
            return INDEX_FULL
        if self.count < self.room:
            return 0
        if self.owner is not None:
            return INDEX_FULL
        more = max(<int64_t>64, 2 * self.room)
        data = <uint8_t *>PyMem_RawRealloc(self.own, <size_t>(more * self.width))
        if data is NULL:
            return INDEX_MEMORY
        self.data = self.own = data
        self.room = more
        return 0

    @final
    cdef object shortened(self):
        """The CorruptIndexError of a mapped file that another program has shortened; None if none has."""
        if self.owner is None or not self.owner.look():
            return None
        return CorruptIndexError(
            "size of a writer's index", file=self.owner.file.path, expected=self.owner.state.length, found="fewer bytes"
        )

    def __len__(self):
        return self.count

    def to_bytes(self):
        """The entries as a file holds them."""
        return PyBytes_FromStringAndSize(<char *>self.data, self.count * self.width) if self.count else b""


class OffsetPosition(NamedTuple):
    """An entry of the offset index: the last offset of a batch, and the byte where that batch begins."""

    offset: int
    position: int


class TimestampOffset(NamedTuple):
    """An entry of the time index: a largest timestamp so far, and the last offset of the first batch to have
    it."""

    timestamp: int
    offset: int


class AbortedTxn(NamedTuple):
    """An aborted transaction, as the transaction index (a .txnindex file) has it.

    Its producer, its first offset, the offset of its marker (`last_offset`), and the last stable offset after
    it.
    """

    producer_id: int
    first_offset: int
    last_offset: int
    last_stable_offset: int
    version: int = 0


cdef int raise_put(int status, str what, int64_t base_offset, int64_t offset, last) except -1:
    if status == INDEX_MEMORY:
        raise MemoryError()
    if status == INDEX_FULL:
        raise ValueError(f"the {what} index is full")
    if status == INDEX_RANGE:
        raise OverflowError(f"offset {offset} cannot be told relative to base offset {base_offset}")
    raise ValueError(f"{what} {offset} is not above the last one indexed, {last}")


@final
@no_gc
cdef class OffsetIndex(IndexEntries):
    """The offset index of one segment. Offsets rise strictly; lookups are floor searches (spec 3.2)."""

    def __cinit__(
        self, int64_t base_offset, bytes entries not None=b"", *, str path not None="", int64_t max_entries=INT32_MAX,
    ):
        self.begin("an offset index", KS_OFFSET_ENTRY, base_offset, entries, path, max_entries)

    cdef int64_t floor(self, int64_t target) noexcept nogil:
        """Slot of the largest entry with offset <= target, or -1.

        Offsets grow nearly evenly with their slots, so the slot is guessed from the ends; where the guess is
        off, the bounds are moved out by doubled steps, and a search that no comparison makes branch does the
        rest."""
        cdef int64_t n = self.count, low, high, half, first, last
        cdef int64_t step = 4
        if n == 0:
            return -1
        first = ks_load_i32(self.data)
        last = ks_load_i32(self.data + (n - 1) * KS_OFFSET_ENTRY)
        target -= self.base_offset
        if target < first:
            return -1
        if target >= last:
            return n - 1
        low = <int64_t>(<double>(target - first) * <double>(n - 1) / <double>(last - first))
        if low >= n:  # cannot be, unless entries are out of order
            low = n - 1
        high = low + step
        while low > 0 and ks_load_i32(self.data + low * KS_OFFSET_ENTRY) > target:
            high = low
            low = max(<int64_t>0, low - step)
            step *= 4
        step = 4
        while high < n and ks_load_i32(self.data + high * KS_OFFSET_ENTRY) <= target:
            low = high
            high = min(n, high + step)
            step *= 4
        n = min(high, n) - low
        while n > 1:
            half = n >> 1
            low = low + half if ks_load_i32(self.data + (low + half) * KS_OFFSET_ENTRY) <= target else low
            n -= half
        return low

    cdef int64_t floor_position(self, int64_t position) noexcept nogil:
        """Slot of the largest entry with position < `position`, or -1."""
        cdef int64_t low = 0, n = self.count, half
        if n == 0 or self.position_at(0) >= position:
            return -1
        while n > 1:
            half = n >> 1
            low = low + half if self.position_at(low + half) < position else low
            n -= half
        return low

    cdef int put(self, int64_t offset, int64_t position) noexcept nogil:
        cdef uint8_t *p
        cdef int status
        if self.count and offset <= self.offset_at(self.count - 1):
            return INDEX_ORDER
        status = self.one_more(offset)
        if status < 0:
            return status
        p = self.data + self.count * KS_OFFSET_ENTRY
        ks_store_u32(p, <uint32_t>(offset - self.base_offset))
        ks_store_u32(p + 4, <uint32_t>position)
        self.count += 1
        return 0

    @property
    def last_offset(self):
        """Offset of the last entry; the base offset of an empty index."""
        return self.offset_at(self.count - 1) if self.count else self.base_offset

    @property
    def is_full(self):
        return self.count >= self.max_entries

    def entry(self, slot):
        """The entry in `slot`; ValueError past the last."""
        cdef int64_t at = int64_of("slot", slot)
        if not 0 <= at < self.count:
            raise ValueError(f"slot {slot} of an index of {self.count} entries")
        return OffsetPosition(self.offset_at(at), self.position_at(at))

    def __iter__(self):
        cdef int64_t slot
        for slot in range(self.count):
            yield OffsetPosition(self.offset_at(slot), self.position_at(slot))

    def lookup(self, target, /):
        """(offset, position) of the largest entry with offset <= target; (base_offset, 0) if there is
        none."""
        cdef int64_t slot = self.floor(int64_of("target", target))
        if slot < 0:
            return self.base_offset, 0
        return self.offset_at(slot), self.position_at(slot)

    def fetch_upper_bound(self, position, size):
        """The smallest entry with position >= position + size, or None (spec 3.2; 32-bit sums, as Kafka's).

        Where that is the first entry, and exactly there, Kafka takes the next (spec 3.1), and so do we."""
        cdef uint64_t behind = <uint64_t>int64_of("position", position) + <uint64_t>int64_of("size", size)
        cdef int32_t end = <int32_t><uint32_t>behind
        cdef int64_t slot = self.floor_position(end) + 1
        if slot == 0 and self.count and self.position_at(0) == end:
            slot = 1
        if slot >= self.count or self.position_at(slot) < end:  # below: entries are out of order, and tell nothing
            return None
        return OffsetPosition(self.offset_at(slot), self.position_at(slot))

    def append(self, int64_t offset, int64_t position):
        """Adds an entry. ValueError when full or out of order, OverflowError past base offset + 2^31 - 1."""
        if self.is_full:
            raise ValueError(f"the index is full at {self.count} entries")
        cdef int status = self.put(offset, position)
        if status:
            raise_put(status, "offset", self.base_offset, offset, self.last_offset)

    def truncate_to(self, int64_t offset):
        """Removes the entries with offset >= `offset`."""
        cdef int64_t slot = self.floor(offset)
        self.count = 0 if slot < 0 else slot if self.offset_at(slot) == offset else slot + 1

    def check(self):
        """CorruptIndexError unless offsets and positions rise from entry to entry, and start at base or
        above."""
        cdef int64_t slot, last = self.base_offset - 1, at = -1
        for slot in range(self.count):
            if self.offset_at(slot) <= last or self.position_at(slot) <= at:
                raise CorruptIndexError(
                    "entry of an offset index",
                    file=self.path,
                    position=slot * KS_OFFSET_ENTRY,
                    expected=f"offset above {last} and position above {at}",
                    found=(self.offset_at(slot), self.position_at(slot)),
                )
            last, at = self.offset_at(slot), self.position_at(slot)

    cdef int check_positions(self, int64_t size) except -1:
        """CorruptIndexError unless the last position is below `size`, that of the log."""
        if self.count and self.position_at(self.count - 1) >= size:
            raise CorruptIndexError(
                "position in an offset index",
                file=self.path,
                position=KS_OFFSET_ENTRY * self.count - 4,
                expected=f"below {size}, the size of the log",
                found=self.position_at(self.count - 1),
            )
        return 0

    cdef void keep_rising(self, int64_t offset, int64_t position) noexcept nogil:
        """Keeps the entries up to the first that does not rise, or is not below these."""
        cdef int64_t slot, last = self.base_offset - 1, at = -1
        for slot in range(self.count):
            if not (last < self.offset_at(slot) < offset and at < self.position_at(slot) < position):
                self.count = slot
                return
            last, at = self.offset_at(slot), self.position_at(slot)

    def sanity_check(self):
        """Kafka's own, weaker check (spec 3.2): the last offset is not below the base offset."""
        if self.count and self.last_offset < self.base_offset:
            raise CorruptIndexError(
                "last offset of an offset index",
                file=self.path,
                position=(self.count - 1) * KS_OFFSET_ENTRY,
                expected=f"at least {self.base_offset}",
                found=self.last_offset,
            )

    def copy(self):
        """An index with these entries, in memory of its own."""
        return OffsetIndex(self.base_offset, self.to_bytes(), path=self.path)


@final
@no_gc
cdef class TimeIndex(IndexEntries):
    """The time index of one segment. Timestamps rise strictly, offsets do not fall (spec 3.3)."""

    def __cinit__(
        self, int64_t base_offset, bytes entries not None=b"", *, str path not None="", int64_t max_entries=INT32_MAX,
    ):
        self.begin("a time index", KS_TIME_ENTRY, base_offset, entries, path, max_entries)

    cdef int64_t floor(self, int64_t timestamp) noexcept nogil:
        """Slot of the largest entry with timestamp <= `timestamp`, or -1."""
        cdef int64_t low = 0, n = self.count, half
        if n == 0 or timestamp < self.timestamp_at(0):
            return -1
        while n > 1:
            half = n >> 1
            low = low + half if self.timestamp_at(low + half) <= timestamp else low
            n -= half
        return low

    cdef int put(self, int64_t timestamp, int64_t offset) noexcept nogil:
        """Adds an entry if `timestamp` is above the last one's (spec 3.3, maybeAppend without the test for
        full)."""
        cdef uint8_t *p
        cdef int status
        if self.count and (offset < self.offset_at(self.count - 1) or timestamp < self.timestamp_at(self.count - 1)):
            return INDEX_ORDER
        if timestamp <= (self.timestamp_at(self.count - 1) if self.count else -1):
            return 0
        status = self.one_more(offset)
        if status < 0:
            return status
        p = self.data + self.count * KS_TIME_ENTRY
        ks_store_u64(p, <uint64_t>timestamp)
        ks_store_u32(p + 8, <uint32_t>(offset - self.base_offset))
        self.count += 1
        return 0

    @property
    def last_entry(self):
        """The last entry; (-1, base_offset) of an empty index."""
        if self.count == 0:
            return TimestampOffset(-1, self.base_offset)
        return TimestampOffset(self.timestamp_at(self.count - 1), self.offset_at(self.count - 1))

    @property
    def is_full(self):
        """One slot is kept for the entry that a roll adds."""
        return self.count >= self.max_entries - 1

    def entry(self, slot):
        """The entry in `slot`; ValueError past the last."""
        cdef int64_t at = int64_of("slot", slot)
        if not 0 <= at < self.count:
            raise ValueError(f"slot {slot} of an index of {self.count} entries")
        return TimestampOffset(self.timestamp_at(at), self.offset_at(at))

    def __iter__(self):
        cdef int64_t slot
        for slot in range(self.count):
            yield TimestampOffset(self.timestamp_at(slot), self.offset_at(slot))

    def lookup(self, timestamp, /):
        """(timestamp, offset) of the largest entry with timestamp <= the one asked; (-1, base_offset) for
        none."""
        cdef int64_t slot = self.floor(int64_of("timestamp", timestamp))
        if slot < 0:
            return -1, self.base_offset
        return self.timestamp_at(slot), self.offset_at(slot)

    def maybe_append(self, int64_t timestamp, int64_t offset, *, bint skip_full_check=False):
        """Adds an entry if `timestamp` is above the last (spec 3.3). ValueError when full or when either
        falls."""
        if not skip_full_check and self.is_full:
            raise ValueError(f"the index is full at {self.count} entries")
        cdef int status = self.put(timestamp, offset)
        if status:
            raise_put(status, "entry", self.base_offset, offset, self.last_entry)

    def truncate_to(self, int64_t offset):
        """Removes the entries with offset >= `offset`."""
        while self.count and self.offset_at(self.count - 1) >= offset:
            self.count -= 1

    def check(self):
        """CorruptIndexError unless timestamps rise, offsets do not fall, and both start where they may."""
        cdef int64_t slot, last = -1, at = self.base_offset
        for slot in range(self.count):
            if self.timestamp_at(slot) <= last or self.offset_at(slot) < at:
                raise CorruptIndexError(
                    "entry of a time index",
                    file=self.path,
                    position=slot * KS_TIME_ENTRY,
                    expected=f"timestamp above {last} and offset not below {at}",
                    found=(self.timestamp_at(slot), self.offset_at(slot)),
                )
            last, at = self.timestamp_at(slot), self.offset_at(slot)

    cdef void keep_rising(self, int64_t offset) noexcept nogil:
        """Keeps the entries up to the first that does not rise, or lies above this offset."""
        cdef int64_t slot, last = -1, at = self.base_offset
        for slot in range(self.count):
            if self.timestamp_at(slot) <= last or not at <= self.offset_at(slot) <= offset:
                self.count = slot
                return
            last, at = self.timestamp_at(slot), self.offset_at(slot)

    def sanity_check(self):
        """Kafka's own check (spec 3.3): the last timestamp not below the first, the last offset not below the
        base."""
        if self.count == 0:
            return
        if self.timestamp_at(self.count - 1) < self.timestamp_at(0) or self.last_entry.offset < self.base_offset:
            raise CorruptIndexError(
                "last entry of a time index",
                file=self.path,
                position=(self.count - 1) * KS_TIME_ENTRY,
                expected=f"timestamp from {self.timestamp_at(0)}, offset from {self.base_offset}",
                found=tuple(self.last_entry),
            )

    def copy(self):
        """An index with these entries, in memory of its own."""
        return TimeIndex(self.base_offset, self.to_bytes(), path=self.path)


@final
@no_gc_clear  # its methods rely on the list, which the collector empties by itself
cdef class TransactionIndex:
    """The aborted transactions whose markers lie in one segment, in the order of their markers (spec 3.4)."""

    cdef readonly int64_t base_offset
    cdef readonly str path
    cdef list _entries

    def __cinit__(self, int64_t base_offset, bytes entries not None=b"", *, str path not None=""):
        self.base_offset = base_offset
        self.path = path
        self._entries = []
        cdef ks_aborted_txn txn
        cdef const uint8_t *p = <const uint8_t *>PyBytes_AS_STRING(entries)
        cdef int64_t at
        for at in range(0, PyBytes_GET_SIZE(entries) - KS_ABORTED_ENTRY + 1, KS_ABORTED_ENTRY):
            ks_parse_aborted_txn(p + at, &txn)
            if p[at]:  # the high byte, which is what Kafka reads back
                raise CorruptIndexError(
                    "version of an aborted transaction", file=path, position=at, expected=0, found=txn.version
                )
            self._entries.append(
                AbortedTxn(txn.producer_id, txn.first_offset, txn.last_offset, txn.last_stable_offset, txn.version)
            )

    @property
    def is_empty(self):
        return not self._entries

    def __len__(self):
        return len(self._entries)

    def __iter__(self):
        return iter(self._entries)

    def append(self, txn, /):
        """Adds an AbortedTxn. ValueError unless its last offset is above that of the entry before."""
        if self._entries and txn.last_offset <= self._entries[-1].last_offset:
            raise ValueError(f"last offset {txn.last_offset} is not above {self._entries[-1].last_offset}")
        self._entries.append(txn)

    def collect(self, fetch_offset, upper_bound):
        """(transactions overlapping the range, whether later segments need not be asked) as spec 3.4 has
        it."""
        cdef int64_t first = int64_of("fetch_offset", fetch_offset), end = int64_of("upper_bound", upper_bound)
        found = []
        for txn in self._entries:
            if txn.last_offset >= first and txn.first_offset < end:
                found.append(txn)
            if txn.last_stable_offset >= end:
                return found, True
        return found, False

    def truncate_to(self, int64_t offset):
        """Removes everything from the first entry with last offset >= `offset` on."""
        for slot, txn in enumerate(self._entries):
            if txn.last_offset >= offset:
                del self._entries[slot:]
                return

    def sanity_check(self, int64_t end_offset=INT64_MAX):
        """CorruptIndexError if a marker does not lie in the segment, which ends before `end_offset`, or not
        behind the one before it, or not behind its transaction's first record. Kafka looks for markers below
        the segment only."""
        cdef int64_t least = self.base_offset
        for slot, txn in enumerate(self._entries):
            if not max(least, txn.first_offset) <= txn.last_offset < end_offset:
                raise CorruptIndexError(
                    "last offset of an aborted transaction",
                    file=self.path,
                    position=slot * KS_ABORTED_ENTRY,
                    expected=f"from {max(least, txn.first_offset)} to {end_offset - 1}",
                    found=txn.last_offset,
                )
            least = txn.last_offset + 1

    def to_bytes(self):
        """The entries as a file holds them."""
        import struct

        return b"".join(
            struct.pack(">hqqqq", t.version, t.producer_id, t.first_offset, t.last_offset, t.last_stable_offset)
            for t in self._entries
        )
