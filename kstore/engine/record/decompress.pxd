from libc.stdint cimport int64_t, uint8_t


cdef object decompress_at(int codec, int magic, const uint8_t *p, int64_t size, int64_t limit)
