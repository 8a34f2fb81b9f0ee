"""Many transactions that are open at once: what is told of them, and how much work each takes."""

import sys
from collections.abc import Callable
from pathlib import Path
from types import FrameType
from typing import Any

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
