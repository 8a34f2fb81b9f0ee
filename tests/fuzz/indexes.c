/* Entries of the three kinds of index, varints, and checksums by every way that this processor has. */
#include "fuzzer.h"

static void check_entries(const exact *x)
{
    const size_t size = (size_t)(x->end - x->p);
    size_t slot;
    for (slot = 0; slot < size / KS_OFFSET_ENTRY; slot++) {
        const uint8_t *entry = x->p + slot * KS_OFFSET_ENTRY;
        CHECK(ks_entry_offset(x->p, slot, 7) == ks_add64(7, ks_load_i32(entry)));
        CHECK(ks_entry_position(x->p, slot) == ks_load_i32(entry + 4));
    }
    for (slot = 0; slot < size / KS_TIME_ENTRY; slot++) {
        const uint8_t *entry = x->p + slot * KS_TIME_ENTRY;
        CHECK(ks_entry_timestamp(x->p, slot) == ks_load_i64(entry));
        CHECK(ks_time_entry_offset(x->p, slot, INT64_MAX) == ks_add64(INT64_MAX, ks_load_i32(entry + 8)));
    }
    for (slot = 0; slot < size / KS_ABORTED_ENTRY; slot++) {
        const uint8_t *entry = x->p + slot * KS_ABORTED_ENTRY;
        uint8_t again[KS_ABORTED_ENTRY];
        ks_aborted_txn txn;
        ks_parse_aborted_txn(entry, &txn);
        ks_store_u16(again, (uint16_t)txn.version);
        ks_store_u64(again + 2, (uint64_t)txn.producer_id);
        ks_store_u64(again + 10, (uint64_t)txn.first_offset);
        ks_store_u64(again + 18, (uint64_t)txn.last_offset);
        ks_store_u64(again + 26, (uint64_t)txn.last_stable_offset);
        CHECK(memcmp(again, entry, KS_ABORTED_ENTRY) == 0);
    }
}

static void check_varints(const exact *x)
{
    const uint8_t *p = x->p, *q = x->p;
    uint8_t written[KS_MAX_VARLONG];
    int64_t number, again;
    int32_t small;
    while (p < x->end && ks_read_varlong(&p, x->end, &number) == KS_OK) {
        const uint8_t *from = written;
        const size_t n = ks_write_varlong(written, number);
        CHECK(n == ks_varlong_size(number) && n <= KS_MAX_VARLONG);
        CHECK(ks_read_varlong(&from, written + n, &again) == KS_OK && again == number && from == written + n);
    }
    CHECK(p <= x->end);
    while (q < x->end && ks_read_varint(&q, x->end, &small) == KS_OK)
        sink += (unsigned)small;
    CHECK(q <= x->end);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    const size_t cut = next_byte(&data, &size);
    const exact x = exact_copy(data, size);
    const uint32_t crc = crc_by_bits(0x82f63b78u, x.p, size);
    variant variants[8];
    size_t n = crc_variants(variants), first = cut < size ? cut : size;
    while (n--) {
        CHECK(variants[n].function(0, x.p, size) == crc);
        CHECK(variants[n].function(variants[n].function(0, x.p, first), x.p + first, size - first) == crc);
    }
    CHECK(ks_crc32(x.p, size) == crc_by_bits(0xedb88320u, x.p, size));
    check_entries(&x);
    check_varints(&x);
    free(x.block);
    return 0;
}
