from libc.stdint cimport int64_t, uint64_t, uint8_t

from kstore.engine.io.buffer_pool cimport ks_vector


cdef extern from "offset_map.h" nogil:
    ctypedef struct ks_key_hash:
        pass
    ctypedef struct ks_offset_map:
        int64_t used
        int64_t slot_count
    int ks_map_grow(ks_offset_map *m, int64_t slot_count)
    int ks_map_init(ks_offset_map *m, int64_t slot_count, const uint8_t *secret)
    void ks_map_free(ks_offset_map *m)
    ks_key_hash ks_hash_key(const ks_offset_map *m, const uint8_t *key, size_t size)
    ks_key_hash ks_hash_with(const uint64_t *secret, const uint8_t *key, size_t size)
    void ks_map_prefetch(const ks_offset_map *m, ks_key_hash hash)
    void ks_map_put(ks_offset_map *m, ks_key_hash hash, int64_t offset)
    int64_t ks_map_get(const ks_offset_map *m, ks_key_hash hash)


cdef class OffsetMap:
    cdef ks_offset_map map
    cdef int64_t most_slots
    cdef bint places
    cdef ks_vector starts           # uint32_t, of batches whose records have places
    cdef readonly int64_t latest_offset
    cdef readonly int64_t max_entries

    cdef int make_room(self) noexcept nogil
