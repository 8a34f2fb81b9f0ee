// What a straight C loop reaches on this machine: no checks beyond the CRC, no locks, no API.
// usage: limits DATA    then on stdin "WORKLOAD ARG...", on stdout "NANOSECONDS UNITS CHECKSUM" for each
#include "common.h"
#include "../../include/kstore/crc32c.h"
#include <dirent.h>
#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

static const char *data;
struct sample { uint64_t ns, units, sum; };
struct bytes { const uint8_t *at; size_t size; };
struct segment { int log; struct bytes index, times; };

static uint64_t now(void) { struct timespec t; clock_gettime(CLOCK_MONOTONIC, &t); return t.tv_sec * 1000000000ull + t.tv_nsec; }
static volatile uint32_t sink;

// CRC-32C in three lanes of the CRC instruction. They are not joined: the cost of a perfect loop, not its number.
static uint32_t three_lanes(const uint8_t *p, size_t n) {
    uint64_t a = ~0u, b = 0, c = 0;
    size_t lane = n / 24 * 8;
    for (size_t i = 0; i < lane; i += 8) {
        uint64_t x, y, z;
        memcpy(&x, p + i, 8); memcpy(&y, p + lane + i, 8); memcpy(&z, p + 2 * lane + i, 8);
        a = _mm_crc32_u64(a, x); b = _mm_crc32_u64(b, y); c = _mm_crc32_u64(c, z);
    }
    for (size_t i = 3 * lane; i < n; i++) a = _mm_crc32_u8(a, p[i]);
    return a ^ b ^ c;
}

// Workloads named ..._folded take the carry-less multiplication of kstore's C header instead, where the CPU has it.
static int folded;
static uint32_t crc(const uint8_t *p, size_t n) { return folded ? ks_crc32c(0, p, n) : three_lanes(p, n); }

static int file(const char *name) {
    char path[4096];
    snprintf(path, sizeof path, "%s/%s", data, name);
    int fd = open(path, O_RDONLY);
    if (fd < 0) die(path);
    return fd;
}

static struct bytes map(const char *name) {
    struct stat s;
    int fd = file(name);
    if (fstat(fd, &s)) die(name);
    struct bytes b = { mmap(0, s.st_size, PROT_READ, MAP_SHARED | MAP_POPULATE, fd, 0), s.st_size };
    if (b.at == MAP_FAILED) die(name);
    close(fd);
    return b;
}

static struct segment *batched(void) {
    static struct segment s;
    if (!s.index.at) s = (struct segment){ file("batched-0/00000000000000000000.log"),
        map("batched-0/00000000000000000000.index"), map("batched-0/00000000000000000000.timeindex") };
    return &s;
}

static const uint8_t *floor_offset(struct bytes index, uint32_t want) {
    const uint8_t *low = index.at;
    for (size_t n = index.size / 8; n > 1; n -= n / 2) low += load32(low + 8 * (n / 2)) <= want ? 8 * (n / 2) : 0;
    return low;
}

static const uint8_t *floor_time(struct bytes index, uint64_t want) {
    const uint8_t *low = index.at;
    for (size_t n = index.size / 12; n > 1; n -= n / 2) low += load64(low + 12 * (n / 2)) <= want ? 12 * (n / 2) : 0;
    return low;
}

static struct sample checksums(uint64_t size, uint64_t times) {
    uint8_t *buffer = malloc(size);
    memset(buffer, 7, size);
    uint64_t t = now();
    for (uint64_t i = 0; i < times; i++) sink += crc(buffer, size);
    t = now() - t;
    free(buffer);
    return (struct sample){ t, size * times, size * times };
}

static struct sample headers(void) {
    enum { WINDOW = 1 << 20 };
    static uint8_t buffer[WINDOW];
    int fd = file("single-0/00000000000000000000.log");
    struct sample s = { now(), 0, 0 };
    ssize_t n;
    for (off_t at = 0; (n = pread(fd, buffer, WINDOW, at)) >= HEADER;) {
        const uint8_t *b = buffer, *end = buffer + n;
        for (size_t size; end - b >= HEADER && (size = load32(b + 8) + 12) <= (size_t)(end - b); b += size) {
            s.sum += load64(b) + load32(b + 23) + load64(b + 35);
            s.units++;
        }
        at += b - buffer;
    }
    s.ns = now() - s.ns;
    close(fd);
    return s;
}

static struct sample lookup(uint64_t seed, uint64_t times, uint64_t span) {
    struct bytes index = batched()->index;
    uint32_t *want = malloc(4 * times);
    for (uint64_t i = 0; i < times; i++) want[i] = mix(seed + i) % span;
    struct sample s = { now(), times, 0 };
    for (uint64_t i = 0; i < times; i++) {
        const uint8_t *e = floor_offset(index, want[i]);
        s.sum += load32(e) <= want[i] ? load32(e + 4) : 0;
    }
    s.ns = now() - s.ns;
    free(want);
    return s;
}

// From the batch that the indexes name: header by header to the batch wanted, its CRC, record by record to the record.
// Returns the record's offset.
static uint64_t read_one(struct segment *s, const uint8_t *entry, uint64_t offset, uint64_t time) {
    static uint8_t b[1 << 16];
    uint64_t first = load32(s->index.at);
    off_t at = offset >= first || load32(entry) > first ? load32(entry + 4) : 0;
    for (;;) {
        if (pread(s->log, b, HEADER, at) != HEADER) die("header");
        size_t size = load32(b + 8) + 12;
        if (time ? load64(b + 35) < time : load64(b) + load32(b + 23) < offset) { at += size; continue; }
        if (size > sizeof b || pread(s->log, b, size, at) != (ssize_t)size) die("batch");
        sink += crc(b + 21, size - 21);
        const uint8_t *q = b + HEADER;
        for (;;) {
            int64_t length, dt, delta;
            q = get(q, &length);
            get(get(q + 1, &dt), &delta);
            if (time ? load64(b + 27) + dt >= time : load64(b) + delta >= offset) { sink += q[length - 2]; return load64(b) + delta; }
            q += length;
        }
    }
}

static struct sample read_many(int by_time, uint64_t seed, uint64_t times, uint64_t span) {
    struct segment *g = batched();
    uint64_t *want = malloc(8 * times);
    for (uint64_t i = 0; i < times; i++) want[i] = mix(seed + i) % span;
    struct sample s = { now(), times, 0 };
    for (uint64_t i = 0; i < times; i++) {
        if (by_time) {
            uint64_t time = T0 + want[i] / 10;
            const uint8_t *e = floor_time(g->times, time);
            s.sum += read_one(g, floor_offset(g->index, load64(e) <= time ? load32(e + 8) : 0), 0, time);
        } else {
            s.sum += read_one(g, floor_offset(g->index, want[i]), want[i], 0);
        }
    }
    s.ns = now() - s.ns;
    free(want);
    return s;
}

// The least that opening can cost: read the directory, ask for the size of every .log file.
static struct sample open_sealed(void) {
    char path[4096];
    snprintf(path, sizeof path, "%s/sealed-0", data);
    struct sample s = { now(), 1, 0 };
    DIR *d = opendir(path);
    if (!d) die(path);
    struct stat st;
    for (struct dirent *e; (e = readdir(d));) {
        size_t n = strlen(e->d_name);
        if (n > 4 && !strcmp(e->d_name + n - 4, ".log") && !fstatat(dirfd(d), e->d_name, &st, 0)) { sink += st.st_size; s.sum++; }
    }
    closedir(d);
    s.ns = now() - s.ns;
    return s;
}

int main(int argc, char **argv) {
    if (argc != 2) return 2;
    data = argv[1];
    printf("gcc %s\n", __VERSION__);
    fflush(stdout);
    char line[256], name[64];
    while (fgets(line, sizeof line, stdin)) {
        uint64_t a = 0, b = 0, c = 0;
        sscanf(line, "%63s %lu %lu %lu", name, &a, &b, &c);
        struct sample s;
        char *suffix = strstr(name, "_folded");
        folded = suffix != NULL;
        if (suffix) *suffix = 0;
        if (!strcmp(name, "crc32c")) s = checksums(a, b);
        else if (!strcmp(name, "headers")) s = headers();
        else if (!strcmp(name, "lookup")) s = lookup(a, b, c);
        else if (!strcmp(name, "get")) s = read_many(0, a, b, c);
        else if (!strcmp(name, "find")) s = read_many(1, a, b, c);
        else if (!strcmp(name, "open")) s = open_sealed();
        else { puts("unknown workload"); fflush(stdout); continue; }
        printf("%lu %lu %lu\n", s.ns, s.units, s.sum);
        fflush(stdout);
    }
    return 0;
}
