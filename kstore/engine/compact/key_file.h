/* A .keys file: where the last record of each key of a segment is.
 *
 * A header, and blocks of 512 bytes that each have their own checksum, so that one is read and believed alone. All numbers
 * are little-endian.
 *
 *   header   0  "KSK1"
 *            4  u32  number of blocks
 *            8  16 bytes: the secret of the hash
 *           24  i64  base offset of the segment
 *           32  i64  size of its .log
 *           40  u64  inode of its .log
 *           48  i64  when its .log was last changed in any way (ctime), in ns since 1970
 *           56  u32  number of homes: blocks where the keys of a hash are looked for first
 *           60  u32  CRC-32C of the 60 bytes before
 *   block    0  u32  CRC-32C of the header's, the number of the block (u64), and the rest of the block
 *            4  u16  number of entries, at most 63
 *            6  u16  1 if an entry that belongs here or before lies in the next block
 *            8  u32 x 63  half of the second word of the SipHash of the key
 *          260  u32 x 63  offset of the last record with the key, less the base offset
 *
 * The home of a key is the first word of its hash as a fraction of the number of homes. Two keys with the same home and the
 * same half word cannot be told apart here: the record itself says whose it is. */
#ifndef KSTORE_KEY_FILE_H
#define KSTORE_KEY_FILE_H

#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "kstore/crc32c.h"
#include "offset_map.h"

#define KS_KEYS_MAGIC "KSK1"
#define KS_KEYS_HEADER 64
#define KS_KEYS_BLOCK 512
#define KS_KEYS_MOST 63
#define KS_KEYS_USUAL 48 /* entries of a block, on the average: so one in 50 has to go on to the next */
#define KS_KEYS_OFFSETS (8 + 4 * KS_KEYS_MOST)

static inline uint32_t ks_load_le32(const uint8_t *p)
{
    return (uint32_t)p[0] | (uint32_t)p[1] << 8 | (uint32_t)p[2] << 16 | (uint32_t)p[3] << 24;
}

static inline void ks_store_le(uint8_t *p, uint64_t value, int size)
{
    int i;
    for (i = 0; i < size; i++)
        p[i] = (uint8_t)(value >> (8 * i));
}

static inline uint64_t ks_keys_home(ks_key_hash hash, uint64_t homes)
{
    return (uint64_t)(((unsigned __int128)hash.a * homes) >> 64);
}

static inline uint32_t ks_keys_tag(ks_key_hash hash) { return (uint32_t)hash.b; }

static inline uint32_t ks_keys_header_sum(const uint8_t *header) { return ks_crc32c(0, header, KS_KEYS_HEADER - 4); }

static inline uint32_t ks_keys_block_sum(const uint8_t *block, uint32_t header_sum, uint64_t number)
{
    uint8_t place[8];
    ks_store_le(place, number, 8);
    return ks_crc32c(ks_crc32c(header_sum, place, 8), block + 4, KS_KEYS_BLOCK - 4);
}

/* Whether a block may be believed. */
static inline int ks_keys_is_sound(const uint8_t *block, uint32_t header_sum, uint64_t number)
{
    return ks_load_le32(block) == ks_keys_block_sum(block, header_sum, number) && block[5] == 0
           && block[4] <= KS_KEYS_MOST;
}

static inline int ks_keys_goes_on(const uint8_t *block) { return block[6] & 1; }

/* The offset of a key less the base offset, -1 if this block has none: the largest, should two keys look the same. */
static inline int64_t ks_keys_find(const uint8_t *block, uint32_t tag)
{
    int64_t found = -1, offset;
    int i, count = block[4];
    for (i = 0; i < count; i++)
        if (ks_load_le32(block + 8 + 4 * i) == tag) {
            offset = ks_load_le32(block + KS_KEYS_OFFSETS + 4 * i);
            found = offset > found ? offset : found;
        }
    return found;
}

typedef struct ks_keys_entry {
    uint32_t tag;
    uint32_t offset;
} ks_keys_entry;

/* The file for a map of the keys of a segment. `header` has what is known of the segment: bytes 24 to 55 of the file's.
 *
 * 0 and a buffer to be freed; -1 if there is no memory, -2 if an offset lies too far from the base offset. */
static inline int ks_keys_pack(const ks_offset_map *m, int64_t base_offset, const uint8_t *header, uint8_t **file,
                               int64_t *size)
{
    const uint64_t used = (uint64_t)m->used, homes = (used + KS_KEYS_USUAL - 1) / KS_KEYS_USUAL;
    const ks_key_slot *slot, *end = m->slots + m->slot_count;
    uint64_t blocks, b, i, n, taken = 0, left = 0;
    uint32_t *ends = (uint32_t *)calloc(homes + 1, sizeof(uint32_t)); /* where the entries of each home end, at last */
    ks_keys_entry *entries = (ks_keys_entry *)malloc((used + 1) * sizeof(ks_keys_entry)), *e;
    uint8_t *p = NULL;
    uint32_t sum;
    int status = -1;
    if (ends == NULL || entries == NULL)
        goto done;
    for (slot = m->slots; slot < end; slot++)
        if (slot->next != 0)
            ends[ks_keys_home(slot->hash, homes) + 1]++;
    for (b = 0; b < homes; b++) {
        n = ends[b + 1] + left;
        left = n > KS_KEYS_MOST ? n - KS_KEYS_MOST : 0;
        ends[b + 1] += ends[b];
    }
    blocks = homes + (left + KS_KEYS_MOST - 1) / KS_KEYS_MOST;
    for (slot = m->slots; slot < end; slot++) {
        if (slot->next == 0)
            continue;
        e = &entries[ends[ks_keys_home(slot->hash, homes)]++];
        if (slot->next <= base_offset || slot->next - 1 - base_offset > UINT32_MAX) {
            status = -2;
            goto done;
        }
        e->tag = ks_keys_tag(slot->hash);
        e->offset = (uint32_t)(slot->next - 1 - base_offset);
    }
    *size = (int64_t)(KS_KEYS_HEADER + blocks * KS_KEYS_BLOCK);
    *file = p = (uint8_t *)calloc(1, (size_t)*size);
    if (p == NULL)
        goto done;
    memcpy(p, header, KS_KEYS_HEADER);
    memcpy(p, KS_KEYS_MAGIC, 4);
    ks_store_le(p + 4, blocks, 4);
    ks_store_le(p + 8, m->secret[0], 8);
    ks_store_le(p + 16, m->secret[1], 8);
    ks_store_le(p + 56, homes, 4);
    sum = ks_keys_header_sum(p);
    ks_store_le(p + 60, sum, 4);
    p += KS_KEYS_HEADER;
    for (b = 0; b < blocks; b++, p += KS_KEYS_BLOCK) {
        n = (b < homes ? ends[b] : used) - taken;
        left = n > KS_KEYS_MOST ? n - KS_KEYS_MOST : 0;
        n -= left;
        ks_store_le(p + 4, n, 2);
        ks_store_le(p + 6, left > 0, 2);
        for (i = 0; i < n; i++) {
            ks_store_le(p + 8 + 4 * i, entries[taken + i].tag, 4);
            ks_store_le(p + KS_KEYS_OFFSETS + 4 * i, entries[taken + i].offset, 4);
        }
        taken += n;
        ks_store_le(p, ks_keys_block_sum(p, sum, b), 4);
    }
    status = 0;
done:
    free(ends);
    free(entries);
    return status;
}

#endif
