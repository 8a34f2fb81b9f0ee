/* Records of a v2 batch out into columns: the loop that a scan spends its time in. C99 and C++11, header only, no Python.
 *
 * The caller owns the columns and sees to their room: ks_take_records leaves off before a record that finds none. */
#ifndef KSTORE_COLUMNS_H
#define KSTORE_COLUMNS_H

#include "format.h"

#if defined(__GNUC__)
#define KS_INLINE static inline __attribute__((always_inline))
#else
#define KS_INLINE static inline
#endif

enum {
    KS_OFFSETS = 1,
    KS_TIMESTAMPS = 2,
    KS_KEYS = 4,
    KS_VALUES = 8,
    KS_LISTS = 16
};

/* A column of bytes. The cell of row i is bytes[ends[i]] up to bytes[ends[i + 1]]. */
typedef struct ks_column {
    uint8_t *bytes;
    int64_t size; /* bytes there are */
    int64_t room;
    int32_t *ends;
    uint8_t *valid; /* a bit a row, set beforehand for the first `valid_rows`; other rows cannot be null */
    int64_t valid_rows;
    int64_t nulls;
} ks_column;

/* Columns; those that are not wanted need not be there. offset and timestamp of row i are offsets[i], timestamps[i]. */
typedef struct ks_table {
    int64_t rows;
    int64_t most_rows;
    int64_t most_bytes; /* of keys and values; the row that reaches it is the last */
    int64_t start;      /* offsets from here */
    int64_t stop;       /* to before here */
    int64_t *offsets;
    int64_t *timestamps;
    int32_t *lists; /* ends of lists of headers, which plain records have none of */
    int32_t list_end;
    ks_column key;
    ks_column value;
} ks_table;

/* Puts a cell behind the `used` bytes of a column that has room for it; returns the bytes used then. Bytes up to `end`
 * can be read: keys, mostly of 16 bytes at most, need no call of memcpy. */
KS_INLINE int64_t ks_put_cell(uint8_t *bytes, int32_t *ends, int64_t used, int64_t room, int64_t row,
                              const uint8_t *cell, int32_t size, const uint8_t *end)
{
    if (size > 0) {
        const int64_t slack = end - cell < room - used ? end - cell : room - used;
        if (size <= 16 && slack >= 16)
            memcpy(bytes + used, cell, 16);
        else
            memcpy(bytes + used, cell, (size_t)size);
        used += size;
    }
    ends[row + 1] = (int32_t)used;
    return used;
}

KS_INLINE void ks_mark_null(ks_column *c, int64_t row)
{
    c->valid[row >> 3] &= (uint8_t)~(1 << (row & 7));
    c->nulls++;
}

KS_INLINE int32_t ks_take_columns(ks_table *t, const uint8_t **p, const uint8_t *end, const ks_batch *b, int32_t most,
                                  const int columns)
{
    const int keys = columns & KS_KEYS, values = columns & KS_VALUES;
    const ks_batch batch = *b; /* a copy that nothing written below can change */
    const int64_t start = t->start, span = t->stop > t->start ? t->stop - t->start : 0;
    const int64_t first = t->rows, last = most < t->most_rows - first ? first + most : t->most_rows;
    int64_t *const offsets = t->offsets, *const timestamps = t->timestamps;
    int32_t *const key_ends = t->key.ends, *const value_ends = t->value.ends, *const lists = t->lists;
    uint8_t *const key_bytes = t->key.bytes, *const value_bytes = t->value.bytes;
    const int64_t key_room = t->key.room, value_room = t->value.room, most_bytes = t->most_bytes;
    const int32_t list_end = t->list_end;
    int64_t row = first, key_end = t->key.size, value_end = t->value.size;
    const uint8_t *q = *p;
    int no_key, no_value;
    ks_record r;
    while (row < last && (!(keys || values) || key_end + value_end < most_bytes)
           && ks_plain_record(&q, end, &batch, &r)) {
        if ((uint64_t)r.offset - (uint64_t)start >= (uint64_t)span)
            break;
        if ((keys && r.key_size > key_room - key_end) || (values && r.value_size > value_room - value_end))
            break;
        no_key = keys && r.key_size < 0;
        no_value = values && r.value_size < 0;
        if ((no_key && row >= t->key.valid_rows) || (no_value && row >= t->value.valid_rows))
            break;
        if (no_key)
            ks_mark_null(&t->key, row);
        if (no_value)
            ks_mark_null(&t->value, row);
        if (keys)
            key_end = ks_put_cell(key_bytes, key_ends, key_end, key_room, row, r.key, r.key_size, end);
        if (values)
            value_end = ks_put_cell(value_bytes, value_ends, value_end, value_room, row, r.value, r.value_size, end);
        if (columns & KS_OFFSETS)
            offsets[row] = r.offset;
        if (columns & KS_TIMESTAMPS)
            timestamps[row] = r.timestamp;
        if (columns & KS_LISTS)
            lists[row + 1] = list_end;
        row++;
        *p = q;
    }
    t->rows = row;
    t->key.size = key_end;
    t->value.size = value_end;
    return (int32_t)(row - first);
}

/* Appends rows for the next records, at most `most`, as long as they are plain (ks_plain_record), their offsets wanted,
 * and find room; returns how many. *p is behind them: what the record there needs, the caller sees to. `columns`: which
 * are wanted. */
static inline int32_t ks_take_records(ks_table *t, const uint8_t **p, const uint8_t *end, const ks_batch *b, int32_t most,
                                      int columns)
{
    switch (columns) { /* the same, with the questions answered beforehand */
    case KS_OFFSETS | KS_TIMESTAMPS | KS_KEYS | KS_VALUES:
        return ks_take_columns(t, p, end, b, most, KS_OFFSETS | KS_TIMESTAMPS | KS_KEYS | KS_VALUES);
    case KS_OFFSETS | KS_TIMESTAMPS:
        return ks_take_columns(t, p, end, b, most, KS_OFFSETS | KS_TIMESTAMPS);
    default:
        return ks_take_columns(t, p, end, b, most, columns);
    }
}

#endif
