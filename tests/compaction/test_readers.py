"""Readers and followers beside cleanings: each record that survives, once and in order."""

from pathlib import Path

import kstore
from tests.compaction.operations import end, transaction

OPTIONS = {
    "cleanup_policy": "compact",
    "internal_segment_bytes": 3000,
    "index_interval_bytes": 100,
    "min_cleanable_dirty_ratio": 0,
}
KEYS = 20


def fill(log: kstore.LogWriter, round_: int, count: int = 300) -> None:
    values = [b"%d" % round_ + b"." * 30] * count
    log.extend(values, keys=[b"%d" % (i % KEYS) for i in range(count)], batch_bytes=200)
    log.roll()


def records(log: kstore.PartitionLog) -> list[kstore.Record]:
    return list(log)


def test_files_that_get_their_final_names(ram: Path) -> None:
    """A reader opened the log as a cleaning was broken off; then a writer finishes it."""
    directory = ram / "t-0"
    with kstore.open(directory, "a", **OPTIONS) as log:
        fill(log, 0)
        log.compact()
        expected = records(log)
    for path in directory.glob(f"{0:020}.*"):
        path.rename(f"{path}.swap")
    reader, other = kstore.open(directory), kstore.open(directory)
    assert reader.segments[0].path.endswith(".swap")
    with kstore.open(directory, "a", **OPTIONS):
        assert not list(directory.glob("*.swap"))
        assert records(reader) == expected
        assert [b.base_offset for b in other.batches()] == [b.base_offset for b in reader.batches()]
        assert reader.segments[0].path.endswith(".log")
        assert other.get(expected[-1].offset) == expected[-1]
        reader.refresh()
        assert records(reader) == expected


def test_committed_readers_of_old_segments(ram: Path) -> None:
    """An old segment keeps its own aborted transactions, though the index of its name is another's now."""
    with kstore.open(ram / "t-0", "a", **OPTIONS) as log:
        for n in range(20):
            log.append_batches(transaction(n % 3, n // 3, range(n % 3, n % 3 + 1)))
            end(log, n % 3, ("ABORT", "COMMIT")[n % 2])
        log.roll()
        expected = [r.offset for r in log.records(isolation="read_committed")]
        old = log.segments
        other = kstore.open(ram / "t-0")
        assert len(records(other)) == 20
        for _ in range(3):
            log.append(b"later", b"later")
            log.roll()
        log.flush()
        late = kstore.open(ram / "t-0")  # which has read no .txnindex, because nothing is to be recovered
        assert len(records(late)) == 23
        index = Path(old[0].path).with_suffix(".txnindex")
        before = index.stat().st_ino
        log.compact()  # once: the next one takes the name .deleted from what this one leaves
        assert index.stat().st_ino != before
        assert [r.offset for r in late.records(isolation="read_committed")] == [*expected, 40, 41, 42]
        view = [r.offset for r in kstore.open(ram / "t-0").records(isolation="read_committed")]
        assert [o for o in view if o in expected] == view[: len(view) - 1]
        assert sum(len(s.transaction_index) for s in old[:-1]) == 10
        assert [r.offset for r in other.records(isolation="read_committed")] == expected
        assert other.refresh()
        assert [r.offset for r in other.records(isolation="read_committed")] == view
