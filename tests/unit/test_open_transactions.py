"""Many transactions that are open at once: what is told of them, and how much work each takes."""

import random
import sys
from collections.abc import Callable
from pathlib import Path
from types import FrameType
from typing import Any

import pytest

import kstore
from kstore.log.producers import states
from tests.helpers.markers import marker

T = 1_700_000_000_000


def begin(log: kstore.LogWriter, producer: int) -> int:
    batch = kstore.encode_batch(
        [(T, None, b"v", None)], producer_id=producer, producer_epoch=0, base_sequence=0, transactional=True
    )
    return log.append_batches(batch, origin="coordinator").first_offset


def end(log: kstore.LogWriter, *producers: int, kind: str = "ABORT") -> int:
    markers = b"".join(marker(kind, producer, T) for producer in producers)
    return log.append_batches(markers, origin="coordinator", transaction_version=1).first_offset


@pytest.mark.parametrize("at_once", [1, 3])
@pytest.mark.parametrize("seed", range(4))
def test_transactions_that_end_in_any_order(tmp_path: Path, seed: int, at_once: int) -> None:
    """Each aborted one says up to where all was decided when it ended: the lowest other one, or the end."""
    rnd = random.Random(seed)
    path = tmp_path / "t-0"
    ongoing: dict[int, int] = {}
    expected = []
    with kstore.open(path, "a", message_timestamp_before_max_ms=2**62) as log:
        for producer in range(60):
            ongoing[producer] = begin(log, producer)
            assert log.last_stable_offset() == min(ongoing.values())
            if len(ongoing) > rnd.randrange(20) + at_once:
                ended = rnd.sample(sorted(ongoing), at_once)
                kind = rnd.choice(["ABORT", "ABORT", "COMMIT"])
                at = end(log, *ended, kind=kind)
                for place, each in enumerate(ended):
                    first = ongoing.pop(each)
                    if kind == "ABORT":
                        stable = min(ongoing.values(), default=at + place + 1)
                        expected.append((each, first, at + place, stable))
        stable = log.last_stable_offset()
        assert stable == min(ongoing.values(), default=log.log_end_offset)
        told = log.aborted_transactions(0, 10**6)
    assert [tuple(each)[:4] for each in told] == expected
    reader = kstore.open(path)
    assert reader.last_stable_offset() == stable
    assert reader.aborted_transactions(0, 10**6) == told


def steps_of(function: Callable[[], Any]) -> int:
    """How many steps of Python the module of producers' states takes."""
    count = 0

    def trace(frame: FrameType, event: str, _: Any) -> Any:
        nonlocal count
        if frame.f_code.co_filename != states.__file__:
            return None
        frame.f_trace_opcodes = True
        count += event == "opcode"
        return trace

    before = sys.gettrace()
    sys.settrace(trace)
    try:
        function()
    finally:
        sys.settrace(before)
    return count


def test_the_work_for_each_does_not_grow_with_their_number(tmp_path: Path) -> None:
    counts = []
    for many in (50, 400):
        path = tmp_path / f"t-{many}"

        def write(path: Path = path, many: int = many) -> None:
            with kstore.open(path, "a", message_timestamp_before_max_ms=2**62) as log:
                for producer in range(many):
                    begin(log, producer)
                for producer in range(many):
                    end(log, producer)

        def read(path: Path = path) -> None:
            for snapshot in path.glob("*.snapshot"):
                snapshot.unlink()
            kstore.open(path, clean=False).last_stable_offset()

        counts.append([steps_of(write) / many, steps_of(read) / many])
    few, more = counts
    assert all(b < 1.5 * a for a, b in zip(few, more, strict=True)), counts
