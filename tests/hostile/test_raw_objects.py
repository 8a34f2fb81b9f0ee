"""Objects that nobody should make, calls that nobody should make: an ordinary exception, never a crash."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

import kstore
from kstore.engine import reader
from kstore.engine.batch import RecordBatch
from kstore.engine.builder import encode_batch
from kstore.engine.entries import Entries
from kstore.engine.file import File
from kstore.engine.index import OffsetIndex, TimeIndex, TransactionIndex
from kstore.engine.mapping import Mapping
from kstore.engine.predicate import Predicate
from kstore.engine.rows import Rows
from kstore.engine.scanner import Scanner

PROBER = Path(__file__).with_name("prober.py")


@pytest.mark.parametrize("shape", ["raw", "derived", "whole", "cleared", "cyclic"])
def test_no_object_of_any_class_of_the_engine_crashes(tmp_path: Path, shape: str) -> None:
    """raw: without __init__, or with wrong arguments; derived: of subclasses that forget super().__init__(); whole: as
    they should be, used wrongly; cleared: emptied by the collector; cyclic: freed by it in many orders. prober.py finds the classes by itself."""
    done = subprocess.run(
        [sys.executable, "-W", "ignore", str(PROBER), shape],
        cwd=tmp_path,
        env={**os.environ, "PYTHONPATH": str(Path(kstore.__file__).parents[1])},
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
    batch = RecordBatch.__new__(RecordBatch)
    for use in (lambda: batch.is_valid, batch.ensure_valid, batch.records, lambda: list(batch.unverified())):
        with pytest.raises(TypeError, match="without its __init__"):
            use()


def test_second_init_changes_nothing() -> None:
    """The header of the larger batch would reach behind the bytes of the smaller one."""
    small, large = (encode_batch([(1, None, b"." * size, None)]) for size in (1, 1 << 20))
    batch = RecordBatch(small)
    for data in (large, large[:100], small):
        with pytest.raises(TypeError, match="make another one"):
            batch.__init__(data)
    assert batch.is_valid
    assert batch.data == small


def test_second_init_of_rows_and_predicates_does_nothing(tmp_path: Path) -> None:
    """It added fields to those there were, past the room for them, and let go of bytes that were pointed at."""
    log = kstore.open(tmp_path / "t-0", "a")
    log.append(b"x", headers={"name": b"value" * 20})
    rows, predicate = Rows(("offset", "leader_epoch"), 1, 1, False), Predicate(0, 9, header=("name", b"value" * 20))
    for _ in range(100):
        rows.__init__(("value", "position", "size"), 1, 1, True)
        predicate.__init__(5, 9, header=("other", b"value" * 21))
    (batch,) = Scanner((log.active.view()[0],)).configure(rows, predicate)
    assert batch.rows() == [(0, 0)]
    log.close()


@pytest.mark.parametrize("kind", [OffsetIndex, TimeIndex, TransactionIndex])
def test_entries_are_bytes(kind: type) -> None:
    with pytest.raises(TypeError):
        kind(0, None)


def test_segments_of_a_reader_are_segments() -> None:
    for kind in (reader.RecordReader, reader.BatchReader):
        with pytest.raises(TypeError):
            next(kind((1,)))
    with pytest.raises(TypeError):
        next(Scanner((object(),)).configure(Rows(("offset",), 1, 1, False), Predicate(0, 1)))


def test_scanner_is_configured_once_and_first(tmp_path: Path) -> None:
    log = kstore.open(tmp_path / "t-0", "a")
    log.append(b"x" * 100)
    scanner = Scanner((log.active.view()[0],))
    with pytest.raises(RuntimeError, match="configured before it is read"):
        next(scanner)
    scanner.configure(Rows(("value",), 1, 1, True), Predicate(0, 9))
    with pytest.raises(RuntimeError, match="configured before"):
        scanner.configure(Rows(("value",), 1, 1, True), Predicate(0, 9))
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
    batch = first[2]
    records = batch.unverified()
    record = next(records)
    del log, index, batch
    assert record == expected[0]
    assert list(records) == expected[1 : first[2].records_count]
    assert [first[0], *readers[0]] == expected
    columns = [first[1], *readers[1]]
    assert [row[0] for each in columns for row in each.rows()] == [r.value for r in expected]
    assert [r for each in (first[2], *readers[2]) for r in each] == expected
    assert len(list(entries)) == slots


def test_bases_that_are_no_index_are_empty(tmp_path: Path) -> None:
    assert (len(Entries()), Entries().to_bytes()) == (0, b"")
    with pytest.raises(TypeError):
        Mapping(None, 1)
    with pytest.raises(ValueError, match="0 bytes"):
        Mapping(File(str(tmp_path / "f"), "w"), 0)
