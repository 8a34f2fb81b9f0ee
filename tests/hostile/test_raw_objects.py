"""Objects that are made in wrong ways, wrong calls: an ordinary exception, never a crash."""

import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from types import FrameType

import numpy
import pytest

import kstore
from tests.helpers.effort import SEED, times
from tests.helpers.processes import environment

PROBER = Path(__file__).with_name("prober.py")


@pytest.mark.timeout(times(300))
def test_no_object_of_a_compiled_class_crashes(tmp_path: Path) -> None:
    """raw: without __init__, or with wrong arguments; derived: of subclasses that forget super().__init__();
    whole: as they should be, used wrongly; cleared: emptied by the collector; cyclic: freed by it in many
    orders."""
    done = subprocess.run(
        [sys.executable, "-W", "ignore", str(PROBER)],
        cwd=tmp_path,
        env=environment(),
        capture_output=True,
        text=True,
        check=False,
    )
    *crashes, last = done.stdout.splitlines() or ["nothing was printed"]
    assert (crashes, done.returncode) == ([], 0), f"SEED={SEED}: {done.stderr}"
    assert last.endswith(" classes")
    assert int(last.split()[0]) >= 20


def test_a_writer_without_init_is_closed() -> None:
    class Forgetful(kstore.LogWriter):
        def __init__(self) -> None:
            pass

    for log in (Forgetful(), kstore.LogWriter.__new__(kstore.LogWriter)):
        uses: list[Callable[[], object]] = [
            lambda log=log: log.append(b"x"),
            lambda log=log: log.extend([b"x"]),
        ]
        for use in uses:
            with pytest.raises(kstore.LogClosedError):
                use()


def test_a_batch_without_init_says_so() -> None:
    made = kstore.RecordBatch.__new__(kstore.RecordBatch)
    for use in (lambda: made.is_valid, made.ensure_valid, made.records, lambda: list(made.unverified())):
        with pytest.raises(TypeError, match="without its __init__"):
            use()


def test_a_second_init_changes_nothing() -> None:
    """The header of the larger batch would reach past the bytes of the smaller one."""
    small, large = (kstore.encode_batch([(1, None, b"." * size, None)]) for size in (1, 1 << 20))
    made = kstore.RecordBatch(small)
    for data in (large, large[:100], small):
        with pytest.raises(TypeError, match="make another one"):
            made.__init__(data)  # type: ignore[misc]
    assert made.is_valid
    assert made.data == small


def test_iterators_outlive_what_they_came_from(tmp_path: Path) -> None:
    with kstore.open(tmp_path / "t-0", "a", index_interval_bytes=1) as log:
        log.extend([b"%d" % n for n in range(1000)], batch_bytes=100, headers={"name": b"value"})
        expected = list(log)
        readers = [iter(log.records()), iter(log.scan(columns=("value",))), iter(log.batches())]
        index = log.segments[0].offset_index
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


def test_no_record_is_taken_while_another_is_made(tmp_path: Path) -> None:
    """Python code that runs while a record is made, as a signal handler may, and a profiler does, asks for
    the next one: the reader would move the bytes that the record is made of."""
    with kstore.open(tmp_path / "t-0", "a") as log:
        for n in range(3):
            log.append(b"%d" % n, headers=[("first", b"a" * 100_000), ("second", b"b" * 100_000)])
        records = log.records()
        refused = set()

        def use_the_same(frame: FrameType, event: str, argument: object) -> None:
            if event == "call":
                with pytest.raises(RuntimeError) as caught:
                    next(records)
                refused.add(str(caught.value))

        sys.setprofile(use_the_same)
        try:
            found = list(records)
        finally:
            sys.setprofile(None)
    assert [record.value for record in found] == [b"0", b"1", b"2"]
    assert {record.headers for record in found} == {(("first", b"a" * 100_000), ("second", b"b" * 100_000))}
    assert refused == {"this iterator is being read already; each thread needs one of its own"}


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
        assert log.append(memoryview(b"abcd")[::2], memoryview(b"abcd")[::2], headers=()) == 0
        assert (log.get(0).key, log.get(0).headers) == (b"ac", ())
