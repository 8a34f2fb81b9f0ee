"""Lookups by key beside a dict: whatever is done to a log, its last records are those (hypothesis)."""

import shutil
import tempfile
from pathlib import Path

import hypothesis.strategies as st
import pytest
from hypothesis import settings
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

import kstore
from tests.by_key.lookups import key_files
from tests.helpers.effort import times
from tests.helpers.markers import end_transaction, transactional

KEYS = [b"", *(b"key-%d" % i for i in range(12)), b"long" * 30]
SOME = st.sampled_from([None, *KEYS])
VALUES = st.one_of(st.none(), st.integers(0, 60).map(lambda n: b"v" * n))
CODECS = ["producer", "lz4", "zstd", "gzip"]


class Machine(RuleBasedStateMachine):
    """A lookup must find what a plain reading of the log finds."""

    def __init__(self) -> None:
        super().__init__()
        shm = Path("/dev/shm")
        self.directory = Path(tempfile.mkdtemp(dir=shm if shm.is_dir() else None))
        self.expected: dict[bytes, int] = {}  # the offset of the last record of each key
        self.producer = 0

    @initialize(segment_bytes=st.sampled_from([400, 1000, 4000]), codec=st.sampled_from(CODECS))
    def open(self, segment_bytes: int, codec: str) -> None:
        self.options = {
            "internal_segment_bytes": segment_bytes,
            "compression_type": codec,
            "cleanup_policy": "compact,delete",
            "min_cleanable_dirty_ratio": 0.0,
            "delete_retention_ms": 10**12,
            "retention_bytes": 6000,
            "retention_ms": -1,
            "file_delete_delay_ms": 0,
        }
        self.log = kstore.open(self.directory / "t-0", "a", **self.options)
        self.reader = kstore.open(self.directory / "t-0")

    @rule(
        records=st.lists(st.tuples(SOME, VALUES), min_size=1, max_size=20),
        batch_bytes=st.sampled_from([100, 900]),
    )
    def extend(self, records: list[tuple[bytes | None, bytes | None]], batch_bytes: int) -> None:
        keys, values = ([r[i] for r in records] for i in range(2))
        keys = [b"no key" if key is None else key for key in keys]
        offsets = self.log.extend(values, keys, batch_bytes=batch_bytes)
        self.expected |= zip(keys, offsets, strict=True)

    @rule(key=st.sampled_from(KEYS), kind=st.sampled_from(["COMMIT", "ABORT"]))
    def transaction(self, key: bytes, kind: str) -> None:
        self.producer += 1
        self.expected[key] = self.log.log_end_offset
        self.log.append_batches(transactional((5, key, b"t", None), producer=self.producer))
        end_transaction(self.log, kind, 6, self.producer)

    @rule()
    def roll(self) -> None:
        self.log.roll()

    @rule()
    def make(self) -> None:
        made = self.log.make_key_files()
        assert [each.base_offset for each in made] == [s.base_offset for s in self.log.segments[:-1]]
        assert all(each.keys >= 0 for each in made)

    @rule(back=st.integers(0, 30))
    def truncate(self, back: int) -> None:
        self.log.truncate_to(max(self.log.log_end_offset - back, self.log.log_start_offset))
        self.forget()

    @rule()
    def retain(self) -> None:
        self.log.retain()
        self.forget()

    @rule(share=st.floats(0, 1))
    def delete(self, share: float) -> None:
        start, end = self.log.log_start_offset, self.log.log_end_offset
        self.log.delete_records(start + int(share * (end - start)))
        self.forget()

    @rule()
    def compact(self) -> None:
        self.log.compact()
        self.forget()

    @rule(key=st.sampled_from(KEYS))
    def erase(self, key: bytes) -> None:
        self.log.erase(keys=[key], reason="model")
        self.forget()

    def forget(self) -> None:
        """What a key's last record is now is taken from the log: some records are gone."""
        self.expected = {r.key: r.offset for r in self.log if r.key is not None}

    @rule()
    def reopen(self) -> None:
        self.log.close()
        self.log = kstore.open(self.directory / "t-0", "a", **self.options)
        assert self.log.recovery.findings == []

    @rule(fresh=st.booleans())
    def read_beside(self, fresh: bool) -> None:
        if fresh:
            self.reader = kstore.open(self.directory / "t-0")
        else:
            self.reader.refresh()
        assert list(self.reader) == list(self.log)
        self.compare(self.reader)

    def compare(self, log: kstore.PartitionLog) -> None:
        for key in [*KEYS, b"no key", b"nobody"]:
            record = log.last(key)
            assert (None if record is None else (record.key, record.offset)) == (
                (key, self.expected[key]) if key in self.expected else None
            )

    @invariant()
    def as_expected(self) -> None:
        if hasattr(self, "log"):
            self.compare(self.log)
            assert {path.stem for path in key_files(Path(self.log.path))} <= {
                segment.stem for segment in self.log.segments[:-1]
            }

    @rule(key=st.sampled_from(KEYS), isolation=st.sampled_from(["read_uncommitted", "read_committed"]))
    def all_of_one(self, key: bytes, isolation: str) -> None:
        for log in (self.log, self.reader):
            if log is self.reader:
                log.refresh()
            wanted = [r for r in log.records(isolation=isolation) if r.key == key]  # type: ignore[arg-type]
            assert list(log.history(key, isolation=isolation)) == wanted  # type: ignore[arg-type]
            last = log.last(key, isolation=isolation)  # type: ignore[arg-type]
            assert last == (wanted[-1] if wanted else None)

    def teardown(self) -> None:
        if hasattr(self, "log"):
            self.log.close()
        shutil.rmtree(self.directory)


TestMachine = Machine.TestCase
TestMachine.settings = settings(max_examples=times(20), stateful_step_count=30)
pytestmark = pytest.mark.timeout(times(300))
