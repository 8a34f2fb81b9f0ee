from libc.stdint cimport int64_t
from posix.time cimport CLOCK_MONOTONIC, clock_gettime, timespec


cdef enum:
    TIMED = 24     # buckets of a histogram: up to 1024 ns, 2048 ns, and so on; the last has the rest

cdef enum:
    RECORDS_IN     # places among the totals; the store knows the others
    BYTES_IN
    RECORDS_OUT
    BYTES_OUT
    COUNTED = 11

cdef struct ks_times:
    int64_t counts[TIMED]
    int64_t sum_ns


cdef inline int64_t monotonic_ns() noexcept nogil:
    cdef timespec t
    clock_gettime(CLOCK_MONOTONIC, &t)
    return <int64_t>t.tv_sec * 1000000000 + t.tv_nsec


cdef inline void took(ks_times *times, int64_t since) noexcept nogil:
    cdef int64_t ns = max(monotonic_ns() - since, <int64_t>0)
    cdef int64_t least = 1024
    cdef int at = 0
    times.sum_ns += ns
    while at < TIMED - 1 and ns > least:
        at += 1
        least *= 2
    times.counts[at] += 1


cdef class Traffic:
    cdef int64_t totals[COUNTED]
    cdef ks_times appends
    cdef ks_times syncs
