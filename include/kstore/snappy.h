/* What a raw snappy block unpacks to. C99 and C++11, header only, nothing to link.
 *
 * A block is a run of elements: literals, which carry their bytes, and copies, which say how far back theirs lie. Its
 * length, which stands before them as a varint, is for the caller to read. */
#ifndef KSTORE_SNAPPY_H
#define KSTORE_SNAPPY_H

#include <stddef.h>
#include <stdint.h>
#include <string.h>

#if defined(__GNUC__)
#define KS_RARELY(condition) __builtin_expect(!!(condition), 0)
#else
#define KS_RARELY(condition) (condition)
#endif

enum {
    KS_SNAPPY_LITERAL = 0, /* the low bits of the byte that an element begins with */
    KS_SNAPPY_COPY_1 = 1,  /* copies with a distance of so many bytes; the first has three bits of it in the tag */
    KS_SNAPPY_COPY_2 = 2,
    KS_SNAPPY_COPY_4 = 3,
    KS_SNAPPY_MOST = 64,   /* bytes that an element may move at once, but for a long literal */
    KS_SNAPPY_BEFORE = 80, /* input that a round of the quick loop may look at: a literal and two copies */
    KS_SNAPPY_ROOM = 3 * KS_SNAPPY_MOST /* and output that it may write to */
};

/* Little-endian, of 1 to 4 bytes. */
static inline uint32_t ks_snappy_number(const uint8_t *p, int bytes)
{
    uint32_t value = 0;
    int i;
    for (i = 0; i < bytes; i++)
        value |= (uint32_t)p[i] << (8 * i);
    return value;
}

/* Unpacks the element at *p behind the `done` bytes of out and returns its size; -1 where it is damaged, or goes past
 * `end` or `size`. */
static inline int64_t ks_snappy_element(const uint8_t **p, const uint8_t *end, uint8_t *out, int64_t done, int64_t size)
{
    static const uint8_t more[4] = {0, 1, 2, 4};
    const uint8_t *q = *p;
    const int tag = *q++, kind = tag & 3;
    int64_t n = (tag >> 2) + 1, distance, i;
    if (kind == KS_SNAPPY_LITERAL) {
        if (n > 60) {
            const int bytes = (int)n - 60;
            if (end - q < bytes)
                return -1;
            n = (int64_t)ks_snappy_number(q, bytes) + 1;
            q += bytes;
        }
        if (n > end - q || n > size - done)
            return -1;
        memcpy(out + done, q, (size_t)n);
        *p = q + n;
        return n;
    }
    if (end - q < more[kind])
        return -1;
    distance = ks_snappy_number(q, more[kind]);
    if (kind == KS_SNAPPY_COPY_1) {
        distance |= tag >> 5 << 8;
        n = 4 + (tag >> 2 & 7);
    }
    if (distance == 0 || distance > done || n > size - done)
        return -1;
    if (distance >= n)
        memcpy(out + done, out + done - distance, (size_t)n);
    else /* what is copied may be what this copy has just written */
        for (i = done; i < done + n; i++)
            out[i] = out[i - distance];
    *p = q + more[kind];
    return n;
}

/* Up to 64 bytes, most in one step. A source no less than 16 bytes before the target gives what a copy byte by byte
 * does. */
static inline void ks_snappy_move(uint8_t *target, const uint8_t *source, int64_t size)
{
    memcpy(target, source, 16);
    if (KS_RARELY(size > 16)) {
        memcpy(target + 16, source + 16, 16);
        memcpy(target + 32, source + 32, 16);
        memcpy(target + 48, source + 48, 16);
    }
}

/* By the byte that an element begins with: for copies of the first and second kind, which of the bytes behind it are of
 * the distance, what it adds to that itself, and how many bytes are copied. For others: none, from where there is
 * something. */
typedef struct ks_snappy_tag {
    uint16_t mask, high, size;
} ks_snappy_tag;

#define KS_TAG(t)                                                                            \
    {                                                                                        \
        ((t) & 3) == 1 ? 0xff : ((t) & 3) == 2 ? 0xffff : 0,                                 \
        ((t) & 3) == 1 ? (t) >> 5 << 8 : ((t) & 3) == 2 ? 0 : 16,                            \
        ((t) & 3) == 1 ? 4 + ((t) >> 2 & 7) : ((t) & 3) == 2 ? 1 + ((t) >> 2) : 0            \
    }
#define KS_TAGS_4(t) KS_TAG(t), KS_TAG((t) + 1), KS_TAG((t) + 2), KS_TAG((t) + 3)
#define KS_TAGS_16(t) KS_TAGS_4(t), KS_TAGS_4((t) + 4), KS_TAGS_4((t) + 8), KS_TAGS_4((t) + 12)
#define KS_TAGS_64(t) KS_TAGS_16(t), KS_TAGS_16((t) + 16), KS_TAGS_16((t) + 32), KS_TAGS_16((t) + 48)
static const ks_snappy_tag KS_SNAPPY_TAGS[256] = {KS_TAGS_64(0), KS_TAGS_64(64), KS_TAGS_64(128), KS_TAGS_64(192)};

/* The copy of the first or second kind that *window begins with, bytes that stand at *p: takes it off both. Returns how
 * many bytes it copied; 0 where the window begins with something else, which stays; -1 for a distance that there is not.
 * `done` is 16 or more. What the element is, is not a branch: that would be guessed wrong too often. */
static inline int64_t ks_snappy_copy(uint64_t *window, const uint8_t **p, uint8_t *out, int64_t done)
{
    const int bits = 0x181000 >> 8 * (int)(*window & 3) & 0xff; /* of this kind of element: 16, 24, else 0 */
    const ks_snappy_tag tag = KS_SNAPPY_TAGS[*window & 0xff];
    const uint64_t distance = (*window >> 8 & tag.mask) | tag.high;
    int64_t i;
    *window >>= bits;
    *p += bits >> 3;
    if (KS_RARELY(distance - 1 >= (uint64_t)done))
        return -1;
    if (KS_RARELY(distance < 16))
        for (i = done; i < done + tag.size; i++)
            out[i] = out[i - (int64_t)distance];
    else
        ks_snappy_move(out + done, out + done - distance, tag.size);
    return tag.size;
}

/* Unpacks the elements p .. end into out[:size]; returns what they unpack to, or -1 where they are damaged or that is
 * more. Nothing outside is read or written. */
static inline int64_t ks_unsnap(const uint8_t *p, const uint8_t *end, uint8_t *out, int64_t size)
{
    int64_t done = 0, n;
    while (p < end) {
#if defined(__BYTE_ORDER__) && __BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__
        while (end - p >= KS_SNAPPY_BEFORE && size - done >= KS_SNAPPY_ROOM && done >= 16) {
            uint64_t window; /* the next eight bytes; a copy is three at most */
            int copies;
            memcpy(&window, p, 8);
            if ((window & 3) == KS_SNAPPY_LITERAL) {
                n = (int64_t)((window & 0xff) >> 2) + 1;
                if (KS_RARELY(n > 60))
                    break;
                ks_snappy_move(out + done, p + 1, n);
                p += n + 1;
                done += n;
                memcpy(&window, p, 8); /* mostly of a copy */
            } else if (KS_RARELY((window & 3) == KS_SNAPPY_COPY_4)) {
                break;
            }
            for (copies = 0; copies < 2; copies++) {
                n = ks_snappy_copy(&window, &p, out, done);
                if (KS_RARELY(n < 0))
                    return -1;
                done += n;
            }
        }
#endif
        n = ks_snappy_element(&p, end, out, done, size);
        if (n < 0)
            return -1;
        done += n;
    }
    return done;
}

#endif
