/* What the headers must keep to, for any bytes: used by test_headers.c, and by the fuzzers in tests/fuzz.
 *
 * Buffers under test end exactly where their malloc'd block ends, so that a read of one byte too many is a report of the
 * address sanitizer. */
#ifndef KSTORE_TEST_CHECKS_H
#define KSTORE_TEST_CHECKS_H

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "kstore/columns.h"
#include "kstore/crc32c.h"
#include "kstore/format.h"
#include "kstore/lz4.h"
#include "kstore/snappy.h"

#define CHECK(condition)                                                          \
    do {                                                                          \
        if (!(condition)) {                                                       \
            fprintf(stderr, "%s:%d: %s\n", __FILE__, __LINE__, #condition);       \
            exit(1);                                                              \
        }                                                                         \
    } while (0)

/* ---- tools --------------------------------------------------------------------------------------------------- */

/* xorshift64*: the same numbers on every machine. */
static uint64_t random_state = 0x9e3779b97f4a7c15u;

static uint64_t next_random(void)
{
    random_state ^= random_state >> 12;
    random_state ^= random_state << 25;
    random_state ^= random_state >> 27;
    return random_state * 0x2545f4914f6cdd1du;
}

static size_t random_below(size_t n) { return (size_t)(next_random() % n); }

static void fill_random(uint8_t *p, size_t size)
{
    size_t i;
    for (i = 0; i < size; i++)
        p[i] = (uint8_t)(next_random() >> 56);
}

/* Bytes that end where their block ends, `lead` bytes into it. */
typedef struct exact {
    uint8_t *block;
    uint8_t *p;
    uint8_t *end;
} exact;

static exact exact_new(size_t size, size_t lead)
{
    exact x;
    x.block = (uint8_t *)malloc(lead + size + (lead + size == 0));
    CHECK(x.block != NULL);
    x.p = x.block + lead;
    x.end = x.p + size;
    return x;
}

/* One byte in front, so that a block of no bytes still ends where its bytes do. */
static exact exact_copy(const uint8_t *bytes, size_t size)
{
    exact x = exact_new(size, 1);
    x.block[0] = 0;
    if (size)
        memcpy(x.p, bytes, size);
    return x;
}

static unsigned sink; /* every byte handed out is added here: the sanitizer sees it read */

static void touch(const uint8_t *p, int32_t size)
{
    int32_t i;
    CHECK(size >= -1);
    CHECK((p == NULL) == (size == -1));
    for (i = 0; i < size; i++)
        sink += p[i];
}

static int is_inside(const uint8_t *p, int32_t size, const uint8_t *start, const uint8_t *end)
{
    return size < 0 || (p >= start && p <= end && (size_t)size <= (size_t)(end - p));
}

static long plain_records;

/* The short way never accepts what the long way does not, and gives the same. */
static void check_plain(const uint8_t *p, const uint8_t *end, const ks_batch *b)
{
    ks_record plain, r;
    ks_fault fault;
    const uint8_t *q = p, *next = p;
    if (!ks_plain_record(&q, end, b, &plain)) {
        CHECK(q == p);
        return;
    }
    plain_records++;
    CHECK(ks_any_record(&next, end, b, &r, &fault) == KS_OK && q == next);
    CHECK(plain.offset == r.offset && plain.timestamp == r.timestamp && plain.offset_delta == r.offset_delta);
    CHECK(plain.key == r.key && plain.key_size == r.key_size && plain.value == r.value);
    CHECK(plain.value_size == r.value_size && plain.headers == r.headers && plain.headers_count == r.headers_count);
    CHECK(plain.end == r.end);
}

/* A column of bytes with this much room and no more; the sanitizer sees to it. */
static void make_cells(ks_column *c, int32_t rows, int64_t room, int64_t valid_rows)
{
    memset(c, 0, sizeof *c);
    c->bytes = (uint8_t *)malloc((size_t)room + 1) + 1;
    c->room = room;
    c->ends = (int32_t *)calloc((size_t)rows + 1, sizeof(int32_t));
    c->views = (uint8_t *)malloc((size_t)rows * KS_VIEW);
    c->valid = (uint8_t *)malloc((size_t)valid_rows / 8 + 1);
    memset(c->valid, 0xff, (size_t)valid_rows / 8 + 1);
    c->valid_rows = valid_rows;
}

static void free_cells(ks_column *c)
{
    free(c->bytes - 1);
    free(c->ends);
    free(c->views);
    free(c->valid);
}

static void check_cell(const ks_column *c, int32_t row, const uint8_t *bytes, int32_t size)
{
    CHECK(c->ends[row + 1] - c->ends[row] == (size < 0 ? 0 : size));
    CHECK(size <= 0 || memcmp(c->bytes + c->ends[row], bytes, (size_t)size) == 0);
    CHECK((row < c->valid_rows && !(c->valid[row >> 3] >> (row & 7) & 1)) == (size < 0));
}

enum { BLOCK_INDEX = 3 };

/* Returns how many bytes of the block the view points to. */
static int32_t check_view(const ks_column *c, int32_t row, const uint8_t *bytes, int32_t size, const uint8_t *block)
{
    const uint8_t *view = c->views + (size_t)row * KS_VIEW;
    int32_t word[4], i;
    memcpy(word, view, sizeof word);
    CHECK((row < c->valid_rows && !(c->valid[row >> 3] >> (row & 7) & 1)) == (size < 0));
    if (size < 0)
        size = 0;
    CHECK(word[0] == size);
    if (size > KS_VIEW_INLINE) {
        CHECK(memcmp(view + 4, bytes, 4) == 0 && word[2] == BLOCK_INDEX && block + word[3] == bytes);
        return size;
    }
    CHECK(size == 0 || memcmp(view + 4, bytes, (size_t)size) == 0);
    for (i = size; i < KS_VIEW_INLINE; i++)
        CHECK(view[4 + i] == 0);
    return 0;
}

/* The rows that ks_take_records makes are the records that ks_next_record gives, as far as it goes. */
static void check_columns(const uint8_t *p, const uint8_t *end, const ks_batch *b, int columns, int64_t room)
{
    enum { ROWS = 40 };
    int64_t offsets[ROWS], timestamps[ROWS];
    int32_t lists[ROWS + 1], most = b->records_count < ROWS ? b->records_count : ROWS, taken, i, viewed = 0;
    const uint8_t *q = p, *next = p;
    ks_table t;
    ks_fault fault;
    memset(&t, 0, sizeof t);
    t.most_rows = ROWS;
    t.most_bytes = INT64_MAX;
    t.stop = INT64_MAX;
    t.offsets = offsets;
    t.timestamps = timestamps;
    t.lists = lists;
    t.block = p;
    t.block_index = BLOCK_INDEX;
    make_cells(&t.key, ROWS, room, 16);
    make_cells(&t.value, ROWS, room, 16);
    taken = ks_take_records(&t, &q, end, b, most, columns);
    CHECK(taken == t.rows && taken <= most);
    for (i = 0; i < taken; i++) {
        ks_record r;
        CHECK(ks_next_record(&next, end, b, &r, &fault) == KS_OK);
        CHECK(!(columns & KS_OFFSETS) || offsets[i] == r.offset);
        CHECK(!(columns & KS_TIMESTAMPS) || timestamps[i] == r.timestamp);
        CHECK(!(columns & KS_LISTS) || (lists[i + 1] == 0 && r.headers_count == 0));
        if (columns & KS_KEYS && columns & KS_VIEWS)
            viewed += check_view(&t.key, i, r.key, r.key_size, t.block);
        else if (columns & KS_KEYS)
            check_cell(&t.key, i, r.key, r.key_size);
        if (columns & KS_VALUES && columns & KS_VIEWS)
            viewed += check_view(&t.value, i, r.value, r.value_size, t.block);
        else if (columns & KS_VALUES)
            check_cell(&t.value, i, r.value, r.value_size);
    }
    CHECK(next == q);
    CHECK(t.viewed == (viewed > 0));
    CHECK(columns & KS_VIEWS ? t.key.size + t.value.size >= viewed : t.key.size <= room && t.value.size <= room);
    free_cells(&t.key);
    free_cells(&t.value);
}

/* Walks the records of an uncompressed batch at p: how many there are, or the status that stopped it. */
static int64_t walk_records(const uint8_t *p, const ks_batch *b, ks_fault *fault)
{
    const uint8_t *start = p + KS_RECORDS_AT, *end = p + b->size, *q = start;
    int32_t i, j;
    if (b->records_count < 0)
        return KS_E_COUNT;
    check_columns(q, end, b, KS_OFFSETS | KS_TIMESTAMPS | KS_KEYS | KS_VALUES, end - q);
    check_columns(q, end, b, KS_OFFSETS | KS_TIMESTAMPS | KS_KEYS | KS_VALUES, 20);
    check_columns(q, end, b, KS_OFFSETS | KS_TIMESTAMPS, 0);
    check_columns(q, end, b, KS_VALUES | KS_LISTS, end - q);
    check_columns(q, end, b, KS_OFFSETS | KS_TIMESTAMPS | KS_KEYS | KS_VALUES | KS_VIEWS, 0);
    check_columns(q, end, b, KS_KEYS | KS_VIEWS, 0);
    for (i = 0; i < b->records_count; i++) {
        ks_record r;
        const uint8_t *from = q, *at;
        int status;
        check_plain(q, end, b);
        status = ks_next_record(&q, end, b, &r, fault);
        if (status != KS_OK) {
            CHECK(fault->status == status && status < 0);
            CHECK(q == from);
            CHECK(fault->at <= (size_t)(end - from));
            return status;
        }
        CHECK(q > from && q <= end && q == r.end);
        CHECK(is_inside(r.key, r.key_size, from, r.end) && is_inside(r.value, r.value_size, from, r.end));
        touch(r.key, r.key_size);
        touch(r.value, r.value_size);
        CHECK(r.headers >= from && r.headers <= r.end && r.headers_count >= 0);
        for (at = r.headers, j = 0; j < r.headers_count; j++) {
            ks_header h;
            CHECK(ks_next_header(&at, r.end, &h) == KS_OK); /* they were walked before */
            CHECK(h.key_size >= 0);
            CHECK(is_inside(h.key, h.key_size, from, r.end) && is_inside(h.value, h.value_size, from, r.end));
            touch(h.key, h.key_size);
            touch(h.value, h.value_size);
        }
        CHECK(at == r.end);
    }
    return q == end ? i : KS_E_COUNT;
}

/* Everything the headers can do with p .. end. Records are walked whether the checksum is right or not. Returns what
 * ks_check_batch said. */
static int read_all(const uint8_t *p, const uint8_t *end)
{
    ks_batch b;
    ks_fault fault;
    int64_t size = -1;
    int sized = ks_entry_size(p, end, &size, &fault);
    int parsed = ks_parse_header(p, end, &b, &fault);
    int checked;
    CHECK(sized != KS_OK || (size >= KS_LOG_OVERHEAD + KS_MIN_SIZE && size <= (int64_t)(end - p)));
    if (parsed == KS_OK && b.size <= (int64_t)(end - p)) {
        CHECK(sized == KS_OK && size == b.size);
        if (b.magic == 2 && ks_codec(&b) == KS_CODEC_NONE) {
            walk_records(p, &b, &fault);
        } else if (b.magic < 2) {
            ks_record r;
            if (ks_parse_message(p, &b, &r, &fault) == KS_OK) {
                CHECK(is_inside(r.key, r.key_size, p, end) && is_inside(r.value, r.value_size, p, end));
                touch(r.key, r.key_size);
                touch(r.value, r.value_size);
            } else {
                CHECK(fault.status == KS_E_LENGTH && fault.at <= (size_t)b.size);
            }
        }
    }
    checked = ks_check_batch(p, end, &b, &fault);
    if (checked == KS_OK) {
        CHECK(parsed == KS_OK && b.size <= (int64_t)(end - p));
        CHECK(ks_batch_crc(p, &b) == b.crc);
        CHECK(b.base_offset >= 0 && b.last_offset >= b.base_offset && b.last_offset < INT64_MAX);
    } else {
        CHECK(fault.status == checked && checked < 0);
        CHECK(fault.at <= KS_LAST_OFFSET_DELTA_AT);
        CHECK(parsed == KS_OK || parsed == checked);
    }
    return checked;
}

/* Puts the right checksum into the entry of `size` bytes at p. */
static void fix_crc(uint8_t *p, size_t size)
{
    if (p[KS_MAGIC_AT] == 2 && size >= KS_ATTRIBUTES_AT)
        ks_store_u32(p + KS_CRC_AT, ks_crc32c_portable(0, p + KS_ATTRIBUTES_AT, size - KS_ATTRIBUTES_AT));
    else if (p[KS_MAGIC_AT] != 2)
        ks_store_u32(p + KS_MESSAGE_CRC_AT, ks_crc32(p + KS_MAGIC_AT, size - KS_MAGIC_AT));
}

/* ---- checksums ----------------------------------------------------------------------------------------------- */

typedef uint32_t (*crc_function)(uint32_t crc, const void *data, size_t size);

/* A bit at a time, from the definition: shares nothing with the headers. */
static uint32_t crc_by_bits(uint32_t polynomial, const uint8_t *p, size_t size)
{
    uint32_t crc = 0xffffffffu;
    size_t i;
    int bit;
    for (i = 0; i < size; i++) {
        crc ^= p[i];
        for (bit = 0; bit < 8; bit++)
            crc = crc & 1 ? (crc >> 1) ^ polynomial : crc >> 1;
    }
    return crc ^ 0xffffffffu;
}

typedef struct variant {
    const char *name;
    crc_function function;
} variant;

static size_t crc_variants(variant *out)
{
    size_t n = 0;
    out[n].name = "portable";
    out[n++].function = ks_crc32c_portable;
    out[n].name = "dispatch";
    out[n++].function = ks_crc32c;
#ifdef KS_CRC32C_X86
    if (__builtin_cpu_supports("sse4.2")) {
        out[n].name = "sse42";
        out[n++].function = ks_crc32c_sse42;
        if (__builtin_cpu_supports("pclmul")) {
            out[n].name = "pclmul";
            out[n++].function = ks_crc32c_pclmul;
            if (__builtin_cpu_supports("vpclmulqdq") && __builtin_cpu_supports("avx2")) {
                out[n].name = "avx2";
                out[n++].function = ks_crc32c_avx2;
            }
            if (__builtin_cpu_supports("vpclmulqdq") && __builtin_cpu_supports("avx512vl")) {
                out[n].name = "avx512";
                out[n++].function = ks_crc32c_avx512;
            }
        }
    }
#endif
#ifdef KS_CRC32C_ARM
    out[n].name = "arm";
    out[n++].function = ks_crc32c_arm;
#endif
    return n;
}

/* ---- snappy -------------------------------------------------------------------------------------------------- */

/* The format's own words, a byte at a time: shares nothing with the header. */
static int64_t unsnap_by_bytes(const uint8_t *p, const uint8_t *end, uint8_t *out, int64_t size)
{
    int64_t done = 0;
    while (p < end) {
        const unsigned tag = *p++, kind = tag & 3;
        uint64_t n = (tag >> 2) + 1, distance = 0;
        int more = kind == 3 ? 4 : (int)kind, i;
        if (kind == 0 && n > 60)
            more = (int)n - 60;
        if (end - p < more)
            return -1;
        for (i = more; i--;)
            distance = distance << 8 | p[i];
        p += more;
        if (kind == 1) {
            n = 4 + (tag >> 2) % 8;
            distance += (uint64_t)(tag >> 5) * 256;
        }
        if (kind == 0) {
            if (more)
                n = distance + 1;
            if (n > (uint64_t)(end - p))
                return -1;
            distance = 0;
        } else if (distance == 0 || distance > (uint64_t)done) {
            return -1;
        }
        if (n > (uint64_t)(size - done))
            return -1;
        for (; n; n--, done++)
            out[done] = kind == 0 ? *p++ : out[done - (int64_t)distance];
    }
    return done;
}

static void check_snappy(const uint8_t *p, size_t size, size_t room)
{
    const exact in = exact_copy(p, size), out = exact_new(room, 1), right = exact_new(room, 1);
    const int64_t expected = unsnap_by_bytes(in.p, in.end, right.p, (int64_t)room);
    CHECK(ks_unsnap(in.p, in.end, out.p, (int64_t)room) == expected);
    CHECK(expected <= 0 || memcmp(out.p, right.p, (size_t)expected) == 0);
    free(in.block);
    free(out.block);
    free(right.block);
}

/* ---- LZ4 ----------------------------------------------------------------------------------------------------- */

static int64_t lz4_length_by_bytes(const uint8_t **p, const uint8_t *end, int64_t n)
{
    if (n == 15)
        do {
            if (*p == end)
                return -1;
            n += **p;
        } while (*(*p)++ == 255);
    return n;
}

/* The format's own words, a byte at a time: shares nothing with the header. `late`: whether a copy is nearer to an end than
 * a writer may put it. */
static int64_t unlz4_by_bytes(const uint8_t *p, const uint8_t *end, uint8_t *out, int64_t size, int *late)
{
    int64_t done = 0;
    *late = 0;
    while (p < end) {
        const int token = *p++;
        int64_t n = lz4_length_by_bytes(&p, end, token / 16), distance;
        if (n < 0 || n > end - p || n > size - done)
            return -1;
        for (; n; n--)
            out[done++] = *p++;
        if (p == end)
            return done;
        if (end - p < 2)
            return -1;
        *late |= end - p < 8 || size - done < 12;
        distance = p[0] + 256 * p[1];
        p += 2;
        n = lz4_length_by_bytes(&p, end, token % 16);
        if (n < 0 || distance == 0 || distance > done || n + 4 > size - done)
            return -1;
        for (n += 4; n; n--, done++)
            out[done] = out[done - distance];
        *late |= end - p < 5 || size - done < 5;
    }
    return -1;
}

static void check_lz4(const uint8_t *p, size_t size, size_t room)
{
    const exact in = exact_copy(p, size), out = exact_new(room, 1), right = exact_new(room, 1);
    int late;
    const int64_t expected = unlz4_by_bytes(in.p, in.end, right.p, (int64_t)room, &late);
    const int64_t found = ks_unlz4(in.p, in.end, out.p, (int64_t)room);
    CHECK(found == expected || (found == -1 && late));
    CHECK(found <= 0 || memcmp(out.p, right.p, (size_t)found) == 0);
    free(in.block);
    free(out.block);
    free(right.block);
}

#endif
