"""LogSegmentsTest: the map of base offset to segment."""

from collections.abc import Sequence
from pathlib import Path

import pytest

import kstore
from tests.conformance import forge
from tests.conformance.forge import simple


def log_of(tmp_path: Path, bases: Sequence[int]) -> kstore.PartitionLog:
    path = forge.partition(tmp_path, {base: [simple(base)] for base in bases})
    return kstore.open(path, clean=True)


@pytest.mark.parametrize(
    ("offset", "base"), [(0, None), (1, 1), (2, 1), (3, 3), (4, 3), (6, 5), (7, 7), (2**62, 7)]
)
def test_size_for_floor(tmp_path: Path, offset: int, base: int | None) -> None:
    """Bases 1, 3, 5, 7: the floor of 2 is 1, of 3 is 3."""
    log = log_of(tmp_path, (1, 3, 5, 7))
    at = log.floor_segment(offset)
    assert (log.segments[at].base_offset if at >= 0 else None) == base


@pytest.mark.filterwarnings("ignore::kstore.DataLossWarning")  # of offsets between the segments
def test_basic_operations(tmp_path: Path) -> None:
    """Segments come in the order of their bases, whatever the directory's; each knows the next."""
    log = log_of(tmp_path, (4, 2, 1, 3, 10, 2**40))
    assert [s.base_offset for s in log.segments] == [1, 2, 3, 4, 10, 2**40]
    assert [s.end_offset for s in log.segments] == [2, 3, 4, 10, 2**40, 2**63 - 1]
