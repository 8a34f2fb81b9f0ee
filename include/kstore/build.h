/* Records in, an encoded v2 batch out (FORMAT.md, spec 2.2 and 2.3). C99 and C++11, header only, no Python.
 *
 * The caller owns the buffer and sees to its room: KS_RECORD_OVERHEAD bounds what a record needs beside its key, value
 * and headers. Records go behind KS_BATCH_OVERHEAD bytes, which ks_put_header fills at the end. */
#ifndef KSTORE_BUILD_H
#define KSTORE_BUILD_H

#include "format.h"

enum {
    KS_RECORD_OVERHEAD = 31 /* length 5, attributes 1, deltas 10 and 5, sizes of key and value 5 each */
};

/* memcpy, without the call for the sizes that keys and values mostly have. */
static inline void ks_copy(uint8_t *target, const uint8_t *source, size_t n)
{
    size_t i;
    if (n > 256)
        memcpy(target, source, n);
    else if (n >= 16) {
        for (i = 0; i + 16 <= n; i += 16)
            memcpy(target + i, source + i, 16);
        memcpy(target + n - 16, source + n - 16, 16);
    } else if (n >= 8) {
        memcpy(target, source, 8);
        memcpy(target + n - 8, source + n - 8, 8);
    } else
        for (i = 0; i < n; i++)
            target[i] = source[i];
}

/* How many bytes ks_write_varlong takes. */
static inline size_t ks_varlong_size(int64_t value)
{
    uint64_t z = ((uint64_t)value << 1) ^ (value < 0 ? ~(uint64_t)0 : 0);
    size_t n = 3;
    if (z < 0x4000) /* as in ks_write_varlong */
        return 1 + (z >= 0x80);
#if defined(__GNUC__)
    n = (size_t)((64 - __builtin_clzll(z | 1)) * 9 + 64) / 64; /* of seven bits each */
#else
    for (; z >= 0x200000; z >>= 7)
        n++;
#endif
    return n;
}

/* The bytes of a field: its length as a varint, then so many; null is length -1. */
static inline size_t ks_bytes_size(int64_t size) { return size < 0 ? 1 : ks_varlong_size(size) + (size_t)size; }

static inline uint8_t *ks_put_bytes(uint8_t *p, const uint8_t *data, int64_t size)
{
    p += ks_write_varlong(p, size);
    if (size > 0) {
        ks_copy(p, data, (size_t)size);
        p += size;
    }
    return p;
}

/* The bytes of a record behind its length field. `headers_size` counts the headers as encoded, their count included:
 * 1 for none, the byte 0. */
static inline size_t ks_record_body(int64_t timestamp_delta, int64_t offset_delta, int64_t key_size, int64_t value_size,
                                    int64_t headers_size)
{
    return 1 + ks_varlong_size(timestamp_delta) + ks_varlong_size(offset_delta) + ks_bytes_size(key_size) +
           ks_bytes_size(value_size) + (size_t)headers_size;
}

/* Writes a record whose body has this size; returns its end. Null keys and values have size -1. */
static inline uint8_t *ks_put_record(uint8_t *p, size_t body, int64_t timestamp_delta, int64_t offset_delta,
                                     const uint8_t *key, int64_t key_size, const uint8_t *value, int64_t value_size,
                                     const uint8_t *headers, int64_t headers_size)
{
    p += ks_write_varlong(p, (int64_t)body);
    *p++ = 0;
    p += ks_write_varlong(p, timestamp_delta);
    p += ks_write_varlong(p, offset_delta);
    p = ks_put_bytes(p, key, key_size);
    p = ks_put_bytes(p, value, value_size);
    if (headers_size == 1)
        *p++ = *headers;
    else {
        memcpy(p, headers, (size_t)headers_size);
        p += headers_size;
    }
    return p;
}

/* Sets what a leader sets when it takes a batch: no checksum covers it. */
static inline void ks_put_offset(uint8_t *p, int64_t base_offset, int32_t leader_epoch)
{
    ks_store_u64(p, (uint64_t)base_offset);
    ks_store_u32(p + KS_LEADER_EPOCH_AT, (uint32_t)leader_epoch);
}

/* Writes the checksum of a batch of b->size bytes whose other fields are there. */
static inline void ks_put_crc(uint8_t *p, int64_t size)
{
    ks_store_u32(p + KS_CRC_AT, ks_crc32c(0, p + KS_ATTRIBUTES_AT, (size_t)size - KS_ATTRIBUTES_AT));
}

/* Writes the header of a batch of b->size bytes, the records being there already, and its checksum. */
static inline void ks_put_header(uint8_t *p, const ks_batch *b)
{
    ks_put_offset(p, b->base_offset, b->leader_epoch);
    ks_store_u32(p + KS_SIZE_AT, (uint32_t)(b->size - KS_LOG_OVERHEAD));
    p[KS_MAGIC_AT] = 2;
    ks_store_u16(p + KS_ATTRIBUTES_AT, (uint16_t)b->attributes);
    ks_store_u32(p + KS_LAST_OFFSET_DELTA_AT, (uint32_t)b->last_offset_delta);
    ks_store_u64(p + KS_BASE_TIMESTAMP_AT, (uint64_t)b->base_timestamp);
    ks_store_u64(p + KS_MAX_TIMESTAMP_AT, (uint64_t)b->max_timestamp);
    ks_store_u64(p + KS_PRODUCER_ID_AT, (uint64_t)b->producer_id);
    ks_store_u16(p + KS_PRODUCER_EPOCH_AT, (uint16_t)b->producer_epoch);
    ks_store_u32(p + KS_BASE_SEQUENCE_AT, (uint32_t)b->base_sequence);
    ks_store_u32(p + KS_RECORDS_COUNT_AT, (uint32_t)b->records_count);
    ks_put_crc(p, b->size);
}

#endif
