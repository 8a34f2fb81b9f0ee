# cython: binding=False
"""A .keys file beside a sealed segment: where the last record of each of its keys is. key_file.h has the layout.

It is a hint. Its header says for which .log it was made, and each of its blocks has a checksum, so it is read a block
at a time, whenever a key is looked for, and nothing of it is kept in memory.
"""

from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_FromStringAndSize, PyBytes_GET_SIZE
from cython cimport final, no_gc
from libc.stdint cimport int64_t, uint32_t, uint64_t, uint8_t
from libc.stdlib cimport free
from libc.string cimport memcmp, memset

from kstore.engine.compact.cleaner cimport OffsetMap, ks_hash_with, ks_key_hash, ks_offset_map
from kstore.engine.io.file cimport File, FileHandle

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
    int64_t ks_keys_find(const uint8_t *block, uint32_t tag)
    int ks_keys_pack(
        const ks_offset_map *m, int64_t base_offset, const uint8_t *header, uint8_t **file, int64_t *size
    )

cdef enum:
    ABSENT = -1    # answers of `find`: no record of the segment has the key
    UNKNOWN = -2   # the file does not tell


class Marks(NamedTuple):
    """What tells one state of a segment's .log from all others: base offset, size, inode, and when it was last changed
    in any way, in ns since 1970."""

    base_offset: int
    size: int
    inode: int
    ctime_ns: int


def packed(OffsetMap map not None, marks not None):
    """The content of a .keys file: the last offsets of all keys of a segment, which has these Marks. None if an offset
    lies too far from the base offset. MemoryError."""
    cdef uint8_t[KS_KEYS_HEADER] header
    cdef uint8_t *file = NULL
    cdef int64_t size = 0, base_offset = marks.base_offset
    cdef int status, i
    memset(header, 0, KS_KEYS_HEADER)
    for i in range(4):
        ks_store_le(header + 24 + 8 * i, <uint64_t>(marks[i] & 0xFFFFFFFFFFFFFFFF), 8)
    with nogil:
        status = ks_keys_pack(&map.map, base_offset, header, &file, &size)
    if status == -2:
        return None
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

    CorruptIndexError if its header is damaged, or its size is not what that says. FileNotFoundError, OSError."""

    cdef readonly str path
    cdef readonly object marks
    cdef FileHandle handle
    cdef int64_t base_offset
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
        self.marks = Marks(
            self.base_offset, <int64_t>ks_load_le64(header + 32), ks_load_le64(header + 40),
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

    def find(self, bytes key not None):
        """The offset of the last record of a key, or of another key that looks the same; ABSENT, -1, if there is none;
        UNKNOWN, -2, if that cannot be told, as the file is damaged, gone, or cannot be read."""
        cdef uint8_t[KS_KEYS_BLOCK] block
        cdef ks_key_hash hash
        cdef int64_t number, found
        if self.homes == 0:
            return ABSENT
        hash = ks_hash_with(self.secret, <const uint8_t *>PyBytes_AS_STRING(key), <size_t>PyBytes_GET_SIZE(key))
        for number in range(<int64_t>ks_keys_home(hash, self.homes), self.blocks):
            if not self.load(block, number):
                return UNKNOWN
            found = ks_keys_find(block, ks_keys_tag(hash))
            if found >= 0:
                return self.base_offset + found
            if not ks_keys_goes_on(block):
                return ABSENT
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
