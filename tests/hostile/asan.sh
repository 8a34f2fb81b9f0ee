#!/bin/sh
# Builds the extension modules with AddressSanitizer and UBSan beside the ordinary ones, and runs the tests that feed
# them real and damaged bytes, in three processes; or the tests given. Leaks are not looked for: CPython keeps memory to its
# end on purpose.
set -eu
here=$(pwd)
find build/asan/kstore -name '*.py' -delete 2>/dev/null || true  # what was moved since must not be found there
KSTORE_BUILD=asan python setup.py --quiet build --build-lib build/asan --build-temp build/asan-temp
preload="$(${CC:-cc} -print-file-name=libasan.so) $(${CC:-cc} -print-file-name=libubsan.so)"

run() {
    PYTHONPATH=$here/build/asan:$here PYTHONMALLOC=malloc LD_PRELOAD="$preload" \
        ASAN_OPTIONS=detect_leaks=0:allocator_may_return_null=1 UBSAN_OPTIONS=print_stacktrace=1 \
        pytest -p no:cacheprovider -q "$@"
}

if [ $# -gt 0 ]; then
    run "$@"
    exit
fi
# Without what forks: the allocator of gcc's AddressSanitizer leaves its locks to a child as they were, so a child of a process
# whose other thread was in malloc waits for ever. The ordinary build runs all of them.
EFFORT=1 run -n 3 -m 'not nightly' -k 'not (fork or spawned)' tests/hostile tests/columns tests/golden tests/conformance \
    tests/faults tests/threads tests/sending tests/unit/test_appender.py
