// Writes one partition directory byte for byte as Kafka 4.3 would leave it after a clean shutdown.
// usage: fixtures DIR RECORDS_PER_BATCH BATCHES_PER_SEGMENT SEGMENTS [KEYS]    prints the log end offset
// Record i: key = i (8 bytes, big-endian), value = 100 bytes made from i, timestamp = T0 + i / 10. With KEYS there are so
// many keys, in no order, and the active segment has one batch.
#include "common.h"
#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

enum { INTERVAL = 4096 }; // index.interval.bytes

static uint32_t crc32c(const uint8_t *p, size_t n) {
    uint64_t c = ~0u;
    for (; n >= 8; p += 8, n -= 8) { uint64_t v; memcpy(&v, p, 8); c = _mm_crc32_u64(c, v); }
    while (n--) c = _mm_crc32_u8(c, *p++);
    return ~(uint32_t)c;
}

static size_t encode(uint8_t *batch, int64_t base, int count, uint64_t keys) {
    uint8_t record[VALUE + 64], *end = batch + HEADER;
    int64_t first = T0 + base / 10, last = T0 + (base + count - 1) / 10;
    for (int i = 0; i < count; i++) {
        uint8_t *p = record;
        *p++ = 0;
        p = put(p, T0 + (base + i) / 10 - first);
        p = put(p, i);
        p = store64(put(p, 8), keys ? mix(base + i) % keys : (uint64_t)(base + i));
        p = put(p, VALUE);
        for (int k = 0; k < VALUE; k += 4, p += 4) { uint32_t v = mix((base + i) * 25 + k / 4); memcpy(p, &v, 4); }
        *p++ = 0; // no headers
        end = put(end, p - record);
        memcpy(end, record, p - record);
        end += p - record;
    }
    size_t size = end - batch;
    put_header(batch, size, base, count, first, last);
    store32(batch + 17, crc32c(batch + 21, size - 21));
    return size;
}

static void save(const char *dir, const char *name, const void *bytes, size_t n) {
    char path[8192];
    snprintf(path, sizeof path, "%s/%s", dir, name);
    FILE *f = fopen(path, "wb");
    if (!f || fwrite(bytes, 1, n, f) != n || fclose(f)) die(path);
}

int main(int argc, char **argv) {
    if (argc != 5 && argc != 6) return 2;
    const char *dir = argv[1];
    int records = atoi(argv[2]), segments = atoi(argv[4]);
    long batches = atol(argv[3]), keys = argc == 6 ? atol(argv[5]) : 0;
    uint8_t *batch = malloc(HEADER + records * (VALUE + 64L));
    uint8_t *index = malloc(8 * batches), *times = malloc(12 * (batches + 1));
    int64_t offset = 0;
    if (mkdir(dir, 0755)) die(dir);
    for (int s = 0; s < segments; s++) {
        char path[4096];
        int64_t base = offset, largest = -1, largest_at = 0, noted = -1;
        size_t at = 0, since = 0;
        uint8_t *i = index, *t = times;
        snprintf(path, sizeof path, "%s/%020ld.log", dir, (long)base);
        FILE *f = fopen(path, "wb");
        if (!f || setvbuf(f, NULL, _IOFBF, 1 << 20)) die(path); // in large writes, as the page cache likes it, like kstore
        for (long b = 0; b < (keys && s == segments - 1 ? 1 : batches); b++) {
            size_t size = encode(batch, offset, records, keys);
            int64_t last = offset + records - 1, timestamp = T0 + last / 10;
            if (timestamp > largest) { largest = timestamp; largest_at = last - base; }
            if (since > INTERVAL) {
                i = store32(store32(i, last - base), at);
                if (largest > noted) { t = store32(store64(t, largest), largest_at); noted = largest; }
                since = 0;
            }
            if (fwrite(batch, 1, size, f) != size) die(path);
            at += size;
            since += size;
            offset += records;
        }
        if (largest > noted) t = store32(store64(t, largest), largest_at); // at close
        if (fclose(f)) die(path);
        snprintf(path, sizeof path, "%020ld.index", (long)base);
        save(dir, path, index, i - index);
        snprintf(path, sizeof path, "%020ld.timeindex", (long)base);
        save(dir, path, times, t - times);
    }
    uint8_t snapshot[10] = {0, 1}; // no producers
    store32(snapshot + 2, crc32c(snapshot + 6, 4));
    char name[64];
    snprintf(name, sizeof name, "%020ld.snapshot", (long)offset);
    save(dir, name, snapshot, sizeof snapshot);
    save(dir, "leader-epoch-checkpoint", "0\n1\n0 0\n", 8);
    static const char id[] = "version: 0\ntopic_id: kstoreBenchmarksAAAAAA";
    save(dir, "partition.metadata", id, sizeof id - 1);
    printf("%ld\n", (long)offset);
    return 0;
}
