from libc.stdint cimport int32_t, int64_t, uint8_t

from libkstore.format cimport ks_batch, ks_fault, ks_record


cdef class Record:  # Python sees these as members: ks_show_fields in batch.pyx
    cdef object offset
    cdef object timestamp
    cdef str timestamp_type
    cdef bytes key
    cdef bytes value
    cdef tuple headers


cdef class RecordBatch:
    cdef ks_batch header
    cdef readonly str file
    cdef readonly int64_t position
    cdef readonly bytes data
    cdef readonly int64_t max_decompressed_bytes

    cdef const uint8_t *start(self) except NULL
    cdef Records cursor(self)

    @staticmethod
    cdef RecordBatch new(const uint8_t *p, const ks_batch *header, str file, int64_t position, int64_t limit)


cdef class Records:
    """Cursor over the records of one batch: what iteration, random reads and lookups by time share."""
    cdef ks_batch batch
    cdef const uint8_t *start   # of the bytes parsed: the batch itself, or what it unpacked to
    cdef const uint8_t *p
    cdef const uint8_t *end
    cdef int32_t left
    cdef int64_t offset         # of the record given last
    cdef int64_t timestamp      # the last one met, and
    cdef object time            # as an object: the next record often has an equal one
    cdef object owner           # keeps unpacked bytes alive
    cdef list legacy            # (message, its unpacked bytes): magic 0 and 1 are decoded whole
    cdef int64_t limit          # the most memory for what is unpacked, and for the headers of a record
    cdef bint anywhere          # records may lie outside their batch: they are shown as they are
    cdef str file
    cdef int64_t position

    cdef int begin(self, const uint8_t *p, const ks_batch *batch, str file, int64_t position) except -1
    cdef Record next(self)
    cdef Record first_from(self, int64_t offset)
    cdef Record first_since(self, int64_t timestamp, int64_t offset)
    cdef object unpacked(self, const uint8_t *payload, int64_t size, int64_t at)
    cdef int check_end(self) except -1
    cdef int check_messages(self) except -1
    cdef int check_after(self, int64_t last) except -1
    cdef int check_headers(self, const ks_record *r) except -1
    cdef int inner_fault(self, str reason, expected, found) except -1
    cdef list messages(self, const uint8_t *p)
    cdef int fault(self, const ks_fault *fault) except -1


cdef int raise_fault(const ks_fault *fault, str file, int64_t position, int64_t offset) except -1
cdef Record make_record(const ks_batch *b, const ks_record *r, timestamp)
