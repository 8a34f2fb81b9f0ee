/* What every fuzzer takes its bytes with. */
#ifndef KSTORE_FUZZER_H
#define KSTORE_FUZZER_H

#include "../include/checks.h"
#include "kstore/build.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

/* The first of `*size` bytes at `*data`, which it takes away; 0 if there are none. */
static inline uint8_t next_byte(const uint8_t **data, size_t *size)
{
    if (*size == 0)
        return 0;
    --*size;
    return *(*data)++;
}

/* The same for a number of 8 bytes. */
static inline int64_t next_number(const uint8_t **data, size_t *size)
{
    uint64_t value = 0;
    int i;
    for (i = 0; i < 8; i++)
        value = value << 8 | next_byte(data, size);
    return (int64_t)value;
}

#endif
