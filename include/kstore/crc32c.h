/* CRC-32C (Castagnoli), the checksum of record batches v2 and of producer snapshots.
 *
 * ks_crc32c(0, data, size) is the checksum of data; pass an earlier result instead of 0 to go on from it.
 * Header only: C99 or C++11, nothing to link. The variants are chosen per call by what the processor has (one load
 * and a test); all give one result, and each can be called by name, which is how the tests compare them.
 *
 * The fast variants fold: a register of 128 bits is multiplied, without carries, by x^D modulo the polynomial, which
 * moves it D bits further down the message, and is added to the data found there. KS_CRC_FOLD_* are these powers,
 * bit-reflected: x^(D+31) for the low and x^(D-33) for the high half of a register. The last 128 bits are brought
 * down to 32 by the CRC instruction itself. */
#ifndef KSTORE_CRC32C_H
#define KSTORE_CRC32C_H

#include <stddef.h>
#include <stdint.h>
#include <string.h>

#if defined(__x86_64__) && defined(__GNUC__)
#define KS_CRC32C_X86 1
#include <immintrin.h>
#elif defined(__aarch64__) && defined(__ARM_FEATURE_CRC32)
#define KS_CRC32C_ARM 1
#include <arm_acle.h>
#endif

/* Portable: half a byte a step over a table of 16. Slow, and right everywhere. */
static inline uint32_t ks_crc32c_portable(uint32_t crc, const void *data, size_t size)
{
    static const uint32_t table[16] = {
        0x00000000u, 0x105ec76fu, 0x20bd8edeu, 0x30e349b1u, 0x417b1dbcu, 0x5125dad3u, 0x61c69362u, 0x7198540du,
        0x82f63b78u, 0x92a8fc17u, 0xa24bb5a6u, 0xb21572c9u, 0xc38d26c4u, 0xd3d3e1abu, 0xe330a81au, 0xf36e6f75u,
    };
    const uint8_t *p = (const uint8_t *)data, *end = p + size;
    crc = ~crc;
    for (; p != end; p++) {
        crc ^= *p;
        crc = (crc >> 4) ^ table[crc & 15];
        crc = (crc >> 4) ^ table[crc & 15];
    }
    return ~crc;
}

#ifdef KS_CRC32C_X86

/* The CRC instruction, eight bytes a step: the tails of the folding variants. `state` is the inverted CRC. */
__attribute__((target("sse4.2"))) static inline uint32_t ks_crc32c_step(uint32_t state, const uint8_t *p, size_t size)
{
    uint64_t wide = state;
    for (; size >= 8; p += 8, size -= 8) {
        uint64_t word;
        memcpy(&word, p, 8);
        wide = _mm_crc32_u64(wide, word);
    }
    state = (uint32_t)wide;
    for (; size; p++, size--)
        state = _mm_crc32_u8(state, *p);
    return state;
}

__attribute__((target("sse4.2"))) static inline uint32_t ks_crc32c_sse42(uint32_t crc, const void *data, size_t size)
{
    return ~ks_crc32c_step(~crc, (const uint8_t *)data, size);
}

#define KS_CRC_FOLD_128 0x493c7d27, 0xf20c0dfe
#define KS_CRC_FOLD_256 0xba4fc28e, 0x3da6d0cb
#define KS_CRC_FOLD_512 0x9e4addf8, 0x740eef02
#define KS_CRC_FOLD_1024 0x0d3b6092, 0x6992cea2
#define KS_CRC_FOLD_2048 0xb9e02b86, 0xdcb17aa4

__attribute__((target("sse4.2"))) static inline __m128i ks_crc_load128(const uint8_t *p)
{
    return _mm_loadu_si128((const __m128i *)(const void *)p);
}

__attribute__((target("sse4.2,pclmul"))) static inline __m128i ks_crc_fold128(__m128i x, __m128i k, __m128i next)
{
    return _mm_xor_si128(_mm_xor_si128(_mm_clmulepi64_si128(x, k, 0x00), _mm_clmulepi64_si128(x, k, 0x11)), next);
}

__attribute__((target("sse4.2"))) static inline uint32_t ks_crc_finish128(__m128i x, const uint8_t *p, size_t size)
{
    uint64_t wide = _mm_crc32_u64(0, (uint64_t)_mm_cvtsi128_si64(x));
    wide = _mm_crc32_u64(wide, (uint64_t)_mm_extract_epi64(x, 1));
    return ~ks_crc32c_step((uint32_t)wide, p, size);
}

/* Four registers of 128 bits, 64 bytes a step. */
__attribute__((target("sse4.2,pclmul"))) static inline uint32_t ks_crc32c_pclmul(uint32_t crc, const void *data,
                                                                                size_t size)
{
    const uint8_t *p = (const uint8_t *)data;
    const __m128i far = _mm_set_epi64x(KS_CRC_FOLD_512), near = _mm_set_epi64x(KS_CRC_FOLD_128);
    __m128i a, b, c, d;
    if (size < 128)
        return ks_crc32c_sse42(crc, data, size);
    a = _mm_xor_si128(ks_crc_load128(p), _mm_cvtsi32_si128((int)~crc));
    b = ks_crc_load128(p + 16);
    c = ks_crc_load128(p + 32);
    d = ks_crc_load128(p + 48);
    for (p += 64, size -= 64; size >= 64; p += 64, size -= 64) {
        a = ks_crc_fold128(a, far, ks_crc_load128(p));
        b = ks_crc_fold128(b, far, ks_crc_load128(p + 16));
        c = ks_crc_fold128(c, far, ks_crc_load128(p + 32));
        d = ks_crc_fold128(d, far, ks_crc_load128(p + 48));
    }
    b = ks_crc_fold128(a, near, b);
    c = ks_crc_fold128(b, near, c);
    d = ks_crc_fold128(c, near, d);
    return ks_crc_finish128(d, p, size);
}

#define KS_CRC_AVX2 "sse4.2,pclmul,vpclmulqdq,avx2"

__attribute__((target(KS_CRC_AVX2))) static inline __m256i ks_crc_load256(const uint8_t *p)
{
    return _mm256_loadu_si256((const __m256i *)(const void *)p);
}

__attribute__((target(KS_CRC_AVX2))) static inline __m256i ks_crc_fold256(__m256i x, __m256i k, __m256i next)
{
    return _mm256_xor_si256(
        _mm256_xor_si256(_mm256_clmulepi64_epi128(x, k, 0x00), _mm256_clmulepi64_epi128(x, k, 0x11)), next);
}

/* Four registers of 256 bits, 128 bytes a step. */
__attribute__((target(KS_CRC_AVX2))) static inline uint32_t ks_crc32c_avx2(uint32_t crc, const void *data, size_t size)
{
    const uint8_t *p = (const uint8_t *)data;
    const __m256i far = _mm256_broadcastsi128_si256(_mm_set_epi64x(KS_CRC_FOLD_1024));
    const __m256i mid = _mm256_broadcastsi128_si256(_mm_set_epi64x(KS_CRC_FOLD_256));
    const __m128i near = _mm_set_epi64x(KS_CRC_FOLD_128);
    __m256i a, b, c, d;
    if (size < 256)
        return ks_crc32c_pclmul(crc, data, size);
    a = _mm256_xor_si256(ks_crc_load256(p), _mm256_zextsi128_si256(_mm_cvtsi32_si128((int)~crc)));
    b = ks_crc_load256(p + 32);
    c = ks_crc_load256(p + 64);
    d = ks_crc_load256(p + 96);
    for (p += 128, size -= 128; size >= 128; p += 128, size -= 128) {
        a = ks_crc_fold256(a, far, ks_crc_load256(p));
        b = ks_crc_fold256(b, far, ks_crc_load256(p + 32));
        c = ks_crc_fold256(c, far, ks_crc_load256(p + 64));
        d = ks_crc_fold256(d, far, ks_crc_load256(p + 96));
    }
    b = ks_crc_fold256(a, mid, b);
    c = ks_crc_fold256(b, mid, c);
    d = ks_crc_fold256(c, mid, d);
    for (; size >= 32; p += 32, size -= 32)
        d = ks_crc_fold256(d, mid, ks_crc_load256(p));
    return ks_crc_finish128(ks_crc_fold128(_mm256_castsi256_si128(d), near, _mm256_extracti128_si256(d, 1)), p, size);
}

#define KS_CRC_AVX512 "sse4.2,pclmul,vpclmulqdq,avx512f,avx512vl"

/* The forms with a mask of ones: g++ 12 warns of uninitialized values inside its own headers for the plain ones. */
#define KS_CRC_WIDE(pair) _mm512_maskz_broadcast_i32x4((__mmask16)0xffff, _mm_set_epi64x(pair))
#define KS_CRC_PART(x, at) _mm512_maskz_extracti32x4_epi32((__mmask8)0xff, x, at)

__attribute__((target(KS_CRC_AVX512))) static inline __m512i ks_crc_fold512(__m512i x, __m512i k, __m512i next)
{
    return _mm512_ternarylogic_epi64(_mm512_clmulepi64_epi128(x, k, 0x00), _mm512_clmulepi64_epi128(x, k, 0x11), next,
                                     0x96);
}

/* Four registers of 512 bits, 256 bytes a step. */
__attribute__((target(KS_CRC_AVX512))) static inline uint32_t ks_crc32c_avx512(uint32_t crc, const void *data,
                                                                              size_t size)
{
    const uint8_t *p = (const uint8_t *)data;
    const __m512i far = KS_CRC_WIDE(KS_CRC_FOLD_2048);
    const __m512i mid = KS_CRC_WIDE(KS_CRC_FOLD_512);
    const __m128i near = _mm_set_epi64x(KS_CRC_FOLD_128);
    __m512i a, b, c, d;
    __m128i x;
    if (size < 512)
        return ks_crc32c_avx2(crc, data, size);
    a = _mm512_xor_si512(_mm512_loadu_si512(p), _mm512_zextsi128_si512(_mm_cvtsi32_si128((int)~crc)));
    b = _mm512_loadu_si512(p + 64);
    c = _mm512_loadu_si512(p + 128);
    d = _mm512_loadu_si512(p + 192);
    for (p += 256, size -= 256; size >= 256; p += 256, size -= 256) {
        a = ks_crc_fold512(a, far, _mm512_loadu_si512(p));
        b = ks_crc_fold512(b, far, _mm512_loadu_si512(p + 64));
        c = ks_crc_fold512(c, far, _mm512_loadu_si512(p + 128));
        d = ks_crc_fold512(d, far, _mm512_loadu_si512(p + 192));
    }
    b = ks_crc_fold512(a, mid, b);
    c = ks_crc_fold512(b, mid, c);
    d = ks_crc_fold512(c, mid, d);
    for (; size >= 64; p += 64, size -= 64)
        d = ks_crc_fold512(d, mid, _mm512_loadu_si512(p));
    x = ks_crc_fold128(KS_CRC_PART(d, 0), near, KS_CRC_PART(d, 1));
    x = ks_crc_fold128(x, near, KS_CRC_PART(d, 2));
    x = ks_crc_fold128(x, near, KS_CRC_PART(d, 3));
    return ks_crc_finish128(x, p, size);
}

#endif /* KS_CRC32C_X86 */

#ifdef KS_CRC32C_ARM
static inline uint32_t ks_crc32c_arm(uint32_t crc, const void *data, size_t size)
{
    const uint8_t *p = (const uint8_t *)data;
    crc = ~crc;
    for (; size >= 8; p += 8, size -= 8) {
        uint64_t word;
        memcpy(&word, p, 8);
        crc = __crc32cd(crc, word);
    }
    for (; size; p++, size--)
        crc = __crc32cb(crc, *p);
    return ~crc;
}
#endif

/* The checksum of `size` bytes, going on from `crc` (0 to begin). */
static inline uint32_t ks_crc32c(uint32_t crc, const void *data, size_t size)
{
#if defined(KS_CRC32C_X86)
    if (__builtin_cpu_supports("vpclmulqdq") && __builtin_cpu_supports("avx512vl"))
        return ks_crc32c_avx512(crc, data, size);
    if (__builtin_cpu_supports("vpclmulqdq") && __builtin_cpu_supports("avx2"))
        return ks_crc32c_avx2(crc, data, size);
    if (__builtin_cpu_supports("pclmul") && __builtin_cpu_supports("sse4.2"))
        return ks_crc32c_pclmul(crc, data, size);
    if (__builtin_cpu_supports("sse4.2"))
        return ks_crc32c_sse42(crc, data, size);
#elif defined(KS_CRC32C_ARM)
    return ks_crc32c_arm(crc, data, size);
#endif
    return ks_crc32c_portable(crc, data, size);
}

#endif
