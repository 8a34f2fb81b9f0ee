/* The bytes of a Kafka partition directory: layout constants, loads, varints, batches, records, index entries.
 *
 * C99 and C++11, header only, no Python. FORMAT.md beside this directory describes it in words and tables.
 *
 * The file is long because a C program can then take one file and read every part of the format.
 *
 * Conventions. Every parser takes a pointer and an end pointer and never reads at or behind the end; lengths are
 * compared as `size > (size_t)(end - p)`, which cannot wrap. A function that can fail returns KS_OK or a negative
 * KS_E_* status, and then fills a ks_fault: where in the bytes given to it, what was expected there, what was found. */
#ifndef KSTORE_FORMAT_H
#define KSTORE_FORMAT_H

#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include "crc32c.h"

/* ---- layout ------------------------------------------------------------------------------------------------- */

enum {
    /* every entry of a .log file, whatever its magic */
    KS_OFFSET_AT = 0,
    KS_SIZE_AT = 8,      /* i32: bytes that follow this field */
    KS_LOG_OVERHEAD = 12, /* offset and size */
    KS_MAGIC_AT = 16,
    KS_MAGIC_END = 17, /* bytes needed to see the magic */
    KS_MIN_SIZE = 14,  /* smallest valid value of the size field */

    /* record batch, magic 2 */
    KS_LEADER_EPOCH_AT = 12,
    KS_CRC_AT = 17,
    KS_ATTRIBUTES_AT = 21, /* the CRC covers the bytes from here to the end */
    KS_LAST_OFFSET_DELTA_AT = 23,
    KS_BASE_TIMESTAMP_AT = 27,
    KS_MAX_TIMESTAMP_AT = 35,
    KS_PRODUCER_ID_AT = 43,
    KS_PRODUCER_EPOCH_AT = 51,
    KS_BASE_SEQUENCE_AT = 53,
    KS_RECORDS_COUNT_AT = 57,
    KS_RECORDS_AT = 61,
    KS_BATCH_OVERHEAD = 61,

    /* message, magic 0 and 1 */
    KS_MESSAGE_CRC_AT = 12, /* CRC-32 (IEEE) of the bytes from the magic to the end */
    KS_MESSAGE_ATTRIBUTES_AT = 17,
    KS_MESSAGE_TIMESTAMP_AT = 18, /* magic 1 only */
    KS_MESSAGE_V0_OVERHEAD = 14,  /* least value of the size field */
    KS_MESSAGE_V1_OVERHEAD = 22,

    /* attribute bits */
    KS_CODEC_MASK = 0x07,
    KS_LOG_APPEND_TIME = 0x08,
    KS_TRANSACTIONAL = 0x10,
    KS_CONTROL = 0x20,
    KS_DELETE_HORIZON = 0x40,

    KS_CODEC_NONE = 0,
    KS_CODEC_GZIP = 1,
    KS_CODEC_SNAPPY = 2,
    KS_CODEC_LZ4 = 3,
    KS_CODEC_ZSTD = 4,

    /* index entries */
    KS_OFFSET_ENTRY = 8,  /* i32 offset - base, i32 position */
    KS_TIME_ENTRY = 12,   /* i64 timestamp, i32 offset - base */
    KS_ABORTED_ENTRY = 34, /* i16 version, i64 producer id, first offset, last offset, last stable offset */

    /* producer snapshot */
    KS_SNAPSHOT_HEADER = 10, /* i16 version 1, u32 CRC-32C of the rest, i32 count */
    KS_SNAPSHOT_ENTRY = 46,

    KS_MAX_VARINT = 5,
    KS_MAX_VARLONG = 10
};

/* ---- status ------------------------------------------------------------------------------------------------- */

enum {
    KS_OK = 0,
    KS_E_SHORT = -1,   /* the bytes end inside the entry: expected bytes, found bytes */
    KS_E_SIZE = -2,    /* a size field out of its range */
    KS_E_MAGIC = -3,   /* magic is not 0, 1 or 2 */
    KS_E_CRC = -4,     /* stored checksum (expected) and computed checksum (found) differ */
    KS_E_VARINT = -5,  /* a varint of more than 5, a varlong of more than 10 bytes, or cut off */
    KS_E_LENGTH = -6,  /* a length inside a record points outside it */
    KS_E_COUNT = -7,   /* more or fewer records than the header says */
    KS_E_OFFSET = -8,  /* last offset below base offset, or past the largest offset */
    KS_E_STRAY = -9    /* the offset of a record lies outside those of its batch */
};

typedef struct ks_fault {
    int status;       /* KS_E_* */
    size_t at;        /* byte, counted from the pointer given */
    int64_t expected;
    int64_t found;
} ks_fault;

static inline int ks_fail(ks_fault *fault, int status, size_t at, int64_t expected, int64_t found)
{
    fault->status = status;
    fault->at = at;
    fault->expected = expected;
    fault->found = found;
    return status;
}

/* ---- big-endian loads and stores ---------------------------------------------------------------------------- */

static inline uint16_t ks_load_u16(const void *at)
{
    const uint8_t *p = (const uint8_t *)at;
    return (uint16_t)((p[0] << 8) | p[1]);
}

static inline uint32_t ks_load_u32(const void *at)
{
    const uint8_t *p = (const uint8_t *)at;
    return ((uint32_t)p[0] << 24) | ((uint32_t)p[1] << 16) | ((uint32_t)p[2] << 8) | p[3];
}

static inline uint64_t ks_load_u64(const void *at)
{
    const uint8_t *p = (const uint8_t *)at;
    return ((uint64_t)ks_load_u32(p) << 32) | ks_load_u32(p + 4);
}

static inline int16_t ks_load_i16(const void *at) { return (int16_t)ks_load_u16(at); }
static inline int32_t ks_load_i32(const void *at) { return (int32_t)ks_load_u32(at); }
static inline int64_t ks_load_i64(const void *at) { return (int64_t)ks_load_u64(at); }

static inline void ks_store_u16(void *at, uint16_t value)
{
    uint8_t *p = (uint8_t *)at;
    p[0] = (uint8_t)(value >> 8);
    p[1] = (uint8_t)value;
}

static inline void ks_store_u32(void *at, uint32_t value)
{
    uint8_t *p = (uint8_t *)at;
    p[0] = (uint8_t)(value >> 24);
    p[1] = (uint8_t)(value >> 16);
    p[2] = (uint8_t)(value >> 8);
    p[3] = (uint8_t)value;
}

static inline void ks_store_u64(void *at, uint64_t value)
{
    ks_store_u32(at, (uint32_t)(value >> 32));
    ks_store_u32((uint8_t *)at + 4, (uint32_t)value);
}

/* Java's wrap-around addition: sums of fields from a file must not be undefined behaviour. */
static inline int64_t ks_add64(int64_t a, int64_t b) { return (int64_t)((uint64_t)a + (uint64_t)b); }

/* ---- varints ------------------------------------------------------------------------------------------------ */

/* Reads a zigzag varint of at most 10 bytes and advances *p. Bits above 64 are lost, as in Kafka. */
static inline int ks_read_varlong(const uint8_t **p, const uint8_t *end, int64_t *value)
{
    const uint8_t *q = *p;
    uint64_t z = 0;
    unsigned shift = 0;
    if (q < end && *q < 0x80) { /* most are one byte, */
        z = *q++;
    } else if (end - q >= 2 && q[1] < 0x80) { /* or two */
        z = (uint64_t)(*q & 0x7f) | (uint64_t)q[1] << 7;
        q += 2;
    } else {
        for (;;) {
            if (q == end || shift > 63)
                return KS_E_VARINT;
            z |= (uint64_t)(*q & 0x7f) << shift;
            if (*q++ < 0x80)
                break;
            shift += 7;
        }
    }
    *value = (int64_t)((z >> 1) ^ (~(z & 1) + 1));
    *p = q;
    return KS_OK;
}

/* Reads a zigzag varint of 32 bits, at most 5 bytes. */
static inline int ks_read_varint(const uint8_t **p, const uint8_t *end, int32_t *value)
{
    const uint8_t *q = *p;
    uint32_t z = 0;
    unsigned shift = 0;
    if (q < end && *q < 0x80) {
        z = *q++;
    } else if (end - q >= 2 && q[1] < 0x80) {
        z = (uint32_t)(*q & 0x7f) | (uint32_t)q[1] << 7;
        q += 2;
    } else {
        for (;;) {
            if (q == end || shift > 28)
                return KS_E_VARINT;
            z |= (uint32_t)(*q & 0x7f) << shift;
            if (*q++ < 0x80)
                break;
            shift += 7;
        }
    }
    *value = (int32_t)((z >> 1) ^ (~(z & 1) + 1));
    *p = q;
    return KS_OK;
}

/* Writes a zigzag varlong to at most KS_MAX_VARLONG bytes; returns how many. 32-bit values are written alike. */
static inline size_t ks_write_varlong(uint8_t *p, int64_t value)
{
    uint64_t z = ((uint64_t)value << 1) ^ (value < 0 ? ~(uint64_t)0 : 0);
    size_t n = 0;
    if (z < 0x80) { /* most lengths and deltas take one byte or two */
        p[0] = (uint8_t)z;
        return 1;
    }
    if (z < 0x4000) {
        p[0] = (uint8_t)(z | 0x80);
        p[1] = (uint8_t)(z >> 7);
        return 2;
    }
    for (; z >= 0x80; z >>= 7)
        p[n++] = (uint8_t)(z | 0x80);
    p[n++] = (uint8_t)z;
    return n;
}

/* ---- batches ------------------------------------------------------------------------------------------------ */

/* The header of a batch: a v2 record batch, or one message of magic 0 or 1 (compressed wrapper or not).
 * For messages the fields of v2 that they lack read as -1 (ids, epochs, sequence, count) or 0. */
typedef struct ks_batch {
    int64_t base_offset; /* compressed wrappers of magic 0/1: same as last_offset; only decompression tells */
    int64_t last_offset;
    int64_t base_timestamp;
    int64_t max_timestamp; /* magic 0: -1 */
    int64_t producer_id;
    int64_t size; /* whole entry, the 12 bytes of prefix included */
    uint32_t crc;
    int32_t leader_epoch;
    int32_t last_offset_delta;
    int32_t base_sequence;
    int32_t records_count;
    int16_t producer_epoch;
    int16_t attributes;
    int8_t magic;
} ks_batch;

static inline int ks_codec(const ks_batch *b) { return b->attributes & KS_CODEC_MASK; }

/* The size of the entry at p, from its first 17 bytes: KS_OK, or KS_E_SHORT when fewer than 17 bytes or fewer than
 * the entry's are left (the end of a log, or a torn write), or KS_E_SIZE. */
static inline int ks_entry_size(const uint8_t *p, const uint8_t *end, int64_t *size, ks_fault *fault)
{
    int32_t field;
    if ((size_t)(end - p) < KS_MAGIC_END)
        return ks_fail(fault, KS_E_SHORT, 0, KS_MAGIC_END, (int64_t)(end - p));
    field = ks_load_i32(p + KS_SIZE_AT);
    if (field < KS_MIN_SIZE)
        return ks_fail(fault, KS_E_SIZE, KS_SIZE_AT, KS_MIN_SIZE, field);
    *size = (int64_t)field + KS_LOG_OVERHEAD;
    if (*size > (int64_t)(end - p))
        return ks_fail(fault, KS_E_SHORT, 0, *size, (int64_t)(end - p));
    return KS_OK;
}

/* Reads the header at p: at least its own bytes must be there (61 for magic 2, 26 or 34 for 0 and 1); the rest of the
 * entry need not be, so this serves a walk that reads headers only. Nothing is verified but sizes and magic. */
static inline int ks_parse_header(const uint8_t *p, const uint8_t *end, ks_batch *b, ks_fault *fault)
{
    size_t left = (size_t)(end - p);
    int32_t field, least;
    if (left < KS_MAGIC_END)
        return ks_fail(fault, KS_E_SHORT, 0, KS_MAGIC_END, (int64_t)left);
    field = ks_load_i32(p + KS_SIZE_AT);
    b->magic = (int8_t)p[KS_MAGIC_AT];
    if (field < KS_MIN_SIZE)
        return ks_fail(fault, KS_E_SIZE, KS_SIZE_AT, KS_MIN_SIZE, field);
    if (b->magic < 0 || b->magic > 2)
        return ks_fail(fault, KS_E_MAGIC, KS_MAGIC_AT, 2, b->magic);
    least = b->magic == 2 ? KS_BATCH_OVERHEAD - KS_LOG_OVERHEAD
            : b->magic == 1 ? KS_MESSAGE_V1_OVERHEAD : KS_MESSAGE_V0_OVERHEAD;
    if (field < least)
        return ks_fail(fault, KS_E_SIZE, KS_SIZE_AT, least, field);
    if (left < (size_t)least + KS_LOG_OVERHEAD)
        return ks_fail(fault, KS_E_SHORT, 0, least + KS_LOG_OVERHEAD, (int64_t)left);
    b->size = (int64_t)field + KS_LOG_OVERHEAD;
    b->base_offset = ks_load_i64(p);
    if (b->magic == 2) {
        b->leader_epoch = ks_load_i32(p + KS_LEADER_EPOCH_AT);
        b->crc = ks_load_u32(p + KS_CRC_AT);
        b->attributes = (int16_t)p[KS_ATTRIBUTES_AT + 1]; /* readers take the low byte only */
        b->last_offset_delta = ks_load_i32(p + KS_LAST_OFFSET_DELTA_AT);
        b->base_timestamp = ks_load_i64(p + KS_BASE_TIMESTAMP_AT);
        b->max_timestamp = ks_load_i64(p + KS_MAX_TIMESTAMP_AT);
        b->producer_id = ks_load_i64(p + KS_PRODUCER_ID_AT);
        b->producer_epoch = ks_load_i16(p + KS_PRODUCER_EPOCH_AT);
        b->base_sequence = ks_load_i32(p + KS_BASE_SEQUENCE_AT);
        b->records_count = ks_load_i32(p + KS_RECORDS_COUNT_AT);
        b->last_offset = ks_add64(b->base_offset, b->last_offset_delta);
    } else {
        b->leader_epoch = -1;
        b->crc = ks_load_u32(p + KS_MESSAGE_CRC_AT);
        b->attributes = (int16_t)(p[KS_MESSAGE_ATTRIBUTES_AT] & (KS_CODEC_MASK | (b->magic ? KS_LOG_APPEND_TIME : 0)));
        b->last_offset_delta = 0;
        b->max_timestamp = b->magic ? ks_load_i64(p + KS_MESSAGE_TIMESTAMP_AT) : -1;
        b->base_timestamp = b->max_timestamp;
        b->producer_id = -1;
        b->producer_epoch = -1;
        b->base_sequence = -1;
        b->records_count = -1;
        b->last_offset = b->base_offset;
    }
    return KS_OK;
}

/* CRC-32 (IEEE), the checksum of messages of magic 0 and 1. Half a byte a step: they are rare by now. */
static inline uint32_t ks_crc32(const void *data, size_t size)
{
    static const uint32_t table[16] = {
        0x00000000u, 0x1db71064u, 0x3b6e20c8u, 0x26d930acu, 0x76dc4190u, 0x6b6b51f4u, 0x4db26158u, 0x5005713cu,
        0xedb88320u, 0xf00f9344u, 0xd6d6a3e8u, 0xcb61b38cu, 0x9b64c2b0u, 0x86d3d2d4u, 0xa00ae278u, 0xbdbdf21cu,
    };
    const uint8_t *p = (const uint8_t *)data, *end = p + size;
    uint32_t crc = ~(uint32_t)0;
    for (; p != end; p++) {
        crc ^= *p;
        crc = (crc >> 4) ^ table[crc & 15];
        crc = (crc >> 4) ^ table[crc & 15];
    }
    return ~crc;
}

/* The checksum that the whole entry at p has; compare it with b->crc. `size` is b->size, and all of it is there. */
static inline uint32_t ks_batch_crc(const uint8_t *p, const ks_batch *b)
{
    return b->magic == 2 ? ks_crc32c(0, p + KS_ATTRIBUTES_AT, (size_t)b->size - KS_ATTRIBUTES_AT)
                         : ks_crc32(p + KS_MAGIC_AT, (size_t)b->size - KS_MAGIC_AT);
}

/* Reads and verifies the whole entry at p: sizes, magic, checksum, and offsets that make sense. Records are not looked
 * at. After KS_OK the bytes p .. p + b->size are those that their writer checksummed. */
static inline int ks_check_batch(const uint8_t *p, const uint8_t *end, ks_batch *b, ks_fault *fault)
{
    uint32_t crc;
    int status = ks_parse_header(p, end, b, fault);
    if (status != KS_OK)
        return status;
    if (b->size > (int64_t)(end - p))
        return ks_fail(fault, KS_E_SHORT, 0, b->size, (int64_t)(end - p));
    crc = ks_batch_crc(p, b);
    if (crc != b->crc)
        return ks_fail(fault, KS_E_CRC, b->magic == 2 ? KS_CRC_AT : KS_MESSAGE_CRC_AT, b->crc, crc);
    if (b->base_offset < 0)
        return ks_fail(fault, KS_E_OFFSET, KS_OFFSET_AT, 0, b->base_offset);
    if (b->last_offset < b->base_offset || b->last_offset == INT64_MAX)
        return ks_fail(fault, KS_E_OFFSET, KS_LAST_OFFSET_DELTA_AT, b->base_offset, b->last_offset);
    return KS_OK;
}

/* ---- records of a v2 batch ---------------------------------------------------------------------------------- */

/* One record. Pointers lead into the bytes parsed; a null key or value has size -1 and a NULL pointer. */
typedef struct ks_record {
    int64_t offset;
    int64_t timestamp;
    const uint8_t *key;
    const uint8_t *value;
    const uint8_t *headers; /* the headers, encoded; walk them with ks_next_header up to `end` */
    const uint8_t *end;     /* end of the record */
    int32_t key_size;
    int32_t value_size;
    int32_t headers_count;
    int32_t offset_delta;
} ks_record;

typedef struct ks_header {
    const uint8_t *key; /* UTF-8, not verified */
    const uint8_t *value;
    int32_t key_size;
    int32_t value_size; /* -1: null */
} ks_header;

/* One length-prefixed field: a varint and so many bytes; negative is null. */
static inline int ks_read_bytes(const uint8_t **p, const uint8_t *end, const uint8_t **bytes, int32_t *size)
{
    int status = ks_read_varint(p, end, size);
    if (status != KS_OK)
        return status;
    if (*size < 0) {
        *size = -1;
        *bytes = NULL;
        return KS_OK;
    }
    if ((size_t)*size > (size_t)(end - *p))
        return KS_E_LENGTH;
    *bytes = *p;
    *p += *size;
    return KS_OK;
}

/* Reads the next header and advances *p. `end` is the record's. */
static inline int ks_next_header(const uint8_t **p, const uint8_t *end, ks_header *h)
{
    int status = ks_read_bytes(p, end, &h->key, &h->key_size);
    if (status != KS_OK)
        return status;
    if (h->key_size < 0)
        return KS_E_LENGTH; /* a header's name is never null */
    return ks_read_bytes(p, end, &h->value, &h->value_size);
}

/* A varint of one to three bytes at *p, all of which can be read, as it stands there (zigzag: even is 0 and above): 1
 * and *p behind it, or 0 for a longer one. */
static inline int ks_short_varint(const uint8_t **p, uint32_t *zigzag)
{
    const uint8_t *q = *p;
    uint32_t z = *q++;
    if (z >= 0x80) {
        z = (z & 0x7f) | (uint32_t)*q++ << 7;
        if (z >= 0x4000) {
            z = (z & 0x3fff) | (uint32_t)*q++ << 14;
            if (z >= 0x200000)
                return 0;
        }
    }
    *zigzag = z;
    *p = q;
    return 1;
}

/* ks_next_record for a record as most are: no headers, short numbers, not among the last bytes. 1 and the record, or 0
 * and nothing changed, for any other, be it sound or not. */
static inline int ks_plain_record(const uint8_t **p, const uint8_t *end, const ks_batch *b, ks_record *r)
{
    const uint8_t *q = *p, *record_end;
    uint32_t length, timestamp_delta, offset_delta, key_size, value_size;
    if (end - q < 16) /* what comes before the key takes 13 at most */
        return 0;
    if (!ks_short_varint(&q, &length) || length & 1 || length >> 1 > (size_t)(end - q))
        return 0;
    record_end = q + (length >> 1);
    q++; /* attributes */
    if (!ks_short_varint(&q, &timestamp_delta) || !ks_short_varint(&q, &offset_delta) || offset_delta & 1
        || !ks_short_varint(&q, &key_size))
        return 0;
    r->key = q;
    r->key_size = (int32_t)(key_size >> 1);
    if (key_size & 1) {
        r->key = NULL;
        r->key_size = -1;
    } else if (key_size >> 1 > end - q - 3) /* signed: q may lie behind record_end, but not behind the end */
        return 0;
    else
        q += key_size >> 1;
    if (!ks_short_varint(&q, &value_size))
        return 0;
    r->value = q;
    r->value_size = (int32_t)(value_size >> 1);
    if (value_size & 1) {
        r->value = NULL;
        r->value_size = -1;
        value_size = 0;
    }
    /* the value ends a byte before the record does, and that byte counts no headers */
    if (value_size >> 1 != record_end - q - 1 || record_end[-1] != 0)
        return 0;
    r->headers = r->end = record_end;
    r->headers_count = 0;
    r->offset_delta = (int32_t)(offset_delta >> 1);
    r->offset = ks_add64(b->base_offset, offset_delta >> 1);
    r->timestamp = b->attributes & KS_LOG_APPEND_TIME
                       ? b->max_timestamp
                       : ks_add64(b->base_timestamp, (int32_t)(timestamp_delta >> 1 ^ (~(timestamp_delta & 1) + 1)));
    *p = record_end;
    return 1;
}

/* ks_next_record for any record, each of its numbers read with care. */
static inline int ks_any_record(const uint8_t **p, const uint8_t *end, const ks_batch *b, ks_record *r, ks_fault *fault)
{
    const uint8_t *start = *p, *q = start;
    int64_t timestamp_delta;
    int32_t length, status;
    status = ks_read_varint(&q, end, &length);
    if (status != KS_OK)
        return ks_fail(fault, q == end && start == end ? KS_E_COUNT : status, 0, KS_MAX_VARINT, (int64_t)(end - start));
    if (length < 0 || (size_t)length > (size_t)(end - q))
        return ks_fail(fault, KS_E_LENGTH, 0, (int64_t)(end - q), length);
    r->end = q + length;
    if (q == r->end)
        return ks_fail(fault, KS_E_LENGTH, (size_t)(q - start), 1, 0);
    q++; /* attributes of a record: unused */
    status = ks_read_varlong(&q, r->end, &timestamp_delta);
    if (status == KS_OK)
        status = ks_read_varint(&q, r->end, &r->offset_delta);
    if (status == KS_OK)
        status = ks_read_bytes(&q, r->end, &r->key, &r->key_size);
    if (status == KS_OK)
        status = ks_read_bytes(&q, r->end, &r->value, &r->value_size);
    if (status == KS_OK)
        status = ks_read_varint(&q, r->end, &r->headers_count);
    if (status != KS_OK)
        return ks_fail(fault, status, (size_t)(q - start), length, (int64_t)(r->end - q));
    if (r->headers_count < 0 || (size_t)r->headers_count > (size_t)(r->end - q))
        return ks_fail(fault, KS_E_LENGTH, (size_t)(q - start), (int64_t)(r->end - q), r->headers_count);
    r->headers = q;
    if (r->headers_count) {
        ks_header header;
        int32_t i;
        for (i = 0; i < r->headers_count; i++) {
            status = ks_next_header(&q, r->end, &header);
            if (status != KS_OK)
                return ks_fail(fault, status, (size_t)(q - start), r->headers_count, i);
        }
    }
    if (q != r->end)
        return ks_fail(fault, KS_E_LENGTH, (size_t)(q - start), 0, (int64_t)(r->end - q));
    r->offset = ks_add64(b->base_offset, r->offset_delta);
    r->timestamp = b->attributes & KS_LOG_APPEND_TIME ? b->max_timestamp : ks_add64(b->base_timestamp, timestamp_delta);
    *p = q;
    return KS_OK;
}

/* Reads the record at *p and advances *p past it. `end` is the end of the batch's decompressed records. Headers are
 * walked, so that a record accepted here is sound throughout. */
static inline int ks_next_record(const uint8_t **p, const uint8_t *end, const ks_batch *b, ks_record *r, ks_fault *fault)
{
    return ks_plain_record(p, end, b, r) ? KS_OK : ks_any_record(p, end, b, r, fault);
}

/* KS_OK if the offset of a record lies within its batch, as every writer sees to; KS_E_STRAY if not. Readers go by the
 * offsets of batches: one that takes only some of a batch would leave such a record out, or give it in a wrong place. */
static inline int ks_check_place(const ks_batch *b, const ks_record *r, ks_fault *fault)
{
    if (r->offset_delta < 0)
        return ks_fail(fault, KS_E_STRAY, 0, b->base_offset, r->offset);
    if (r->offset_delta > b->last_offset_delta)
        return ks_fail(fault, KS_E_STRAY, 0, b->last_offset, r->offset);
    return KS_OK;
}

/* The sequence number `n` places after `sequence`: it goes from 2^31 - 1 on to 0. For an n below 0, which only damage
 * brings, the number is Java's. */
static inline int32_t ks_sequence_after(int32_t sequence, int32_t n)
{
    uint32_t most = 0x7fffffffu;
    if (sequence > (int32_t)(most - (uint32_t)n))
        return (int32_t)((uint32_t)n - (most - (uint32_t)sequence) - 1u);
    return (int32_t)((uint32_t)sequence + (uint32_t)n);
}

/* ---- messages of magic 0 and 1 ------------------------------------------------------------------------------ */

/* Key and value of the message at p, whose header is b and whose b->size bytes are all there. For a wrapper (codec not
 * none) the value is the compressed run of inner entries. Bytes behind the value are ignored, as Kafka does. */
static inline int ks_parse_message(const uint8_t *p, const ks_batch *b, ks_record *r, ks_fault *fault)
{
    const uint8_t *end = p + b->size, *q = p + (b->magic ? KS_MESSAGE_TIMESTAMP_AT + 8 : KS_MESSAGE_TIMESTAMP_AT);
    int part;
    for (part = 0; part < 2; part++) {
        int32_t size;
        if ((size_t)(end - q) < 4)
            return ks_fail(fault, KS_E_LENGTH, (size_t)(q - p), 4, (int64_t)(end - q));
        size = ks_load_i32(q);
        q += 4;
        if (size >= 0 && (size_t)size > (size_t)(end - q))
            return ks_fail(fault, KS_E_LENGTH, (size_t)(q - p) - 4, (int64_t)(end - q), size);
        if (part == 0) {
            r->key = size < 0 ? NULL : q;
            r->key_size = size < 0 ? -1 : size;
        } else {
            r->value = size < 0 ? NULL : q;
            r->value_size = size < 0 ? -1 : size;
        }
        q += size < 0 ? 0 : size;
    }
    r->offset = b->base_offset;
    r->timestamp = b->max_timestamp;
    r->headers = r->end = end;
    r->headers_count = 0;
    r->offset_delta = 0;
    return KS_OK;
}

/* ---- index entries ------------------------------------------------------------------------------------------ */

static inline int64_t ks_entry_offset(const uint8_t *entries, size_t slot, int64_t base_offset)
{
    return ks_add64(base_offset, ks_load_i32(entries + slot * KS_OFFSET_ENTRY));
}

static inline int32_t ks_entry_position(const uint8_t *entries, size_t slot)
{
    return ks_load_i32(entries + slot * KS_OFFSET_ENTRY + 4);
}

static inline int64_t ks_entry_timestamp(const uint8_t *entries, size_t slot)
{
    return ks_load_i64(entries + slot * KS_TIME_ENTRY);
}

static inline int64_t ks_time_entry_offset(const uint8_t *entries, size_t slot, int64_t base_offset)
{
    return ks_add64(base_offset, ks_load_i32(entries + slot * KS_TIME_ENTRY + 8));
}

typedef struct ks_aborted_txn {
    int64_t producer_id;
    int64_t first_offset;
    int64_t last_offset;
    int64_t last_stable_offset;
    int16_t version;
} ks_aborted_txn;

static inline void ks_parse_aborted_txn(const uint8_t *entry, ks_aborted_txn *txn)
{
    txn->version = ks_load_i16(entry);
    txn->producer_id = ks_load_i64(entry + 2);
    txn->first_offset = ks_load_i64(entry + 10);
    txn->last_offset = ks_load_i64(entry + 18);
    txn->last_stable_offset = ks_load_i64(entry + 26);
}

#endif
