"""store.table(): a mapping that equals a dict, whatever happens to its logs."""

import shutil
import tempfile
import threading
import time
from pathlib import Path

import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

import kstore
from kstore import LogStore
from kstore.engine.record.hashes import murmur2
from kstore.store.table import _Part
from tests.helpers.markers import marker

SHM = Path("/dev/shm")
KEYS = st.sampled_from([b"", b"a", b"b", b"c", b"dd"])
VALUES = st.one_of(st.none(), st.binary(max_size=3))
OPTIONS = {
    "internal_segment_bytes": 400,
    "index_interval_bytes": 50,
    "cleanup_policy": ("compact", "delete"),
    "retention_ms": -1,
    "min_cleanable_dirty_ratio": 0,
    "file_delete_delay_ms": 0,
}


class TableMachine(RuleBasedStateMachine):
    """`parts` has the (key, value) of every offset of every partition, `starts` the log start offsets."""

    def __init__(self) -> None:
        super().__init__()
        self.root = Path(tempfile.mkdtemp(dir=SHM if SHM.is_dir() else None))
        self.parts: list[list[tuple[bytes, bytes | None] | None]] = [[], []]  # None: it was compacted away
        self.starts = [0, 0]
        self.store = LogStore(self.root, mode="a", background=False, max_open_partitions=1, **OPTIONS)  # type: ignore[arg-type]
        self.store.create_topic("t", 2)

    @initialize()
    def begin(self) -> None:
        self.tables = [self.store.table("t"), LogStore(self.root).table("t")]
        self.asked = [self.store.table("t"), LogStore(self.root).table("t")]  # for single keys only

    def log(self, partition: int) -> kstore.LogWriter:
        log = self.store.log("t", partition % len(self.parts))
        assert isinstance(log, kstore.LogWriter)
        return log

    @rule(key=KEYS, value=VALUES)
    def put(self, key: bytes, value: bytes | None) -> None:
        partition, _ = self.store.append("t", value, key=key)
        self.parts[partition].append((key, value))

    @rule(key=KEYS, value=VALUES, partition=st.integers(0, 2))
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
            entry = part[offset]  # it does not come back where later ones are cut off
            assert entry is None or any(
                later is not None and later[0] == entry[0] for later in part[offset + 1 :]
            )
            part[offset] = None

    @rule(partition=st.integers(0, 2))
    def make_key_files(self, partition: int) -> None:
        log = self.log(partition)
        log.roll()
        assert all(made.keys >= 0 for made in log.make_key_files())

    @rule(partition=st.integers(0, 2), share=st.floats(0, 1))
    def cut_off(self, partition: int, share: float) -> None:
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
    def one_that_is_new(self) -> None:
        self.tables.append(self.store.table("t"))
        del self.tables[2:-1]

    def expected(self) -> dict[bytes, bytes]:
        last: list[dict[bytes, bytes | None]] = [
            dict(filter(None, part[start:])) for part, start in zip(self.parts, self.starts, strict=True)
        ]
        found = {key: value for part in reversed(last) for key, value in part.items() if value is not None}
        for key in {key for part in last for key in part}:
            own = last[(murmur2(key) & 0x7FFFFFFF) % len(last)]
            if key in own:
                value = own[key]
                found.pop(key, None)
                if value is not None:
                    found[key] = value
        return found

    @invariant()
    def tables_are_dicts(self) -> None:
        tables = getattr(self, "tables", [])
        for number, table in enumerate([*tables, *getattr(self, "asked", ())]):
            expected = self.expected()
            if number < len(tables):
                assert set(table) == expected.keys()
                assert len(table) == len(expected)
            for key in (b"", b"a", b"b", b"c", b"dd", b"none"):
                assert (key in table) == (key in expected)
                several = (
                    sum(key == k for part in self.parts for k, _ in filter(None, part)) > 0
                    and len(self.parts) > 1
                )
                if key in expected and not several:
                    assert table[key] == expected[key]
                own = self.parts[(murmur2(key) & 0x7FFFFFFF) % len(self.parts)]
                start = self.starts[(murmur2(key) & 0x7FFFFFFF) % len(self.parts)]
                if key in dict(filter(None, own[start:])):
                    assert table.get(key) == expected.get(key)

    def teardown(self) -> None:
        self.store.abandon()
        shutil.rmtree(self.root)


TableMachine.TestCase.settings = settings(
    max_examples=20, stateful_step_count=20, deadline=None, suppress_health_check=list(HealthCheck)
)
TestTable = TableMachine.TestCase


@pytest.mark.parametrize("by_files", [False, True])
def test_a_key_that_was_deleted_in_an_old_partition_only(tmp_path: Path, *, by_files: bool) -> None:
    with LogStore(tmp_path, mode="a", background=False) as store:
        store.create_topic("t", 3)
        own = murmur2(b"k") % 2**31 % 3
        old, other = sorted({0, 1, 2} - {own})
        for partition, value in ((old, None), (other, b"v")):
            log = store.log("t", partition)
            assert isinstance(log, kstore.LogWriter)
            log.append(value, b"k")
            if by_files:
                log.roll()
                log.make_key_files()
        table = store.table("t")
        assert (table.get(b"k"), list(table), dict(table.items())) == (b"v", [b"k"], {b"k": b"v"})
        store.append("t", None, key=b"k")
        assert (table.get(b"k"), list(table), dict(table.items())) == (None, [], {})


def test_a_table(tmp_path: Path) -> None:
    with LogStore(tmp_path, mode="a") as store:
        store.create_topic("prices", 3, cleanup_policy="compact")
        table = store.table("prices")
        assert dict(table) == {}
        for i in range(100):
            store.append("prices", b"%d" % i, key=b"k%d" % (i % 10), headers=[("i", b"%d" % i)])
        assert dict(table) == {b"k%d" % i: b"%d" % (90 + i) for i in range(10)}
        assert sorted(table.values()) == [b"%d" % (90 + i) for i in range(10)]
        record = table.record(b"k3")
        assert record is not None
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


@pytest.mark.parametrize("by_files", [False, True])
def test_committed_records_only(tmp_path: Path, *, by_files: bool) -> None:
    with LogStore(tmp_path, mode="a") as store:
        store.create_topic("t")
        table, asked = store.table("t"), store.table("t")
        log = store.log("t")
        assert isinstance(log, kstore.LogWriter)
        store.append("t", b"0", key=b"k")
        store.append("t", b"no key")
        if by_files:
            log.roll()
            log.make_key_files()
        now = int(time.time() * 1000)
        for sequence, (kind, expected) in enumerate((("ABORT", b"0"), ("COMMIT", b"1"))):
            record = (now, b"k", b"%d" % sequence, None)
            log.append_batches(
                kstore.encode_batch(
                    [record], producer_id=7, producer_epoch=0, base_sequence=sequence, transactional=True
                )
            )
            assert table[b"k"] == asked[b"k"] == b"0"
            if by_files:
                log.roll()
                log.make_key_files()
                assert asked[b"k"] == b"0"
            log.append_batches(marker(kind, 7, now), origin="coordinator", transaction_version=0)
            assert asked[b"k"] == expected
            assert dict(table) == {b"k": expected}


@pytest.mark.parametrize("by_files", [False, True])
def test_threads_beside_a_writer(tmp_path: Path, *, by_files: bool) -> None:
    """A value is never older than one that was acknowledged before it was asked for."""
    with LogStore(tmp_path, mode="a", background=False, **OPTIONS) as store:  # type: ignore[arg-type]
        store.create_topic("t", 2)
        acked, failures, ended = [0], [], threading.Event()
        tables = [store.table("t"), LogStore(tmp_path).table("t")]
        for number in range(2 if by_files else 0):
            log = store.log("t", number)
            assert isinstance(log, kstore.LogWriter)
            log.append(b"", key=b"first")
            log.roll()
            log.make_key_files()

        def read(table: kstore.Table) -> None:
            try:
                while not ended.is_set():
                    least = acked[0]
                    found = int(table.get(b"k", b"0"))
                    assert least <= found <= acked[0] + 1, (least, found)
            except BaseException as e:  # noqa: BLE001 - for the main thread
                failures.append(e)

        threads = [threading.Thread(target=read, args=(table,)) for table in (*tables, tables[0])]
        for thread in threads:
            thread.start()
        for i in range(1, 1000):
            store.append("t", b"%d" % i, key=b"k")
            acked[0] = i
            if i % 300 == 0:
                for number in range(2):
                    log = store.log("t", number)
                    assert isinstance(log, kstore.LogWriter)
                    log.compact()
                    if by_files:
                        log.make_key_files()
        ended.set()
        for thread in threads:
            thread.join()
        assert failures == []


def test_after_an_erasure(tmp_path: Path) -> None:
    """Keys are those that have a value now: not erased ones, and again those whose later record was erased."""
    with LogStore(tmp_path, mode="a", background=False, internal_segment_bytes=300) as store:
        store.create_topic("t")
        expected = {}
        for i in range(10):
            store.append("t", b"%d" % i, key=b"k%d" % i)
            expected[b"k%d" % i] = b"%d" % i
        store.append("t", b"new", key=b"k1")
        store.append("t", None, key=b"k2")
        log = store.log("t")
        assert isinstance(log, kstore.LogWriter)
        tables = [store.table("t"), LogStore(tmp_path).table("t")]
        for table in tables:
            assert len(table) == 9
        log.erase(keys=[b"k3"], reason="asked")
        log.erase(keys=[b"k4"], reason="asked", what="values")
        log.erase(where=lambda record: record.offset in (10, 11), reason="asked")
        del expected[b"k3"], expected[b"k4"]
        for table in tables:
            assert len(table) == 8
            assert list(table.keys() - expected.keys()) == []
            assert dict(table) == expected == dict(table.items())


@pytest.mark.parametrize("reads", [False, True])
def test_all_keys_while_segments_are_replaced_all_the_time(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, *, reads: bool
) -> None:
    """A background that compacts each time that the keys are read is not waited for, and hides nothing."""
    with LogStore(tmp_path, mode="a", background=False, internal_segment_bytes=300) as store:
        store.create_topic("t", cleanup_policy="compact")
        log = store.log("t")
        assert isinstance(log, kstore.LogWriter)
        table = (LogStore(tmp_path) if reads else store).table("t")
        expected = {}

        def write_and_compact() -> None:
            for key in (b"a", b"b", b"c"):
                expected[key] = b"%d" % log.append(b"%d" % log.log_end_offset, key)
            log.roll()
            log.compact()

        write_and_compact()
        take = _Part._take

        def taken(part: _Part, view: kstore.PartitionLog, end: int) -> None:
            write_and_compact()
            take(part, view, end)
            write_and_compact()

        for number in range(3):
            expected[b"%d" % number] = b"v"
            log.append(b"v", b"%d" % number)
            with monkeypatch.context() as patch:
                patch.setattr(_Part, "_take", taken)
                assert len(table) == len(expected)
                write_and_compact()
                found = list(table)
                assert (len(found), set(found)) == (len(expected), expected.keys())
                write_and_compact()
                assert dict(table.items()).keys() == expected.keys()
            assert dict(table.items()) == expected


def test_a_log_that_is_compacted_between_looks_at_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A key whose record goes for a later one, above the end that was seen just before, is not passed over."""
    with LogStore(tmp_path, mode="a", background=False, internal_segment_bytes=300) as store:
        store.create_topic("t", cleanup_policy="compact")
        log = store.log("t")
        assert isinstance(log, kstore.LogWriter)
        log.append(b"old", b"k")
        log.append(b"v", b"other")
        stable = kstore.LogWriter.last_stable_offset
        todo = [b"new"]

        def seen_too_early(self: kstore.LogWriter) -> int:
            end = stable(self)
            while todo:
                self.append(todo.pop(), b"k")
                self.roll()
                self.compact()
            return end

        monkeypatch.setattr(kstore.LogWriter, "last_stable_offset", seen_too_early)
        assert dict(store.table("t").items()) == {b"k": b"new", b"other": b"v"}


def test_a_table_of_a_reader_takes_in_new_partitions(tmp_path: Path) -> None:
    """Without refresh(): keys that belong to others now have new values there, or are deleted there."""
    keys = [b"c%d" % i for i in range(100)]
    with LogStore(tmp_path, mode="a", background=False) as writer:
        writer.create_topic("t", partitions=2, cleanup_policy="compact")
        writer.extend("t", [b"old"] * 100, keys=keys)
        with LogStore(tmp_path) as reader:
            table = reader.table("t")
            assert len(table) == 100
            for count in (3, 5):
                writer.add_partitions("t", count)
                for i, key in enumerate(keys):
                    writer.append("t", b"new %d" % count if i % 2 else None, key=key)
                assert [table.get(key) for key in keys] == [
                    b"new %d" % count if i % 2 else None for i in range(100)
                ]
                assert len(table) == 50
            assert reader.topics == {"t": [0, 1]}
        with pytest.raises(kstore.LogClosedError):
            table.get(b"c0")


def test_a_table_of_a_reader_tells_that_its_topic_was_deleted(tmp_path: Path) -> None:
    with LogStore(tmp_path, mode="a", background=False) as writer:
        writer.create_topic("t", partitions=2)
        writer.extend("t", [b"old"] * 10, keys=[b"%d" % i for i in range(10)])
        table = LogStore(tmp_path).table("t")
        assert len(table) == 10
        writer.delete_topic("t")
        with pytest.raises(kstore.LogNotFoundError):
            table.get(b"1")
        writer.create_topic("t")
        assert dict(table.items()) == {}
        writer.append("t", b"new", key=b"1")
        assert dict(table.items()) == {b"1": b"new"}
        assert table.get(b"2") is None
