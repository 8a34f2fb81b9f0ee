// Shared by the fixtures and the limits: clock, big-endian fields, varints, deterministic numbers.
#pragma once
#define _GNU_SOURCE
#include <nmmintrin.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

enum { VALUE = 100, HEADER = 61 };
static const int64_t T0 = 1700000000000; // timestamp of offset 0; ten records a millisecond

static inline void die(const char *what) { perror(what); exit(1); }
static inline uint32_t load32(const uint8_t *p) { uint32_t v; memcpy(&v, p, 4); return __builtin_bswap32(v); }
static inline uint64_t load64(const uint8_t *p) { uint64_t v; memcpy(&v, p, 8); return __builtin_bswap64(v); }
static inline uint8_t *store16(uint8_t *p, uint16_t v) { v = __builtin_bswap16(v); memcpy(p, &v, 2); return p + 2; }
static inline uint8_t *store32(uint8_t *p, uint32_t v) { v = __builtin_bswap32(v); memcpy(p, &v, 4); return p + 4; }
static inline uint8_t *store64(uint8_t *p, uint64_t v) { v = __builtin_bswap64(v); memcpy(p, &v, 8); return p + 8; }

// The header of a batch without a producer; its CRC is put at byte 17, behind the rest.
static inline void put_header(uint8_t *batch, size_t size, int64_t base, int count, int64_t first, int64_t last) {
    uint8_t *p = store64(batch, base);
    p = store32(p, size - 12);
    p = store32(p, 0); // leader epoch
    *p = 2;            // magic; the CRC follows
    p = store16(batch + 21, 0);
    p = store32(p, count - 1);
    p = store64(p, first);
    p = store64(p, last);
    p = store64(p, -1); // no producer
    p = store16(p, -1);
    p = store32(p, -1);
    store32(p, count);
}

// splitmix64, the same in data.py and Peer.java
static inline uint64_t mix(uint64_t z) {
    z += 0x9E3779B97F4A7C15u;
    z = (z ^ z >> 30) * 0xBF58476D1CE4E5B9u;
    z = (z ^ z >> 27) * 0x94D049BB133111EBu;
    return z ^ z >> 31;
}

static inline uint8_t *put(uint8_t *p, int64_t v) {
    uint64_t z = (uint64_t)v << 1 ^ v >> 63;
    for (; z > 127; z >>= 7) *p++ = z | 128;
    *p++ = z;
    return p;
}

static inline const uint8_t *get(const uint8_t *p, int64_t *v) {
    uint64_t z = *p++;
    if (z > 127) {
        z &= 127;
        for (int s = 7;; s += 7) { uint64_t b = *p++; z |= (b & 127) << s; if (b < 128) break; }
    }
    *v = (int64_t)(z >> 1) ^ -(int64_t)(z & 1);
    return p;
}
