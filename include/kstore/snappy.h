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
    KS_SNAPPY_MOST = 64 /* bytes that the quick loop may read behind a tag, and write, whatever the element's size */
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

/* By the byte that an element begins with: which of the bytes behind it are of the distance, what it adds to that
 * itself, and how many bytes it unpacks to. A literal has a distance that does no harm, and the elements that are not
 * for the quick loop (literals of more than 60 bytes, copies of the third kind) have none. */
typedef struct ks_snappy_tag {
    uint32_t mask;
    uint16_t high, size;
} ks_snappy_tag;

#define KS_TAG(t)                                                                                \
    {                                                                                            \
        ((t) & 3) == 1 ? 0xff : ((t) & 3) == 2 ? 0xffff : 0,                                     \
        ((t) & 3) == 1 ? (t) >> 5 << 8 : ((t) & 3) == 0 && (t) >> 2 < 60 ? 16 : 0,               \
        ((t) & 3) == 1 ? 4 + ((t) >> 2 & 7) : 1 + ((t) >> 2)                                     \
    }
#define KS_TAGS_4(t) KS_TAG(t), KS_TAG((t) + 1), KS_TAG((t) + 2), KS_TAG((t) + 3)
#define KS_TAGS_16(t) KS_TAGS_4(t), KS_TAGS_4((t) + 4), KS_TAGS_4((t) + 8), KS_TAGS_4((t) + 12)
#define KS_TAGS_64(t) KS_TAGS_16(t), KS_TAGS_16((t) + 16), KS_TAGS_16((t) + 32), KS_TAGS_16((t) + 48)
static const ks_snappy_tag KS_SNAPPY_TAGS[256] = {KS_TAGS_64(0), KS_TAGS_64(64), KS_TAGS_64(128), KS_TAGS_64(192)};

/* Up to 64 bytes, most in two steps. A source no less than 16 bytes before the target gives what a copy byte by byte
 * does. */
static inline void ks_snappy_move(uint8_t *target, const uint8_t *source, int64_t size)
{
    memcpy(target, source, 16);
    memcpy(target + 16, source + 16, 16);
    if (KS_RARELY(size > 32)) {
        memcpy(target + 32, source + 32, 16);
        memcpy(target + 48, source + 48, 16);
    }
}

/* How far it is from `p`, behind the tag of an element, to the next tag. *from, where the bytes of a copy are, becomes p
 * for a literal. Which of both it is must be no branch, as it would be guessed wrong too often; compilers make one. */
static inline uint64_t ks_snappy_step(uint64_t tag, const uint8_t *p, const uint8_t **from)
{
    const uint64_t literal = (tag >> 2) + 1;
    uint64_t step = tag;
#if defined(__GNUC__) && defined(__x86_64__) && !defined(KS_NO_ASM)
    __asm__("and $3, %0\n\tcmovz %2, %0\n\tcmovz %3, %1" : "+&r"(step), "+&r"(*from) : "r"(literal), "r"(p) : "cc");
#else
    step &= 3;
    if (step == KS_SNAPPY_LITERAL) {
        step = literal;
        *from = p;
    }
#endif
    return step;
}

/* Unpacks the elements p .. end into out[:size]; returns what they unpack to, or -1 where they are damaged or that is
 * more. Nothing outside is read or written. */
static inline int64_t ks_unsnap(const uint8_t *p, const uint8_t *end, uint8_t *out, int64_t size)
{
    int64_t done = 0, n;
    while (p < end) {
#if defined(__BYTE_ORDER__) && __BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__
        if (end - p > KS_SNAPPY_MOST && size - done >= KS_SNAPPY_MOST) {
            const uint8_t *const last = end - KS_SNAPPY_MOST, *from;
            uint64_t tag = *p++, step;
            do {
                const ks_snappy_tag *const t = &KS_SNAPPY_TAGS[tag];
                uint32_t distance;
                memcpy(&distance, p, 4);
                distance = (distance & t->mask) | t->high;
                if (KS_RARELY(distance < 16 || distance > done))
                    break;
                from = out + done - distance;
                step = ks_snappy_step(tag, p, &from);
                tag = p[step];
                p += step + 1;
                ks_snappy_move(out + done, from, t->size);
                done += t->size;
            } while (p <= last && done <= size - KS_SNAPPY_MOST);
            p--;
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
