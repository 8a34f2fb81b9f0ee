/* The records of a sound batch: its header is made of the first bytes, its records are the rest, as they come. */
#include "fuzzer.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    ks_batch b;
    ks_fault fault;
    exact x;
    memset(&b, 0, sizeof b);
    b.records_count = (int8_t)next_byte(&data, &size);
    b.last_offset_delta = (int8_t)next_byte(&data, &size);
    b.attributes = next_byte(&data, &size) & (KS_LOG_APPEND_TIME | KS_TRANSACTIONAL | KS_CONTROL | KS_DELETE_HORIZON);
    b.base_offset = next_number(&data, &size);
    b.base_timestamp = next_number(&data, &size);
    b.max_timestamp = next_number(&data, &size);
    b.size = (int64_t)size + KS_BATCH_OVERHEAD;
    x = exact_new((size_t)b.size, 0);
    if (size)
        memcpy(x.p + KS_RECORDS_AT, data, size);
    ks_put_header(x.p, &b);
    CHECK(ks_parse_header(x.p, x.end, &b, &fault) == KS_OK && b.size == x.end - x.p);
    walk_records(x.p, &b, &fault);
    free(x.block);
    return 0;
}
