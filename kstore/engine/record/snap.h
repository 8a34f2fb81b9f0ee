/* Packs a block of raw snappy: the other side of kstore/snappy.h.
 *
 * A block is a run of elements: literals, which carry their bytes, and copies of bytes before them. The search for copies
 * is that of Google's library: a table of the positions where four bytes were met last, and longer steps where nothing
 * was found for a while. The table is on the stack, so packing needs no memory that could be missing. */
#ifndef KSTORE_SNAP_H
#define KSTORE_SNAP_H

#include <stddef.h>
#include <stdint.h>
#include <string.h>

enum {
    KS_SNAP_MOST = 1 << 15,    /* bytes that one call packs: positions fit into 16 bits */
    KS_SNAP_TABLE_BITS = 13,
    KS_SNAP_MARGIN = 15        /* so near to the end no copy is looked for */
};

static inline uint32_t ks_snap_word(const uint8_t *p)
{
    uint32_t word;
    memcpy(&word, p, 4);
    return word;
}

static inline uint32_t ks_snap_hash(uint32_t word)
{
    return word * 0x1e35a7bdu >> (32 - KS_SNAP_TABLE_BITS);
}

/* How many bytes at a and b are equal, up to `end` behind b. */
static inline size_t ks_snap_same(const uint8_t *a, const uint8_t *b, const uint8_t *end)
{
    const uint8_t *const start = b;
#if defined(__GNUC__) && defined(__BYTE_ORDER__) && __BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__
    while (end - b >= 8) {
        uint64_t x, y;
        memcpy(&x, a, 8);
        memcpy(&y, b, 8);
        if (x != y)
            return (size_t)(b - start) + ((size_t)__builtin_ctzll(x ^ y) >> 3);
        a += 8;
        b += 8;
    }
#endif
    while (b < end && *a == *b) {
        a++;
        b++;
    }
    return (size_t)(b - start);
}

static inline uint8_t *ks_snap_literal(uint8_t *out, const uint8_t *p, size_t n)
{
    if (n == 0)
        return out;
    if (n <= 60)
        *out++ = (uint8_t)((n - 1) << 2);
    else if (n <= 256) {
        *out++ = 60 << 2;
        *out++ = (uint8_t)(n - 1);
    } else {
        *out++ = 61 << 2;
        *out++ = (uint8_t)(n - 1);
        *out++ = (uint8_t)((n - 1) >> 8);
    }
    memcpy(out, p, n);
    return out + n;
}

static inline uint8_t *ks_snap_long_copy(uint8_t *out, size_t distance, size_t n)
{
    *out++ = (uint8_t)(2 | (n - 1) << 2);
    *out++ = (uint8_t)distance;
    *out++ = (uint8_t)(distance >> 8);
    return out;
}

/* Copies of n bytes, at least 4. */
static inline uint8_t *ks_snap_copies(uint8_t *out, size_t distance, size_t n)
{
    while (n >= 68) {
        out = ks_snap_long_copy(out, distance, 64);
        n -= 64;
    }
    if (n > 64) { /* what is left must not be less than 4 */
        out = ks_snap_long_copy(out, distance, 60);
        n -= 60;
    }
    if (n >= 12 || distance >= 2048)
        return ks_snap_long_copy(out, distance, n);
    *out++ = (uint8_t)(1 | (n - 4) << 2 | distance >> 8 << 5);
    *out++ = (uint8_t)distance;
    return out;
}

/* Packs p[:size], at most KS_SNAP_MOST bytes, with their length in front; returns how many bytes that took. `out` has
 * room for 32 + size + size / 6 bytes. */
static inline size_t ks_snap(const uint8_t *p, size_t size, uint8_t *out)
{
    uint16_t table[1 << KS_SNAP_TABLE_BITS];
    uint8_t *const start = out;
    const uint8_t *const end = p + size;
    size_t at = 1, done = 0, left;
    for (left = size; left >= 0x80; left >>= 7)
        *out++ = (uint8_t)(left | 0x80);
    *out++ = (uint8_t)left;
    if (size >= KS_SNAP_MARGIN) {
        const size_t last = size - KS_SNAP_MARGIN;
        memset(table, 0, sizeof table);
        while (at < last) {
            size_t next = at, seen, n, skip = 32;
            uint32_t word;
            do { /* a word that was met before: the table's zeros stand for the first one */
                at = next;
                next = at + (skip++ >> 5);
                if (next > last)
                    goto rest;
                word = ks_snap_word(p + at);
                seen = table[ks_snap_hash(word)];
                table[ks_snap_hash(word)] = (uint16_t)at;
            } while (ks_snap_word(p + seen) != word);
            out = ks_snap_literal(out, p + done, at - done);
            do {
                n = 4 + ks_snap_same(p + seen + 4, p + at + 4, end);
                out = ks_snap_copies(out, at - seen, n);
                at += n;
                done = at;
                if (at >= last)
                    goto rest;
                table[ks_snap_hash(ks_snap_word(p + at - 1))] = (uint16_t)(at - 1);
                word = ks_snap_word(p + at);
                seen = table[ks_snap_hash(word)];
                table[ks_snap_hash(word)] = (uint16_t)at;
            } while (ks_snap_word(p + seen) == word);
            at++;
        }
    }
rest:
    out = ks_snap_literal(out, p + done, size - done);
    return (size_t)(out - start);
}

#endif
