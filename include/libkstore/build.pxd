"""Twin of kstore/build.h."""

from libc.stddef cimport size_t
from libc.stdint cimport int32_t, int64_t, uint8_t

from libkstore.format cimport ks_batch


cdef extern from "kstore/build.h" nogil:
    enum:
        KS_RECORD_OVERHEAD
    void ks_copy(uint8_t *target, const uint8_t *source, size_t n)
    size_t ks_varlong_size(int64_t value)
    size_t ks_bytes_size(int64_t size)
    uint8_t *ks_put_bytes(uint8_t *p, const uint8_t *data, int64_t size)
    size_t ks_record_body(
        int64_t timestamp_delta, int64_t offset_delta, int64_t key_size, int64_t value_size, int64_t headers_size
    )
    uint8_t *ks_put_record(
        uint8_t *p, size_t body, int64_t timestamp_delta, int64_t offset_delta, const uint8_t *key, int64_t key_size,
        const uint8_t *value, int64_t value_size, const uint8_t *headers, int64_t headers_size
    )
    void ks_put_offset(uint8_t *p, int64_t base_offset, int32_t leader_epoch)
    void ks_put_crc(uint8_t *p, int64_t size)
    void ks_put_header(uint8_t *p, const ks_batch *b)
