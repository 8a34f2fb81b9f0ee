"""A copy beside a writer is the partition at one moment, whatever the writer does."""

import contextlib
import json
import os
import random
from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path

import pytest

import kstore
from tests.helpers.effort import SEED, times
from tests.helpers.processes import Program

# Appends "number of truncations:offset", with 10 keys, and does everything else now and then. It prints each
# truncation's offset; its stdin ends it.
WRITER = """
import random, select, sys
import kstore

path, seed, shared, compacts = sys.argv[1], sys.argv[2], sys.argv[3] == "shared", sys.argv[4] == "compact"
rng = random.Random(seed)
config = kstore.LogConfig(
    internal_segment_bytes=3000,
    retention_ms=-1,
    retention_bytes=40_000,
    file_delete_delay_ms=0,
    cleanup_policy="compact" if compacts else "delete",
    min_cleanable_dirty_ratio=0.01,
    segment_jitter_ms=0,
)
truncations = []
with kstore.open(path, "a", config=config, shared=shared) as log:
    log.append(b"0:0", key=b"0")
    print("ready", flush=True)
    while not select.select([sys.stdin], [], [], 0)[0]:
        end = log.log_end_offset
        what = rng.random()
        if what < 0.8:
            offsets = range(end, end + rng.randrange(1, 30))
            log.extend(
                [b"%d:%d" % (len(truncations), at) for at in offsets],
                [b"%d" % (at % 10) for at in offsets],
            )
        elif what < 0.85:
            log.roll()
        elif what < 0.9:
            log.compact() if compacts else log.retain()
        elif what < 0.94 and not compacts:
            log.delete_records(min(end, log.log_start_offset + rng.randrange(20)))
        elif what < 0.97 and end - log.log_start_offset > 40:
            to = end - rng.randrange(40)
            log.truncate_to(to)
            truncations.append(to)
        else:
            log.flush()
import json
print(json.dumps(truncations), flush=True)
"""


@pytest.mark.filterwarnings("ignore::kstore.DataLossWarning")
@pytest.mark.parametrize("kind", ["exclusive", "shared"])
@pytest.mark.parametrize("policy", ["delete", "compact"])
def test_moments(kind: str, policy: str, tmp_path: Path) -> None:
    source = tmp_path / "t-0"
    copies = []
    rng = random.Random(f"{SEED} {kind} {policy}")
    with Program(WRITER, source, f"{SEED}", kind, policy) as writer:
        for number in range(times(5)):
            for _ in range(rng.randrange(3)):  # each after others that had the same destination
                kstore.copy(source, tmp_path / f"copy{number}-0")
            kstore.copy(source, tmp_path / f"copy{number}-0")
            copies.append(tmp_path / f"copy{number}-0")
        truncations = json.loads(writer.tell())
    ends = [check_moment(copy, truncations, policy == "compact") for copy in copies]
    assert max(ends) > 1
    kstore.copy(source, copies[0])
    with kstore.open(source) as log, kstore.open(copies[0]) as copied:
        assert [batch.data for batch in copied.batches()] == [batch.data for batch in log.batches()]


def check_moment(path: Path, truncations: list[int], compacted: bool) -> int:
    """The log is one that the writer had at some moment; its end."""
    with kstore.open(path) as log:
        assert log.recovery.clean
        assert log.recovery.findings == []
        found = [(record.offset, record.key, record.value or b"") for record in log]
        start, end = log.log_start_offset, log.log_end_offset
    numbers = [int(value.partition(b":")[0]) for _, _, value in found]
    newest = max(numbers, default=0)
    for (offset, key, value), number in zip(found, numbers, strict=True):
        # the truncations after which this offset was written again, of those up to the newest one seen
        expected = max([at + 1 for at, to in enumerate(truncations[:newest]) if to <= offset], default=0)
        assert (number, key, value) == (expected, b"%d" % (offset % 10), b"%d:%d" % (expected, offset))
    offsets = [offset for offset, _, _ in found]
    if compacted:  # the last record of each key is there
        last = {offset % 10: offset for offset in range(start, end)}
        assert set(last.values()) <= set(offsets)
    else:
        assert all(b == a + 1 for a, b in pairwise([start - 1, *offsets, end]))
    return end


def test_a_segment_that_goes_before_the_copy(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """It was listed, and is deleted before its size is known."""
    options = {"internal_segment_bytes": 1000, "file_delete_delay_ms": 0, "background": False}
    with kstore.LogStore(tmp_path / "data", mode="a", **options) as store:
        store.create_topic("t", 1)
        log = store.log("t", 0)
        for _ in range(50):
            log.append(bytes(100))
        list_files = os.scandir

        def scandir(path: str) -> contextlib.AbstractContextManager[Iterator[os.DirEntry[str]]]:
            if path != f"{tmp_path}/data/t-0":
                return list_files(path)
            with list_files(path) as entries:
                found = list(entries)
            log.delete_records(40)
            log.retain()
            monkeypatch.undo()
            return contextlib.nullcontext(iter(found))

        monkeypatch.setattr(os, "scandir", scandir)
        kstore.copy(tmp_path / "data", tmp_path / "copy")
    assert [record.offset for record in kstore.open(tmp_path / "copy" / "t-0")] == list(range(40, 50))
