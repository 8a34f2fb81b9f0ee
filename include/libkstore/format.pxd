"""Twin of kstore/format.h: what it declares, to cimport. Nothing stands behind this module at run time."""

from libc.stddef cimport size_t
from libc.stdint cimport int8_t, int16_t, int32_t, int64_t, uint8_t, uint16_t, uint32_t, uint64_t


cdef extern from "kstore/format.h" nogil:
    enum:
        KS_OFFSET_AT
        KS_SIZE_AT
        KS_LOG_OVERHEAD
        KS_MAGIC_AT
        KS_MAGIC_END
        KS_MIN_SIZE
        KS_LEADER_EPOCH_AT
        KS_CRC_AT
        KS_ATTRIBUTES_AT
        KS_LAST_OFFSET_DELTA_AT
        KS_BASE_TIMESTAMP_AT
        KS_MAX_TIMESTAMP_AT
        KS_PRODUCER_ID_AT
        KS_PRODUCER_EPOCH_AT
        KS_BASE_SEQUENCE_AT
        KS_RECORDS_COUNT_AT
        KS_RECORDS_AT
        KS_BATCH_OVERHEAD
        KS_MESSAGE_CRC_AT
        KS_MESSAGE_ATTRIBUTES_AT
        KS_MESSAGE_TIMESTAMP_AT
        KS_MESSAGE_V0_OVERHEAD
        KS_MESSAGE_V1_OVERHEAD
        KS_CODEC_MASK
        KS_LOG_APPEND_TIME
        KS_TRANSACTIONAL
        KS_CONTROL
        KS_DELETE_HORIZON
        KS_CODEC_NONE
        KS_CODEC_GZIP
        KS_CODEC_SNAPPY
        KS_CODEC_LZ4
        KS_CODEC_ZSTD
        KS_OFFSET_ENTRY
        KS_TIME_ENTRY
        KS_ABORTED_ENTRY
        KS_SNAPSHOT_HEADER
        KS_SNAPSHOT_ENTRY
        KS_MAX_VARINT
        KS_MAX_VARLONG
        KS_OK
        KS_E_SHORT
        KS_E_SIZE
        KS_E_MAGIC
        KS_E_CRC
        KS_E_VARINT
        KS_E_LENGTH
        KS_E_COUNT
        KS_E_OFFSET
        KS_E_STRAY

    ctypedef struct ks_fault:
        int status
        size_t at
        int64_t expected
        int64_t found

    ctypedef struct ks_batch:
        int64_t base_offset
        int64_t last_offset
        int64_t base_timestamp
        int64_t max_timestamp
        int64_t producer_id
        int64_t size
        uint32_t crc
        int32_t leader_epoch
        int32_t last_offset_delta
        int32_t base_sequence
        int32_t records_count
        int16_t producer_epoch
        int16_t attributes
        int8_t magic

    ctypedef struct ks_record:
        int64_t offset
        int64_t timestamp
        const uint8_t *key
        const uint8_t *value
        const uint8_t *headers
        const uint8_t *end
        int32_t key_size
        int32_t value_size
        int32_t headers_count
        int32_t offset_delta

    ctypedef struct ks_header:
        const uint8_t *key
        const uint8_t *value
        int32_t key_size
        int32_t value_size

    ctypedef struct ks_aborted_txn:
        int64_t producer_id
        int64_t first_offset
        int64_t last_offset
        int64_t last_stable_offset
        int16_t version

    int ks_fail(ks_fault *fault, int status, size_t at, int64_t expected, int64_t found)
    uint16_t ks_load_u16(const void *at)
    uint32_t ks_load_u32(const void *at)
    uint64_t ks_load_u64(const void *at)
    int16_t ks_load_i16(const void *at)
    int32_t ks_load_i32(const void *at)
    int64_t ks_load_i64(const void *at)
    void ks_store_u16(void *at, uint16_t value)
    void ks_store_u32(void *at, uint32_t value)
    void ks_store_u64(void *at, uint64_t value)
    int64_t ks_add64(int64_t a, int64_t b)
    int ks_read_varint(const uint8_t **p, const uint8_t *end, int32_t *value)
    int ks_read_varlong(const uint8_t **p, const uint8_t *end, int64_t *value)
    size_t ks_write_varlong(uint8_t *p, int64_t value)
    int ks_codec(const ks_batch *b)
    int ks_entry_size(const uint8_t *p, const uint8_t *end, int64_t *size, ks_fault *fault)
    int ks_parse_header(const uint8_t *p, const uint8_t *end, ks_batch *b, ks_fault *fault)
    uint32_t ks_crc32(const void *data, size_t size)
    uint32_t ks_batch_crc(const uint8_t *p, const ks_batch *b)
    int ks_check_batch(const uint8_t *p, const uint8_t *end, ks_batch *b, ks_fault *fault)
    int ks_next_header(const uint8_t **p, const uint8_t *end, ks_header *h)
    int ks_plain_record(const uint8_t **p, const uint8_t *end, const ks_batch *b, ks_record *r)
    int ks_any_record(const uint8_t **p, const uint8_t *end, const ks_batch *b, ks_record *r, ks_fault *fault)
    int ks_next_record(const uint8_t **p, const uint8_t *end, const ks_batch *b, ks_record *r, ks_fault *fault)
    int ks_check_place(const ks_batch *b, const ks_record *r, ks_fault *fault)
    int32_t ks_sequence_after(int32_t sequence, int32_t n)
    int ks_parse_message(const uint8_t *p, const ks_batch *b, ks_record *r, ks_fault *fault)
    int64_t ks_entry_offset(const uint8_t *entries, size_t slot, int64_t base_offset)
    int32_t ks_entry_position(const uint8_t *entries, size_t slot)
    int64_t ks_entry_timestamp(const uint8_t *entries, size_t slot)
    int64_t ks_time_entry_offset(const uint8_t *entries, size_t slot, int64_t base_offset)
    void ks_parse_aborted_txn(const uint8_t *entry, ks_aborted_txn *txn)
