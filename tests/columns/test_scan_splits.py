"""A log divided for several threads: every byte is in one split, whatever the index says."""

from itertools import pairwise
from types import SimpleNamespace
from typing import Any

import pytest

from kstore.engine.segment.index import OffsetIndex, OffsetPosition
from kstore.log.read.scan_splits import SPLIT_BYTES, ScanSplit, divide

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


SIZES = (100, 3 * MIB, 4 * MIB, 4 * MIB + 1, 100 * MIB + 7, (1 << 31) - 1)


@pytest.mark.parametrize(("records", "rows"), [(1, 1), (138, 16_384), (10_000, 16_384), (5, 1 << 40)])
def test_splits_cover_a_segment(records: int, rows: int) -> None:
    """Up to 2 GiB, where the index's sums of 32 bits wrap."""
    every = 64 << 10
    for size in SIZES:
        splits = list(divide((segment(size, every, records),), 0, 1 << 62, None, rows))
        assert splits[0].position == 0
        assert splits[-1] == ScanSplit(0, splits[-1].position, size)
        assert all(one.end == other.position for one, other in pairwise(splits))
        assert all(split.position < split.end for split in splits)
        assert all(split.end - split.position <= SPLIT_BYTES + every for split in splits[:-1])


def test_splits_hold_whole_batches_of_columns() -> None:
    splits = list(divide((segment(100 * MIB, 16 << 10, 138),), 0, 1 << 62, None, 16_384))
    rows = [(split.end - split.position) // (16 << 10) * 138 for split in splits[:-1]]
    assert all(2 * 16_384 - 2 * 138 < count <= 2 * 16_384 for count in rows)
