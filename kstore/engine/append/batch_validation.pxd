from libc.stdint cimport int64_t, uint8_t

from libkstore.format cimport ks_batch

# What the rules of a log say of batches that come in (spec 6.3, 6.5).
cdef struct ks_rules:
    bint follower            # offsets are kept
    bint client              # as from a producer
    int64_t max_message_bytes
    int64_t unpacked_max     # bytes: what readers make of a batch at most
    int64_t before_max_ms
    int64_t after_max_ms
    bint log_append_time
    bint keys_required
    int codec                # what batches must be packed with; -1: as they come
    int64_t newest_epoch     # a follower leaves batches of later epochs; -1: takes all

# What was found in them.
cdef struct ks_arrival:
    int64_t size             # bytes of the whole batches
    int64_t count
    int64_t first_offset     # -1 where only the last one is known (magic 0 and 1)
    int64_t first_last_offset
    ks_batch last            # its header
    int64_t max_timestamp
    bint rebuild             # some must be unpacked to be checked, or be encoded anew
    bint packed              # some are to be appended as they are, and must be unpacked to be checked
    bint producers           # some have a producer id


cdef int check_incoming(uint8_t *p, int64_t size, const ks_rules *rules, int64_t now, ks_arrival *arrival) except -1
