/* A run of entries, as a .log file has them: each is read as it is, and again with the checksum that it should have. */
#include "fuzzer.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    const exact x = exact_copy(data, size);
    uint8_t *p = x.p;
    while (p < x.end) {
        ks_batch b;
        ks_fault fault;
        read_all(p, x.end);
        if (ks_parse_header(p, x.end, &b, &fault) != KS_OK || b.size > x.end - p)
            break;
        fix_crc(p, (size_t)b.size);
        CHECK(read_all(p, x.end) == KS_OK || b.base_offset < 0 || b.last_offset < b.base_offset || b.last_offset == INT64_MAX);
        p += b.size;
    }
    free(x.block);
    return 0;
}
