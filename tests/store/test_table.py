"""store.table(): a mapping that equals a dict, whatever happens to its logs."""

import shutil
import tempfile
import threading
import time
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, seed, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

import kstore
from kstore import LogStore
from kstore.log.segments.segment_set import SegmentSet
from tests.helpers.effort import SEED, times
from tests.helpers.markers import end_transaction, transactional
from tests.helpers.murmur2 import partition_of
from tests.helpers.waiting import threads_doing
from tests.store.stores import opened, writer

SHM = Path("/dev/shm")
KEYS = [b"", b"a", b"b", b"c", b"dd"]
VALUES = st.one_of(st.none(), st.binary(max_size=3))
OPTIONS: dict[str, Any] = {
    "internal_segment_bytes": 400,
    "index_interval_bytes": 50,
    "cleanup_policy": ("compact", "delete"),
    "retention_ms": -1,
    "min_cleanable_dirty_ratio": 0,
    "file_delete_delay_ms": 0,
}
Entry = tuple[bytes, bytes | None]


@seed(SEED)
class TableMachine(RuleBasedStateMachine):
    """`parts` has the (key, value) of every offset of every partition, `starts` the log start offsets."""

    def __init__(self) -> None:
        super().__init__()
        self.root = Path(tempfile.mkdtemp(dir=SHM if SHM.is_dir() else None))
        self.parts: list[list[Entry | None]] = [[], []]  # None: it was compacted away
        self.starts = [0, 0]
        self.store = opened(self.root, max_open_partitions=1, **OPTIONS)
        self.store.create_topic("t", 2)

    @initialize()
    def begin(self) -> None:
        self.tables = [self.store.table("t"), LogStore(self.root).table("t")]
        self.asked = [self.store.table("t"), LogStore(self.root).table("t")]  # for single keys only

    def log(self, partition: int) -> kstore.LogWriter:
        return writer(self.store, "t", partition % len(self.parts))

    @rule(key=st.sampled_from(KEYS), value=VALUES)
    def put(self, key: bytes, value: bytes | None) -> None:
        partition, _ = self.store.append("t", value, key=key)
        self.parts[partition].append((key, value))

    @rule(key=st.sampled_from(KEYS), value=VALUES, partition=st.integers(0, 2))
    def put_elsewhere(self, key: bytes, value: bytes | None, partition: int) -> None:
        self.log(partition).append(value, key)
        self.parts[partition % len(self.parts)].append((key, value))

    @rule(partition=st.integers(0, 2))
    def compact(self, partition: int) -> None:
        log = self.log(partition)
        log.roll()
        log.compact()
        part = self.parts[partition % len(self.parts)]
        for offset in {*range(log.log_start_offset, len(part))} - {record.offset for record in log}:
            entry = part[offset]  # it does not come back where later ones are truncated
            assert entry is None or any(later and later[0] == entry[0] for later in part[offset + 1 :])
            part[offset] = None

    @rule(partition=st.integers(0, 2))
    def make_key_files(self, partition: int) -> None:
        log = self.log(partition)
        log.roll()
        assert all(made.keys >= 0 for made in log.make_key_files())

    @rule(partition=st.integers(0, 2), share=st.floats(0, 1))
    def truncate(self, partition: int, share: float) -> None:
        partition %= len(self.parts)
        kept = int(share * len(self.parts[partition]))
        if kept >= self.starts[partition]:
            self.log(partition).truncate_to(kept)
            del self.parts[partition][kept:]

    @rule(partition=st.integers(0, 2), share=st.floats(0, 1))
    def delete(self, partition: int, share: float) -> None:
        partition %= len(self.parts)
        start = max(int(share * len(self.parts[partition])), self.starts[partition])
        self.log(partition).delete_records(start)
        self.log(partition).retain()
        self.starts[partition] = start

    @rule()
    def add_partition(self) -> None:
        if len(self.parts) < 3:
            self.store.add_partitions("t", 3)
            self.parts.append([])
            self.starts.append(0)
            self.tables[1] = LogStore(self.root).table("t")
            self.asked[1] = LogStore(self.root).table("t")

    @rule()
    def add_table(self) -> None:
        self.tables.append(self.store.table("t"))
        del self.tables[2:-1]

    def last(self) -> list[dict[bytes, bytes | None]]:
        """The last value of each key in each partition."""
        return [dict(filter(None, part[start:])) for part, start in zip(self.parts, self.starts, strict=True)]

    def expected(self) -> dict[bytes, bytes]:
        last = self.last()
        found = {key: value for part in reversed(last) for key, value in part.items() if value is not None}
        for key in {key for part in last for key in part}:
            own = last[partition_of(key, len(last))]
            if key in own:
                value = own[key]
                found.pop(key, None)
                if value is not None:
                    found[key] = value
        return found

    @invariant()
    def tables_are_dicts(self) -> None:
        expected, last = self.expected(), self.last()
        for table in getattr(self, "tables", ()):
            assert set(table) == expected.keys()
            assert len(table) == len(expected)
        for table in (*getattr(self, "tables", ()), *getattr(self, "asked", ())):
            for key in (*KEYS, b"none"):
                assert (key in table) == (key in expected)
                # which of the other partitions' values counts is not specified
                if key in last[partition_of(key, len(last))]:
                    assert table.get(key) == expected.get(key)

    def teardown(self) -> None:
        self.store.abandon()
        shutil.rmtree(self.root)


TestTable = TableMachine.TestCase
TestTable.settings = settings(
    max_examples=times(3), stateful_step_count=20, suppress_health_check=list(HealthCheck)
)


def test_a_table(tmp_path: Path) -> None:
    with opened(tmp_path) as store:
        store.create_topic("prices", 3, cleanup_policy="compact")
        table = store.table("prices")
        assert dict(table) == {}
        for i in range(100):
            store.append("prices", b"%d" % i, key=b"k%d" % (i % 10), headers=[("i", b"%d" % i)])
        assert dict(table) == {b"k%d" % i: b"%d" % (90 + i) for i in range(10)}
        assert sorted(table.values()) == [b"%d" % (90 + i) for i in range(10)]
        record = table.record(b"k3")
        assert record.headers == (("i", b"93"),)
        store.append("prices", None, key=b"k3")
        assert b"k3" not in table
        assert table.record(b"k3") is None
        assert len(table) == 9
        with pytest.raises(KeyError):
            table[b"k3"]
        for wrong in ("k3", 3, None, bytearray(b"k3")):
            with pytest.raises(TypeError, match="key is bytes"):
                wrong in table  # type: ignore[comparison-overlap]  # noqa: B015
        store.delete_topic("prices")
        with pytest.raises(kstore.LogNotFoundError):
            len(table)
        with pytest.raises(kstore.LogNotFoundError):
            store.table("prices")
    with pytest.raises(kstore.LogClosedError):
        table.get(b"k1")


def make_key_file(log: kstore.LogWriter) -> None:
    """Of what was appended so far."""
    log.roll()
    log.make_key_files()


@pytest.mark.parametrize("by_files", [False, True])
def test_committed_records_only(tmp_path: Path, *, by_files: bool) -> None:
    with opened(tmp_path) as store:
        store.create_topic("t")
        table, asked = store.table("t"), store.table("t")
        log = writer(store)
        store.append("t", b"0", key=b"k")
        store.append("t", b"no key")
        if by_files:
            make_key_file(log)
        now = int(time.time() * 1000)
        for sequence, (kind, expected) in enumerate((("ABORT", b"0"), ("COMMIT", b"1"))):
            log.append_batches(transactional((now, b"k", b"%d" % sequence, None), sequence=sequence))
            assert table[b"k"] == asked[b"k"] == b"0"
            if by_files:
                make_key_file(log)
                assert asked[b"k"] == b"0"
            end_transaction(log, kind, now)
            assert asked[b"k"] == expected
            assert dict(table) == {b"k": expected}


def test_after_an_erasure(tmp_path: Path) -> None:
    """Keys that have a value now: not erased ones, and again those whose later record was erased."""
    with opened(tmp_path, internal_segment_bytes=300) as store:
        store.create_topic("t")
        for i in range(10):
            store.append("t", b"%d" % i, key=b"k%d" % i)
        store.append("t", b"new", key=b"k1")
        store.append("t", None, key=b"k2")
        tables = [store.table("t"), LogStore(tmp_path).table("t")]
        assert [len(table) for table in tables] == [9, 9]
        log = writer(store)
        log.erase(keys=[b"k3"], reason="asked")
        log.erase(keys=[b"k4"], reason="asked", what="values")
        log.erase(where=lambda record: record.offset in (10, 11), reason="asked")
        expected = {b"k%d" % i: b"%d" % i for i in range(10) if i not in (3, 4)}
        for table in tables:
            assert len(table) == 8
            assert list(table.keys() - expected.keys()) == []
            assert dict(table) == expected == dict(table.items())


def test_a_reader_takes_in_new_partitions(tmp_path: Path) -> None:
    """Without refresh(): keys that belong to others now have new values there, or are deleted there."""
    keys = [b"c%d" % i for i in range(100)]
    with opened(tmp_path) as store:
        store.create_topic("t", partitions=2, cleanup_policy="compact")
        store.extend("t", [b"old"] * 100, keys=keys)
        with LogStore(tmp_path) as reader:
            table = reader.table("t")
            assert len(table) == 100
            for count in (3, 5):
                store.add_partitions("t", count)
                expected = [b"new %d" % count if i % 2 else None for i in range(100)]
                for key, value in zip(keys, expected, strict=True):
                    store.append("t", value, key=key)
                assert [table.get(key) for key in keys] == expected
                assert len(table) == 50
            assert reader.topics == {"t": [0, 1]}
        with pytest.raises(kstore.LogClosedError):
            table.get(b"c0")


def test_a_reader_whose_topic_was_deleted(tmp_path: Path) -> None:
    with opened(tmp_path) as store:
        store.create_topic("t", partitions=2)
        store.extend("t", [b"old"] * 10, keys=[b"%d" % i for i in range(10)])
        table = LogStore(tmp_path).table("t")
        assert len(table) == 10
        store.delete_topic("t")
        with pytest.raises(kstore.LogNotFoundError):
            table.get(b"1")
        store.create_topic("t")
        assert dict(table.items()) == {}
        store.append("t", b"new", key=b"1")
        assert dict(table.items()) == {b"1": b"new"}
        assert table.get(b"2") is None


@pytest.mark.parametrize("beside", [True, False], ids=["reader", "writer"])
def test_a_topic_that_is_made_anew_with_another_number_of_partitions(tmp_path: Path, beside: bool) -> None:
    """Another topic has the name, so that no old position counts in its partitions."""
    keys = [b"k%d" % i for i in range(20)]
    with opened(tmp_path) as store:
        store.create_topic("t", partitions=3)
        for key in keys[:8]:
            store.append("t", b"old", key=key)
        table = (LogStore(tmp_path) if beside else store).table("t")
        assert len(table) == 8
        store.delete_topic("t")
        store.create_topic("t", partitions=1)
        for key in keys:
            store.append("t", b"new", key=key)
        assert [table.get(key) for key in keys] == [b"new"] * 20


# ---- threads -----------------------------------------------------------------------------------------------


def test_a_key_that_moves_on_while_it_is_looked_up(ram: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its record gives way to one above the end that the lookup has seen."""
    with kstore.open(ram / "t-0", "a", **OPTIONS) as log:
        log.append(b"old", key=b"k")
        taken = SegmentSet.snapshot
        is_moved = False

        def moved(segments: SegmentSet) -> Any:
            nonlocal is_moved
            if not is_moved:
                is_moved = True
                log.append(b"new", key=b"k")
                log.roll()
                log.compact()
            return taken(segments)

        monkeypatch.setattr(SegmentSet, "snapshot", moved)
        record = log.last(b"k", isolation="read_committed")
        assert record is not None
        assert record.value == b"new"


@pytest.mark.parametrize("by_files", [False, True])
def test_threads_beside_a_writer(ram: Path, *, by_files: bool) -> None:
    """A value is never older than one that was acknowledged before it was asked for. No key is missed, though
    segments are compacted all the time, and the record of a key gives way to a later one."""
    with opened(ram, **OPTIONS) as store:
        store.create_topic("t", 2)
        acked, ended = [0], threading.Event()
        tables = [store.table("t"), LogStore(ram).table("t")]
        others = {b"%d" % i for i in range(20)}
        store.extend("t", [b"v"] * 20, keys=sorted(others))
        store.append("t", b"0", key=b"k")
        logs = [writer(store, "t", number) for number in range(2)]
        if by_files:
            for log in logs:
                make_key_file(log)

        def get(table: kstore.Table) -> None:
            least = acked[0]
            found = int(table[b"k"])
            assert least <= found <= acked[0] + 1, (least, found)

        def list_keys(table: kstore.Table) -> None:
            assert set(table) == others | {b"k"}
            assert len(table) == 21
            assert dict(table.items()).keys() == others | {b"k"}

        def work(table: kstore.Table, read: Any) -> None:
            while not ended.is_set():
                read(table)

        works = [partial(work, table, read) for table in tables for read in (get, list_keys)]
        with threads_doing(*works, ended=ended):
            for i in range(1, times(200)):
                store.append("t", b"%d" % i, key=b"k")
                acked[0] = i
                store.append("t", b"%d" % i, key=b"%d" % (i % 20))
                if i % 20 == 0:
                    for log in logs:
                        log.roll()
                        log.compact()
                        if by_files:
                            log.make_key_files()
