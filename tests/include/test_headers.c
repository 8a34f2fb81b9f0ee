/* The headers alone, without Python: vectors, every CRC variant, damage of every kind to real batches.
 *
 * `test_headers GROUP` runs one group and exits 0, or says what failed and exits 1; without a name it runs all of them.
 * test_headers.py builds it with the address and undefined-behaviour sanitizers. Buffers under test end exactly where
 * their malloc'd block ends, so that a read of one byte too many is a report.
 *
 * The file is long because one program holds all groups: they share their buffers and their checks. */
#include <limits.h>

#include "checks.h"

/* C99 has no _Static_assert: an array type of negative size stops the compiler just as well. */
#define JOIN_(a, b) a##b
#define JOIN(a, b) JOIN_(a, b)
#define STATIC_CHECK(condition) typedef char JOIN(static_check_, __LINE__)[(condition) ? 1 : -1]

/* Every field of a header follows the one before it without a gap. */
STATIC_CHECK(KS_OFFSET_AT == 0);
STATIC_CHECK(KS_SIZE_AT == KS_OFFSET_AT + 8);
STATIC_CHECK(KS_LOG_OVERHEAD == KS_SIZE_AT + 4);
STATIC_CHECK(KS_LEADER_EPOCH_AT == KS_LOG_OVERHEAD);
STATIC_CHECK(KS_MAGIC_AT == KS_LEADER_EPOCH_AT + 4);
STATIC_CHECK(KS_MAGIC_END == KS_MAGIC_AT + 1);
STATIC_CHECK(KS_CRC_AT == KS_MAGIC_END);
STATIC_CHECK(KS_ATTRIBUTES_AT == KS_CRC_AT + 4);
STATIC_CHECK(KS_LAST_OFFSET_DELTA_AT == KS_ATTRIBUTES_AT + 2);
STATIC_CHECK(KS_BASE_TIMESTAMP_AT == KS_LAST_OFFSET_DELTA_AT + 4);
STATIC_CHECK(KS_MAX_TIMESTAMP_AT == KS_BASE_TIMESTAMP_AT + 8);
STATIC_CHECK(KS_PRODUCER_ID_AT == KS_MAX_TIMESTAMP_AT + 8);
STATIC_CHECK(KS_PRODUCER_EPOCH_AT == KS_PRODUCER_ID_AT + 8);
STATIC_CHECK(KS_BASE_SEQUENCE_AT == KS_PRODUCER_EPOCH_AT + 2);
STATIC_CHECK(KS_RECORDS_COUNT_AT == KS_BASE_SEQUENCE_AT + 4);
STATIC_CHECK(KS_RECORDS_AT == KS_RECORDS_COUNT_AT + 4);
STATIC_CHECK(KS_RECORDS_AT == 61 && KS_BATCH_OVERHEAD == KS_RECORDS_AT);
STATIC_CHECK(KS_MESSAGE_CRC_AT == KS_LOG_OVERHEAD && KS_MESSAGE_CRC_AT + 4 == KS_MAGIC_AT);
STATIC_CHECK(KS_MESSAGE_ATTRIBUTES_AT == KS_MAGIC_END);
STATIC_CHECK(KS_MESSAGE_TIMESTAMP_AT == KS_MESSAGE_ATTRIBUTES_AT + 1);
STATIC_CHECK(KS_LOG_OVERHEAD + KS_MESSAGE_V0_OVERHEAD == KS_MESSAGE_TIMESTAMP_AT + 4 + 4);
STATIC_CHECK(KS_MESSAGE_V1_OVERHEAD == KS_MESSAGE_V0_OVERHEAD + 8);
STATIC_CHECK(KS_MIN_SIZE == KS_MESSAGE_V0_OVERHEAD);
STATIC_CHECK(KS_CODEC_MASK == 0x07 && KS_LOG_APPEND_TIME == 0x08 && KS_TRANSACTIONAL == 0x10);
STATIC_CHECK(KS_CONTROL == 0x20 && KS_DELETE_HORIZON == 0x40);
STATIC_CHECK(KS_CODEC_NONE == 0 && KS_CODEC_GZIP == 1 && KS_CODEC_SNAPPY == 2);
STATIC_CHECK(KS_CODEC_LZ4 == 3 && KS_CODEC_ZSTD == 4);
STATIC_CHECK(KS_OFFSET_ENTRY == 4 + 4);
STATIC_CHECK(KS_TIME_ENTRY == 8 + 4);
STATIC_CHECK(KS_ABORTED_ENTRY == 2 + 4 * 8);
STATIC_CHECK(KS_SNAPSHOT_HEADER == 2 + 4 + 4);
STATIC_CHECK(KS_SNAPSHOT_ENTRY == 8 + 2 + 4 + 8 + 4 + 8 + 4 + 8);

/* ---- the material: spec 2.3 to 2.5, made by hand ------------------------------------------------------------- */

/* A: two records of a producer without id. */
static const uint8_t BATCH_A[] = {
    0x00, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00, /* base offset 0 */
    0x00, 0x00, 0x00, 0x49,                         /* 73 bytes follow */
    0x00, 0x00, 0x00, 0x00,                         /* leader epoch 0 */
    0x02,                                           /* magic */
    0xf1, 0x75, 0x9b, 0xaf,                         /* CRC-32C */
    0x00, 0x00,                                     /* attributes: no codec, CreateTime */
    0x00, 0x00, 0x00, 0x01,                         /* last offset delta 1 */
    0x00, 0x00, 0x01, 0x8b, 0xcf, 0xe5, 0x68, 0x00, /* base timestamp 1700000000000 */
    0x00, 0x00, 0x01, 0x8b, 0xcf, 0xe5, 0x68, 0x05, /* max timestamp 1700000000005 */
    0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, /* producer id -1 */
    0xff, 0xff,                                     /* producer epoch -1 */
    0xff, 0xff, 0xff, 0xff,                         /* base sequence -1 */
    0x00, 0x00, 0x00, 0x02,                         /* two records */
    0x1c,                                           /* 14 bytes follow */
    0x00,                                           /* attributes */
    0x00,                                           /* timestamp delta 0 */
    0x00,                                           /* offset delta 0 */
    0x04, 0x6b, 0x31,                               /* key, 2 bytes: k1 */
    0x04, 0x76, 0x31,                               /* value, 2 bytes: v1 */
    0x02,                                           /* one header */
    0x02, 0x68,                                     /* its name, 1 byte: h */
    0x02, 0x78,                                     /* its value, 1 byte: x */
    0x10,                                           /* 8 bytes follow */
    0x00,                                           /* attributes */
    0x0a,                                           /* timestamp delta 5 */
    0x02,                                           /* offset delta 1 */
    0x04, 0x6b, 0x32,                               /* key, 2 bytes: k2 */
    0x01,                                           /* value null */
    0x00,                                           /* no headers */
};

/* B: the same after a compaction that set a delete horizon. */
static const uint8_t BATCH_B[] = {
    0x00, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00, /* base offset 0 */
    0x00, 0x00, 0x00, 0x4f,                         /* 79 bytes follow */
    0x00, 0x00, 0x00, 0x00,                         /* leader epoch 0 */
    0x02,                                           /* magic */
    0x08, 0xbb, 0x9f, 0x40,                         /* CRC-32C */
    0x00, 0x40,                                     /* attributes: delete horizon */
    0x00, 0x00, 0x00, 0x01,                         /* last offset delta 1 */
    0x00, 0x00, 0x01, 0x8b, 0xd5, 0x0b, 0xc7, 0xe8, /* delete horizon 1700086401000 */
    0x00, 0x00, 0x01, 0x8b, 0xcf, 0xe5, 0x68, 0x05, /* max timestamp 1700000000005 */
    0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, /* producer id -1 */
    0xff, 0xff,                                     /* producer epoch -1 */
    0xff, 0xff, 0xff, 0xff,                         /* base sequence -1 */
    0x00, 0x00, 0x00, 0x02,                         /* two records */
    0x22,                                           /* 17 bytes follow */
    0x00,                                           /* attributes */
    0xcf, 0xff, 0xb2, 0x52,                         /* timestamp delta -86401000 */
    0x00,                                           /* offset delta 0 */
    0x04, 0x6b, 0x31,                               /* key, 2 bytes: k1 */
    0x04, 0x76, 0x31,                               /* value, 2 bytes: v1 */
    0x02,                                           /* one header */
    0x02, 0x68,                                     /* its name, 1 byte: h */
    0x02, 0x78,                                     /* its value, 1 byte: x */
    0x16,                                           /* 11 bytes follow */
    0x00,                                           /* attributes */
    0xc5, 0xff, 0xb2, 0x52,                         /* timestamp delta -86400995 */
    0x02,                                           /* offset delta 1 */
    0x04, 0x6b, 0x32,                               /* key, 2 bytes: k2 */
    0x01,                                           /* value null */
    0x00,                                           /* no headers */
};

/* C: an ABORT marker. */
static const uint8_t BATCH_C[] = {
    0x00, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00, 0x02, /* base offset 2 */
    0x00, 0x00, 0x00, 0x42,                         /* 66 bytes follow */
    0x00, 0x00, 0x00, 0x00,                         /* leader epoch 0 */
    0x02,                                           /* magic */
    0xe5, 0xc1, 0x6b, 0x79,                         /* CRC-32C */
    0x00, 0x30,                                     /* attributes: transactional, control */
    0x00, 0x00, 0x00, 0x00,                         /* last offset delta 0 */
    0x00, 0x00, 0x01, 0x8b, 0xcf, 0xe5, 0x68, 0x0a, /* base timestamp 1700000000010 */
    0x00, 0x00, 0x01, 0x8b, 0xcf, 0xe5, 0x68, 0x0a, /* max timestamp 1700000000010 */
    0x00, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00, 0x09, /* producer id 9 */
    0x00, 0x03,                                     /* producer epoch 3 */
    0xff, 0xff, 0xff, 0xff,                         /* base sequence -1 */
    0x00, 0x00, 0x00, 0x01,                         /* one record */
    0x20,                                           /* 16 bytes follow */
    0x00,                                           /* attributes */
    0x00,                                           /* timestamp delta 0 */
    0x00,                                           /* offset delta 0 */
    0x08, 0x00, 0x00, 0x00, 0x00,                   /* key, 4 bytes: version 0, type 0, ABORT */
    0x0c, 0x00, 0x00, 0x00, 0x00, 0x00, 0x07,       /* value, 6 bytes: version 0, coordinator epoch 7 */
    0x00,                                           /* no headers */
};

/* D: all that compaction left of offsets 15 to 37. */
static const uint8_t BATCH_D[] = {
    0x00, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00, 0x0f, /* base offset 15 */
    0x00, 0x00, 0x00, 0x31,                         /* 49 bytes follow */
    0x00, 0x00, 0x00, 0x0f,                         /* leader epoch 15 */
    0x02,                                           /* magic */
    0x5d, 0x4e, 0x3d, 0x62,                         /* CRC-32C */
    0x00, 0x00,                                     /* attributes */
    0x00, 0x00, 0x00, 0x16,                         /* last offset delta 22 */
    0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, /* base timestamp -1 */
    0x00, 0x00, 0x01, 0x8b, 0xcf, 0xe5, 0x68, 0x00, /* max timestamp 1700000000000 */
    0x00, 0x00, 0x00, 0x00, 0x00, 0x00, 0x5b, 0x7f, /* producer id 23423 */
    0x00, 0x91,                                     /* producer epoch 145 */
    0x00, 0x00, 0x03, 0xd7,                         /* base sequence 983 */
    0x00, 0x00, 0x00, 0x00,                         /* no records */
};

static const uint8_t MESSAGE_0[] = {
    0x00, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00, 0x32, /* offset 50 */
    0x00, 0x00, 0x00, 0x12,                         /* 18 bytes follow */
    0x57, 0xe7, 0x49, 0x6e,                         /* CRC-32 */
    0x00,                                           /* magic */
    0x00,                                           /* attributes */
    0x00, 0x00, 0x00, 0x02, 0x6b, 0x31,             /* key, 2 bytes: k1 */
    0x00, 0x00, 0x00, 0x02, 0x76, 0x31,             /* value, 2 bytes: v1 */
};

static const uint8_t MESSAGE_1[] = {
    0x00, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00, 0x32, /* offset 50 */
    0x00, 0x00, 0x00, 0x1a,                         /* 26 bytes follow */
    0xa5, 0xda, 0x6a, 0x62,                         /* CRC-32 */
    0x01,                                           /* magic */
    0x00,                                           /* attributes */
    0x00, 0x00, 0x01, 0x8b, 0xcf, 0xe5, 0x68, 0x00, /* timestamp 1700000000000 */
    0x00, 0x00, 0x00, 0x02, 0x6b, 0x31,             /* key, 2 bytes: k1 */
    0x00, 0x00, 0x00, 0x02, 0x76, 0x31,             /* value, 2 bytes: v1 */
};

#define T0 INT64_C(1700000000000)

typedef struct example {
    const char *name;
    const uint8_t *bytes;
    size_t size;
} example;

static const example EXAMPLES[] = {
    {"A", BATCH_A, sizeof BATCH_A},     {"B", BATCH_B, sizeof BATCH_B},     {"C", BATCH_C, sizeof BATCH_C},
    {"D", BATCH_D, sizeof BATCH_D},     {"v0", MESSAGE_0, sizeof MESSAGE_0}, {"v1", MESSAGE_1, sizeof MESSAGE_1},
};
enum { N_EXAMPLES = sizeof EXAMPLES / sizeof *EXAMPLES };

/* ---- checksums ----------------------------------------------------------------------------------------------- */

static void test_crc_vectors(void)
{
    variant variants[8];
    size_t n = crc_variants(variants), i, size;
    uint8_t bytes[300];
    for (i = 0; i < n; i++) {
        crc_function crc = variants[i].function;
        uint8_t block[32];
        int k;
        CHECK(crc(0, "", 0) == 0);
        CHECK(crc(0, "123456789", 9) == 0xe3069283u);
        CHECK(crc(0, "Some String", 11) == 608512271u);
        /* RFC 3720, B.4 */
        memset(block, 0, 32);
        CHECK(crc(0, block, 32) == 0x8a9136aau);
        memset(block, 0xff, 32);
        CHECK(crc(0, block, 32) == 0x62a8ab43u);
        for (k = 0; k < 32; k++)
            block[k] = (uint8_t)k;
        CHECK(crc(0, block, 32) == 0x46dd794eu);
        for (k = 0; k < 32; k++)
            block[k] = (uint8_t)(31 - k);
        CHECK(crc(0, block, 32) == 0x113fdb5cu);
    }
    CHECK(ks_crc32("", 0) == 0);
    CHECK(ks_crc32("123456789", 9) == 0xcbf43926u);
    fill_random(bytes, sizeof bytes);
    for (size = 0; size <= sizeof bytes; size++) {
        CHECK(ks_crc32c_portable(0, bytes, size) == crc_by_bits(0x82f63b78u, bytes, size));
        CHECK(ks_crc32(bytes, size) == crc_by_bits(0xedb88320u, bytes, size));
    }
}

static void test_crc_variants(void)
{
    enum { LARGEST = 2000, LONG = 1777 };
    static const size_t LEADS[] = {0, 1, 2, 3, 7, 8, 15, 33, 63};
    variant variants[8];
    size_t n = crc_variants(variants), size, lead, i, j, split;
    uint8_t *pool = (uint8_t *)malloc(LARGEST);
    exact x;
    uint32_t whole;
    CHECK(pool != NULL);
    fill_random(pool, LARGEST);
    for (i = 0; i < n; i++)
        printf(" %s", variants[i].name);
    for (size = 0; size <= LARGEST; size++) {
        uint32_t expected = ks_crc32c_portable(0, pool, size);
        uint32_t after = ks_crc32c_portable(0x12345678u, pool, size);
        for (lead = 0; lead < sizeof LEADS / sizeof *LEADS; lead++) {
            x = exact_new(size, LEADS[lead]);
            memset(x.block, 0xa5, LEADS[lead]);
            if (size)
                memcpy(x.p, pool, size);
            for (i = 1; i < n; i++) {
                CHECK(variants[i].function(0, x.p, size) == expected);
                CHECK(variants[i].function(0x12345678u, x.p, size) == after);
            }
            free(x.block);
        }
    }
    /* one variant may go on from the result of any other, at any byte */
    whole = ks_crc32c_portable(0, pool, LONG);
    for (split = 0; split <= LONG; split++)
        for (i = 0; i < n; i++)
            for (j = 0; j < n; j++)
                if (i == j || split % 61 == 0)
                    CHECK(variants[j].function(variants[i].function(0, pool, split), pool + split, LONG - split) ==
                          whole);
    free(pool);
    /* longer than a run of any fold */
    x = exact_new((size_t)1 << 20, 0);
    fill_random(x.p, (size_t)1 << 20);
    whole = ks_crc32c_portable(0, x.p, (size_t)1 << 20);
    for (i = 1; i < n; i++)
        CHECK(variants[i].function(0, x.p, (size_t)1 << 20) == whole);
    free(x.block);
}

/* ---- numbers ------------------------------------------------------------------------------------------------- */

static void test_loads(void)
{
    static const uint8_t bytes[] = {0xff, 0x01, 0x02, 0x03, 0x04, 0x05, 0x06, 0x07, 0x88}; /* odd addresses too */
    uint8_t out[9];
    int at;
    CHECK(ks_load_u16(bytes + 1) == 0x0102 && ks_load_i16(bytes) == -255);
    CHECK(ks_load_u32(bytes + 1) == 0x01020304u && ks_load_i32(bytes) == -16711165);
    CHECK(ks_load_u64(bytes + 1) == UINT64_C(0x0102030405060788));
    CHECK(ks_load_i64(bytes) == (int64_t)UINT64_C(0xff01020304050607));
    for (at = 0; at < 2; at++) {
        ks_store_u64(out + at, UINT64_C(0x8182838485868788));
        CHECK(ks_load_u64(out + at) == UINT64_C(0x8182838485868788));
        ks_store_u32(out + at, 0xfffefdfcu);
        CHECK(ks_load_u32(out + at) == 0xfffefdfcu);
        ks_store_u16(out + at, 0x8001);
        CHECK(ks_load_u16(out + at) == 0x8001);
    }
    CHECK(ks_add64(INT64_MAX, 1) == INT64_MIN);
    CHECK(ks_add64(INT64_MIN, -1) == INT64_MAX);
    CHECK(ks_sequence_after(0, 0) == 0);
    CHECK(ks_sequence_after(5, 7) == 12);
    CHECK(ks_sequence_after(INT32_MAX, 0) == INT32_MAX);
    CHECK(ks_sequence_after(INT32_MAX, 1) == 0);
    CHECK(ks_sequence_after(INT32_MAX - 2, 5) == 2);
    CHECK(ks_sequence_after(INT32_MAX, INT32_MAX) == INT32_MAX - 1);
}

typedef struct varint_vector {
    int64_t value;
    size_t size;
    uint8_t bytes[10];
} varint_vector;

static const varint_vector VARINTS[] = {
    {0, 1, {0x00}},
    {-1, 1, {0x01}},
    {1, 1, {0x02}},
    {63, 1, {0x7e}},
    {-64, 1, {0x7f}},
    {64, 2, {0x80, 0x01}},
    {-65, 2, {0x81, 0x01}},
    {300, 2, {0xd8, 0x04}},
    {-86401000, 4, {0xcf, 0xff, 0xb2, 0x52}},
    {INT32_MAX, 5, {0xfe, 0xff, 0xff, 0xff, 0x0f}},
    {INT32_MIN, 5, {0xff, 0xff, 0xff, 0xff, 0x0f}},
    {INT64_MAX, 10, {0xfe, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0x01}},
    {INT64_MIN, 10, {0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0x01}},
};

static void check_varint(int64_t value, const uint8_t *bytes, size_t size)
{
    exact x = exact_copy(bytes, size);
    const uint8_t *q = x.p;
    int64_t wide = ~value;
    int32_t narrow = 0;
    size_t cut;
    CHECK(ks_read_varlong(&q, x.end, &wide) == KS_OK && wide == value && q == x.end);
    q = x.p;
    if (value >= INT32_MIN && value <= INT32_MAX)
        CHECK(ks_read_varint(&q, x.end, &narrow) == KS_OK && narrow == value && q == x.end);
    else
        CHECK(ks_read_varint(&q, x.end, &narrow) == (size > 5 ? KS_E_VARINT : KS_OK));
    free(x.block);
    for (cut = 0; cut < size; cut++) {
        x = exact_copy(bytes, cut);
        q = x.p;
        CHECK(ks_read_varlong(&q, x.end, &wide) == KS_E_VARINT && q == x.p);
        CHECK(ks_read_varint(&q, x.end, &narrow) == KS_E_VARINT && q == x.p);
        free(x.block);
    }
}

static void test_varints(void)
{
    static const uint8_t LONG[] = {0x80, 0x80, 0x80, 0x80, 0x80, 0x80, 0x80, 0x80, 0x80, 0x80, 0x00};
    static const uint8_t LOST[] = {0xfe, 0xff, 0xff, 0xff, 0x7f};
    static const uint8_t LOST_WIDE[] = {0xfe, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0x7f};
    static const uint8_t LAZY[] = {0x82, 0x80, 0x00};
    uint8_t out[KS_MAX_VARLONG];
    const uint8_t *q;
    int64_t wide;
    int32_t narrow;
    size_t i, n;
    int shift;
    for (i = 0; i < sizeof VARINTS / sizeof *VARINTS; i++) {
        check_varint(VARINTS[i].value, VARINTS[i].bytes, VARINTS[i].size);
        CHECK(ks_write_varlong(out, VARINTS[i].value) == VARINTS[i].size);
        CHECK(memcmp(out, VARINTS[i].bytes, VARINTS[i].size) == 0);
    }
    for (shift = 0; shift < 63; shift++) {
        int64_t edge = INT64_C(1) << shift, value;
        for (value = edge - 2; value <= edge + 1; value++) {
            n = ks_write_varlong(out, value);
            check_varint(value, out, n);
            n = ks_write_varlong(out, -value);
            check_varint(-value, out, n);
        }
    }
    for (i = 0; i < 20000; i++) {
        int64_t value = (int64_t)(next_random() >> random_below(64));
        n = ks_write_varlong(out, i & 1 ? value : ks_add64(0, (int64_t)~(uint64_t)value));
        CHECK(n <= KS_MAX_VARLONG);
        check_varint(i & 1 ? value : (int64_t)~(uint64_t)value, out, n);
    }
    /* the fifth and the tenth byte must end it */
    q = LONG;
    CHECK(ks_read_varint(&q, LONG + sizeof LONG, &narrow) == KS_E_VARINT && q == LONG);
    CHECK(ks_read_varlong(&q, LONG + sizeof LONG, &wide) == KS_E_VARINT && q == LONG);
    /* bits past the width are lost in silence */
    q = LOST;
    CHECK(ks_read_varint(&q, LOST + sizeof LOST, &narrow) == KS_OK && narrow == INT32_MAX);
    q = LOST_WIDE;
    CHECK(ks_read_varlong(&q, LOST_WIDE + sizeof LOST_WIDE, &wide) == KS_OK && wide == INT64_MAX);
    /* more bytes than needed are fine */
    q = LAZY;
    CHECK(ks_read_varint(&q, LAZY + sizeof LAZY, &narrow) == KS_OK && narrow == 1 && q == LAZY + 3);
    q = LAZY;
    CHECK(ks_read_varlong(&q, LAZY + sizeof LAZY, &wide) == KS_OK && wide == 1 && q == LAZY + 3);
}

/* ---- batches ------------------------------------------------------------------------------------------------- */

static int is_text(const uint8_t *p, int32_t size, const char *text)
{
    return size == (int32_t)strlen(text) && memcmp(p, text, (size_t)size) == 0;
}

static void check_two_records(const uint8_t *p, const ks_batch *b)
{
    const uint8_t *q = p + KS_RECORDS_AT, *end = p + b->size, *at;
    ks_fault fault;
    ks_record r;
    ks_header h;
    CHECK(ks_next_record(&q, end, b, &r, &fault) == KS_OK);
    CHECK(r.offset == 0 && r.offset_delta == 0 && r.timestamp == T0);
    CHECK(is_text(r.key, r.key_size, "k1") && is_text(r.value, r.value_size, "v1") && r.headers_count == 1);
    at = r.headers;
    CHECK(ks_next_header(&at, r.end, &h) == KS_OK && at == r.end && r.end == q);
    CHECK(is_text(h.key, h.key_size, "h") && is_text(h.value, h.value_size, "x"));
    CHECK(ks_next_header(&at, r.end, &h) == KS_E_VARINT);
    CHECK(ks_next_record(&q, end, b, &r, &fault) == KS_OK);
    CHECK(r.offset == 1 && r.offset_delta == 1 && r.timestamp == T0 + 5);
    CHECK(is_text(r.key, r.key_size, "k2") && r.value == NULL && r.value_size == -1 && r.headers_count == 0);
    CHECK(q == end);
    CHECK(ks_next_record(&q, end, b, &r, &fault) == KS_E_COUNT && q == end);
}

static void test_batches(void)
{
    ks_batch b, header_only;
    ks_fault fault;
    ks_record r;
    int64_t size;
    const uint8_t *q;

    CHECK(sizeof BATCH_A == 85 && sizeof BATCH_B == 91 && sizeof BATCH_C == 78 && sizeof BATCH_D == 61);
    CHECK(ks_check_batch(BATCH_A, BATCH_A + sizeof BATCH_A, &b, &fault) == KS_OK);
    CHECK(b.base_offset == 0 && b.last_offset == 1 && b.last_offset_delta == 1 && b.size == 85 && b.magic == 2);
    CHECK(b.leader_epoch == 0 && b.crc == 0xf1759bafu && b.attributes == 0 && ks_codec(&b) == KS_CODEC_NONE);
    CHECK(b.base_timestamp == T0 && b.max_timestamp == T0 + 5);
    CHECK(b.producer_id == -1 && b.producer_epoch == -1 && b.base_sequence == -1 && b.records_count == 2);
    CHECK(ks_entry_size(BATCH_A, BATCH_A + sizeof BATCH_A, &size, &fault) == KS_OK && size == 85);
    CHECK(ks_parse_header(BATCH_A, BATCH_A + KS_BATCH_OVERHEAD, &header_only, &fault) == KS_OK);
    CHECK(header_only.size == 85 && header_only.crc == b.crc && header_only.records_count == 2);
    check_two_records(BATCH_A, &b);
    CHECK(walk_records(BATCH_A, &b, &fault) == 2);

    /* the same batch with LogAppendTime: every record has the batch's time */
    b.attributes |= KS_LOG_APPEND_TIME;
    q = BATCH_A + KS_RECORDS_AT;
    CHECK(ks_next_record(&q, BATCH_A + sizeof BATCH_A, &b, &r, &fault) == KS_OK && r.timestamp == T0 + 5);

    CHECK(ks_check_batch(BATCH_B, BATCH_B + sizeof BATCH_B, &b, &fault) == KS_OK);
    CHECK(b.attributes == KS_DELETE_HORIZON && b.base_timestamp == T0 + 86401000 && b.max_timestamp == T0 + 5);
    CHECK(b.crc == 0x08bb9f40u && b.size == 91);
    check_two_records(BATCH_B, &b);

    CHECK(ks_check_batch(BATCH_C, BATCH_C + sizeof BATCH_C, &b, &fault) == KS_OK);
    CHECK(b.attributes == (KS_TRANSACTIONAL | KS_CONTROL) && b.base_offset == 2 && b.last_offset == 2);
    CHECK(b.producer_id == 9 && b.producer_epoch == 3 && b.base_sequence == -1 && b.records_count == 1);
    q = BATCH_C + KS_RECORDS_AT;
    CHECK(ks_next_record(&q, BATCH_C + sizeof BATCH_C, &b, &r, &fault) == KS_OK && q == BATCH_C + sizeof BATCH_C);
    CHECK(r.key_size == 4 && ks_load_i16(r.key) == 0 && ks_load_i16(r.key + 2) == 0);
    CHECK(r.value_size == 6 && ks_load_i16(r.value) == 0 && ks_load_i32(r.value + 2) == 7);
    CHECK(r.offset == 2 && r.timestamp == T0 + 10);

    CHECK(ks_check_batch(BATCH_D, BATCH_D + sizeof BATCH_D, &b, &fault) == KS_OK);
    CHECK(b.base_offset == 15 && b.last_offset == 37 && b.leader_epoch == 15 && b.records_count == 0);
    CHECK(b.producer_id == 23423 && b.producer_epoch == 145 && b.base_sequence == 983);
    CHECK(b.base_timestamp == -1 && b.max_timestamp == T0);
    CHECK(ks_sequence_after(b.base_sequence, b.last_offset_delta) == 1005);
    CHECK(walk_records(BATCH_D, &b, &fault) == 0);
}

static void test_messages(void)
{
    static const uint8_t *const MESSAGES[] = {MESSAGE_0, MESSAGE_1};
    static const size_t SIZES[] = {sizeof MESSAGE_0, sizeof MESSAGE_1};
    static const uint32_t CRCS[] = {0x57e7496eu, 0xa5da6a62u};
    ks_batch b;
    ks_fault fault;
    ks_record r;
    int magic;
    for (magic = 0; magic < 2; magic++) {
        const uint8_t *p = MESSAGES[magic];
        exact x;
        CHECK(ks_check_batch(p, p + SIZES[magic], &b, &fault) == KS_OK);
        CHECK(b.magic == magic && b.size == (int64_t)SIZES[magic] && b.crc == CRCS[magic] && b.attributes == 0);
        CHECK(b.base_offset == 50 && b.last_offset == 50 && b.last_offset_delta == 0);
        CHECK(b.max_timestamp == (magic ? T0 : -1) && b.base_timestamp == b.max_timestamp);
        CHECK(b.leader_epoch == -1 && b.producer_id == -1 && b.producer_epoch == -1 && b.base_sequence == -1);
        CHECK(b.records_count == -1);
        CHECK(ks_parse_message(p, &b, &r, &fault) == KS_OK);
        CHECK(r.offset == 50 && r.timestamp == (magic ? T0 : -1) && r.headers_count == 0);
        CHECK(is_text(r.key, r.key_size, "k1") && is_text(r.value, r.value_size, "v1"));

        /* a null key, and the bytes that it frees behind the value: ignored */
        x = exact_copy(p, SIZES[magic]);
        ks_store_u32(x.end - 12, 0xffffffffu);
        ks_store_u32(x.end - 8, 2);
        x.end[-4] = 'v';
        x.end[-3] = '2';
        fix_crc(x.p, SIZES[magic]);
        CHECK(ks_check_batch(x.p, x.end, &b, &fault) == KS_OK);
        CHECK(ks_parse_message(x.p, &b, &r, &fault) == KS_OK);
        CHECK(r.key == NULL && r.key_size == -1 && is_text(r.value, r.value_size, "v2"));

        /* a value one byte longer than there is */
        ks_store_u32(x.end - 8, 5);
        fix_crc(x.p, SIZES[magic]);
        CHECK(ks_check_batch(x.p, x.end, &b, &fault) == KS_OK); /* contents are not its business */
        CHECK(ks_parse_message(x.p, &b, &r, &fault) == KS_E_LENGTH);
        CHECK(fault.at == SIZES[magic] - 8 && fault.expected == 4 && fault.found == 5);

        /* attributes: codec in both, the timestamp type in magic 1 only, no other bit */
        x.p[KS_MESSAGE_ATTRIBUTES_AT] = 0xff;
        CHECK(ks_parse_header(x.p, x.end, &b, &fault) == KS_OK);
        CHECK(b.attributes == (magic ? KS_CODEC_MASK | KS_LOG_APPEND_TIME : KS_CODEC_MASK));
        free(x.block);
    }
}

/* Each fault says where, what was expected and what was found. */
static void test_faults(void)
{
    const size_t n = sizeof BATCH_A;
    exact x = exact_copy(BATCH_A, n);
    ks_batch b;
    ks_fault fault;
    ks_record r;
    const uint8_t *q;
    int64_t size;

    CHECK(ks_check_batch(x.p, x.p + 16, &b, &fault) == KS_E_SHORT);
    CHECK(fault.at == 0 && fault.expected == 17 && fault.found == 16);
    CHECK(ks_check_batch(x.p, x.p + 60, &b, &fault) == KS_E_SHORT && fault.expected == 61 && fault.found == 60);
    CHECK(ks_check_batch(x.p, x.end - 1, &b, &fault) == KS_E_SHORT && fault.expected == 85 && fault.found == 84);
    CHECK(ks_entry_size(x.p, x.end - 1, &size, &fault) == KS_E_SHORT && fault.expected == 85 && fault.found == 84);

    ks_store_u32(x.p + KS_SIZE_AT, 13);
    CHECK(ks_check_batch(x.p, x.end, &b, &fault) == KS_E_SIZE);
    CHECK(fault.at == KS_SIZE_AT && fault.expected == 14 && fault.found == 13);
    CHECK(ks_entry_size(x.p, x.end, &size, &fault) == KS_E_SIZE && fault.found == 13);
    ks_store_u32(x.p + KS_SIZE_AT, 48);
    CHECK(ks_entry_size(x.p, x.end, &size, &fault) == KS_OK && size == 60); /* it looks at no magic */
    CHECK(ks_check_batch(x.p, x.end, &b, &fault) == KS_E_SIZE && fault.expected == 49 && fault.found == 48);
    ks_store_u32(x.p + KS_SIZE_AT, 0xffffffffu);
    CHECK(ks_check_batch(x.p, x.end, &b, &fault) == KS_E_SIZE && fault.found == -1);
    ks_store_u32(x.p + KS_SIZE_AT, 0x7fffffffu);
    CHECK(ks_check_batch(x.p, x.end, &b, &fault) == KS_E_SHORT && fault.expected == INT64_C(0x8000000b));
    ks_store_u32(x.p + KS_SIZE_AT, 73);

    x.p[KS_MAGIC_AT] = 3;
    CHECK(ks_check_batch(x.p, x.end, &b, &fault) == KS_E_MAGIC && fault.at == KS_MAGIC_AT && fault.found == 3);
    x.p[KS_MAGIC_AT] = 0xff;
    CHECK(ks_check_batch(x.p, x.end, &b, &fault) == KS_E_MAGIC && fault.found == -1);
    x.p[KS_MAGIC_AT] = 2;

    x.p[n - 1] = 1;
    CHECK(ks_check_batch(x.p, x.end, &b, &fault) == KS_E_CRC && fault.at == KS_CRC_AT);
    CHECK(fault.expected == 0xf1759baf && fault.found == ks_crc32c_portable(0, x.p + 21, n - 21));
    x.p[n - 1] = 0;

    ks_store_u64(x.p, UINT64_MAX);
    CHECK(ks_check_batch(x.p, x.end, &b, &fault) == KS_E_OFFSET && fault.at == KS_OFFSET_AT && fault.expected == -1);
    ks_store_u64(x.p, INT64_MAX - 2);
    CHECK(ks_check_batch(x.p, x.end, &b, &fault) == KS_OK && b.last_offset == INT64_MAX - 1);
    ks_store_u64(x.p, INT64_MAX - 1);
    CHECK(ks_check_batch(x.p, x.end, &b, &fault) == KS_E_OFFSET && fault.at == KS_LAST_OFFSET_DELTA_AT);
    ks_store_u64(x.p, INT64_MAX);
    CHECK(ks_check_batch(x.p, x.end, &b, &fault) == KS_E_OFFSET && fault.found == INT64_MIN);
    ks_store_u64(x.p, 0);
    ks_store_u32(x.p + KS_LAST_OFFSET_DELTA_AT, 0xffffffffu);
    fix_crc(x.p, n);
    CHECK(ks_check_batch(x.p, x.end, &b, &fault) == KS_E_OFFSET && fault.expected == 0 && fault.found == -1);
    ks_store_u32(x.p + KS_LAST_OFFSET_DELTA_AT, 1);
    fix_crc(x.p, n);
    CHECK(ks_check_batch(x.p, x.end, &b, &fault) == KS_OK && b.crc == 0xf1759bafu);

    /* high bits of the attributes mean nothing */
    x.p[KS_ATTRIBUTES_AT] = 0xff;
    CHECK(ks_parse_header(x.p, x.end, &b, &fault) == KS_OK && b.attributes == 0);
    x.p[KS_ATTRIBUTES_AT] = 0;

    /* inside the first record: 61 length, 65 key length, 68 value length, 71 headers, 72 and 74 those of the header */
#define RECORD_WITH(at, value, status_)                                                        \
    do {                                                                                       \
        uint8_t was = x.p[at];                                                                 \
        x.p[at] = (value);                                                                     \
        q = x.p + KS_RECORDS_AT;                                                               \
        CHECK(ks_next_record(&q, x.end, &b, &r, &fault) == (status_) && fault.status == (status_)); \
        CHECK(q == x.p + KS_RECORDS_AT);                                                       \
        x.p[at] = was;                                                                         \
    } while (0)
    RECORD_WITH(61, 0x01, KS_E_LENGTH); /* -1 */
    RECORD_WITH(61, 0x00, KS_E_LENGTH); /* 0 */
    RECORD_WITH(61, 0x1a, KS_E_LENGTH); /* one less */
    RECORD_WITH(61, 0x1e, KS_E_LENGTH); /* one more */
    RECORD_WITH(61, 0x7e, KS_E_LENGTH); /* past the end */
    RECORD_WITH(61, 0x02, KS_E_VARINT); /* attributes, and nothing else */
    RECORD_WITH(65, 0x7e, KS_E_LENGTH);
    RECORD_WITH(68, 0x7e, KS_E_LENGTH);
    RECORD_WITH(71, 0x01, KS_E_LENGTH); /* -1 headers */
    RECORD_WITH(71, 0x00, KS_E_LENGTH); /* bytes left over */
    RECORD_WITH(71, 0x04, KS_E_VARINT); /* a header too many */
    RECORD_WITH(71, 0x7e, KS_E_LENGTH);
    RECORD_WITH(72, 0x01, KS_E_LENGTH); /* a null name */
    RECORD_WITH(74, 0x06, KS_E_LENGTH);
#undef RECORD_WITH
    x.p[68] = 0x7d; /* any negative length is null: -63, which leaves the value's bytes over */
    q = x.p + KS_RECORDS_AT;
    CHECK(ks_next_record(&q, x.end, &b, &r, &fault) != KS_OK);
    x.p[84 - 1] = 0x7d; /* in the second record it is only a null value */
    x.p[68] = 0x04;
    q = x.p + 61 + 15;
    CHECK(ks_next_record(&q, x.end, &b, &r, &fault) == KS_OK && r.value == NULL && r.value_size == -1);
    free(x.block);
}

/* ---- damage -------------------------------------------------------------------------------------------------- */

static void test_truncations(void)
{
    int i;
    size_t size;
    for (i = 0; i < N_EXAMPLES; i++)
        for (size = 0; size <= EXAMPLES[i].size; size++) {
            exact x = exact_copy(EXAMPLES[i].bytes, size);
            int status = read_all(x.p, x.end);
            CHECK(status == (size == EXAMPLES[i].size ? KS_OK : KS_E_SHORT));
            free(x.block);
        }
    /* the records alone: an entry that ends anywhere inside them, though header and block agree */
    for (i = 0; i < 3; i++)
        for (size = KS_RECORDS_AT; size < EXAMPLES[i].size; size++) {
            exact x = exact_copy(EXAMPLES[i].bytes, size);
            ks_batch b;
            ks_fault fault;
            ks_store_u32(x.p + KS_SIZE_AT, (uint32_t)size - KS_LOG_OVERHEAD);
            fix_crc(x.p, size);
            CHECK(ks_check_batch(x.p, x.end, &b, &fault) == KS_OK);
            CHECK(walk_records(x.p, &b, &fault) < 0);
            free(x.block);
        }
    /* a legacy message likewise, down to the least size there can be */
    for (i = 4; i < 6; i++)
        for (size = EXAMPLES[i].size - 4; size < EXAMPLES[i].size; size++) {
            exact x = exact_copy(EXAMPLES[i].bytes, size);
            ks_batch b;
            ks_fault fault;
            ks_record r;
            ks_store_u32(x.p + KS_SIZE_AT, (uint32_t)size - KS_LOG_OVERHEAD);
            fix_crc(x.p, size);
            CHECK(ks_check_batch(x.p, x.end, &b, &fault) == KS_OK);
            CHECK(ks_parse_message(x.p, &b, &r, &fault) == KS_E_LENGTH);
            free(x.block);
        }
}

static void test_flips(void)
{
    int i;
    size_t bit;
    for (i = 0; i < N_EXAMPLES; i++)
        for (bit = 0; bit < 8 * EXAMPLES[i].size; bit++) {
            const size_t at = bit / 8;
            const int legacy = EXAMPLES[i].bytes[KS_MAGIC_AT] < 2;
            const int free_to_change = at < KS_SIZE_AT || (!legacy && at >= KS_LEADER_EPOCH_AT && at < KS_MAGIC_AT);
            exact x = exact_copy(EXAMPLES[i].bytes, EXAMPLES[i].size);
            int status;
            x.p[at] ^= (uint8_t)(1u << (bit % 8));
            status = read_all(x.p, x.end);
            if (at >= (legacy ? (size_t)KS_MESSAGE_CRC_AT : (size_t)KS_CRC_AT) && at != KS_MAGIC_AT)
                CHECK(status == KS_E_CRC);
            else if (free_to_change) /* what the checksum leaves out: only the sign of the offset shows */
                CHECK(status == (bit == 7 ? KS_E_OFFSET : KS_OK));
            else
                CHECK(status < 0);
            /* and again with the checksum made right: nothing then protects the parsers but themselves */
            if (at >= KS_MAGIC_AT) {
                fix_crc(x.p, EXAMPLES[i].size);
                read_all(x.p, x.end);
            }
            free(x.block);
        }
}

static void test_random(void)
{
    long i;
    for (i = 0; i < 150000; i++) {
        const size_t size = random_below(200);
        exact x = exact_new(size, 1);
        x.block[0] = 0;
        fill_random(x.p, size);
        if (i % 4 && size > KS_MAGIC_AT) { /* get past the first tests */
            x.p[KS_MAGIC_AT] = (uint8_t)random_below(3);
            ks_store_u32(x.p + KS_SIZE_AT, (uint32_t)(size - KS_LOG_OVERHEAD));
            if (size >= KS_BATCH_OVERHEAD && x.p[KS_MAGIC_AT] == 2) {
                x.p[KS_ATTRIBUTES_AT + 1] &= 0xf8;
                ks_store_u32(x.p + KS_RECORDS_COUNT_AT, (uint32_t)random_below(20));
                if (i % 4 > 1) {
                    size_t at; /* small numbers: lengths that fit for a while */
                    for (at = KS_RECORDS_AT; at < size; at++)
                        x.p[at] &= i % 4 == 2 ? 0x0f : 0x87;
                }
            } else if (size >= 34 && i % 4 > 1) {
                ks_store_u32(x.p + (x.p[KS_MAGIC_AT] ? 26 : 18), (uint32_t)random_below(2 * size));
            }
            fix_crc(x.p, size);
        }
        read_all(x.p, x.end);
        free(x.block);
    }
    /* examples with a few bytes replaced and the checksum made right */
    for (i = 0; i < 150000; i++) {
        const example *e = &EXAMPLES[random_below(N_EXAMPLES)];
        exact x = exact_copy(e->bytes, e->size);
        size_t n = 1 + random_below(4);
        while (n--)
            x.p[KS_SIZE_AT + random_below(e->size - KS_SIZE_AT)] = (uint8_t)next_random();
        fix_crc(x.p, e->size);
        read_all(x.p, x.end);
        free(x.block);
    }
}

/* ---- index entries ------------------------------------------------------------------------------------------- */

static size_t put_varint(uint8_t *p, int64_t value) { return (size_t)ks_write_varlong(p, value); }

/* Records that are almost plain, alone at the very end of their block or not, whole, cut or with a byte changed. */
static void test_plain(void)
{
    static const int32_t SIZES[] = {-1, 0, 1, 4, 8, 12, 13, 16, 17, 63, 64, 100, 8191, 8192, -2};
    static const int64_t DELTAS[] = {0, 1, 63, 64, -64, -65, 8192, 1 << 20, (1 << 20) - 1, -(1 << 20), INT32_MAX};
    ks_batch b;
    long turn;
    plain_records = 0;
    memset(&b, 0, sizeof b);
    b.records_count = 1;
    for (turn = 0; turn < 100000; turn++) {
        const int32_t key = SIZES[random_below(sizeof SIZES / sizeof *SIZES)];
        const int32_t value = SIZES[random_below(sizeof SIZES / sizeof *SIZES)];
        const int32_t headers = random_below(8) ? 0 : (int32_t)random_below(3) - 1;
        uint8_t body[17000], head[8];
        size_t size = 1, length;
        exact x;
        body[0] = 0;
        b.base_offset = (int64_t)next_random() >> random_below(60);
        b.base_timestamp = b.max_timestamp = (int64_t)next_random() >> random_below(60);
        b.attributes = random_below(2) ? KS_LOG_APPEND_TIME : 0;
        size += put_varint(body + size, DELTAS[random_below(sizeof DELTAS / sizeof *DELTAS)]);
        size += put_varint(body + size, DELTAS[random_below(sizeof DELTAS / sizeof *DELTAS)]);
        size += put_varint(body + size, key);
        memset(body + size, 7, (size_t)(key > 0 ? key : 0));
        fill_random(body + size, key < 0 ? 0 : key < 16 ? (size_t)key : 16);
        size += (size_t)(key > 0 ? key : 0);
        size += put_varint(body + size, value);
        memset(body + size, 9, (size_t)(value > 0 ? value : 0));
        fill_random(body + size, value < 0 ? 0 : value < 16 ? (size_t)value : 16);
        size += (size_t)(value > 0 ? value : 0);
        size += put_varint(body + size, headers);
        length = put_varint(head, (int64_t)size + (random_below(8) ? 0 : (int64_t)random_below(5) - 2));
        x = exact_new(length + size + (random_below(2) ? 0 : random_below(20)), 0);
        memset(x.p, 1, (size_t)(x.end - x.p));
        memcpy(x.p, head, length);
        memcpy(x.p + length, body, size);
        if (!random_below(4))
            x.p[random_below((size_t)(x.end - x.p) < 40 ? (size_t)(x.end - x.p) : 40)] = (uint8_t)next_random();
        check_plain(x.p, x.end, &b);
        check_columns(x.p, x.end, &b, KS_OFFSETS | KS_TIMESTAMPS | KS_KEYS | KS_VALUES, x.end - x.p);
        check_columns(x.p, x.end, &b, KS_OFFSETS | KS_TIMESTAMPS | KS_KEYS | KS_VALUES | KS_VIEWS, 0);
        free(x.block);
        x = exact_copy(body, random_below(size < 40 ? size : 40));
        check_plain(x.p, x.end, &b);
        free(x.block);
    }
    CHECK(plain_records > 10000);
}

static long number_rows;

/* What ks_take_numbers takes is what ks_next_record reads, if its offset is start at least and below stop. */
static void check_numbers(const uint8_t *p, const uint8_t *end, const ks_batch *b, int64_t start, int64_t stop)
{
    int64_t offset = 0, timestamp = 0;
    ks_record r;
    ks_fault fault;
    ks_table t;
    const uint8_t *q = p, *next = p;
    memset(&t, 0, sizeof t);
    t.most_rows = 1;
    t.start = start;
    t.stop = stop;
    t.offsets = &offset;
    t.timestamps = &timestamp;
    if (!ks_take_numbers(&t, &q, end, b, 1)) {
        CHECK(q == p && t.rows == 0);
        return;
    }
    number_rows++;
    CHECK(ks_next_record(&next, end, b, &r, &fault) == KS_OK && q == next && t.rows == 1);
    CHECK(offset == r.offset && timestamp == r.timestamp && r.headers_count == 0);
    CHECK(offset >= start && offset < stop);
}

/* Records whose numbers are of one byte or two, or hardly more, with a byte changed or not, in blocks that end with them,
 * sooner or later. */
static void test_numbers(void)
{
    static const int32_t KEYS[] = {-1, -2, 0, 1, 30, 63, 64};
    static const int64_t DELTAS[] = {0, 1, -1, 63, -64, 64, 8191, 8192};
    static const size_t LENGTHS[] = {20, 62, 63, 64, 65, 100, 8190, 8191, 8192};
    static const uint8_t BYTES[] = {0x00, 0x01, 0x02, 0x03, 0x0c, 0x7f, 0x80, 0x81, 0xc8, 0xff};
    ks_batch b;
    long turn;
    number_rows = 0;
    memset(&b, 0, sizeof b);
    for (turn = 0; turn < 400000; turn++) {
        const int32_t key = KEYS[random_below(sizeof KEYS / sizeof *KEYS)];
        const size_t length = LENGTHS[random_below(sizeof LENGTHS / sizeof *LENGTHS)];
        const int64_t delta = DELTAS[random_below(sizeof DELTAS / sizeof *DELTAS)];
        const int kind = (int)random_below(8); /* of change: three of them are none */
        uint8_t bytes[8300];
        size_t at, number, value, size;
        exact x;
        b.base_offset = (int64_t)(next_random() >> 2);
        b.base_timestamp = (int64_t)(next_random() >> 2);
        memset(bytes, 0, sizeof bytes);
        at = put_varint(bytes, (int64_t)length);
        size = at + length;
        at++;
        at += put_varint(bytes + at, DELTAS[random_below(sizeof DELTAS / sizeof *DELTAS)]);
        at += put_varint(bytes + at, delta);
        at += put_varint(bytes + at, key);
        number = at += (size_t)(key > 0 ? key : 0);
        if (at + 3 <= size) { /* the value is what is left, if anything */
            value = size - at - 2;
            at += put_varint(bytes + at, (int64_t)(value > 63 ? value - 1 : value));
        } else if (at + 2 <= size)
            bytes[at] = (uint8_t)random_below(4);
        if (kind == 0)
            bytes[random_below(12)] = BYTES[random_below(sizeof BYTES / sizeof *BYTES)];
        else if (kind == 1)
            bytes[number + random_below(2)] = BYTES[random_below(sizeof BYTES / sizeof *BYTES)];
        else if (kind == 2)
            bytes[size - 1] = (uint8_t)next_random();
        else if (kind == 3)
            size -= random_below(size < 40 ? size : 40);
        else if (kind == 4)
            size += random_below(20);
        x = exact_copy(bytes, size);
        check_numbers(x.p, x.end, &b, INT64_MIN, INT64_MAX);
        check_numbers(x.p, x.end, &b, b.base_offset + delta, b.base_offset + delta + (int64_t)random_below(2));
        check_numbers(x.p, x.end, &b, b.base_offset + delta + 1, INT64_MAX);
        free(x.block);
    }
    CHECK(number_rows > 50000);
}

static void test_indexes(void)
{
    static const uint8_t OFFSETS[] = {
        0x00, 0x00, 0x00, 0x0a, /* offset 45 + 10 */
        0x00, 0x00, 0x00, 0x00, /* position 0 */
        0x00, 0x00, 0x00, 0x19, /* offset 45 + 25 */
        0x00, 0x00, 0x10, 0x92, /* position 4242 */
    };
    static const uint8_t TIMES[] = {
        0x00, 0x00, 0x01, 0x8b, 0xcf, 0xe5, 0x68, 0x00, /* timestamp 1700000000000 */
        0x00, 0x00, 0x00, 0x0a,                         /* offset 45 + 10 */
        0x00, 0x00, 0x01, 0x8b, 0xcf, 0xe5, 0x68, 0x05, /* timestamp 1700000000005 */
        0x00, 0x00, 0x00, 0x19,                         /* offset 45 + 25 */
    };
    static const uint8_t ABORTED[] = {
        0x00, 0x00,                                     /* version */
        0x00, 0x00, 0x00, 0x00, 0x00, 0x0f, 0x01, 0xc5, /* producer id 983493 */
        0x00, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00, 0x89, /* first offset 137 */
        0x00, 0x00, 0x00, 0x00, 0x00, 0x00, 0x01, 0x2b, /* last offset 299 */
        0x00, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00, 0xc8, /* last stable offset 200 */
    };
    static const uint8_t SNAPSHOT[] = {
        0x00, 0x01,                                     /* version */
        0x03, 0xf7, 0xdf, 0x5d,                         /* CRC-32C of all that follows */
        0x00, 0x00, 0x00, 0x01,                         /* one producer */
        0x00, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00, 0x09, /* its id 9 */
        0x00, 0x03,                                     /* epoch 3 */
        0x00, 0x00, 0x00, 0x04,                         /* last sequence 4 */
        0x00, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00, 0x6a, /* last offset 106 */
        0x00, 0x00, 0x00, 0x04,                         /* offset delta 4 */
        0x00, 0x00, 0x01, 0x8b, 0xcf, 0xe5, 0x68, 0x0a, /* timestamp 1700000000010 */
        0x00, 0x00, 0x00, 0x07,                         /* coordinator epoch 7 */
        0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, /* no open transaction */
    };
    static const uint8_t NO_PRODUCERS[] = {0x00, 0x01, 0x48, 0x67, 0x4b, 0xc7, 0x00, 0x00, 0x00, 0x00};
    ks_aborted_txn txn;
    exact x;

    x = exact_copy(OFFSETS, sizeof OFFSETS);
    CHECK(sizeof OFFSETS == 2 * KS_OFFSET_ENTRY);
    CHECK(ks_entry_offset(x.p, 0, 45) == 55 && ks_entry_position(x.p, 0) == 0);
    CHECK(ks_entry_offset(x.p, 1, 45) == 70 && ks_entry_position(x.p, 1) == 4242);
    memset(x.p, 0xff, KS_OFFSET_ENTRY);
    CHECK(ks_entry_offset(x.p, 0, 45) == 44 && ks_entry_position(x.p, 0) == -1); /* nonsense, but defined */
    CHECK(ks_entry_offset(x.p, 1, INT64_MAX) == INT64_MIN + 24);
    free(x.block);

    x = exact_copy(TIMES, sizeof TIMES);
    CHECK(sizeof TIMES == 2 * KS_TIME_ENTRY);
    CHECK(ks_entry_timestamp(x.p, 0) == T0 && ks_time_entry_offset(x.p, 0, 45) == 55);
    CHECK(ks_entry_timestamp(x.p, 1) == T0 + 5 && ks_time_entry_offset(x.p, 1, 45) == 70);
    free(x.block);

    x = exact_copy(ABORTED, sizeof ABORTED);
    CHECK(sizeof ABORTED == KS_ABORTED_ENTRY);
    ks_parse_aborted_txn(x.p, &txn);
    CHECK(txn.version == 0 && txn.producer_id == 983493 && txn.first_offset == 137);
    CHECK(txn.last_offset == 299 && txn.last_stable_offset == 200);
    free(x.block);

    CHECK(sizeof SNAPSHOT == KS_SNAPSHOT_HEADER + KS_SNAPSHOT_ENTRY && sizeof NO_PRODUCERS == KS_SNAPSHOT_HEADER);
    CHECK(ks_crc32c(0, SNAPSHOT + 6, sizeof SNAPSHOT - 6) == ks_load_u32(SNAPSHOT + 2));
    CHECK(ks_crc32c(0, NO_PRODUCERS + 6, sizeof NO_PRODUCERS - 6) == ks_load_u32(NO_PRODUCERS + 2));
}

/* ---- snappy -------------------------------------------------------------------------------------------------- */

/* Random elements of every kind, most of them short and sound, up to `most` bytes; returns how many bytes they are. */
static size_t make_elements(uint8_t *p, size_t most)
{
    size_t at = 0, done = 0;
    while (at + 80 < most) {
        const unsigned kind = (unsigned)random_below(random_below(8) ? 3 : 4);
        const size_t n = random_below(8) ? 1 + random_below(14) : 1 + random_below(64);
        const size_t distance = random_below(200) ? 1 + random_below(random_below(4) ? done + 1 : 20) : random_below(70000);
        if (kind == 0) {
            const int bytes = n > 60 ? 1 : random_below(30) ? 0 : 1 + (int)random_below(4);
            p[at++] = (uint8_t)((bytes ? 59 + bytes : (int)n - 1) << 2);
            memset(p + at, 0, 4);
            p[at] = (uint8_t)(n - 1);
            at += (size_t)bytes;
            fill_random(p + at, n);
            at += n;
            done += n;
        } else if (kind == 1) {
            const size_t near = distance & 2047;
            p[at++] = (uint8_t)(near >> 8 << 5 | (n & 7) << 2 | 1);
            p[at++] = (uint8_t)near;
            done += 4 + (n & 7);
        } else {
            p[at++] = (uint8_t)((n - 1) << 2 | kind);
            p[at++] = (uint8_t)distance;
            p[at++] = (uint8_t)(distance >> 8);
            if (kind == 3) {
                p[at++] = (uint8_t)(distance >> 16);
                p[at++] = 0;
            }
            done += n;
        }
    }
    return at;
}

/* Long elements behind one that is not for the quick loop, into every room about its limit. */
static void check_snappy_rooms(void)
{
    uint8_t p[256];
    size_t n, room;
    int copy;
    for (copy = 0; copy < 2; copy++)
        for (n = 33; n <= 60; n++) {
            size_t at = 0;
            p[at++] = 19 << 2; /* a literal of 20, and a copy of 4 from 3 before */
            fill_random(p + at, 20);
            at += 20;
            p[at++] = 1;
            p[at++] = 3;
            p[at++] = (uint8_t)((n - 1) << 2 | (copy ? 2 : 0));
            if (copy) {
                p[at++] = 20;
                p[at++] = 0;
            } else {
                fill_random(p + at, n);
                at += n;
            }
            p[at++] = 59 << 2;
            fill_random(p + at, 60);
            at += 60;
            for (room = 24; room < 24 + n + 70; room++)
                check_snappy(p, at, room);
        }
}

static void test_snappy(void)
{
    enum { MOST = 3000, ROUNDS = 4000 };
    uint8_t *p = (uint8_t *)malloc(MOST), *unpacked = (uint8_t *)malloc(64 * MOST);
    int round, sound = 0;
    CHECK(p != NULL && unpacked != NULL);
    for (round = 0; round < ROUNDS; round++) {
        const size_t size = make_elements(p, random_below(4) ? 90 + random_below(300) : 90 + random_below(MOST - 90));
        const int64_t whole = unsnap_by_bytes(p, p + size, unpacked, 64 * MOST);
        sound += whole > 0;
        if (whole >= 0) { /* into what it takes, into more, and into too little */
            check_snappy(p, size, (size_t)whole);
            check_snappy(p, size, (size_t)whole + random_below(300));
            check_snappy(p, size, random_below((size_t)whole + 1));
        } else {
            check_snappy(p, size, 64 * MOST);
        }
        check_snappy(p, random_below(size + 1), 64 * MOST);
        p[random_below(size)] ^= (uint8_t)(1 << random_below(8));
        check_snappy(p, size, whole > 0 ? (size_t)whole : random_below(4000));
        fill_random(p, size);
        check_snappy(p, size, random_below(4000));
    }
    CHECK(sound > ROUNDS / 8);
    check_snappy_rooms();
    free(p);
    free(unpacked);
}

/* ---- LZ4 ----------------------------------------------------------------------------------------------------- */

/* A half of a token; `more` gets the bytes that follow it. */
static unsigned lz4_half(size_t n, uint8_t *more, size_t *bytes)
{
    *bytes = 0;
    if (n < 15)
        return (unsigned)n;
    for (n -= 15; n >= 255; n -= 255)
        more[(*bytes)++] = 255;
    more[(*bytes)++] = (uint8_t)n;
    return 15;
}

/* Random sequences, most of them short and sound, up to `most` bytes, the last with literals alone; returns how many bytes
 * they are. */
static size_t make_sequences(uint8_t *p, size_t most)
{
    size_t at = 0, done = 0, bytes;
    uint8_t more[8];
    for (;;) {
        const int is_last = at + 700 > most;
        const size_t literals = is_last ? 5 + random_below(30) : random_below(8) ? random_below(20) : random_below(600);
        const size_t copied = random_below(8) ? random_below(40) : random_below(1500);
        const size_t near = random_below(3) && done + literals ? done + literals : 1 + random_below(20);
        const size_t distance = random_below(300) ? 1 + random_below(near < 65000 ? near : 65000) : random_below(65536);
        const size_t token = at++;
        p[token] = (uint8_t)(lz4_half(literals, more, &bytes) << 4);
        memcpy(p + at, more, bytes);
        at += bytes;
        fill_random(p + at, literals);
        at += literals;
        done += literals;
        if (is_last)
            return at;
        p[at++] = (uint8_t)(distance & 255);
        p[at++] = (uint8_t)(distance >> 8);
        p[token] |= (uint8_t)lz4_half(copied, more, &bytes);
        memcpy(p + at, more, bytes);
        at += bytes;
        done += copied + 4;
    }
}

static void test_lz4(void)
{
    enum { MOST = 5000, ROOM = 400 * MOST, ROUNDS = 4000 };
    uint8_t *p = (uint8_t *)malloc(MOST), *unpacked = (uint8_t *)malloc(ROOM);
    int round, late, sound = 0;
    CHECK(p != NULL && unpacked != NULL);
    for (round = 0; round < ROUNDS; round++) {
        const size_t size = make_sequences(p, random_below(4) ? 800 + random_below(900) : 800 + random_below(MOST - 800));
        const int64_t whole = unlz4_by_bytes(p, p + size, unpacked, ROOM, &late);
        if (whole >= 0) { /* into what it takes, into more, and into too little */
            sound += !late && ks_unlz4(p, p + size, unpacked, whole) == whole;
            check_lz4(p, size, (size_t)whole);
            check_lz4(p, size, (size_t)whole + random_below(100));
            check_lz4(p, size, (size_t)whole - random_below((size_t)(whole < 60 ? whole : 60)));
            check_lz4(p, size, random_below((size_t)whole + 1));
        } else {
            check_lz4(p, size, 4 * MOST);
        }
        check_lz4(p, random_below(size + 1), 4 * MOST);
        p[random_below(size)] ^= (uint8_t)(1 << random_below(8));
        check_lz4(p, size, whole > 0 ? (size_t)whole : random_below(4000));
        fill_random(p, size);
        check_lz4(p, size, random_below(4000));
    }
    CHECK(sound > ROUNDS / 4);
    free(p);
    free(unpacked);
}

/* -------------------------------------------------------------------------------------------------------------- */

static const struct {
    const char *name;
    void (*run)(void);
} GROUPS[] = {
    {"crc_vectors", test_crc_vectors}, {"crc_variants", test_crc_variants}, {"loads", test_loads},
    {"varints", test_varints},         {"batches", test_batches},           {"messages", test_messages},
    {"faults", test_faults},           {"truncations", test_truncations},   {"flips", test_flips},
    {"random", test_random},           {"plain", test_plain},               {"numbers", test_numbers},
    {"indexes", test_indexes},         {"snappy", test_snappy},
    {"lz4", test_lz4},
};

int main(int argc, char **argv)
{
    size_t i;
    int ran = 0;
    if (argc > 1 && strcmp(argv[1], "--list") == 0) {
        for (i = 0; i < sizeof GROUPS / sizeof *GROUPS; i++)
            puts(GROUPS[i].name);
        return 0;
    }
    for (i = 0; i < sizeof GROUPS / sizeof *GROUPS; i++)
        if (argc < 2 || strcmp(argv[1], GROUPS[i].name) == 0) {
            printf("%s:", GROUPS[i].name);
            GROUPS[i].run();
            puts(" ok");
            ran++;
        }
    if (!ran)
        fprintf(stderr, "no group %s\n", argv[1]);
    return ran ? 0 : 1;
}
