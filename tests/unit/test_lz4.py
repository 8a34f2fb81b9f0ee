"""Blocks of LZ4: what LZ4's own library makes of a block is what they unpack to."""

from pathlib import Path
from typing import Any

import kstore

BLOCK = 64 << 10


def test_a_value_that_holds_a_block(tmp_path: Path) -> None:
    """The second block of the batch is its end: four bytes, and what is a sound block."""
    value = b"x" * (BLOCK - 10) + b"\x01\0\0\x48abcd" + b"d" * 8 + b"0123456789abcdefghijkl"
    with kstore.open(tmp_path / "t-0", "a", compression_type="lz4") as log:
        log.append(value)
        assert [record.value for record in log] == [value]
        assert log.get(0).value == value  # type: ignore[union-attr]
        assert [row[0] for rows in log.scan(["value"]) for row in rows.rows()] == [value]


def test_a_compacted_log(tmp_path: Path) -> None:
    """Its batch begins with a record whose offset delta looks like a token."""
    options: Any = {"cleanup_policy": "compact", "min_cleanable_dirty_ratio": 0.0, "compression_type": "lz4"}
    keys = [b"user-%d" % n for n in range(20)]
    for first in (86, 87, 150, 151, 214, 215):
        with kstore.open(tmp_path / f"t-{first}", "a", **options) as log:
            log.extend([b"x"] * first + [b"0" * 16] * 20, [b"other"] * first + keys, timestamps=1700000000000)
            log.append(b"end", b"other")
            log.roll()
            log.compact()
            assert [(r.offset, r.key, r.value) for r in log] == [
                *((first + n, key, b"0" * 16) for n, key in enumerate(keys)),
                (first + 20, b"other", b"end"),
            ]
