"""A log beside a plain list: whatever is done to both, they hold the same records (hypothesis)."""

import shutil
import tempfile
from pathlib import Path

import hypothesis.strategies as st
import pytest
from hypothesis import seed, settings
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

import kstore
from tests.helpers.effort import SEED, times

VALUES = st.one_of(st.none(), st.integers(0, 300).map(lambda n: b"%d" % n + b"." * n))
KEYS = st.sampled_from([None, b"", b"key"])
TIMESTAMPS = st.one_of(st.none(), st.just(-1), st.integers(0, 50_000))
NOW = 40_000
Record = tuple[int, bytes | None, bytes | None]  # timestamp, key, value


class Machine(RuleBasedStateMachine):
    """`records` maps offsets to (timestamp, key, value) of what must be there."""

    def __init__(self) -> None:
        super().__init__()
        shm = Path("/dev/shm")  # it syncs thousands of times
        self.directory = Path(tempfile.mkdtemp(dir=shm if shm.is_dir() else None))
        self.records: dict[int, Record] = {}
        self.start = self.end = 0
        self.log: kstore.LogWriter

    @initialize(
        segment_bytes=st.sampled_from([2000, 5000, 100_000]),
        index_bytes=st.sampled_from([16, 64, 4096]),
        interval=st.sampled_from([0, 100, 4096]),
        codec=st.sampled_from(["producer", "lz4", "zstd", "snappy", "gzip"]),
        segment_ms=st.sampled_from([1000, 10**9]),
        retention_bytes=st.sampled_from([-1, 4000]),
    )
    def open(self, **options: object) -> None:
        self.options = {
            "internal_segment_bytes": options["segment_bytes"],
            "segment_index_bytes": options["index_bytes"],
            "index_interval_bytes": options["interval"],
            "compression_type": options["codec"],
            "segment_ms": options["segment_ms"],
            "retention_bytes": options["retention_bytes"],
            "retention_ms": -1,
        }
        self.reopen()

    def reopen(self) -> None:
        self.log = kstore.open(self.directory / "t-0", "a", clock=lambda: NOW, **self.options)

    def add(self, first: int, records: list[Record], batches: list[int]) -> None:
        assert first == self.end
        assert sum(batches) == len(records)
        self.records |= {first + i: record for i, record in enumerate(records)}
        self.end += len(records)

    @rule(value=VALUES, key=KEYS, timestamp=TIMESTAMPS)
    def append(self, value: bytes | None, key: bytes | None, timestamp: int | None) -> None:
        offset = self.log.append(value, key, timestamp)
        self.add(offset, [(NOW if timestamp is None else timestamp, key, value)], [1])

    @rule(
        records=st.lists(st.tuples(st.integers(-1, 50_000), KEYS, VALUES), max_size=12),
        batch_bytes=st.sampled_from([100, 500, 16384]),
    )
    def extend(self, records: list[Record], batch_bytes: int) -> None:
        times, keys, values = ([r[i] for r in records] for i in range(3))
        before = len(list(self.log.batches()))
        span = self.log.extend(values, keys, times, batch_bytes=batch_bytes)
        assert len(span) == len(records)
        sizes = [b.records_count for b in list(self.log.batches())[before:]]
        self.add(span.start, records, sizes)

    @rule(records=st.lists(st.tuples(st.integers(0, 50_000), KEYS, VALUES), min_size=1, max_size=5))
    def append_batches(self, records: list[Record]) -> None:
        encoded = kstore.encode_batch([(*record, None) for record in records])
        done = self.log.append_batches(encoded)
        self.add(done.first_offset, records, [len(records)])

    @rule(gap=st.integers(0, 5), count=st.integers(1, 3))
    def follow(self, gap: int, count: int) -> None:
        """As a follower: offsets are kept, and may leave gaps."""
        first = self.end + gap
        encoded = kstore.encode_batch(
            [(5, b"k", b"v", None)] * count, base_offset=first, leader_epoch=self.log.leader_epoch
        )
        self.log.append_batches(encoded, keep_offsets=True)
        self.end = first
        self.add(first, [(5, b"k", b"v")] * count, [count])

    @rule()
    def roll(self) -> None:
        self.log.roll()

    @rule()
    def flush(self) -> None:
        assert self.log.flush() >= self.end - 5

    @rule(data=st.data())
    def truncate(self, data: st.DataObject) -> None:
        offset = data.draw(st.integers(max(self.start - 2, 0), self.end + 1))
        if self.log.truncate_to(offset):
            self.records = {o: r for o, r in self.records.items() if o < offset}
            self.end = offset
            self.start = min(self.start, offset)
            if not self.log.segments[0].size and self.log.segments[0].base_offset == offset:
                self.start = self.log.log_start_offset
                assert self.start <= offset

    @rule(data=st.data())
    def start_anew(self, data: st.DataObject) -> None:
        offset = data.draw(st.integers(0, self.end + 3))
        self.log.truncate_fully_and_start_at(offset)
        self.records = {}
        self.start = self.end = offset

    @rule(data=st.data())
    def delete_records(self, data: st.DataObject) -> None:
        offset = data.draw(st.integers(self.start, self.end))
        self.start = self.log.delete_records(offset)
        assert self.start == offset

    @rule()
    def retain(self) -> None:
        decisions = self.log.retain()
        gone = [d for d in decisions if d.delete]
        assert gone == decisions[: len(gone)]
        self.start = self.log.log_start_offset

    @rule()
    def close_and_reopen(self) -> None:
        self.log.close()
        reader = kstore.open(self.directory / "t-0")
        assert reader.recovery.clean
        self.compare(reader)
        self.reopen()
        self.end = self.log.log_end_offset  # after a truncation inside a batch, the end of what is left

    @rule()
    def crash_and_reopen(self) -> None:
        self.log.abandon()
        self.compare(kstore.open(self.directory / "t-0"))
        self.reopen()
        self.end = self.log.log_end_offset

    def compare(self, log: kstore.PartitionLog) -> None:
        there = {r.offset: (r.timestamp, r.key, r.value) for r in log}
        assert there == {o: r for o, r in self.records.items() if o >= self.start}

    @invariant()
    def same(self) -> None:
        if not hasattr(self, "log"):
            return
        assert (self.log.log_start_offset, self.log.log_end_offset) == (self.start, self.end)
        self.compare(self.log)

    @rule(data=st.data())
    def find_offset(self, data: st.DataObject) -> None:
        offset = data.draw(st.integers(self.start, self.end))
        found = self.log.find(offset=offset)
        expected = min((o for o in self.records if o >= offset), default=None)
        assert (None if found is None else found.offset) == expected

    @rule(timestamp=st.integers(0, 50_000))
    def find_timestamp(self, timestamp: int) -> None:
        """The first record in the first segment that reaches the time, as in Kafka."""
        found = self.log.find(timestamp=timestamp)
        if found is not None:
            assert self.records[found.offset][0] == found.timestamp >= timestamp
            assert found.offset >= self.start
        elif all(s.max_timestamp_so_far.timestamp >= 0 for s in self.log.segments):
            reach = [s for s in self.log.segments if s.max_timestamp_so_far.timestamp >= timestamp]
            if reach:
                end = min(
                    (s.base_offset for s in self.log.segments if s.base_offset > reach[0].base_offset),
                    default=self.end,
                )
                assert not any(
                    r[0] >= timestamp
                    for o, r in self.records.items()
                    if self.start <= o < end and o >= reach[0].base_offset
                )

    def teardown(self) -> None:
        if hasattr(self, "log"):
            self.log.abandon()
        shutil.rmtree(self.directory)


Machine.TestCase.settings = settings(
    max_examples=times(60), stateful_step_count=30, report_multiple_bugs=False
)
seed(SEED)(Machine)
# A gap before a roll looks like a missing file: DataLossWarning.
TestModel = pytest.mark.filterwarnings("ignore::kstore.DataLossWarning")(Machine.TestCase)
