#!/bin/sh
# Builds the extension modules with AddressSanitizer and UBSan beside the ordinary ones, and runs the tests that feed
# them real and damaged bytes. Leaks are not looked for: CPython keeps memory to its end on purpose.
set -eu
KSTORE_BUILD=asan python setup.py --quiet build --build-lib build/asan --build-temp build/asan-temp
preload="$(${CC:-cc} -print-file-name=libasan.so) $(${CC:-cc} -print-file-name=libubsan.so)"
PYTHONPATH=build/asan PYTHONMALLOC=malloc LD_PRELOAD="$preload" \
    ASAN_OPTIONS=detect_leaks=0:allocator_may_return_null=1 UBSAN_OPTIONS=print_stacktrace=1 \
    pytest -p no:cacheprovider -q "${@:-tests/hostile}" tests/unit tests/columns tests/golden tests/conformance tests/faults \
    tests/model tests/threads tests/following tests/sending tests/pages
