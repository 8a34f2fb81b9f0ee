"""Appends with next to no memory: MemoryError and nothing else, and all acknowledged records."""

from pathlib import Path

import pytest

import kstore
from tests.helpers.processes import run_python

APPENDING = """
import resource, sys, warnings
import kstore

warnings.simplefilter("ignore")
path, codec, gives_back = sys.argv[1], sys.argv[2], int(sys.argv[3])
log = kstore.open(
    path, "a", compression_type=codec, segment_index_bytes=8000, segment_bytes=1 << 30,
    max_message_bytes=1 << 30,
)
log.append(b"first" * 1000)
acknowledged, errors = 1, set()
with open("/proc/self/statm") as file:
    size = int(file.read().split()[0]) * resource.getpagesize()
resource.setrlimit(resource.RLIMIT_AS, (size, size))
kept = []
try:
    while True:
        kept.append(bytearray(1 << 16))
except MemoryError:
    pass
for i in range(40):
    del kept[-gives_back:]
    for append, count in (
        (lambda: log.append(b"%06d" % i + b"a" * (1 << (12 + i % 8))), 1),
        (lambda: log.extend([b"%06d" % i + b"x" * 5000] * 60, batch_bytes=1 << 18), 60),
    ):
        before = log.log_end_offset
        try:
            append()
            acknowledged += count
        except MemoryError:
            acknowledged += log.log_end_offset - before
        except Exception as e:
            errors.add(f"{type(e).__module__}.{type(e).__name__}: {e}"[:200])
kept.clear()
print(acknowledged, *sorted(errors), sep="\\n")
"""


@pytest.mark.parametrize("gives_back", [0, 1, 4])
@pytest.mark.parametrize("codec", ["uncompressed", "gzip", "snappy", "lz4", "zstd"])
def test_appends_with_little_memory(tmp_path: Path, codec: str, gives_back: int) -> None:
    path = tmp_path / "t-0"
    done = run_python(APPENDING, path, codec, gives_back)
    assert done.returncode == 0, done.stderr[-2000:]
    acknowledged, *errors = done.stdout.split("\n")[:-1]
    assert errors == []
    with kstore.open(path) as log:
        assert len(list(log)) == int(acknowledged)
