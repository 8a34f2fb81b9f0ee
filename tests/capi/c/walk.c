/* Walks a .log file of Kafka: one line for each batch, a summary, and where it stops if it does.
 *
 *     cc -I"$(python -c 'import kstore; print(kstore.get_include())')" walk.c -o walk
 *     ./walk orders-0/00000000000000000000.log
 *
 * Nothing of Python is needed to build or run it but the directory of the headers. */
#include <stdio.h>
#include <stdlib.h>

#include <kstore/format.h>

static uint8_t *read_file(const char *path, size_t *size)
{
    FILE *file = fopen(path, "rb");
    uint8_t *bytes = NULL;
    long length;
    if (file == NULL)
        return NULL;
    if (fseek(file, 0, SEEK_END) == 0 && (length = ftell(file)) >= 0) {
        rewind(file);
        *size = (size_t)length;
        bytes = malloc(*size + 1);
        if (bytes != NULL && fread(bytes, 1, *size, file) != *size) {
            free(bytes);
            bytes = NULL;
        }
    }
    fclose(file);
    return bytes;
}

/* The records in the entry at p, counted one by one, or -1 if they are compressed; KS_E_* with a fault otherwise. */
static int64_t count_records(const uint8_t *p, const ks_batch *batch, ks_fault *fault)
{
    ks_record record;
    const uint8_t *at = p + KS_RECORDS_AT, *end = p + batch->size;
    int32_t n;
    if (ks_codec(batch) != KS_CODEC_NONE)
        return -1;
    if (batch->magic < 2)
        return ks_parse_message(p, batch, &record, fault) == KS_OK ? 1 : KS_E_LENGTH;
    for (n = 0; n < batch->records_count; n++)
        if (ks_next_record(&at, end, batch, &record, fault) != KS_OK)
            return fault->status;
    return at == end ? n : ks_fail(fault, KS_E_COUNT, (size_t)(at - p), 0, end - at);
}

int main(int argc, char **argv)
{
    uint8_t *bytes;
    const uint8_t *p, *end;
    size_t size = 0;
    int64_t batches = 0, records = 0;
    ks_fault fault = {0};

    if (argc != 2 || (bytes = read_file(argv[1], &size)) == NULL) {
        fprintf(stderr, "usage: walk FILE.log\n");
        return 2;
    }
    for (p = bytes, end = bytes + size; p < end; batches++) {
        ks_batch batch;
        int64_t n;
        if (ks_check_batch(p, end, &batch, &fault) != KS_OK)
            break;
        n = count_records(p, &batch, &fault);
        if (n < -1)
            break;
        if (n < 0) /* compressed: what the header says, -1 if even that is unknown */
            n = batch.records_count;
        printf("%td magic %d offsets %lld %lld records %lld codec %d crc %08x\n", p - bytes, batch.magic,
               (long long)batch.base_offset, (long long)batch.last_offset, (long long)n, ks_codec(&batch),
               (unsigned)batch.crc);
        records += n > 0 ? n : 0;
        p += batch.size;
    }
    printf("%lld batches, %lld records, %td of %zu bytes\n", (long long)batches, (long long)records, p - bytes, size);
    if (fault.status != KS_OK)
        printf("status %d at byte %zu: expected %lld, found %lld\n", fault.status, (size_t)(p - bytes) + fault.at,
               (long long)fault.expected, (long long)fault.found);
    free(bytes);
    return fault.status != KS_OK;
}
