from libc.stdint cimport int64_t


cpdef bytearray unpack(int codec, int magic, bytes data, int64_t limit)
