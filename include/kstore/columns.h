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
    KS_LISTS = 16,
    KS_VIEWS = 32,      /* keys and values are viewed, not copied */
    KS_VIEW = 16,       /* bytes of a view */
    KS_VIEW_INLINE = 12 /* and of a cell that stands in it */
};

/* A column of bytes. The cell of row i is bytes[ends[i]] up to bytes[ends[i + 1]]; or, with KS_VIEWS, it is what the view
 * of 16 bytes at views[16 * i] says, and there are no others. */
typedef struct ks_column {
    uint8_t *bytes;
    int64_t size; /* bytes there are, or are viewed */
    int64_t room;
    int32_t *ends;
    uint8_t *views;
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
    const uint8_t *block; /* what views point into: the records lie within 2 GiB of its beginning */
    int32_t block_index;  /* its number among the buffers of a column */
    int viewed;           /* set where a view points into it */
    ks_column key;
    ks_column value;
} ks_table;

/* Puts a cell behind the `used` bytes of a column that has room for it; returns the bytes used then. Bytes up to `end`
 * can be read: keys, mostly of 16 bytes at most, need no call of memcpy. */
KS_INLINE int64_t ks_put_cell(uint8_t *bytes, int32_t *ends, int64_t used, int64_t room, int64_t row,
                              const uint8_t *cell, int32_t size, const uint8_t *end)
{
    if (size > 0) {
        if (size <= 16 && end - cell >= 16 && room - used >= 16)
            memcpy(bytes + used, cell, 16);
        else
            memcpy(bytes + used, cell, (size_t)size);
        used += size;
    }
    ends[row + 1] = (int32_t)used;
    return used;
}

/* Makes the view of a cell, in Arrow's layout: its size, and the cell, or its first bytes, the number of a block and the
 * cell's place there, at most 2 GiB from its beginning. Bytes up to `end` can be read. Size -1 is null, viewed as empty. */
KS_INLINE void ks_put_view(uint8_t *view, const uint8_t *cell, int32_t size, const uint8_t *end, const uint8_t *block,
                           int32_t block_index)
{
    static const uint8_t MASK[2 * KS_VIEW_INLINE] = {0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff};
    const uint8_t *mask;
    uint64_t bytes, kept;
    uint32_t first, first_kept;
    int32_t at;
    if (size > KS_VIEW_INLINE) {
        at = (int32_t)(cell - block);
        memcpy(view, &size, 4);
        memcpy(view + 4, cell, 4);
        memcpy(view + 8, &block_index, 4);
        memcpy(view + 12, &at, 4);
        return;
    }
    if (size <= 0 || end - cell < KS_VIEW_INLINE) {
        size = size < 0 ? 0 : size;
        memset(view, 0, KS_VIEW);
        memcpy(view, &size, 4);
        if (size)
            memcpy(view + 4, cell, (size_t)size);
        return;
    }
    mask = MASK + KS_VIEW_INLINE - size;
    memcpy(&first, cell, 4);
    memcpy(&first_kept, mask, 4);
    memcpy(&bytes, cell + 4, 8);
    memcpy(&kept, mask + 4, 8);
    first &= first_kept;
    bytes &= kept;
    memcpy(view, &size, 4);
    memcpy(view + 4, &first, 4);
    memcpy(view + 8, &bytes, 8);
}

/* Writes the view of a row's cell; returns how many bytes the cell has. */
KS_INLINE int32_t ks_view_cell(ks_table *t, ks_column *c, int64_t row, const uint8_t *cell, int32_t size,
                               const uint8_t *end)
{
    ks_put_view(c->views + KS_VIEW * row, cell, size, end, t->block, t->block_index);
    t->viewed |= size > KS_VIEW_INLINE;
    return size < 0 ? 0 : size;
}

KS_INLINE void ks_mark_null(ks_column *c, int64_t row)
{
    c->valid[row >> 3] &= (uint8_t)~(1 << (row & 7));
    c->nulls++;
}

KS_INLINE int32_t ks_take_columns(ks_table *t, const uint8_t **p, const uint8_t *end, const ks_batch *b, int32_t most,
                                  const int columns)
{
    const int keys = columns & KS_KEYS, values = columns & KS_VALUES, views = columns & KS_VIEWS;
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
        if (!views
            && ((keys && r.key_size > key_room - key_end) || (values && r.value_size > value_room - value_end)))
            break;
        no_key = keys && r.key_size < 0;
        no_value = values && r.value_size < 0;
        if ((no_key && row >= t->key.valid_rows) || (no_value && row >= t->value.valid_rows))
            break;
        if (no_key)
            ks_mark_null(&t->key, row);
        if (no_value)
            ks_mark_null(&t->value, row);
        if (keys && views)
            key_end += ks_view_cell(t, &t->key, row, r.key, r.key_size, end);
        else if (keys)
            key_end = ks_put_cell(key_bytes, key_ends, key_end, key_room, row, r.key, r.key_size, end);
        if (values && views)
            value_end += ks_view_cell(t, &t->value, row, r.value, r.value_size, end);
        else if (values)
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

/* Eight bytes as a number, the first of them lowest. */
KS_INLINE uint64_t ks_load_low_first(const uint8_t *p)
{
    uint64_t w;
    memcpy(&w, p, 8);
#if defined(__BYTE_ORDER__) && __BYTE_ORDER__ == __ORDER_BIG_ENDIAN__
    w = __builtin_bswap64(w);
#endif
    return w;
}

#define KS_BYTE(at, bits) ((uint64_t)(bits) << 8 * (at))
#define KS_MORE 0x80     /* in a byte of a varint: it goes on */
#define KS_NEGATIVE 0x01 /* in the first */

/* Rows of offset and timestamp alone, of records as most are: 64 to 8191 bytes, within 64 ms and 8192 offsets of the
 * base, the key null or shorter than 64 bytes. Of these, all numbers before the value are had with one load, and one
 * comparison or two tell that they stand where they are looked for. It leaves off at others, as well as where
 * ks_take_columns would. Timestamps must be the records' own. */
static inline int32_t ks_take_numbers(ks_table *t, const uint8_t **p, const uint8_t *end, const ks_batch *b, int32_t most)
{
    const uint64_t usual = KS_BYTE(0, KS_MORE | KS_NEGATIVE) | KS_BYTE(1, KS_MORE)       /* length */
                           | KS_BYTE(3, KS_MORE) | KS_BYTE(4, KS_MORE | KS_NEGATIVE)     /* deltas of time and offset */
                           | KS_BYTE(5, KS_MORE);                                        /* key */
    const int64_t first = t->rows, last = most < t->most_rows - first ? first + most : t->most_rows;
    const uint64_t span = t->stop > t->start ? (uint64_t)t->stop - (uint64_t)t->start : 0;
    const uint64_t base = (uint64_t)b->base_offset, ahead = base - (uint64_t)t->start;
    const int64_t base_timestamp = b->base_timestamp;
    int64_t *const offsets = t->offsets, *const timestamps = t->timestamps;
    const uint8_t *q = *p, *at, *record_end;
    int64_t row = first;
    uint64_t w, length, timestamp_delta, offset_delta, key;
    uint32_t value;
    for (; row < last && end - q >= 16; row++) {
        w = ks_load_low_first(q);
        length = (w >> 1 & 0x3f) + (w >> 2 & 0x1fc0);
        timestamp_delta = w >> 24 & 0x7f;
        offset_delta = w >> 33 & 0x3f;
        if ((w & usual) == KS_BYTE(0, KS_MORE)) {
            key = w >> 40;
            at = q + 6;
        } else if ((w & (usual | KS_BYTE(6, KS_MORE))) == (KS_BYTE(0, KS_MORE) | KS_BYTE(4, KS_MORE))) {
            offset_delta |= w >> 34 & 0x1fc0;
            key = w >> 48;
            at = q + 7;
        } else
            break;
        if (!(key & KS_NEGATIVE))
            at += key >> 1 & 0x3f;
        if (length > (size_t)(end - q) - 2 || end - at < 3)
            break;
        record_end = q + 2 + length;
        /* the value ends a byte before the record does, and that byte counts no headers */
        if (!ks_short_varint(&at, &value)
            || record_end - at != (int64_t)(value & KS_NEGATIVE ? 0 : value >> 1) + 1 || record_end[-1] != 0)
            break;
        if (ahead + offset_delta >= span)
            break;
        offsets[row] = (int64_t)(base + offset_delta);
        timestamps[row] = ks_add64(base_timestamp, (int64_t)(timestamp_delta >> 1 ^ (~(timestamp_delta & 1) + 1)));
        q = record_end;
    }
    *p = q;
    t->rows = row;
    return (int32_t)(row - first);
}

/* Appends rows for the next records, at most `most`, as long as they are plain (ks_plain_record), their offsets wanted,
 * and find room; returns how many. *p is behind them: what the record there needs, the caller sees to. `columns`: which
 * are wanted. */
static inline int32_t ks_take_records(ks_table *t, const uint8_t **p, const uint8_t *end, const ks_batch *b, int32_t most,
                                      int columns)
{
    int32_t taken = 0;
    switch (columns) { /* each case is compiled for its columns */
    case KS_OFFSETS | KS_TIMESTAMPS | KS_KEYS | KS_VALUES:
        return ks_take_columns(t, p, end, b, most, KS_OFFSETS | KS_TIMESTAMPS | KS_KEYS | KS_VALUES);
    case KS_OFFSETS | KS_TIMESTAMPS | KS_KEYS | KS_VALUES | KS_VIEWS:
        return ks_take_columns(t, p, end, b, most, KS_OFFSETS | KS_TIMESTAMPS | KS_KEYS | KS_VALUES | KS_VIEWS);
    case KS_OFFSETS | KS_TIMESTAMPS:
        if (!(b->attributes & KS_LOG_APPEND_TIME))
            taken = ks_take_numbers(t, p, end, b, most);
        return taken + ks_take_columns(t, p, end, b, most - taken, KS_OFFSETS | KS_TIMESTAMPS);
    default:
        return ks_take_columns(t, p, end, b, most, columns);
    }
}

#endif
