/* The last offset of each key, in a fixed amount of memory (spec 10.3).
 *
 * Keys themselves are not kept, only 128 bits of a hash, as Kafka does with MD5: two keys of one hash would be taken for
 * one, and a record be lost. The hash is SipHash-1-3 with a secret that is drawn for each map. Of 10^9 keys two have the
 * same one with a probability of 1 in 10^21, and such keys cannot be made, as they can for MD5. */
#ifndef KSTORE_OFFSET_MAP_H
#define KSTORE_OFFSET_MAP_H

#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#ifndef MAP_ANONYMOUS
#define MAP_ANONYMOUS MAP_ANON
#endif

typedef struct ks_key_hash {
    uint64_t a;
    uint64_t b;
} ks_key_hash;

typedef struct ks_key_slot {
    ks_key_hash hash;
    int64_t next; /* the offset behind the last one of the key; 0: the slot is empty */
} ks_key_slot;

typedef struct ks_offset_map {
    ks_key_slot *slots;
    void *memory;
    size_t memory_size;
    uint64_t slot_count;
    int64_t used;
    uint64_t secret[2];
} ks_offset_map;

/* -1 if there is no memory. `slot_count` is at least 1.
 *
 * Keys lie all over the map, so in small pages nearly every look at one would also have to look the page up. */
static inline int ks_map_init(ks_offset_map *m, int64_t slot_count, const uint8_t *secret)
{
    const size_t huge = (size_t)2 << 20;
    m->memory_size = (size_t)slot_count * sizeof(ks_key_slot) + huge;
    m->memory = mmap(NULL, m->memory_size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (m->memory == MAP_FAILED) {
        m->memory = NULL;
        return -1;
    }
#ifdef MADV_HUGEPAGE
    (void)madvise(m->memory, m->memory_size, MADV_HUGEPAGE);
#endif
    m->slots = (ks_key_slot *)(((uintptr_t)m->memory + huge - 1) / huge * huge); /* all zeros: empty */
    m->slot_count = (uint64_t)slot_count;
    m->used = 0;
    memcpy(m->secret, secret, sizeof(m->secret));
    return 0;
}

static inline void ks_map_free(ks_offset_map *m)
{
    if (m->memory != NULL)
        munmap(m->memory, m->memory_size);
    m->memory = NULL;
}

#define KS_ROTATED(x, n) (((x) << (n)) | ((x) >> (64 - (n))))
#define KS_SIP_ROUND                                                                                                   \
    do {                                                                                                               \
        v0 += v1; v1 = KS_ROTATED(v1, 13); v1 ^= v0; v0 = KS_ROTATED(v0, 32);                                          \
        v2 += v3; v3 = KS_ROTATED(v3, 16); v3 ^= v2;                                                                   \
        v0 += v3; v3 = KS_ROTATED(v3, 21); v3 ^= v0;                                                                   \
        v2 += v1; v1 = KS_ROTATED(v1, 17); v1 ^= v2; v2 = KS_ROTATED(v2, 32);                                          \
    } while (0)

static inline uint64_t ks_load_le64(const uint8_t *p)
{
    return (uint64_t)p[0] | (uint64_t)p[1] << 8 | (uint64_t)p[2] << 16 | (uint64_t)p[3] << 24 | (uint64_t)p[4] << 32
           | (uint64_t)p[5] << 40 | (uint64_t)p[6] << 48 | (uint64_t)p[7] << 56;
}

static inline ks_key_hash ks_hash_with(const uint64_t *secret, const uint8_t *key, size_t size)
{
    uint64_t k0 = secret[0], k1 = secret[1], word;
    uint64_t v0 = k0 ^ 0x736f6d6570736575u, v1 = k1 ^ 0x646f72616e646f6du ^ 0xee;
    uint64_t v2 = k0 ^ 0x6c7967656e657261u, v3 = k1 ^ 0x7465646279746573u;
    uint64_t last = (uint64_t)size << 56;
    ks_key_hash hash;
    size_t i;
    for (; size >= 8; key += 8, size -= 8) {
        word = ks_load_le64(key);
        v3 ^= word;
        KS_SIP_ROUND;
        v0 ^= word;
    }
    for (i = 0; i < size; i++)
        last |= (uint64_t)key[i] << (8 * i);
    v3 ^= last;
    KS_SIP_ROUND;
    v0 ^= last;
    v2 ^= 0xee;
    KS_SIP_ROUND;
    KS_SIP_ROUND;
    KS_SIP_ROUND;
    hash.a = v0 ^ v1 ^ v2 ^ v3;
    v1 ^= 0xdd;
    KS_SIP_ROUND;
    KS_SIP_ROUND;
    KS_SIP_ROUND;
    hash.b = v0 ^ v1 ^ v2 ^ v3;
    return hash;
}

static inline ks_key_hash ks_hash_key(const ks_offset_map *m, const uint8_t *key, size_t size)
{
    return ks_hash_with(m->secret, key, size);
}

/* Where a key is looked for first: the hash as a fraction of the slots. */
static inline ks_key_slot *ks_map_home(const ks_offset_map *m, ks_key_hash hash)
{
    return m->slots + (uint64_t)(((unsigned __int128)hash.a * m->slot_count) >> 64);
}

/* Has the memory of a key's slot brought in while other work is done. */
static inline void ks_map_prefetch(const ks_offset_map *m, ks_key_hash hash) { __builtin_prefetch(ks_map_home(m, hash)); }

/* The slot of a key: its own, or the empty one that it gets. There is an empty one as long as used < slot_count. */
static inline ks_key_slot *ks_map_find(const ks_offset_map *m, ks_key_hash hash)
{
    ks_key_slot *slot = ks_map_home(m, hash), *end = m->slots + m->slot_count;
    while (slot->next != 0 && (slot->hash.a != hash.a || slot->hash.b != hash.b))
        if (++slot == end)
            slot = m->slots;
    return slot;
}

/* Notes the offset of a key; the one before is forgotten. The caller sees to it that used < slot_count - 1. */
static inline void ks_map_put(ks_offset_map *m, ks_key_hash hash, int64_t offset)
{
    ks_key_slot *slot = ks_map_find(m, hash);
    if (slot->next == 0) {
        slot->hash = hash;
        m->used++;
    }
    slot->next = offset + 1;
}

/* Moves the keys into more slots: -1 if there is no memory, and nothing is changed.
 *
 * Keys lie in both in the order of their hashes. So the old memory is given back as the new one is filled, and the two take
 * hardly more than the new one. */
static inline int ks_map_grow(ks_offset_map *m, int64_t slot_count)
{
    const uintptr_t step = (uintptr_t)1 << 21, mask = ~(uintptr_t)4095;
    uintptr_t left = (uintptr_t)m->slots & mask, here;
    ks_offset_map larger;
    uint64_t i;
    if (ks_map_init(&larger, slot_count, (const uint8_t *)m->secret) < 0)
        return -1;
    for (i = 0; i < m->slot_count; i++) {
        here = (uintptr_t)&m->slots[i] & mask;
        if (here - left >= step) {
            (void)madvise((void *)left, here - left, MADV_DONTNEED);
            left = here;
        }
        if (m->slots[i].next != 0)
            *ks_map_find(&larger, m->slots[i].hash) = m->slots[i];
    }
    larger.used = m->used;
    ks_map_free(m);
    *m = larger;
    return 0;
}

/* The offset of a key; -1 if it is not there. */
static inline int64_t ks_map_get(const ks_offset_map *m, ks_key_hash hash) { return ks_map_find(m, hash)->next - 1; }

#endif
