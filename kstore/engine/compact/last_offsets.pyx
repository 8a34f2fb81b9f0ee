# cython: binding=False
"""The last offset of each key: in memory, as the log cleaner needs it (spec 10.3, 10.4), and in a .keys file.

A MapBuilder goes through the batches that are not cleaned yet and fills an OffsetMap. It does a part at each
call of `run`, so that the caller can stop, wait, or check for signals. Batches without codec, producer and
transaction pass with the GIL free.

A .keys file beside a sealed segment says where the last record of each of its keys is; key_file.h has the
layout. It is a hint. Its header says for which .log it was made, and each of its blocks has a checksum, so a
lookup reads one block, and nothing of it is kept in memory. It also has a checksum of each record: so a record
is read alone, and not its whole batch.
"""

import os
from kstore.light_typing import NamedTuple

from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_FromStringAndSize, PyBytes_GET_SIZE
from cpython.mem cimport PyMem_RawFree
from cython cimport final, no_gc, no_gc_clear
from libc.stdint cimport INT32_MAX, INT64_MAX, UINT32_MAX, int32_t, int64_t, uint32_t, uint64_t, uint8_t
from libc.stdlib cimport free
from libc.string cimport memcmp, memcpy, memset

from kstore.engine.io.buffers cimport ks_ensure
from kstore.engine.io.file cimport File, FileHandle
from kstore.engine.record.batch cimport Record, RecordBatch, Records, make_record, raise_fault
from kstore.engine.record.batch_walk cimport FAR, WALK_DAMAGED, WALK_NONE, WALK_SYSTEM, step
from kstore.engine.segment.segment cimport Segment
from libkstore.format cimport (
    KS_BATCH_OVERHEAD,
    KS_CONTROL,
    KS_E_COUNT,
    KS_E_OFFSET,
    KS_E_SHORT,
    KS_OK,
    KS_TRANSACTIONAL,
    ks_batch,
    ks_check_batch,
    ks_codec,
    ks_fail,
    ks_fault,
    ks_next_record,
    ks_parse_header,
    ks_plain_record,
    ks_read_varint,
    ks_record,
)

from kstore.errors import CorruptIndexError

cdef extern from "key_file.h" nogil:
    enum:
        KS_KEYS_HEADER
        KS_KEYS_BLOCK
    const char *KS_KEYS_MAGIC
    int64_t KS_KEYS_FAR
    int64_t ks_keys_place(uint32_t position, uint32_t sum)
    uint32_t ks_load_le32(const uint8_t *p)
    uint64_t ks_load_le64(const uint8_t *p)
    void ks_store_le(uint8_t *p, uint64_t value, int size)
    uint64_t ks_keys_home(ks_key_hash hash, uint64_t homes)
    uint32_t ks_keys_tag(ks_key_hash hash)
    uint32_t ks_keys_header_sum(const uint8_t *header)
    bint ks_keys_is_sound(const uint8_t *block, uint32_t header_sum, uint64_t number)
    bint ks_keys_goes_on(const uint8_t *block)
    ctypedef struct ks_keys_entry:
        uint32_t distance
        uint32_t place
        uint32_t sum
    int ks_keys_next(const uint8_t *block, uint32_t tag, int i)
    ks_keys_entry ks_keys_entry_at(const uint8_t *block, int i)
    uint32_t ks_keys_head_sum(const uint8_t *batch)
    uint32_t ks_keys_record_sum(uint32_t head, const uint8_t *p, size_t size)
    int ks_keys_pack(
        const ks_offset_map *m, const uint32_t *starts, int64_t batches, const uint8_t *header, uint8_t **file,
        int64_t *size
    )

cdef enum:
    FIRST_SLOTS = 1 << 12  # of a map
    MOST_SLOTS = 1 << 30
    ABSENT = -1            # answers of a lookup: no record of the segment has the key
    UNKNOWN = -2           # the index of keys cannot answer
    GUESS = 512            # bytes that are read of a record at first: most are smaller
    NEAR = 2048            # so far behind the start of its batch a record is read in one piece with the batch's header


@final
@no_gc  # it refers to nothing
cdef class OffsetMap:
    """The last offset of each key, within `slots` * 24 bytes; at most `slots` * `load_factor` keys (spec
    10.3).

    It begins small, since a map that fits into a processor's cache is much quicker, and grows by doubling.

    A key is known by a hash of 128 bits with a secret of this map's own. `latest_offset` is how far the map
    reaches: of records behind it nothing is known.

    A map of `places` has what a .keys file stores of records (key_file.h) instead of the offsets, and is for
    one segment; `starts` has the positions of its batches then.
    """

    def __cinit__(
        self, int64_t slots, double load_factor=0.9, *, int64_t most_keys=INT64_MAX, bint places=False
    ):
        """`most_keys`: no more will come, so the map need not have room for them."""
        if slots * load_factor <= 1:
            raise ValueError("at least 2 keys must fit")
        if slots > MOST_SLOTS or most_keys < 0:
            raise MemoryError("a map of offsets")
        cdef bytes secret = os.urandom(16)
        self.latest_offset = -1
        self.places = places
        self.max_entries = min(<int64_t>(slots * load_factor), slots)
        if most_keys < slots // 2:
            slots = 2 * most_keys
        self.most_slots = slots + 1
        if ks_map_init(
            &self.map, min(self.most_slots, <int64_t>FIRST_SLOTS), <const uint8_t *>PyBytes_AS_STRING(secret)
        ) < 0:
            raise MemoryError("a map of offsets")

    def __dealloc__(self):
        ks_map_free(&self.map)
        PyMem_RawFree(self.starts.data)

    def __len__(self):
        return self.map.used

    cdef int make_room(self) noexcept nogil:
        """Sees to it that TOGETHER more keys can be put. -1 if there is no memory."""
        cdef int64_t more = 2 * self.map.slot_count
        if <int64_t>self.map.slot_count >= self.most_slots or self.map.used + TOGETHER <= self.map.slot_count // 4 * 3:
            return 0
        if more > self.most_slots // 4 * 3:
            more = self.most_slots
        return ks_map_grow(&self.map, more)

    def put(self, bytes key not None, int64_t offset):
        """Notes the last offset of a key. ValueError if the map is full."""
        if self.map.used >= self.max_entries:
            raise ValueError("the map is full")
        if self.make_room() < 0:
            raise MemoryError("a map of offsets")
        ks_map_put(
            &self.map, ks_hash_key(&self.map, <const uint8_t *>PyBytes_AS_STRING(key), PyBytes_GET_SIZE(key)), offset
        )
        self.latest_offset = offset

    def get(self, bytes key not None):
        """The last offset of a key; -1 if it is not in the map."""
        return ks_map_get(
            &self.map, ks_hash_key(&self.map, <const uint8_t *>PyBytes_AS_STRING(key), PyBytes_GET_SIZE(key))
        )

    def update_latest_offset(self, int64_t offset):
        """The map reaches up to this offset."""
        self.latest_offset = offset


@no_gc_clear  # code without the GIL relies on its attributes
cdef class SegmentWalk:
    """Goes from batch to batch of one segment, and takes each in."""

    cdef int check_made(self) except -1:
        """TypeError where __init__ did not run, or no segment was opened."""
        if self.map is None or self.window is None:
            raise TypeError("no segment was opened")
        return 0

    cdef int enter(self, Segment segment, int64_t position) except -1:
        self.segment = segment
        self.window = segment.fresh()
        self.position = position
        self.last = segment.base_offset - 1
        self.cursor = Records.__new__(Records)
        self.cursor.limit = segment.max_decompressed_bytes
        return 0

    cdef int64_t next_batch(self, ks_batch *b, ks_fault *fault) noexcept nogil:
        """The size of the next batch, which was checked and is in the window; or a status of the walk."""
        cdef int64_t size = step(self.window, self.position, FAR, b, fault), have
        self.fault_at = self.position
        if size < 0:
            return size
        have = self.window.fill(self.position, size, FAR)
        if have < 0:
            return WALK_SYSTEM
        if ks_check_batch(self.window.at(self.position), self.window.at(self.position) + have, b, fault) != KS_OK:
            return WALK_DAMAGED
        if b.base_offset <= self.last or b.last_offset >= self.segment.end_offset:
            ks_fail(fault, KS_E_OFFSET, 0, self.last + 1, b.base_offset)
            return WALK_DAMAGED
        return size

    cdef int64_t walk(self, int64_t most) except -1:
        """Takes in batches of about `most` bytes; how many bytes they had, 0 at the end of the segment."""
        cdef ks_batch b
        cdef ks_fault fault
        cdef int64_t size = 0, begun = self.position
        cdef int status = KS_OK
        memset(&b, 0, sizeof(b))
        with nogil:
            while self.position - begun < most:
                size = self.next_batch(&b, &fault)
                if size < 0:
                    break
                if is_plain(&b):
                    status = self.take_plain(self.window.at(self.position), &b, &fault)
                else:
                    with gil:
                        status = self.take_other(self.window.at(self.position), &b, &fault)
                if status != KS_OK:
                    break
                self.pass_batch(&b)
        if size < 0:
            self.end_walk(size, &b, &fault)
        elif status != KS_OK:
            self.fail(status, &b, &fault)
        return self.position - begun

    cdef void pass_batch(self, const ks_batch *b) noexcept nogil:
        """Goes on behind a batch that was taken in."""
        self.last = b.last_offset
        self.position += b.size

    cdef int take_plain(self, const uint8_t *p, const ks_batch *b, ks_fault *fault) noexcept nogil:
        """A batch whose bytes say all; a status."""
        return KS_OK

    cdef int take_other(self, const uint8_t *p, const ks_batch *b, ks_fault *fault) except -100:
        """Any other batch; a status."""
        return KS_OK

    cdef int end_walk(self, int64_t status, const ks_batch *b, ks_fault *fault) except -1:
        """Raises for what ended a walk, unless it is the end of the segment."""
        if status == WALK_SYSTEM:
            self.window.raise_failure(-1)
        if status == WALK_DAMAGED:
            raise_fault(fault, self.segment.path, self.fault_at, b.base_offset)
        if status == WALK_NONE and self.position < self.window.limit:
            ks_fail(fault, KS_E_SHORT, 0, KS_BATCH_OVERHEAD, self.window.limit - self.position)
            raise_fault(fault, self.segment.path, self.position, self.last + 1)
        return 0

    cdef int fail(self, int status, const ks_batch *b, const ks_fault *fault) except -1:
        """Raises for a status of what runs without the GIL."""
        if status == NO_MEMORY:
            raise MemoryError(self.segment.path)
        return raise_fault(fault, self.segment.path, self.fault_at, b.base_offset)

    cdef bint can_discard(self, const uint8_t *p, const ks_batch *b) except -1:
        """Whether the records of a batch may go: its transaction was aborted, or it is the marker of a lost
        one."""
        if b.magic < 2 or not b.attributes & (KS_TRANSACTIONAL | KS_CONTROL):
            return False
        return self.transactions.can_discard(
            RecordBatch.new(p, b, self.segment.path, self.position, self.segment.max_decompressed_bytes)
        )

    cdef int unpack(self, const uint8_t *p, const ks_batch *b, const uint8_t **start, const uint8_t **end) except -1:
        """Where the records of a v2 batch lie, unpacked."""
        start[0] = p + KS_BATCH_OVERHEAD
        end[0] = p + b.size
        if ks_codec(b) and b.records_count:
            self.cursor.begin(p, b, self.segment.path, self.position)
            start[0] = self.cursor.p
            end[0] = self.cursor.end
        return 0


@final
@no_gc_clear
cdef class MapBuilder(SegmentWalk):
    """Fills a map with the keys of segments, from `start_offset` on (spec 10.4)."""

    cdef int64_t start_offset
    cdef readonly bint is_full   # the map has room for no more: it reaches to its latest_offset
    cdef readonly bint is_far    # a map of places cannot hold the place of a record, and is of no use

    def __init__(self, OffsetMap map not None, transactions not None, int64_t start_offset):
        self.map = map
        self.transactions = transactions
        self.start_offset = start_offset

    def open(self, Segment segment not None, int64_t position):
        """Goes on with a segment, at the batch that begins at this byte."""
        self.enter(segment, position)

    def run(self, int64_t most):
        """Takes in batches of about `most` bytes; how many bytes they had, 0 at the end of the segment or of
        the map. CorruptRecordError, OSError."""
        self.check_made()
        return 0 if self.is_full else self.walk(most)

    cdef int fail(self, int status, const ks_batch *b, const ks_fault *fault) except -1:
        if status == MAP_FULL:
            self.is_full = True
            return 0
        return SegmentWalk.fail(self, status, b, fault)

    cdef void pass_batch(self, const ks_batch *b) noexcept nogil:
        if b.last_offset >= self.start_offset:
            self.map.latest_offset = b.last_offset
        SegmentWalk.pass_batch(self, b)

    cdef int take_plain(self, const uint8_t *p, const ks_batch *b, ks_fault *fault) noexcept nogil:
        return self.take(p, p + KS_BATCH_OVERHEAD, p + b.size, b, fault)

    cdef int64_t place_of(self, int64_t offset) noexcept nogil:
        """What a map of places notes of a record that a .keys file cannot lead to: its offset."""
        if offset - self.start_offset > UINT32_MAX:
            self.is_far = True
        return ks_keys_place(0, <uint32_t>(offset - self.start_offset))

    cdef int take(
        self, const uint8_t *batch, const uint8_t *p, const uint8_t *end, const ks_batch *b, ks_fault *fault
    ) noexcept nogil:
        """The records of a v2 batch at `batch`, which lie from `p` to `end`, unpacked."""
        cdef ks_record r
        cdef ks_key_hash hashes[TOGETHER]
        cdef int64_t offsets[TOGETHER]
        cdef int64_t places[TOGETHER]
        cdef const uint8_t *start = p
        cdef const uint8_t *q
        cdef int64_t left = b.records_count
        cdef uint32_t head = 0, position
        cdef int i, n, status
        cdef bint places_known = False
        if left < 0:
            return ks_fail(fault, KS_E_COUNT, 57, 0, left)
        if self.map.places and not ks_codec(b) and self.position + b.size < INT32_MAX:
            places_known = True
            head = ks_keys_head_sum(batch)
            if ks_ensure(&self.map.starts, sizeof(position)) < 0:
                return NO_MEMORY
            position = <uint32_t>self.position
            memcpy(self.map.starts.data + self.map.starts.size, &position, sizeof(position))
            self.map.starts.size += sizeof(position)
        while left:
            n = 0
            if self.map.make_room() < 0:
                return NO_MEMORY
            for _ in range(min(left, <int64_t>TOGETHER)):
                q = p
                status = parse(&p, end, b, &r, fault)
                if status != KS_OK:
                    fault.at += p - start + KS_BATCH_OVERHEAD
                    return status
                if r.key_size >= 0 and r.offset >= self.start_offset:
                    hashes[n] = ks_hash_key(&self.map.map, r.key, <size_t>r.key_size)
                    offsets[n] = places[n] = r.offset
                    if self.map.places:
                        if places_known and q - batch < KS_KEYS_FAR:
                            position = <uint32_t>(self.position + (q - batch))
                            places[n] = ks_keys_place(position, ks_keys_record_sum(head, q, p - q))
                        else:
                            places[n] = self.place_of(r.offset)
                    ks_map_prefetch(&self.map.map, hashes[n])
                    n += 1
            left -= min(left, <int64_t>TOGETHER)
            for i in range(n):
                if self.map.map.used >= self.map.max_entries:
                    return MAP_FULL
                ks_map_put(&self.map.map, hashes[i], places[i])
                self.map.latest_offset = offsets[i]
        if p != end and b.records_count:
            return ks_fail(fault, KS_E_COUNT, 57, b.records_count, b.records_count + 1)
        return KS_OK

    cdef int take_other(self, const uint8_t *p, const ks_batch *b, ks_fault *fault) except -100:
        cdef const uint8_t *start
        cdef const uint8_t *end
        cdef Record record
        cdef int64_t offset
        cdef int status
        discard = self.can_discard(p, b)
        if discard or (b.magic == 2 and b.attributes & KS_CONTROL):
            return KS_OK
        if b.magic < 2:
            self.cursor.begin(p, b, self.segment.path, self.position)
            for record in self.cursor.legacy:
                offset = record.offset
                if record.key is not None and offset >= self.start_offset:
                    if self.map.map.used >= self.map.max_entries:
                        return MAP_FULL
                    self.map.put(record.key, self.place_of(offset) if self.map.places else offset)
                    self.map.latest_offset = offset
            return KS_OK
        self.unpack(p, b, &start, &end)
        with nogil:
            status = self.take(p, start, end, b, fault)
        if ks_codec(b):
            fault.at = 0  # unpacked records have no byte of the file
        return status


# ---- .keys files -------------------------------------------------------------------------------------------

class Marks(NamedTuple):
    """What tells one state of a segment's .log from all others: base offset, size, inode, and when it was
    last changed in any way, in ns since 1970."""

    base_offset: int
    size: int
    inode: int
    ctime_ns: int


def packed(OffsetMap map not None, marks not None):
    """The content of a .keys file: a map of the places of all keys of a segment, which has these Marks.
    MemoryError."""
    cdef uint8_t[KS_KEYS_HEADER] header
    cdef uint8_t *file = NULL
    cdef int64_t size = 0
    cdef int status, i
    if not map.places:
        raise ValueError("a map of places is needed")
    memset(header, 0, KS_KEYS_HEADER)
    for i in range(4):
        ks_store_le(header + 24 + 8 * i, <uint64_t>(marks[i] & 0xFFFFFFFFFFFFFFFF), 8)
    with nogil:
        status = ks_keys_pack(&map.map, <const uint32_t *>map.starts.data, map.starts.size // 4, header, &file, &size)
    if status < 0:
        raise MemoryError("an index of keys")
    try:
        return PyBytes_FromStringAndSize(<const char *>file, size)
    finally:
        free(file)


@final
@no_gc  # it refers to a str, a handle and a tuple of ints
cdef class KeyFile:
    """A .keys file that was found at a path. `marks` says which .log it was made for. Threads may share it.

    CorruptIndexError if its header is damaged, or its size is not what that says. FileNotFoundError,
    OSError."""

    cdef readonly str path
    cdef readonly object marks
    cdef FileHandle handle
    cdef int64_t base_offset
    cdef int64_t log_size
    cdef uint64_t[2] secret
    cdef uint64_t homes
    cdef int64_t blocks
    cdef uint32_t sum

    def __cinit__(self, str path not None):
        cdef uint8_t[KS_KEYS_HEADER] header
        cdef File file
        cdef int64_t done, size
        self.path = path
        self.handle = FileHandle()
        file = self.handle.at(path)
        done = file.pread(header, KS_KEYS_HEADER, 0)
        if done < 0:
            file.raise_errno()
        if (
            done < KS_KEYS_HEADER
            or memcmp(header, KS_KEYS_MAGIC, 4)
            or ks_load_le32(header + 60) != ks_keys_header_sum(header)
        ):
            raise CorruptIndexError(
                "index of keys", file=path, position=0, expected="a header and its checksum", found=header[:done]
            )
        self.sum = ks_load_le32(header + 60)
        self.blocks = ks_load_le32(header + 4)
        self.homes = ks_load_le32(header + 56)
        self.secret[0] = ks_load_le64(header + 8)
        self.secret[1] = ks_load_le64(header + 16)
        self.base_offset = <int64_t>ks_load_le64(header + 24)
        self.log_size = <int64_t>ks_load_le64(header + 32)
        self.marks = Marks(
            self.base_offset, self.log_size, ks_load_le64(header + 40),
            <int64_t>ks_load_le64(header + 48),
        )
        size = KS_KEYS_HEADER + KS_KEYS_BLOCK * self.blocks
        if file.length() != size or self.homes > <uint64_t>self.blocks:
            raise CorruptIndexError(
                "size of an index of keys", file=path, position=4, expected=size, found=file.length()
            )

    cdef bint load(self, uint8_t *block, int64_t number):
        """Reads a block; False if it cannot be read or believed."""
        try:
            file = self.handle.at(self.path)
        except OSError:
            return False
        return (
            file.pread(block, KS_KEYS_BLOCK, KS_KEYS_HEADER + KS_KEYS_BLOCK * number) == KS_KEYS_BLOCK
            and ks_keys_is_sound(block, self.sum, number)
        )

    def find(self, Segment segment not None, bytes key not None):
        """The last Record with a key in the segment that the file was made for; ABSENT, -1, if there is none;
        UNKNOWN, -2, if that cannot be told, as the file is damaged, gone, or cannot be read.

        CorruptRecordError if the record or its batch is damaged. LogChangedError, OSError."""
        cdef uint8_t[KS_KEYS_BLOCK] block
        cdef ks_key_hash hash
        cdef int64_t number
        cdef int at
        if self.homes == 0:
            return ABSENT
        hash = ks_hash_with(self.secret, <const uint8_t *>PyBytes_AS_STRING(key), <size_t>PyBytes_GET_SIZE(key))
        for number in range(<int64_t>ks_keys_home(hash, self.homes), self.blocks):
            if not self.load(block, number):
                return UNKNOWN
            at = ks_keys_next(block, ks_keys_tag(hash), 0)
            while at >= 0:
                found = self.record_of(segment, key, ks_keys_entry_at(block, at))
                if found is not None:
                    return found
                at = ks_keys_next(block, ks_keys_tag(hash), at + 1)
            if not ks_keys_goes_on(block):
                return ABSENT
        return UNKNOWN

    cdef object record_of(self, Segment segment, bytes key, ks_keys_entry e):
        """The Record that an entry leads to; None if that has another key; UNKNOWN if it is not there, and
        the log is sound."""
        cdef Record record
        cdef int64_t offset
        if e.distance:
            return self.read(segment, key, e)
        offset = self.base_offset + e.place
        record = segment.get(offset)
        if record is None or record.offset != offset:
            return UNKNOWN
        return record if record.key == key else None

    cdef object read(self, Segment segment, bytes key, ks_keys_entry e):
        """What `find` returns for a record in an uncompressed batch: only its bytes and its batch's header are
        read."""
        cdef uint8_t[NEAR + GUESS] bytes_read
        cdef uint8_t *at = bytes_read + KS_BATCH_OVERHEAD
        cdef File file = segment.files.opened()
        cdef int64_t start = <int64_t>e.place - e.distance, have, size
        cdef const uint8_t *p
        cdef const uint8_t *end
        cdef ks_batch b
        cdef ks_record r
        cdef ks_fault fault
        cdef int32_t length
        cdef bytes large
        if e.distance <= NEAR:
            at = bytes_read + e.distance
            have = file.pread(bytes_read, e.distance + GUESS, start) - e.distance
        else:
            have = file.pread(bytes_read, KS_BATCH_OVERHEAD, start)
            have = file.pread(at, GUESS, e.place) if have == KS_BATCH_OVERHEAD else -1
        if (
            have <= 0
            or e.distance < KS_BATCH_OVERHEAD
            or ks_parse_header(bytes_read, bytes_read + KS_BATCH_OVERHEAD, &b, &fault) != KS_OK
            or b.magic != 2
        ):
            return self.suspect(segment, start)
        p = at
        if ks_read_varint(&p, at + have, &length) != KS_OK or length < 0:
            return self.suspect(segment, start)
        size = (p - at) + length
        p = at
        if size > b.size - e.distance or size > self.log_size - e.place:
            return self.suspect(segment, start)
        if size > have:
            large = PyBytes_FromStringAndSize(NULL, size)
            at = <uint8_t *>PyBytes_AS_STRING(large)
            if file.pread(at, size, e.place) < size:
                return self.suspect(segment, start)
            p = at
        if ks_keys_record_sum(ks_keys_head_sum(bytes_read), p, <size_t>size) != e.sum:
            return self.suspect(segment, start)
        end = p + size
        if not ks_plain_record(&p, end, &b, &r) and ks_next_record(&p, end, &b, &r, &fault) != KS_OK:
            return self.suspect(segment, start)
        if r.key_size != PyBytes_GET_SIZE(key) or memcmp(r.key, PyBytes_AS_STRING(key), <size_t>r.key_size):
            return None
        if r.headers_count:
            self.check_headers(segment, &r, start)
        return make_record(&b, &r, r.timestamp)

    cdef int check_headers(self, Segment segment, const ks_record *r, int64_t start) except -1:
        cdef Records records = Records.__new__(Records)
        records.limit = segment.max_decompressed_bytes
        records.file = segment.path
        records.position = start
        return records.check_headers(r)

    cdef object suspect(self, Segment segment, int64_t start):
        """What is there is not the record that the file knows: UNKNOWN, unless it is the batch at `start`
        that is damaged, or gone. CorruptRecordError."""
        segment.batch_at(start).records()
        return UNKNOWN

    @property
    def size(self):
        """Bytes of the file."""
        return KS_KEYS_HEADER + KS_KEYS_BLOCK * self.blocks

    def count(self):
        """How many keys it has; -1 if it is damaged. All of it is read."""
        cdef uint8_t[KS_KEYS_BLOCK] block
        cdef int64_t number, entries = 0
        for number in range(self.blocks):
            if not self.load(block, number):
                return -1
            entries += block[4]
        return entries


cdef class KeyLookup:
    """What is known of the keys of a segment, as far as a lookup asks it in C: the base of KeyIndex."""

    cdef public KeyFile file      # None: no lookup has found one that fits the .log
    cdef public OffsetMap map     # None: there is none in memory
    cdef public int64_t covered   # bytes of the log that the map knows
    cdef public bint is_growing   # some thread puts keys into the map

    cdef object find_now(self, Segment segment, bytes key):
        """The last Record with a key; ABSENT if there is none; UNKNOWN if it takes more to tell."""
        cdef int64_t offset
        cdef Record record
        if self.file is not None:
            return self.file.find(segment, key)
        if self.map is None or self.is_growing or self.covered != segment.limit():
            return UNKNOWN
        offset = self.map.get(key)
        if offset < 0:
            return ABSENT
        record = segment.get(offset)  # of another key, if that has the same hash
        return record if record is not None and record.offset == offset and record.key == key else UNKNOWN


def last_in(segments, bytes key not None, int64_t start, int64_t end):
    """The last Record with a key among `segments`, from the last segment on; ABSENT, -1, if none of them has
    it; None if neither .keys files nor maps in memory tell. The log starts at offset `start`, and is read up
    to `end`.

    CorruptRecordError, LogChangedError, OSError."""
    cdef Py_ssize_t count = len(segments), at
    cdef Segment segment
    for at in range(count - 1, -1, -1):
        segment = segments[at]
        if segment.base_offset < start:
            return None
        if at == count - 1 and segment.limit() == 0:
            continue  # the active one, with nothing in it
        known = segment.files.key_index
        if not isinstance(known, KeyLookup):
            return None
        found = (<KeyLookup>known).find_now(segment, key)
        if type(found) is Record:
            return found if (<Record>found).offset < end else None
        if found != ABSENT:
            return None
    return ABSENT
