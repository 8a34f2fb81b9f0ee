"""A module of somebody else: checksums and batch headers, straight from kstore's C headers."""

from libc.stdint cimport uint8_t

from libkstore.crc32c cimport ks_crc32c, ks_crc32c_portable
from libkstore.format cimport (
    KS_ATTRIBUTES_AT, KS_BATCH_OVERHEAD, KS_OK, KS_RECORDS_AT, ks_batch, ks_check_batch, ks_fault, ks_next_record,
    ks_record,
)


def checksum(const uint8_t[::1] data not None):
    """CRC-32C of the bytes, by the processor's instructions and by the portable loop."""
    cdef const uint8_t *p = &data[0] if data.shape[0] else NULL
    return ks_crc32c(0, p, <size_t>data.shape[0]), ks_crc32c_portable(0, p, <size_t>data.shape[0])


def batch(const uint8_t[::1] data not None):
    """The first batch, and (offset, timestamp, key) of its records; ValueError(status, at, expected, found)."""
    cdef const uint8_t *p = &data[0] if data.shape[0] else NULL
    cdef const uint8_t *end = p + data.shape[0]
    cdef const uint8_t *at
    cdef ks_batch b
    cdef ks_record record
    cdef ks_fault fault
    cdef int status
    with nogil:
        status = ks_check_batch(p, end, &b, &fault)
    if status != KS_OK:
        raise ValueError(status, fault.at, fault.expected, fault.found)
    records = []
    at = p + KS_RECORDS_AT
    for _ in range(b.records_count):
        if ks_next_record(&at, p + b.size, &b, &record, &fault) != KS_OK:
            raise ValueError(fault.status, at - p + fault.at, fault.expected, fault.found)
        key = record.key[:record.key_size] if record.key_size >= 0 else None
        records.append((record.offset, record.timestamp, key))
    return b, records


CONSTANTS = (KS_ATTRIBUTES_AT, KS_BATCH_OVERHEAD)
