"""More partitions than a process may have descriptors."""

import subprocess
import sys
from pathlib import Path

from tests.helpers.processes import environment

PROGRAM = """
import os, resource, sys
resource.setrlimit(resource.RLIMIT_NOFILE, (128, 128))
import kstore

path, count = sys.argv[1], 300
with kstore.LogStore(path, mode="a") as store:
    store.create_topic("t", count)
    kept = store.log("t", 7)  # whoever has a log keeps it open
    for turn in range(2):
        for number in range(count):
            assert store.log("t", number).append(b"%d" % number) == turn
    assert not kept.is_closed
    offsets = store.extend("t", [b"v"] * 5000, [b"%d" % i for i in range(5000)])
    assert sum(map(len, offsets.values())) == 5000
    assert len(os.listdir("/proc/self/fd")) < 110
    rows = sum(len(batch) for batch in store.scan("t", ["value"]))
    assert rows == 5000 + 2 * count, rows
    assert store.health().ok, store.health()
    assert len(store._open_logs) < 40
store = kstore.LogStore(path)
assert store.closed_cleanly
assert sum(len(batch) for batch in store.scan("t", ["value"])) == rows
assert all(store.open("t", number).recovery.clean for number in range(count))
"""


def test_more_partitions_than_descriptors(ram: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-W", "error", "-c", PROGRAM, str(ram / "data")],
        check=False,
        env=environment(),
        capture_output=True,
        text=True,
        timeout=280,
    )
    assert done.returncode == 0, done.stderr[-3000:]
