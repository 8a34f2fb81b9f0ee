# cython: binding=False
"""A .keys file beside a sealed segment: where the last record of each of its keys is. key_file.h has the
layout.

It is a hint. Its header says for which .log it was made, and each of its blocks has a checksum, so it is read
a block at a time, whenever a key is looked for, and nothing of it is kept in memory. It also has a checksum
of each record: so that is read alone, and not its whole batch.
"""

from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_FromStringAndSize, PyBytes_GET_SIZE
from cython cimport final, no_gc
from libc.stdint cimport int32_t, int64_t, uint32_t, uint64_t, uint8_t
from libc.stdlib cimport free
from libc.string cimport memcmp, memset

from kstore.engine.compact.offset_map cimport OffsetMap, ks_hash_with, ks_key_hash, ks_offset_map
from kstore.engine.io.file cimport File, FileHandle
from kstore.engine.record.batch cimport Record, Records, make_record
from kstore.engine.segment.segment cimport Segment
from libkstore.format cimport (
    KS_BATCH_OVERHEAD,
    KS_OK,
    ks_batch,
    ks_fault,
    ks_next_record,
    ks_parse_header,
    ks_plain_record,
    ks_read_varint,
    ks_record,
)

from typing import NamedTuple

from kstore.errors import CorruptIndexError

cdef extern from "key_file.h" nogil:
    enum:
        KS_KEYS_HEADER
        KS_KEYS_BLOCK
    const char *KS_KEYS_MAGIC
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
    ABSENT = -1    # answers of `find`: no record of the segment has the key
    UNKNOWN = -2   # the file does not tell

cdef enum:
    GUESS = 512    # bytes that are read of a record at first: most are smaller
    NEAR = 2048    # so far behind the start of its batch a record is read in one piece with the batch's header


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
        """The same of a record that lies open: its bytes and its batch's header are read, and nothing
        else."""
        cdef uint8_t[NEAR + GUESS] bytes_read
        cdef uint8_t *at = bytes_read + KS_BATCH_OVERHEAD
        cdef File file = segment.opened()
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

    cdef public KeyFile file      # None: nobody has found one that can be believed
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
        known = segment._keys
        if not isinstance(known, KeyLookup):
            return None
        found = (<KeyLookup>known).find_now(segment, key)
        if type(found) is Record:
            return found if (<Record>found).offset < end else None
        if found != ABSENT:
            return None
    return ABSENT
