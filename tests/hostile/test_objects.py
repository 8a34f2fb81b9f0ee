"""Objects that outlive what they came from, and calls within calls: an error at most, never a crash."""

import sys
from pathlib import Path
from types import FrameType

import numpy
import pytest

import kstore
from tests.helpers.processes import run_python


def test_objects_in_cycles_are_collected(tmp_path: Path) -> None:
    """No order in which the garbage collector ends them crashes the process."""
    done = run_python(Path(__file__).with_name("cycles.py").read_text(), tmp_path)
    *crashes, last = done.stdout.splitlines() or ["nothing was printed"]
    assert (crashes, done.returncode) == ([], 0), done.stderr
    assert int(last.split()[0]) >= 15


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
