"""A compacted log is the last word of every key: random logs against a dict, over several rounds."""

import contextlib
import random
from collections.abc import Callable

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import kstore
from tests.compaction.operations import CODECS
from tests.helpers.clock import Clock
from tests.helpers.effort import times

DAY = 86_400_000


def batch_of(rng: random.Random, now: int, keys: int) -> bytes:
    records = []
    for _ in range(rng.randrange(1, 12)):
        key = b"key-%d" % rng.randrange(keys) if rng.random() < 0.97 else b"K" * rng.randrange(1, 3000)
        value = None if rng.random() < 0.15 else b"v" * rng.randrange(0, 60)
        headers = [("h", b"x" * rng.randrange(200)), ("n", None)] if rng.random() < 0.2 else None
        records.append((now + rng.randrange(-50, 50), key, value, headers))
    return kstore.encode_batch(records, codec=rng.choice(CODECS))


class Model:
    """Every record ever appended, and what must and may be left of them."""

    def __init__(self) -> None:
        self.records: dict[int, kstore.Record] = {}

    def take(self, log: kstore.LogWriter) -> None:
        start = max(self.records, default=-1) + 1
        self.records |= {r.offset: r for r in log.records(start)}

    def check(self, log: kstore.PartitionLog, compacted_to: int) -> None:
        """Records after the compacted part are untouched; in it, each key has at most its last record."""
        there = {r.offset: r for r in log}
        assert list(there) == sorted(there)
        for offset, record in there.items():
            assert self.records[offset] == record
        last = {r.key: r.offset for r in self.records.values() if r.offset < compacted_to}
        for offset, record in self.records.items():
            if offset >= compacted_to or (last[record.key] == offset and record.value is not None):
                assert offset in there
            elif last[record.key] != offset:
                assert offset not in there

    def table(self) -> dict[bytes | None, bytes | None]:
        return {r.key: r.value for r in self.records.values()}


def table_of(log: kstore.PartitionLog) -> dict[bytes | None, bytes | None]:
    return {r.key: r.value for r in log}


@settings(max_examples=times(15), suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(seed=st.integers(0, 2**32))
def test_rounds(seed: int, tmp_path_factory: pytest.TempPathFactory, tried: Callable[[int], None]) -> None:
    tried(1)
    rng = random.Random(seed)
    directory = tmp_path_factory.mktemp("model") / "t-0"
    clock = Clock()
    model = Model()
    options = {
        "cleanup_policy": rng.choice(["compact", "compact,delete"]),
        "internal_segment_bytes": rng.choice([500, 3000, 20_000]),
        "index_interval_bytes": rng.choice([0, 100, 4096]),
        "min_cleanable_dirty_ratio": 0,
        "delete_retention_ms": rng.choice([0, DAY]),
        "file_delete_delay_ms": rng.choice([0, 60_000]),
        "log_cleaner_io_buffer_load_factor": rng.choice([0.9, 0.9, 3 / 43690, 20 / 43690]),
        "log_cleaner_dedupe_buffer_size": (1 << 20) + 1,
        "message_timestamp_type": rng.choice(["CreateTime", "CreateTime", "LogAppendTime"]),
    }
    log = kstore.open(directory, "a", clock=clock, retention_ms=-1, **options)
    keys = rng.choice([1, 5, 40])
    end = 0
    for _ in range(rng.randrange(1, 5)):
        for _ in range(rng.randrange(0, 40)):
            with contextlib.suppress(kstore.RecordTooLargeError):
                log.append_batches(batch_of(rng, clock.now, keys))
            clock.now += rng.randrange(100)
        model.take(log)
        if rng.random() < 0.5:
            log.roll()
        told = log.compact(dry_run=True)
        before = {segment.base_offset: segment.size for segment in log.segments}
        done = log.compact()
        end = max(end, done.end_offset)
        assert done.end_offset == done.first_uncleanable_offset
        if done.end_offset == told.end_offset:
            assert done == told._replace(dry_run=False)
        assert sum(before.values()) - done.bytes_gained == sum(s.size for s in log.segments)
        model.check(log, end)
        for record in list(log):
            assert log.get(record.offset) == record
        if rng.random() < 0.3:
            log.close()
            log = kstore.open(directory, "a", clock=clock, retention_ms=-1, **options)
        clock.now += rng.choice([0, 2 * DAY])
    assert {k: v for k, v in table_of(log).items() if v is not None} == {
        k: v for k, v in model.table().items() if v is not None
    }
    with_tombstones = table_of(log)
    log.close()
    again = kstore.open(directory)
    assert not again.recovery.findings
    assert table_of(again) == with_tombstones
    model.check(again, end)
    for segment in again.segments:
        assert segment.recovery_walk().error is None
