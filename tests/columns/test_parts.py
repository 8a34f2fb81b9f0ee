"""A log divided for several threads: every byte is in one part, whatever the index says."""

from itertools import pairwise
from types import SimpleNamespace
from typing import Any

import pytest

from kstore.engine.segment.index import OffsetIndex, OffsetPosition
from kstore.log.read.scan_splits import PART_BYTES, ScanSplit, divide

MIB = 1 << 20


def segment(size: int, every: int, records: int) -> Any:
    """A segment of batches of `every` bytes with so many records, all of them in its index."""
    index = OffsetIndex(0, max_entries=1 << 20)
    for at in range(1, -(-size // every)):
        index.append((at + 1) * records - 1, at * every)
    return SimpleNamespace(
        base_offset=0,
        end_offset=1 << 62,
        size=size,
        offset_index=index,
        scan_start=lambda *_: OffsetPosition(0, 0),
    )


@pytest.mark.parametrize("size", [100, 3 * MIB, 4 * MIB, 4 * MIB + 1, 100 * MIB + 7, (1 << 31) - 1])
@pytest.mark.parametrize(("records", "rows"), [(1, 1), (138, 16_384), (10_000, 16_384), (5, 1 << 40)])
def test_parts_cover_a_segment(size: int, records: int, rows: int) -> None:
    """Up to 2 GiB, where the index's sums of 32 bits wrap."""
    every = 64 << 10
    parts = list(divide((segment(size, every, records),), 0, 1 << 62, None, rows))
    assert parts[0].position == 0
    assert parts[-1] == ScanSplit(0, parts[-1].position, size)
    assert all(one.end == other.position for one, other in pairwise(parts))
    assert all(part.position < part.end for part in parts)
    assert all(part.end - part.position <= PART_BYTES + every for part in parts[:-1])


def test_parts_hold_whole_batches_of_columns() -> None:
    """As nearly as batches of the log allow, and never more rows."""
    parts = list(divide((segment(100 * MIB, 16 << 10, 138),), 0, 1 << 62, None, 16_384))
    rows = [(part.end - part.position) // (16 << 10) * 138 for part in parts[:-1]]
    assert all(2 * 16_384 - 2 * 138 < count <= 2 * 16_384 for count in rows)
