/* In place of libFuzzer: gives each file that is named to the fuzzer, as it is, cut short, and with bytes changed. */
#include "fuzzer.h"

enum { MOST = 1 << 16, ROUNDS = 50 };

int main(int argc, char **argv)
{
    static uint8_t bytes[MOST], changed[MOST];
    int i, round;
    for (i = 1; i < argc; i++) {
        FILE *file = fopen(argv[i], "rb");
        size_t size;
        CHECK(file != NULL);
        size = fread(bytes, 1, MOST, file);
        fclose(file);
        LLVMFuzzerTestOneInput(bytes, size);
        for (round = 0; size && round < ROUNDS; round++) {
            memcpy(changed, bytes, size);
            changed[random_below(size)] = (uint8_t)next_random();
            LLVMFuzzerTestOneInput(changed, round % 2 ? size : random_below(size + 1));
        }
    }
    printf("%d files\n", argc - 1);
    return 0;
}
