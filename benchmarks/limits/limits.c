// What a straight C loop reaches on this machine: no checks beyond the CRC, no locks, no API.
// The file is long because one program holds all workloads, so that they are compiled and timed alike.
// usage: limits DATA WORK    then on stdin "WORKLOAD ARG...", on stdout "NANOSECONDS UNITS CHECKSUM" for each
#include "common.h"
#include "../../include/kstore/crc32c.h"
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <sys/file.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

static const char *data, *work;
enum { WINDOW = 1 << 20 }; // bytes read at once; the kernel copies smaller pieces more slowly
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

// ---- writing: one file below WORK, no indexes, no locks, no checks but the CRC ------------------------------------

static char written[4096];

static int create(void) {
    snprintf(written, sizeof written, "%s/limits.log", work);
    unlink(written);
    int fd = open(written, O_CREAT | O_RDWR, 0644);
    if (fd < 0) die(written);
    return fd;
}

// Ends a turn: the size of the file, which is removed.
static uint64_t scrap(int fd) {
    struct stat s;
    if (fstat(fd, &s)) die(written);
    close(fd);
    unlink(written);
    return s.st_size;
}

static void put_all(int fd, const void *p, size_t n, off_t at) { if (pwrite(fd, p, n, at) != (ssize_t)n) die("pwrite"); }

static struct bytes load(const char *name, size_t most) {
    struct stat s;
    int fd = file(name);
    if (fstat(fd, &s)) die(name);
    struct bytes b = { NULL, (size_t)s.st_size < most ? (size_t)s.st_size : most };
    uint8_t *into = malloc(b.size);
    for (size_t at = 0; at < b.size;) { ssize_t n = pread(fd, into + at, b.size - at, at); if (n <= 0) die(name); at += n; }
    close(fd);
    b.at = into;
    return b;
}

// Batches that are encoded already: their CRC, and a pwrite for each `join` of them.
static struct sample append_batches(uint64_t bytes, uint64_t join) {
    struct bytes all = load("batched-0/00000000000000000000.log", bytes);
    int fd = create();
    size_t at = 0, from = 0, size;
    uint64_t t = now();
    for (uint64_t n = 0; at + HEADER <= all.size && at + (size = load32(all.at + at + 8) + 12) <= all.size; at += size) {
        if (n++ == join) { put_all(fd, all.at + from, at - from, from); from = at; n = 1; }
        if (ks_crc32c(0, all.at + at + 21, size - 21) != load32(all.at + at + 17)) die("CRC");
    }
    put_all(fd, all.at + from, at - from, from);
    t = now() - t;
    free((void *)all.at);
    uint64_t got = scrap(fd);
    return (struct sample){ t, got, got };
}

static inline int width(int64_t v) { uint64_t z = (uint64_t)v << 1 ^ v >> 63; return 1 + (63 - __builtin_clzll(z | 1)) / 7; }

// One batch: keys are the numbers of the rows, values the rows.
static size_t encode(uint8_t *b, int64_t base, int count, struct bytes pool) {
    uint8_t *p = b + HEADER;
    int64_t first = T0 + base / 10, last = T0 + (base + count - 1) / 10;
    size_t rows = pool.size / VALUE, row = base % rows;
    for (int i = 0; i < count; i++) {
        int64_t delta = T0 + (base + i) / 10 - first;
        p = put(p, 1 + width(delta) + width(i) + 1 + 8 + 2 + VALUE + 1);
        *p++ = 0;
        p = put(put(p, delta), i);
        p = store64(put(p, 8), row);
        p = put(p, VALUE);
        memcpy(p, pool.at + row * VALUE, VALUE);
        p += VALUE;
        *p++ = 0; // no headers
        if (++row == rows) row = 0;
    }
    size_t size = p - b;
    put_header(b, size, base, count, first, last);
    store32(b + 17, ks_crc32c(0, b + 21, size - 21));
    return size;
}

// Records to batches of `count` records, a pwrite for each batch.
static struct sample extend(uint64_t records, int count) {
    static uint8_t b[1 << 16];
    struct bytes pool = load("pool.bin", SIZE_MAX);
    int fd = create();
    off_t at = 0;
    uint64_t t = now();
    for (uint64_t i = 0; i < records; i += count) {
        size_t size = encode(b, i, count, pool);
        put_all(fd, b, size, at);
        at += size;
    }
    t = now() - t;
    free((void *)pool.at);
    return (struct sample){ t, records, scrap(fd) };
}

// The same size as batches of one record, and nothing else.
static struct sample pwrites(uint64_t count, uint64_t size) {
    uint8_t b[4096] = {0};
    int fd = create();
    uint64_t t = now();
    for (uint64_t i = 0; i < count; i++) put_all(fd, b, size, i * size);
    t = now() - t;
    return (struct sample){ t, count, scrap(fd) };
}

// Group commit: of the threads that wait, one writes and syncs for all.
enum { THREADS = 8 };
static struct {
    pthread_mutex_t mutex;
    pthread_cond_t changed;
    uint8_t waiting[THREADS * 512];
    size_t size;
    uint64_t taken, durable, each;
    off_t at;
    int leading, fd;
    struct bytes pool;
} commit = { .mutex = PTHREAD_MUTEX_INITIALIZER, .changed = PTHREAD_COND_INITIALIZER };

static void *committer(void *unused) {
    uint8_t mine[512], all[sizeof commit.waiting];
    (void)unused;
    for (uint64_t i = 0; i < commit.each; i++) {
        pthread_mutex_lock(&commit.mutex);
        size_t size = encode(mine, commit.taken, 1, commit.pool);
        memcpy(commit.waiting + commit.size, mine, size);
        commit.size += size;
        uint64_t number = ++commit.taken;
        while (commit.durable < number) {
            if (commit.leading) { pthread_cond_wait(&commit.changed, &commit.mutex); continue; }
            commit.leading = 1;
            uint64_t until = commit.taken;
            size_t n = commit.size;
            memcpy(all, commit.waiting, n);
            commit.size = 0;
            pthread_mutex_unlock(&commit.mutex);
            put_all(commit.fd, all, n, commit.at);
            if (fdatasync(commit.fd)) die("fdatasync");
            pthread_mutex_lock(&commit.mutex);
            commit.at += n;
            commit.durable = until;
            commit.leading = 0;
            pthread_cond_broadcast(&commit.changed);
        }
        pthread_mutex_unlock(&commit.mutex);
    }
    return NULL;
}

static struct sample durable(uint64_t records) {
    pthread_t threads[THREADS];
    commit.pool = load("pool.bin", SIZE_MAX);
    commit.fd = create();
    commit.taken = commit.durable = commit.at = 0;
    commit.each = records / THREADS;
    uint64_t t = now();
    for (int i = 0; i < THREADS; i++) if (pthread_create(&threads[i], NULL, committer, NULL)) die("thread");
    for (int i = 0; i < THREADS; i++) pthread_join(threads[i], NULL);
    t = now() - t;
    free((void *)commit.pool.at);
    return (struct sample){ t, records, scrap(commit.fd) };
}

// A thread that waits for each of its records.
static struct sample durable_alone(uint64_t records) {
    uint8_t b[512];
    struct bytes pool = load("pool.bin", SIZE_MAX);
    int fd = create();
    off_t at = 0;
    uint64_t t = now();
    for (uint64_t i = 0; i < records; i++) {
        size_t size = encode(b, i, 1, pool);
        put_all(fd, b, size, at);
        at += size;
        if (fdatasync(fd)) die("fdatasync");
    }
    t = now() - t;
    free((void *)pool.at);
    return (struct sample){ t, records, scrap(fd) };
}

// The least that recovery can cost: read all, and the CRC of each batch.
static struct sample recover(void) {
    static uint8_t buffer[WINDOW];
    int fd = file("batched-0/00000000000000000000.log");
    off_t at = 0;
    ssize_t n;
    uint64_t t = now();
    while ((n = pread(fd, buffer, WINDOW, at)) >= HEADER) {
        const uint8_t *b = buffer, *end = buffer + n;
        for (size_t size; end - b >= HEADER && (size = load32(b + 8) + 12) <= (size_t)(end - b); b += size) {
            uint32_t found = crc(b + 21, size - 21);
            sink += found; // or the compiler would leave three lanes out, whose number nobody compares
            if (folded && found != load32(b + 17)) die("CRC");
        }
        at += b - buffer;
    }
    t = now() - t;
    close(fd);
    return (struct sample){ t, at, at };
}

// Columns of offset, timestamp, key and value, 16,384 rows at a time in memory used again and again; `count` records from
// a position on; or of offset and timestamp alone. Nothing is checked but the CRC; the walk trusts every length.
struct part { off_t at; uint64_t count; int two; };

static void *scan_part(void *given) {
    enum { ROWS = 1 << 14 };
    static _Thread_local uint8_t buffer[WINDOW], keys[ROWS * 8 + 64], values[ROWS * VALUE + 64];
    static _Thread_local int64_t offsets[ROWS], times[ROWS];
    static _Thread_local int32_t key_ends[ROWS + 1], value_ends[ROWS + 1];
    struct part *part = given;
    int fd = file("batched-0/00000000000000000000.log");
    uint64_t rows = 0, units = 0, seen = 0;
    ssize_t n;
    for (off_t at = part->at; units < part->count && (n = pread(fd, buffer, WINDOW, at)) >= HEADER;) {
        const uint8_t *b = buffer, *end = buffer + n;
        for (size_t size; end - b >= HEADER && (size = load32(b + 8) + 12) <= (size_t)(end - b) && units < part->count; b += size) {
            if (ks_crc32c(0, b + 21, size - 21) != load32(b + 17)) die("CRC");
            int64_t base = load64(b), first = load64(b + 27), length, dt, delta, k, v;
            const uint8_t *q = b + HEADER;
            for (uint32_t left = load32(b + 57); left; left--) {
                if (rows == ROWS) { seen += keys[0] + values[0] + offsets[0] + times[0]; rows = 0; }
                q = get(get(get(q, &length) + 1, &dt), &delta);
                offsets[rows] = base + delta;
                times[rows] = first + dt;
                rows++;
                units++;
                const uint8_t *key = get(q, &k), *value = get(key + k, &v);
                q = value + v + 1;
                if (part->two) continue;
                memcpy(keys + key_ends[rows - 1], key, k);
                memcpy(values + value_ends[rows - 1], value, v);
                key_ends[rows] = key_ends[rows - 1] + k;
                value_ends[rows] = value_ends[rows - 1] + v;
            }
        }
        at += b - buffer;
    }
    part->count = units;
    part->at = seen;
    close(fd);
    return NULL;
}

static struct sample scan(uint64_t count, int two) {
    struct part all = { 0, count, two };
    uint64_t t = now();
    scan_part(&all);
    t = now() - t;
    sink += all.at;
    return (struct sample){ t, all.count, all.count };
}

// The bytes of so many records, brought into memory and not looked at.
static struct sample scan_pread(uint64_t count) {
    static _Alignas(4096) uint8_t buffer[WINDOW]; // or the kernel may copy at a third of the speed
    int fd = file("batched-0/00000000000000000000.log");
    if (pread(fd, buffer, HEADER, 0) != HEADER) die("pread");
    off_t end = (off_t)(count / load32(buffer + 57)) * (load32(buffer + 8) + 12);
    uint64_t t = now();
    for (off_t at = 0; at < end; at += WINDOW) if (pread(fd, buffer, WINDOW, at) <= 0) die("pread");
    t = now() - t;
    close(fd);
    return (struct sample){ t, count, count };
}

// Two threads take half of the batches each, which have all the same size.
static struct sample scan_two_threads(uint64_t count) {
    uint8_t first[HEADER];
    int fd = file("batched-0/00000000000000000000.log");
    if (pread(fd, first, HEADER, 0) != HEADER) die("pread");
    close(fd);
    uint64_t records = load32(first + 57), batches = count / records / 2;
    struct part half = { 0, batches * records, 0 }, rest = { (off_t)batches * (load32(first + 8) + 12), count - half.count, 0 };
    pthread_t thread;
    uint64_t t = now();
    if (pthread_create(&thread, NULL, scan_part, &half)) die("thread");
    scan_part(&rest);
    pthread_join(thread, NULL);
    t = now() - t;
    sink += half.at + rest.at;
    return (struct sample){ t, half.count + rest.count, half.count + rest.count };
}

static int by_name(const struct dirent **a, const struct dirent **b) { return strcmp((*a)->d_name, (*b)->d_name); }
static int is_log(const struct dirent *e) { return strstr(e->d_name, ".log") != NULL; }

// Compaction of all segments but the last: the last offset of each key in a table, then every batch again without the
// records that are superseded, as Kafka leaves it. Keys have 8 bytes, and are their own hash.
static struct sample compact(uint64_t keys) {
    static uint8_t in[WINDOW], out[2 * WINDOW];
    struct slot { uint64_t key, offset; } *table;
    struct dirent **names;
    char path[4096];
    int bits = 1;
    while (1ull << bits < 2 * keys) bits++;
    snprintf(path, sizeof path, "%s/compact-0", data);
    int count = scandir(path, &names, is_log, by_name) - 1;
    struct sample s = { now(), 0, 0 };
    table = malloc(sizeof *table << bits);
    memset(table, 255, sizeof *table << bits);
    snprintf(path, sizeof path, "%s/limits", work);
    int made = open(path, O_CREAT | O_TRUNC | O_WRONLY, 0644);
    if (made < 0 || !table) die(path);
    for (int pass = 0; pass < 2; pass++) {
        size_t filled = 0;
        for (int f = 0; f < count; f++) {
            snprintf(path, sizeof path, "compact-0/%s", names[f]->d_name);
            int fd = file(path);
            ssize_t n;
            for (off_t at = 0; (n = pread(fd, in, WINDOW, at)) > HEADER;) {
                const uint8_t *b = in, *end = in + n;
                for (size_t size; end - b > HEADER && (size = load32(b + 8) + 12) <= (size_t)(end - b); b += size) {
                    int64_t base = load64(b), first = load64(b + 27), moved = 0, largest = 0, length, dt, delta, key_size;
                    uint8_t *start = out + filled, *q = start + HEADER;
                    int kept = 0;
                    if (!pass) { sink += crc(b + 21, size - 21); s.units += size; }
                    const uint8_t *p = b + HEADER;
                    for (int i = load32(b + 57); i > 0; i--) {
                        p = get(p, &length);
                        const uint8_t *next = p + length;
                        p = get(get(get(p + 1, &dt), &delta), &key_size);
                        uint64_t k = load64(p), h = k * 0x9E3779B97F4A7C15u >> (64 - bits);
                        while (table[h].key != k && table[h].key != ~0ull) h = (h + 1) & ((1ull << bits) - 1);
                        if (!pass) table[h] = (struct slot){ k, base + delta };
                        else if (table[h].offset == (uint64_t)(base + delta)) {
                            if (!kept++) moved = dt;
                            largest = first + dt;
                            uint8_t record[32], *r = record;
                            *r++ = 0;
                            r = put(put(put(r, dt - moved), delta), key_size);
                            q = put(q, r - record + (next - p));
                            memcpy(q, record, r - record); q += r - record;
                            memcpy(q, p, next - p); q += next - p;
                        }
                        p = next;
                    }
                    if (kept) {
                        put_header(start, q - start, base, kept, first + moved, largest);
                        store32(start + 23, load32(b + 23)); // the last offset stays
                        store32(start + 17, crc(start + 21, q - start - 21));
                        filled = q - out;
                        s.sum += q - start;
                        if (filled > WINDOW) {
                            if (write(made, out, filled) != (ssize_t)filled) die("write");
                            filled = 0;
                        }
                    }
                }
                at += b - in;
            }
            close(fd);
        }
        if (write(made, out, filled) != (ssize_t)filled) die("write");
    }
    if (fdatasync(made)) die("fdatasync");
    s.ns = now() - s.ns;
    close(made);
    snprintf(path, sizeof path, "%s/limits", work);
    unlink(path);
    free(table);
    for (int f = 0; f <= count; f++) free(names[f]);
    free(names);
    return s;
}

// A lock of one byte, taken or given up.
static void lock(int fd, short kind, off_t at) {
    struct flock wanted = { .l_type = kind, .l_whence = SEEK_SET, .l_start = at, .l_len = 1 };
    if (fcntl(fd, F_SETLK, &wanted)) die("fcntl");
}

// What a commit of a cursor asks of the system, if it does not wait for the disk: a lock; are the lock file and the file of
// positions as they were; a batch; the lock is given up.
static struct sample commits(uint64_t count) {
    uint8_t batch[128] = {0};
    int fd = create(), locks;
    char path[4096];
    snprintf(path, sizeof path, "%s/locks", work);
    if ((locks = open(path, O_RDWR | O_CREAT | O_TRUNC, 0644)) < 0) die(path);
    lock(locks, F_WRLCK, 1); // the partition
    uint64_t t = now();
    for (uint64_t i = 0; i < count; i++) {
        if (flock(fd, LOCK_EX | LOCK_NB) < 0) die("flock");
        if (lseek(locks, 0, SEEK_END) != 0 || lseek(fd, 0, SEEK_END) != (off_t)(i * sizeof batch)) die("lseek");
        put_all(fd, batch, sizeof batch, i * sizeof batch);
        if (flock(fd, LOCK_UN) < 0) die("flock");
    }
    t = now() - t;
    close(locks);
    unlink(path);
    scrap(fd);
    return (struct sample){ t, count, count };
}

// Records by key to batches of LANES partitions, of up to 16 KiB, all in memory before the first is written: nothing is
// written if one of the records is wrong. With one lane a MiB is written when it is full, as to one log: it stays in the cache.
enum { LANES = 16, MOST = 16384, JOINED = 1 << 20 };
static struct lane { uint8_t *data, *batch, *p; int64_t base; int n, fd; off_t at; } lanes[LANES];

static uint32_t murmur2(const uint8_t *p) { // of eight bytes
    uint32_t h = 0x9747b28cu ^ 8;
    for (int i = 0; i < 8; i += 4) {
        uint32_t k;
        memcpy(&k, p + i, 4);
        k *= 0x5bd1e995u; k ^= k >> 24; k *= 0x5bd1e995u;
        h = h * 0x5bd1e995u ^ k;
    }
    h ^= h >> 13; h *= 0x5bd1e995u;
    return (h ^ h >> 15) & 0x7fffffff;
}

static void finish(struct lane *l, int64_t base, int64_t last) {
    put_header(l->batch, l->p - l->batch, base, l->n, l->base, last);
    store32(l->batch + 17, ks_crc32c(0, l->batch + 21, l->p - l->batch - 21));
    l->n = 0;
}

static struct sample deal(uint64_t records, int count) {
    struct bytes pool = load("pool.bin", SIZE_MAX);
    static uint8_t *room, *keys;
    static uint8_t numbers[1 << 20];
    uint64_t counts[LANES] = {0};
    if (records > sizeof numbers) { errno = E2BIG; die("records"); }
    if (!room) { // the memory is there from the first turn on, as that of the pool of buffers is
        room = malloc(records * 130 + LANES * MOST + JOINED);
        keys = malloc(records * 8);
        for (uint64_t i = 0; i < records; i++) store64(keys + 8 * i, i);
    }
    for (int i = 0; i < count; i++) lanes[i] = (struct lane){ .fd = create() };
    uint64_t t = now();
    if (count > 1) for (uint64_t i = 0; i < records; i++) counts[numbers[i] = murmur2(keys + 8 * i) % LANES]++;
    uint8_t *next = room;
    for (int i = 0; i < count; i++) {
        lanes[i].data = lanes[i].batch = next;
        lanes[i].p = next + HEADER;
        next += counts[i] * 130 + (count > 1 ? MOST : JOINED);
    }
    for (uint64_t i = 0; i < records; i++) {
        struct lane *l = &lanes[count > 1 ? numbers[i] : 0];
        int64_t at = T0 + i / 10;
        if (l->n && l->p - l->batch + 10 + 9 + 2 + VALUE > MOST) {
            finish(l, 0, at);
            if (count == 1 && l->p - l->data > JOINED - MOST) {
                put_all(l->fd, l->data, l->p - l->data, l->at);
                l->at += l->p - l->data;
                l->p = l->data;
            }
            l->batch = l->p;
            l->p += HEADER;
        }
        if (!l->n) l->base = at;
        uint8_t *p = put(l->p, 1 + width(at - l->base) + width(l->n) + 1 + 8 + 2 + VALUE + 1);
        *p++ = 0;
        p = put(put(p, at - l->base), l->n);
        p = put(p, 8);
        memcpy(p, keys + 8 * i, 8);
        p = put(p + 8, VALUE);
        memcpy(p, pool.at + i % (pool.size / VALUE) * VALUE, VALUE);
        p[VALUE] = 0; // no headers
        l->p = p + VALUE + 1;
        l->n++;
    }
    for (int i = 0; i < count; i++) {
        if (lanes[i].n) finish(&lanes[i], 0, T0 + records / 10);
        put_all(lanes[i].fd, lanes[i].data, lanes[i].p - lanes[i].data, lanes[i].at);
    }
    t = now() - t;
    for (int i = 0; i < count; i++) scrap(lanes[i].fd);
    free((void *)pool.at);
    return (struct sample){ t, records, records };
}

int main(int argc, char **argv) {
    if (argc != 3) return 2;
    data = argv[1];
    work = argv[2];
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
        else if (!strcmp(name, "append_batches")) s = append_batches(a, b);
        else if (!strcmp(name, "extend")) s = extend(b, 138);
        else if (!strcmp(name, "append")) s = extend(a, 1);
        else if (!strcmp(name, "pwrites")) s = pwrites(a, b);
        else if (!strcmp(name, "durable")) s = durable(a);
        else if (!strcmp(name, "durable_alone")) s = durable_alone(a);
        else if (!strcmp(name, "recover")) s = recover();
        else if (!strcmp(name, "compact")) s = compact(a);
        else if (!strcmp(name, "scan")) s = scan(b, 0);
        else if (!strcmp(name, "scan_two_columns")) s = scan(b, 1);
        else if (!strcmp(name, "scan_pread")) s = scan_pread(b);
        else if (!strcmp(name, "scan_two_threads")) s = scan_two_threads(b);
        else if (!strcmp(name, "commits")) s = commits(a);
        else if (!strcmp(name, "deal")) s = deal(a, LANES);
        else if (!strcmp(name, "deal_one")) s = deal(a, 1);
        else { puts("unknown workload"); fflush(stdout); continue; }
        printf("%lu %lu %lu\n", s.ns, s.units, s.sum);
        fflush(stdout);
    }
    return 0;
}
