"""A compaction puts other files in the place of those that a reader is reading, and deletes those at once."""

from pathlib import Path
from typing import Any

import pytest

import kstore
from tests.helpers.readers import EVERY, READERS, WAYS


@pytest.mark.parametrize("on_error", ["raise", "skip"])
@pytest.mark.parametrize(("kind", "way"), EVERY)
def test_it_reads_on(ram: Path, kind: str, way: str, on_error: str) -> None:
    path = ram / "t-0"
    options: Any = {"cleanup_policy": "compact", "file_delete_delay_ms": 0, "internal_segment_bytes": 250_000}
    with kstore.open(path, "a", **options) as log:
        for number in range(60):
            log.append(b"." * 50_000, b"%d" % (number // 2))
        log.roll()
        log.append(b"last", b"last")
        with READERS[kind](path, on_error=on_error) as reader:
            offsets = WAYS[way](reader)
            found = [next(offsets) for _ in range(2)]
            log.compact()
            found += offsets
    assert found == sorted(set(found))
    assert set(range(1, 61, 2)) | {60} <= set(found)
