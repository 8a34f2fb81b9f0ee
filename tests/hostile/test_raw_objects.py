"""Objects that nobody should make, calls that nobody should make: an ordinary exception, never a crash."""

import subprocess
import sys
from pathlib import Path

import numpy
import pytest

import kstore
from kstore.engine.record import batch
from kstore.engine.record.batch import RecordBatch
from kstore.engine.record.batch_builder import encode_batch
from kstore.engine.scan import batch_reader as reader
from kstore.engine.scan.column_builder import ColumnBuilder
from kstore.engine.scan.column_scanner import ColumnScanner
from kstore.engine.scan.predicate import Predicate
from kstore.engine.segment.index import OffsetIndex, TimeIndex, TransactionIndex
from tests.helpers.processes import environment

PROBER = Path(__file__).with_name("prober.py")


@pytest.mark.parametrize("shape", ["raw", "derived", "whole", "cleared", "cyclic"])
def test_no_object_of_any_class_of_the_engine_crashes(tmp_path: Path, shape: str) -> None:
    """raw: without __init__, or with wrong arguments; derived: of subclasses that forget super().__init__(); whole: as
    they should be, used wrongly; cleared: emptied by the collector; cyclic: freed by it in many orders. prober.py finds the classes by itself."""
    done = subprocess.run(
        [sys.executable, "-W", "ignore", str(PROBER), shape],
        cwd=tmp_path,
        env=environment(),
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    *crashes, last = done.stdout.splitlines() or ["nothing was printed"]
    assert (crashes, done.returncode) == ([], 0), done.stderr
    assert last.endswith(" classes")
    assert int(last.split()[0]) >= 40


def test_writer_without_init_is_closed() -> None:
    class Forgetful(kstore.LogWriter):
        def __init__(self) -> None:
            pass

    for log in (Forgetful(), kstore.LogWriter.__new__(kstore.LogWriter)):
        with pytest.raises(kstore.LogClosedError):
            log.append(b"x")
        with pytest.raises(kstore.LogClosedError):
            log.extend([b"x"])
        with pytest.raises(kstore.LogClosedError):
            log.wait_until_durable(0) or log._sync_sealed()


def test_batch_without_init_says_so() -> None:
    made = RecordBatch.__new__(RecordBatch)
    for use in (lambda: made.is_valid, made.ensure_valid, made.records, lambda: list(made.unverified())):
        with pytest.raises(TypeError, match="without its __init__"):
            use()


def test_second_init_changes_nothing() -> None:
    """The header of the larger batch would reach behind the bytes of the smaller one."""
    small, large = (encode_batch([(1, None, b"." * size, None)]) for size in (1, 1 << 20))
    made = RecordBatch(small)
    for data in (large, large[:100], small):
        with pytest.raises(TypeError, match="make another one"):
            made.__init__(data)
    assert made.is_valid
    assert made.data == small


def test_second_init_of_rows_and_predicates_does_nothing(tmp_path: Path) -> None:
    """It added fields to those there were, past the room for them, and let go of bytes that were pointed at."""
    log = kstore.open(tmp_path / "t-0", "a")
    log.append(b"x", headers={"name": b"value" * 20})
    rows, predicate = (
        ColumnBuilder(("offset", "leader_epoch"), 1, 1, False),
        Predicate(0, 9, header=("name", b"value" * 20)),
    )
    for _ in range(100):
        rows.__init__(("value", "position", "size"), 1, 1, True)
        predicate.__init__(5, 9, header=("other", b"value" * 21))
    (columns,) = ColumnScanner((log.active.view()[0],)).configure(rows, predicate)
    assert columns.rows() == [(0, 0)]
    log.close()


@pytest.mark.parametrize("kind", [OffsetIndex, TimeIndex, TransactionIndex])
def test_entries_are_bytes(kind: type) -> None:
    with pytest.raises(TypeError):
        kind(0, None)


def test_segments_of_a_reader_are_segments() -> None:
    """What lies where a segment has its base offset told where to stop."""
    for kind in (reader.RecordReader, reader.BatchReader):
        for thing in (1, [1], object()):
            with pytest.raises(TypeError):
                next(kind((thing,), 0, 5))


def test_scanner_is_configured_once_and_first(tmp_path: Path) -> None:
    log = kstore.open(tmp_path / "t-0", "a")
    log.append(b"x" * 100)
    scanner = ColumnScanner((log.active.view()[0],))
    with pytest.raises(RuntimeError, match="configured before it is read"):
        next(scanner)
    scanner.configure(ColumnBuilder(("value",), 1, 1, True), Predicate(0, 9))
    with pytest.raises(RuntimeError, match="configured before"):
        scanner.configure(ColumnBuilder(("value",), 1, 1, True), Predicate(0, 9))
    assert next(scanner).rows() == [(b"x" * 100,)]
    log.close()


def test_nothing_is_appended_to_a_view(tmp_path: Path) -> None:
    """It would be written over what the writer has in its index file."""
    log = kstore.open(tmp_path / "t-0", "a", config=kstore.LogConfig(index_interval_bytes=1))
    for _ in range(10):
        log.append(b"x")
    segment = log.active.view()[0]
    offsets, times = segment.offset_index, segment.time_index
    before = offsets.to_bytes(), times.to_bytes()
    offsets.truncate_to(3)
    times.truncate_to(3)
    with pytest.raises(ValueError, match="full"):
        offsets.append(1000, 1000)
    with pytest.raises(ValueError, match="full"):
        times.maybe_append(1 << 60, 1000)
    log.append(b"x")
    after = log.active.view()[0]
    assert after.offset_index.to_bytes()[: len(before[0])] == before[0]
    assert after.time_index.to_bytes()[: len(before[1])] == before[1]
    log.close()


def test_iterators_outlive_what_they_came_from(tmp_path: Path) -> None:
    with kstore.open(tmp_path / "t-0", "a", config=kstore.LogConfig(index_interval_bytes=1)) as log:
        log.extend([b"%d" % n for n in range(1000)], batch_bytes=100, headers={"name": b"value"})
        expected = list(log)
        readers = [iter(log.records()), iter(log.scan(columns=("value",))), iter(log.batches())]
        index = log.active.view()[0].offset_index
        entries, slots = iter(index), len(index)
        first = [next(each) for each in readers]
    records = first[2].unverified()
    record = next(records)
    del log, index
    assert record == expected[0]
    assert list(records) == expected[1 : first[2].records_count]
    assert [first[0], *readers[0]] == expected
    columns = [first[1], *readers[1]]
    assert [row[0] for each in columns for row in each.rows()] == [r.value for r in expected]
    assert [r for each in (first[2], *readers[2]) for r in each] == expected
    assert len(list(entries)) == slots


def test_no_record_is_taken_while_another_is_made(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Names of headers are made by Python code, under which a signal handler or another thread may use the same reader:
    it would move the bytes that the record is made of."""
    with kstore.open(tmp_path / "t-0", "a") as log:
        for n in range(3):
            log.append(b"%d" % n, headers=[("first", b"a" * 100_000), ("second", b"b" * 100_000)])
        records = reader.RecordReader((log.active.view()[0],))
        refused = []

        def use_the_same(name: bytes) -> str:
            try:
                refused.append(next(records))
            except RuntimeError as e:
                refused.append(str(e))
            return name.decode()

        monkeypatch.setattr(batch, "java_text", use_the_same)
        found = list(records)
    assert [record.value for record in found] == [b"0", b"1", b"2"]
    assert {record.headers for record in found} == {(("first", b"a" * 100_000), ("second", b"b" * 100_000))}
    assert refused == ["this iterator is being read already; each thread needs one of its own"] * 6


def test_arrays_of_objects_are_no_bytes(tmp_path: Path) -> None:
    """Their buffers hold pointers."""
    array = numpy.array([b"a"], dtype=object)
    with kstore.open(tmp_path / "t-0", "a") as log:
        for wrong in (
            {"value": array},
            {"value": b"v", "key": array},
            {"value": b"v", "headers": [("h", array)]},
        ):
            with pytest.raises(TypeError, match="pointers"):
                log.append(**wrong)  # type: ignore[arg-type]
        for headers in (1, [1], 0, "", [("h",)], {"h"}):
            with pytest.raises(TypeError, match="headers are pairs"):
                log.append(b"v", headers=headers)  # type: ignore[arg-type]
        for offset in (True, 1.5, -1, 2**63, float("inf")):
            with pytest.raises((TypeError, ValueError), match="offset is"):
                log.wait_until_durable(offset)  # type: ignore[arg-type]
        assert log.log_end_offset == 0
        assert log.append(memoryview(b"abcd")[::2], memoryview(b"abcd")[::2], headers=()) == 0
        assert (log.get(0).key, log.get(0).headers) == (b"ac", ())
