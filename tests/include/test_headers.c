/* The headers alone, without Python: vectors, every CRC variant, damage of every kind to real batches.
 *
 * Runs all groups; exits 1 at the first check that fails, and says which. EFFORT multiplies the number of random cases,
 * SEED chooses others. Buffers under test end exactly where their malloc'd block ends, so that a read of one byte too
 * many is a report of the address sanitizer. */
#include <limits.h>

#include "checks.h"
#include "examples.h" /* BATCH_A to BATCH_D, MESSAGE_0, MESSAGE_1: of spec 2.3 to 2.5, written by test_headers.py */

static long effort = 1;

static long times(long count) { return count * effort; }

static const struct {
    const uint8_t *bytes;
    size_t size;
} EXAMPLES[] = {
    {BATCH_A, sizeof BATCH_A}, {BATCH_B, sizeof BATCH_B},     {BATCH_C, sizeof BATCH_C},
    {BATCH_D, sizeof BATCH_D}, {MESSAGE_0, sizeof MESSAGE_0}, {MESSAGE_1, sizeof MESSAGE_1},
};
enum { N_EXAMPLES = sizeof EXAMPLES / sizeof *EXAMPLES };

/* ---- checksums ----------------------------------------------------------------------------------------------- */

static void test_crc_vectors(void)
{
    uint8_t bytes[300];
    size_t size;
    CHECK(ks_crc32c_portable(0, "123456789", 9) == 0xe3069283u && ks_crc32("123456789", 9) == 0xcbf43926u);
    memset(bytes, 0xff, 32); /* RFC 3720, B.4 */
    CHECK(ks_crc32c_portable(0, bytes, 32) == 0x62a8ab43u);
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
    size_t n = crc_variants(variants), size, lead, i, split;
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
        for (i = 0; i < n * n; i++)
            if (i / n == i % n || split % 61 == 0) {
                const uint32_t head = variants[i / n].function(0, pool, split);
                CHECK(variants[i % n].function(head, pool + split, LONG - split) == whole);
            }
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
    CHECK(ks_add64(INT64_MAX, 1) == INT64_MIN && ks_add64(INT64_MIN, -1) == INT64_MAX);
    CHECK(ks_sequence_after(0, 0) == 0 && ks_sequence_after(5, 7) == 12);
    CHECK(ks_sequence_after(INT32_MAX, 1) == 0 && ks_sequence_after(INT32_MAX - 2, 5) == 2);
    CHECK(ks_sequence_after(INT32_MAX, INT32_MAX) == INT32_MAX - 1);
}

typedef struct varint_vector {
    int64_t value;
    size_t size;
    uint8_t bytes[10];
} varint_vector;

static const varint_vector VARINTS[] = {
    {0, 1, {0x00}}, {-1, 1, {0x01}}, {1, 1, {0x02}}, {63, 1, {0x7e}}, {-64, 1, {0x7f}},
    {64, 2, {0x80, 0x01}}, {-65, 2, {0x81, 0x01}}, {300, 2, {0xd8, 0x04}},
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
    for (shift = 0; shift < 63; shift++)
        for (n = 0; n < 8; n++) {
            const int64_t near = (INT64_C(1) << shift) + (int64_t)(n / 2) - 2, value = n % 2 ? near : -near;
            check_varint(value, out, ks_write_varlong(out, value));
        }
    for (i = 0; i < (size_t)times(4000); i++) {
        const int64_t some = (int64_t)(next_random() >> random_below(64)), value = i & 1 ? some : ~some;
        n = ks_write_varlong(out, value);
        CHECK(n <= KS_MAX_VARLONG);
        check_varint(value, out, n);
    }
    /* the fifth and the tenth byte must end it */
    q = LONG;
    CHECK(ks_read_varint(&q, LONG + sizeof LONG, &narrow) == KS_E_VARINT && q == LONG);
    CHECK(ks_read_varlong(&q, LONG + sizeof LONG, &wide) == KS_E_VARINT && q == LONG);
    /* bits past the width are lost without an error */
    q = LOST;
    CHECK(ks_read_varint(&q, LOST + sizeof LOST, &narrow) == KS_OK && narrow == INT32_MAX);
    q = LOST_WIDE;
    CHECK(ks_read_varlong(&q, LOST_WIDE + sizeof LOST_WIDE, &wide) == KS_OK && wide == INT64_MAX);
    /* more bytes than needed are fine */
    q = LAZY;
    CHECK(ks_read_varint(&q, LAZY + sizeof LAZY, &narrow) == KS_OK && narrow == 1 && q == LAZY + 3);
}

/* ---- batches ------------------------------------------------------------------------------------------------- */

/* One field of batch A changed: the fault says where, what was expected and what was found. */
static const struct {
    size_t at;
    int bytes;
    uint64_t value;
    int status;
    size_t fault_at;
    int64_t expected, found;
} FAULTS[] = {
    {KS_SIZE_AT, 4, 13, KS_E_SIZE, KS_SIZE_AT, 14, 13},
    {KS_SIZE_AT, 4, 48, KS_E_SIZE, KS_SIZE_AT, 49, 48},
    {KS_SIZE_AT, 4, 0xffffffff, KS_E_SIZE, KS_SIZE_AT, 14, -1},
    {KS_SIZE_AT, 4, 0x7fffffff, KS_E_SHORT, 0, INT64_C(0x8000000b), 85},
    {KS_MAGIC_AT, 1, 3, KS_E_MAGIC, KS_MAGIC_AT, 2, 3},
    {KS_MAGIC_AT, 1, 0xff, KS_E_MAGIC, KS_MAGIC_AT, 2, -1},
    {KS_OFFSET_AT, 8, UINT64_MAX, KS_E_OFFSET, KS_OFFSET_AT, 0, -1},
    {KS_OFFSET_AT, 8, INT64_MAX - 2, KS_OK, 0, 0, 0},
    {KS_OFFSET_AT, 8, INT64_MAX - 1, KS_E_OFFSET, KS_LAST_OFFSET_DELTA_AT, INT64_MAX - 1, INT64_MAX},
    {KS_OFFSET_AT, 8, INT64_MAX, KS_E_OFFSET, KS_LAST_OFFSET_DELTA_AT, INT64_MAX, INT64_MIN},
    {KS_LAST_OFFSET_DELTA_AT, 4, 0xffffffff, KS_E_OFFSET, KS_LAST_OFFSET_DELTA_AT, 0, -1},
    {KS_ATTRIBUTES_AT, 1, 0xff, KS_OK, 0, 0, 0}, /* their high bits mean nothing */
};

/* In the first record of A: 61 length, 65 key length, 68 value length, 71 headers, 72 and 74 those of the header. */
static const struct {
    size_t at;
    uint8_t value;
    int status;
} RECORD_FAULTS[] = {
    {61, 0x01, KS_E_LENGTH}, {61, 0x00, KS_E_LENGTH}, {61, 0x1a, KS_E_LENGTH}, /* -1, 0, one less */
    {61, 0x1e, KS_E_LENGTH}, {61, 0x7e, KS_E_LENGTH}, {61, 0x02, KS_E_VARINT}, /* one more, too many, attributes only */
    {65, 0x7e, KS_E_LENGTH}, {68, 0x7e, KS_E_LENGTH}, {68, 0x7d, KS_E_LENGTH}, /* the last: null */
    {71, 0x01, KS_E_LENGTH}, {71, 0x00, KS_E_LENGTH}, {71, 0x04, KS_E_VARINT}, /* -1, none, one too many */
    {71, 0x7e, KS_E_LENGTH}, {72, 0x01, KS_E_LENGTH}, {74, 0x06, KS_E_LENGTH}, /* 72: a null name */
};

static void test_faults(void)
{
    const size_t n = sizeof BATCH_A;
    ks_batch b;
    ks_fault fault;
    ks_record r;
    const uint8_t *q;
    int64_t size;
    size_t i;
    for (i = 0; i < sizeof FAULTS / sizeof *FAULTS; i++) {
        exact x = exact_copy(BATCH_A, n);
        if (FAULTS[i].bytes == 8)
            ks_store_u64(x.p + FAULTS[i].at, FAULTS[i].value);
        else if (FAULTS[i].bytes == 4)
            ks_store_u32(x.p + FAULTS[i].at, (uint32_t)FAULTS[i].value);
        else
            x.p[FAULTS[i].at] = (uint8_t)FAULTS[i].value;
        if (FAULTS[i].at > KS_MAGIC_AT)
            fix_crc(x.p, n);
        CHECK(ks_check_batch(x.p, x.end, &b, &fault) == FAULTS[i].status);
        CHECK(FAULTS[i].status == KS_OK || (fault.at == FAULTS[i].fault_at && fault.expected == FAULTS[i].expected));
        CHECK(FAULTS[i].status == KS_OK ? b.attributes == 0 : fault.found == FAULTS[i].found);
        free(x.block);
    }
    CHECK(ks_check_batch(BATCH_A, BATCH_A + n, &b, &fault) == KS_OK);
    for (i = 0; i < sizeof RECORD_FAULTS / sizeof *RECORD_FAULTS; i++) {
        exact x = exact_copy(BATCH_A, n);
        x.p[RECORD_FAULTS[i].at] = RECORD_FAULTS[i].value;
        q = x.p + KS_RECORDS_AT;
        CHECK(ks_next_record(&q, x.end, &b, &r, &fault) == RECORD_FAULTS[i].status);
        CHECK(fault.status == RECORD_FAULTS[i].status && q == x.p + KS_RECORDS_AT);
        x.p[RECORD_FAULTS[i].at] = BATCH_A[RECORD_FAULTS[i].at];
        x.p[n - 2] = 0x7d; /* any negative length is null: that of the second record's value */
        q = x.p + KS_RECORDS_AT + 15;
        CHECK(ks_next_record(&q, x.end, &b, &r, &fault) == KS_OK && r.value == NULL && r.value_size == -1);
        x.p[n - 1] = 1;
        CHECK(ks_check_batch(x.p, x.end, &b, &fault) == KS_E_CRC && fault.at == KS_CRC_AT);
        CHECK(fault.expected == 0xf1759baf && fault.found == ks_crc32c_portable(0, x.p + 21, n - 21));
        free(x.block);
    }
    CHECK(ks_check_batch(BATCH_A, BATCH_A + 16, &b, &fault) == KS_E_SHORT && fault.expected == 17 && fault.found == 16);
    CHECK(ks_check_batch(BATCH_A, BATCH_A + 60, &b, &fault) == KS_E_SHORT && fault.expected == 61 && fault.found == 60);
    CHECK(ks_entry_size(BATCH_A, BATCH_A + 84, &size, &fault) == KS_E_SHORT && fault.expected == 85);
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
    /* an entry that ends anywhere inside its records or its value, though header, block and checksum agree */
    for (i = 0; i < N_EXAMPLES; i++)
        for (size = i < 4 ? (size_t)KS_RECORDS_AT : EXAMPLES[i].size - 4; size < EXAMPLES[i].size; size++) {
            exact x = exact_copy(EXAMPLES[i].bytes, size);
            ks_batch b;
            ks_fault fault;
            ks_record r;
            ks_store_u32(x.p + KS_SIZE_AT, (uint32_t)size - KS_LOG_OVERHEAD);
            fix_crc(x.p, size);
            CHECK(ks_check_batch(x.p, x.end, &b, &fault) == KS_OK);
            CHECK(i < 4 ? walk_records(x.p, &b, &fault) < 0 : ks_parse_message(x.p, &b, &r, &fault) == KS_E_LENGTH);
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

/* ---- fast paths ---------------------------------------------------------------------------------------------- */

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

static size_t put_varint(uint8_t *p, int64_t value) { return (size_t)ks_write_varlong(p, value); }

#define ONE_OF(all) all[random_below(sizeof(all) / sizeof *(all))]
#define ONE_OF_FIRST(count, all) all[random_below(usual ? count : sizeof(all) / sizeof *(all))]

/* Records of the size and with the numbers where the fast paths of ks_plain_record, ks_take_records and ks_take_numbers
 * begin and end, whole, cut or with a byte changed, in blocks that end with them or later. */
static void test_fast_paths(void)
{
    static const int32_t SIZES[] = {-2, -1, 0, 1, 4, 8, 12, 13, 16, 17, 30, 63, 64, 100, 8191, 8192};
    static const int64_t DELTAS[] = {0, 1, -1, 63, -64, 64, 8191, 8192, -65, 1 << 20, 1048575, -(1 << 20), INT32_MAX};
    static const int32_t LENGTHS[] = {20, 62, 63, 64, 65, 100, 8190, 8191, 8192}; /* of the whole record */
    static const uint8_t BYTES[] = {0x00, 0x01, 0x02, 0x03, 0x0c, 0x7f, 0x80, 0x81, 0xc8, 0xff};
    ks_batch b;
    long turn;
    plain_records = number_rows = 0;
    memset(&b, 0, sizeof b);
    b.records_count = 1;
    for (turn = 0; turn < times(40000); turn++) {
        const int usual = random_below(4) != 0; /* as most records are */
        const int32_t key = ONE_OF_FIRST(12, SIZES), headers = usual ? 0 : (int32_t)random_below(3) - 1;
        const int32_t length = ONE_OF(LENGTHS);
        const int64_t delta = ONE_OF_FIRST(7, DELTAS);
        const int change = (int)random_below(9); /* four of them are none */
        int32_t value = ONE_OF(SIZES);
        uint8_t body[17000], head[8];
        size_t size = 1, number, at;
        exact x;
        body[0] = 0;
        b.base_offset = (int64_t)(next_random() >> (2 + random_below(60)));
        b.base_timestamp = b.max_timestamp = (int64_t)(next_random() >> (2 + random_below(60)));
        b.attributes = random_below(2) ? KS_LOG_APPEND_TIME : 0;
        size += put_varint(body + size, ONE_OF_FIRST(5, DELTAS));
        size += put_varint(body + size, delta);
        size += put_varint(body + size, key);
        memset(body + size, 7, (size_t)(key > 0 ? key : 0));
        fill_random(body + size, key < 0 ? 0 : key < 16 ? (size_t)key : 16);
        number = size += (size_t)(key > 0 ? key : 0);
        if (usual && (size_t)length > size + 2) /* the value is what is left */
            value = length - (int32_t)size - (length > (int32_t)size + 65 ? 3 : 2);
        size += put_varint(body + size, value);
        memset(body + size, 9, (size_t)(value > 0 ? value : 0));
        fill_random(body + size, value < 0 ? 0 : value < 16 ? (size_t)value : 16);
        size += (size_t)(value > 0 ? value : 0);
        size += put_varint(body + size, headers);
        at = put_varint(head, (int64_t)size + (change == 0 ? (int64_t)random_below(5) - 2 : 0));
        x = exact_new(at + size + (random_below(2) ? 0 : random_below(20)), 0);
        memset(x.p, 1, (size_t)(x.end - x.p));
        memcpy(x.p, head, at);
        memcpy(x.p + at, body, size);
        size += at;
        if (change == 1)
            x.p[random_below(size < 40 ? size : 40)] = ONE_OF(BYTES);
        else if (change == 2)
            x.p[at + number + random_below(2)] = ONE_OF(BYTES);
        else if (change == 3)
            x.p[size - 1] = (uint8_t)next_random();
        else if (change == 4) {
            exact less = exact_copy(x.p, size - random_below(size < 40 ? size : 40));
            free(x.block);
            x = less;
        }
        check_plain(x.p, x.end, &b);
        check_columns(x.p, x.end, &b, KS_OFFSETS | KS_TIMESTAMPS | KS_KEYS | KS_VALUES, x.end - x.p);
        check_columns(x.p, x.end, &b, KS_OFFSETS | KS_TIMESTAMPS | KS_KEYS | KS_VALUES | KS_VIEWS, 0);
        b.attributes = 0; /* ks_take_numbers is for batches with CreateTime */
        check_numbers(x.p, x.end, &b, INT64_MIN, INT64_MAX);
        check_numbers(x.p, x.end, &b, b.base_offset + delta, b.base_offset + delta + (int64_t)random_below(2));
        check_numbers(x.p, x.end, &b, b.base_offset + delta + 1, INT64_MAX);
        free(x.block);
    }
    CHECK(plain_records > times(4000) && number_rows > times(4000));
}

/* ---- snappy -------------------------------------------------------------------------------------------------- */

/* Random elements of every kind, most of them short and sound, up to `most` bytes; returns how many bytes they take. */
static size_t make_elements(uint8_t *p, size_t most)
{
    size_t at = 0, done = 0;
    while (at + 80 < most) {
        const unsigned kind = (unsigned)random_below(random_below(8) ? 3 : 4);
        const size_t n = random_below(8) ? 1 + random_below(14) : 1 + random_below(64);
        const size_t distance = random_below(200) ? 1 + random_below(random_below(4) ? done + 1 : 20) : random_below(65536);
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

/* Random sequences, most of them short and sound, the last with literals alone; returns how many bytes they take. */
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

static int64_t unlz4_as_written(const uint8_t *p, const uint8_t *end, uint8_t *out, int64_t size)
{
    int late;
    const int64_t done = unlz4_by_bytes(p, end, out, size, &late);
    return late ? -1 : done;
}

/* ---- blocks of both ------------------------------------------------------------------------------------------ */

enum { MOST = 5000, ROOM = 400 * MOST };

/* Made blocks whole, cut, with a bit flipped, and random bytes: into what they take, into more, and into too little. */
static void check_blocks(size_t (*make)(uint8_t *, size_t),
                         int64_t (*unpack)(const uint8_t *, const uint8_t *, uint8_t *, int64_t),
                         void (*check)(const uint8_t *, size_t, size_t), size_t least)
{
    uint8_t *p = (uint8_t *)malloc(MOST), *unpacked = (uint8_t *)malloc(ROOM);
    long round, sound = 0, rounds = times(600);
    CHECK(p != NULL && unpacked != NULL);
    for (round = 0; round < rounds; round++) {
        const size_t size = make(p, least + random_below(random_below(4) ? least : MOST - least));
        const int64_t whole = unpack(p, p + size, unpacked, ROOM);
        if (whole > 0) {
            const size_t room = (size_t)whole;
            sound++;
            check(p, size, room);
            check(p, size, room + random_below(300));
            check(p, size, room - random_below(room < 60 ? room : 60));
            check(p, size, random_below(room + 1));
        } else {
            check(p, size, 20 * MOST);
        }
        check(p, random_below(size + 1), 20 * MOST);
        p[random_below(size)] ^= (uint8_t)(1 << random_below(8));
        check(p, size, whole > 0 ? (size_t)whole : random_below(4000));
        fill_random(p, size);
        check(p, size, random_below(4000));
    }
    CHECK(sound > rounds / 8);
    free(p);
    free(unpacked);
}

static void test_snappy(void)
{
    check_blocks(make_elements, unsnap_by_bytes, check_snappy, 90);
    check_snappy_rooms();
}

static void test_lz4(void) { check_blocks(make_sequences, unlz4_as_written, check_lz4, 800); }

/* -------------------------------------------------------------------------------------------------------------- */

#define RUN(group) (printf("%s:", #group), fflush(stdout), test_##group(), puts(" ok"))

int main(void)
{
    const char *given = getenv("EFFORT"), *seed = getenv("SEED");
    effort = given ? atol(given) : 1;
    random_state += seed ? (uint64_t)atol(seed) : 1u;
    RUN(crc_vectors);
    RUN(crc_variants);
    RUN(loads);
    RUN(varints);
    RUN(faults);
    RUN(truncations);
    RUN(flips);
    RUN(fast_paths);
    RUN(snappy);
    RUN(lz4);
    return 0;
}
