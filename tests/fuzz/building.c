/* Batches that are built of any keys, values and headers are read as what they were built of. */
#include "fuzzer.h"

enum { MOST = 20 };

typedef struct given {
    const uint8_t *key, *value;
    int64_t key_size, value_size, timestamp;
} given;

/* The next bytes, as many as the first says; -1 and NULL for null. */
static int64_t next_bytes(const uint8_t **data, size_t *size, const uint8_t **bytes)
{
    const uint8_t n = next_byte(data, size);
    size_t taken = n & 127;
    if (n == 255) {
        *bytes = NULL;
        return -1;
    }
    if (n & 128) /* so long that copies and lengths take another way */
        taken *= 5;
    if (taken > *size)
        taken = *size;
    *bytes = *data;
    *data += taken;
    *size -= taken;
    return (int64_t)taken;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static const uint8_t none = 0;
    const size_t room = KS_BATCH_OVERHEAD + size + MOST * KS_RECORD_OVERHEAD + 1;
    const int count = next_byte(&data, &size) % (MOST + 1);
    const exact x = exact_new(room, 0);
    uint8_t *p = x.p + KS_RECORDS_AT;
    const uint8_t *q;
    given records[MOST];
    ks_batch b, read;
    ks_fault fault;
    int i;
    memset(&b, 0, sizeof b);
    b.base_offset = next_number(&data, &size) & (INT64_MAX >> 1);
    b.base_timestamp = next_number(&data, &size);
    b.leader_epoch = next_byte(&data, &size);
    b.producer_id = next_number(&data, &size);
    b.records_count = count;
    b.last_offset_delta = count ? count - 1 : 0;
    for (i = 0; i < count; i++) {
        given *g = &records[i];
        const int64_t delta = next_byte(&data, &size) & 1 ? next_number(&data, &size) : next_byte(&data, &size);
        size_t body;
        uint8_t *before = p;
        g->key_size = next_bytes(&data, &size, &g->key);
        g->value_size = next_bytes(&data, &size, &g->value);
        g->timestamp = ks_add64(b.base_timestamp, delta);
        body = ks_record_body(delta, i, g->key_size, g->value_size, 1);
        p = ks_put_record(p, body, delta, i, g->key, g->key_size, g->value, g->value_size, &none, 1);
        CHECK((size_t)(p - before) == body + ks_varlong_size((int64_t)body));
        CHECK(p <= x.end);
    }
    b.size = p - x.p;
    ks_put_header(x.p, &b);
    CHECK(ks_check_batch(x.p, p, &read, &fault) == KS_OK);
    CHECK(read.base_offset == b.base_offset && read.last_offset == b.base_offset + b.last_offset_delta);
    CHECK(read.producer_id == b.producer_id && read.leader_epoch == b.leader_epoch && read.size == b.size);
    CHECK(walk_records(x.p, &read, &fault) == count);
    for (q = x.p + KS_RECORDS_AT, i = 0; i < count; i++) {
        const given *g = &records[i];
        ks_record r;
        CHECK(ks_next_record(&q, p, &read, &r, &fault) == KS_OK && ks_check_place(&read, &r, &fault) == KS_OK);
        CHECK(r.offset == b.base_offset + i && r.timestamp == g->timestamp && r.headers_count == 0);
        CHECK(r.key_size == g->key_size && (g->key_size <= 0 || !memcmp(r.key, g->key, (size_t)g->key_size)));
        CHECK(r.value_size == g->value_size && (g->value_size <= 0 || !memcmp(r.value, g->value, (size_t)g->value_size)));
    }
    free(x.block);
    return 0;
}
