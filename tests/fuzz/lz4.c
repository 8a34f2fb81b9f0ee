/* A raw LZ4 block: the first two bytes are the room for what it unpacks to. */
#include "fuzzer.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    size_t room = next_byte(&data, &size);
    room = room << 8 | next_byte(&data, &size);
    check_lz4(data, size, room);
    return 0;
}
