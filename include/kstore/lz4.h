/* What a raw LZ4 block unpacks to. C99 and C++11, header only, nothing to link.
 *
 * A block is a run of sequences: a token, literals, and a copy, which says how far back its bytes lie. The last sequence
 * has literals only. Where the format asks a writer for a distance from the ends (the last 5 bytes are literals, and the
 * last copy begins 12 bytes before the end), a block is held to it as LZ4_decompress_safe does, which Kafka calls. */
#ifndef KSTORE_LZ4_H
#define KSTORE_LZ4_H

#include <stddef.h>
#include <stdint.h>
#include <string.h>

enum {
    KS_LZ4_MORE = 15,         /* in a half of the token: bytes that add to it follow */
    KS_LZ4_LEAST_COPY = 4,    /* bytes */
    KS_LZ4_LAST_LITERALS = 5, /* bytes at the end that no copy reaches */
    KS_LZ4_COPY_END = 12,     /* a copy begins so many bytes before the end of the room, or earlier */
    KS_LZ4_MARGIN = 32        /* bytes that a quick copy may read or write behind its own */
};

/* Adds the bytes behind *p to a length, until one is not 255; -1 where they go past `end`. */
static inline int64_t ks_lz4_length(const uint8_t **p, const uint8_t *end, int64_t length)
{
    int byte;
    do {
        if (*p >= end)
            return -1;
        byte = *(*p)++;
        length += byte;
    } while (byte == 255);
    return length;
}

/* Copies `size` bytes from `distance` before `out`, and up to KS_LZ4_MARGIN more. Where they lie nearer than that, the same
 * bytes come again and again: they are kept in a register, as to read what was just written takes long. */
static inline void ks_lz4_copy(uint8_t *out, int64_t distance, int64_t size)
{
    uint8_t *const end = out + size;
    if (distance >= 16) {
        do {
            memcpy(out, out - distance, 16);
            out += 16;
        } while (out < end);
    } else if (distance >= 8) {
        uint8_t run[16];
        memcpy(out, out - distance, 8);
        memcpy(out + 8, out + 8 - distance, 8);
        memcpy(run, out, 16);
        while ((out += distance) < end)
            memcpy(out, run, 16);
    } else {
#if defined(__BYTE_ORDER__) && __BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__
        static const uint64_t times[8] = {
            0, 0x0101010101010101, 0x0001000100010001, 0x0001000001000001, 0x0000000100000001, 0x0000010000000001,
            0x0001000000000001, 0x0100000000000001};
        static const int64_t step[8] = {0, 8, 8, 6, 8, 5, 6, 7};
        uint64_t run;
        memcpy(&run, out - distance, 8);
        run = (run & (((uint64_t)1 << 8 * distance) - 1)) * times[distance];
        for (; out < end; out += step[distance])
            memcpy(out, &run, 8);
#else
        for (; out < end; out++)
            *out = out[-distance];
#endif
    }
}

/* Unpacks the block p .. end into out[:size]; returns what it unpacks to, or -1 where it is damaged or that is more.
 * Nothing outside is read or written. */
static inline int64_t ks_unlz4(const uint8_t *p, const uint8_t *end, uint8_t *out, int64_t size)
{
    int64_t done = 0, n, distance, quick;
    while (p < end) {
        const int token = *p++;
        n = token >> 4;
        if (n < KS_LZ4_MORE && end - p > 16 && size - done >= KS_LZ4_MARGIN) {
            memcpy(out + done, p, 16);
            p += n;
            done += n;
        } else {
            if (n == KS_LZ4_MORE)
                n = ks_lz4_length(&p, end, n);
            if (n < 0 || n > end - p || n > size - done)
                return -1;
            if (n > 0)
                memcpy(out + done, p, (size_t)n);
            if (n == end - p)
                return done + n;
            p += n;
            done += n;
            if (end - p < 2 + 1 + KS_LZ4_LAST_LITERALS || size - done < KS_LZ4_COPY_END)
                return -1;
        }
        distance = p[0] | p[1] << 8;
        p += 2;
        n = token & 15;
        if (distance == 0 || distance > done)
            return -1;
        if (n < KS_LZ4_MORE && distance >= 16 && size - done >= KS_LZ4_MARGIN) { /* most */
            memcpy(out + done, out + done - distance, 16);
            memcpy(out + done + 16, out + done + 16 - distance, 2);
            done += n + KS_LZ4_LEAST_COPY;
            continue;
        }
        if (n == KS_LZ4_MORE)
            n = ks_lz4_length(&p, end - KS_LZ4_LAST_LITERALS + 1, n);
        if (n < 0)
            return -1;
        n += KS_LZ4_LEAST_COPY;
        if (n > size - done - KS_LZ4_LAST_LITERALS)
            return -1;
        quick = size - KS_LZ4_MARGIN - done;
        if (quick > 0) {
            quick = quick < n ? quick : n;
            ks_lz4_copy(out + done, distance, quick);
            done += quick;
            n -= quick;
        }
        for (; n > 0; n--, done++)
            out[done] = out[done - distance];
    }
    return -1;
}

#endif
