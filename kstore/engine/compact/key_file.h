/* A .keys file: where the last record of each key of a segment is.
 *
 * A header, and blocks of 512 bytes that each have their own checksum, so that one is read and believed alone. All numbers
 * are little-endian.
 *
 *   header   0  "KSK2"
 *            4  u32  number of blocks
 *            8  16 bytes: the secret of the hash
 *           24  i64  base offset of the segment
 *           32  i64  size of its .log
 *           40  u64  inode of its .log
 *           48  i64  when its .log was last changed in any way (ctime), in ns since 1970
 *           56  u32  number of homes: blocks where the keys of a hash are looked for first
 *           60  u32  CRC-32C of the 60 bytes before
 *   block    0  u32  CRC-32C of the header's, the number of the block (u64), and the rest of the block
 *            4  u16  number of entries, at most 42
 *            6  u16  1 if an entry that belongs here or before lies in the next block
 *            8  u32 x 42  low 12 bits: the tag, which is those of the second word of the SipHash of the key; the others:
 *                         how many bytes behind the start of its batch the last record with the key begins
 *          176  u32 x 42  where that record begins in the .log
 *          344  u32 x 42  CRC-32C of the 61 bytes of the batch's header and the bytes of the record
 *
 * So a record is read without the rest of its batch: its own checksum, and not the batch's, says that it is what was there
 * when the file was made, of batches that were checked. Of a record that is packed, of an old format, or too far behind the
 * start of its batch the distance is 0, the second number is its offset less the base offset, and the third 0.
 *
 * The home of a key is the first word of its hash as a fraction of the number of homes. Two keys with the same home and the
 * same tag cannot be told apart here: the records themselves say whose they are. */
#ifndef KSTORE_KEY_FILE_H
#define KSTORE_KEY_FILE_H

#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "kstore/crc32c.h"
#include "kstore/format.h"
#include "offset_map.h"

#define KS_KEYS_MAGIC "KSK2"
#define KS_KEYS_HEADER 64
#define KS_KEYS_BLOCK 512
#define KS_KEYS_MOST 42
#define KS_KEYS_USUAL 34 /* entries of a block, on the average: so one in 12 has to go on to the next */
#define KS_KEYS_PLACES (8 + 4 * KS_KEYS_MOST)
#define KS_KEYS_SUMS (KS_KEYS_PLACES + 4 * KS_KEYS_MOST)
#define KS_KEYS_TAG 12 /* bits */
#define KS_KEYS_FAR (1u << (32 - KS_KEYS_TAG)) /* so far behind the start of its batch no record is read alone */
#define KS_KEYS_PAGE 4096                      /* bytes of a .log that share a place in the table of its batches */

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

static inline uint32_t ks_keys_tag(ks_key_hash hash) { return (uint32_t)hash.b & ((1u << KS_KEYS_TAG) - 1); }

/* One key. */
typedef struct ks_keys_entry {
    uint32_t tag;
    uint32_t distance; /* from the start of the batch; 0: `place` is an offset */
    uint32_t place;
    uint32_t sum;
} ks_keys_entry;

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

/* The first entry from number `i` on that has this tag; -1 if this block has none. */
static inline int ks_keys_next(const uint8_t *block, uint32_t tag, int i)
{
    const int count = block[4];
    for (; i < count; i++)
        if (((ks_load_le32(block + 8 + 4 * i) ^ tag) & ((1u << KS_KEYS_TAG) - 1)) == 0)
            return i;
    return -1;
}

static inline ks_keys_entry ks_keys_entry_at(const uint8_t *block, int i)
{
    ks_keys_entry e;
    e.tag = ks_load_le32(block + 8 + 4 * i);
    e.distance = e.tag >> KS_KEYS_TAG;
    e.place = ks_load_le32(block + KS_KEYS_PLACES + 4 * i);
    e.sum = ks_load_le32(block + KS_KEYS_SUMS + 4 * i);
    return e;
}

/* What a map notes of a key, in the place of an offset, when a file is to be made of it: the position of the record and its
 * checksum, or 0 and the offset of the record less the base offset. */
static inline int64_t ks_keys_place(uint32_t position, uint32_t sum) { return (int64_t)position << 32 | sum; }

/* The checksum of a record: `size` bytes at `p`, in a batch whose header's sum is `head`. */
static inline uint32_t ks_keys_head_sum(const uint8_t *batch) { return ks_crc32c(0, batch, KS_BATCH_OVERHEAD); }

static inline uint32_t ks_keys_record_sum(uint32_t head, const uint8_t *p, size_t size) { return ks_crc32c(head, p, size); }

/* Where the batch begins in which a record lies: `starts` has the batches in order; number `i` or one behind it is it. */
static inline uint32_t ks_keys_batch_of(uint32_t position, const uint32_t *starts, int64_t count, int64_t i)
{
    while (i + 1 < count && starts[i + 1] <= position)
        i++;
    return starts[i];
}

/* The file for a map of the keys of a segment, which has places (ks_keys_place), and the starts of its batches. `header` has
 * what is known of the segment: bytes 24 to 55 of the file's.
 *
 * 0 and a buffer to be freed; -1 if there is no memory. */
static inline int ks_keys_pack(const ks_offset_map *m, const uint32_t *starts, int64_t batches, const uint8_t *header,
                               uint8_t **file, int64_t *size)
{
    const uint64_t used = (uint64_t)m->used, homes = (used + KS_KEYS_USUAL - 1) / KS_KEYS_USUAL;
    const ks_key_slot *slot, *end = m->slots + m->slot_count;
    const uint32_t pages = batches ? starts[batches - 1] / KS_KEYS_PAGE + 1 : 1;
    uint64_t blocks, b, i, n, taken = 0, left = 0;
    int64_t at = 0;
    uint32_t *ends = (uint32_t *)calloc(homes + 1, sizeof(uint32_t)); /* where the entries of each home end, at last */
    uint32_t *first = (uint32_t *)malloc(pages * sizeof(uint32_t));
    ks_keys_entry *entries = (ks_keys_entry *)malloc((used + 1) * sizeof(ks_keys_entry)), *e;
    uint8_t *p = NULL;
    uint32_t sum, page;
    int status = -1;
    if (ends == NULL || first == NULL || entries == NULL)
        goto done;
    for (page = 0; page < pages; page++) {
        while (at + 1 < batches && starts[at + 1] <= page * KS_KEYS_PAGE)
            at++;
        first[page] = (uint32_t)at;
    }
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
        e->tag = ks_keys_tag(slot->hash);
        e->place = (uint32_t)((uint64_t)(slot->next - 1) >> 32);
        e->sum = (uint32_t)(slot->next - 1);
        if (e->place == 0) {
            e->place = e->sum;
            e->sum = 0;
        } else {
            page = e->place / KS_KEYS_PAGE < pages ? e->place / KS_KEYS_PAGE : pages - 1;
            e->distance = e->place - ks_keys_batch_of(e->place, starts, batches, first[page]);
            e->tag |= e->distance << KS_KEYS_TAG;
        }
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
            ks_store_le(p + KS_KEYS_PLACES + 4 * i, entries[taken + i].place, 4);
            ks_store_le(p + KS_KEYS_SUMS + 4 * i, entries[taken + i].sum, 4);
        }
        taken += n;
        ks_store_le(p, ks_keys_block_sum(p, sum, b), 4);
    }
    status = 0;
done:
    free(ends);
    free(first);
    free(entries);
    return status;
}

#endif
