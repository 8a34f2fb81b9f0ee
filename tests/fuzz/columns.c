/* The records of a batch into columns of any size, some of the offsets wanted: what is taken is what the records are. */
#include "fuzzer.h"

enum { ROWS = 40 };

/* The rows that were taken, against the records at p, of which those outside `start` and `stop` end the taking. */
static void check_rows(const ks_table *t, const uint8_t *p, const uint8_t *taken_to, const uint8_t *end, const ks_batch *b,
                       int columns, int64_t first)
{
    int64_t i;
    for (i = first; i < t->rows; i++) {
        ks_record r;
        ks_fault fault;
        CHECK(ks_next_record(&p, end, b, &r, &fault) == KS_OK);
        CHECK(r.offset >= t->start && r.offset < t->stop);
        CHECK(!(columns & KS_OFFSETS) || t->offsets[i] == r.offset);
        CHECK(!(columns & KS_TIMESTAMPS) || t->timestamps[i] == r.timestamp);
        if (columns & KS_KEYS && columns & KS_VIEWS)
            check_view(&t->key, (int32_t)i, r.key, r.key_size, t->block);
        else if (columns & KS_KEYS)
            check_cell(&t->key, (int32_t)i, r.key, r.key_size);
        if (columns & KS_VALUES && columns & KS_VIEWS)
            check_view(&t->value, (int32_t)i, r.value, r.value_size, t->block);
        else if (columns & KS_VALUES)
            check_cell(&t->value, (int32_t)i, r.value, r.value_size);
    }
    CHECK(p == taken_to);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    int64_t offsets[ROWS], timestamps[ROWS];
    int32_t lists[ROWS + 1], taken, most;
    const uint8_t *q, *from;
    ks_table t;
    ks_batch b;
    exact x;
    int columns, turn, room;
    memset(&t, 0, sizeof t);
    memset(&b, 0, sizeof b);
    columns = next_byte(&data, &size) & 63;
    t.most_rows = next_byte(&data, &size) % (ROWS + 1);
    t.most_bytes = next_byte(&data, &size);
    b.magic = 2;
    b.attributes = next_byte(&data, &size) & KS_LOG_APPEND_TIME;
    room = next_byte(&data, &size);
    make_cells(&t.key, ROWS, room, next_byte(&data, &size) % (ROWS + 1));
    room = next_byte(&data, &size);
    make_cells(&t.value, ROWS, room, next_byte(&data, &size) % (ROWS + 1));
    b.base_offset = next_number(&data, &size);
    b.base_timestamp = next_number(&data, &size);
    b.max_timestamp = next_number(&data, &size);
    t.start = b.base_offset & INT64_MAX;
    t.stop = next_byte(&data, &size) & 1 ? INT64_MAX : ks_add64(t.start, next_byte(&data, &size));
    t.offsets = offsets;
    t.timestamps = timestamps;
    t.lists = lists;
    t.block_index = BLOCK_INDEX;
    x = exact_copy(data, size);
    t.block = q = x.p;
    for (turn = 0; turn < 2; turn++) { /* it goes on where it has left off */
        const int64_t rows = t.rows;
        most = next_byte(&data, &size) % (ROWS + 1);
        from = q;
        taken = ks_take_records(&t, &q, x.end, &b, most, columns);
        CHECK(taken >= 0 && taken <= most && t.rows == rows + taken && t.rows <= t.most_rows);
        check_rows(&t, from, q, x.end, &b, columns, rows);
    }
    free_cells(&t.key);
    free_cells(&t.value);
    free(x.block);
    return 0;
}
