"""Random logs written by kstore itself, against a plain filter; scans of odd shapes."""

import tempfile
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

import kstore
from tests.columns.plain import COLUMNS, expected, scanned
from tests.helpers.examples import examples

NAMES = st.sampled_from(["h", "name", "ñ", ""])
CELLS = st.none() | st.binary(max_size=30) | st.sampled_from([b"", b"key", b"key2", b"x" * 13, b"y" * 300])
RECORDS = st.tuples(
    CELLS,
    CELLS,
    st.integers(0, 60),
    st.lists(st.tuples(NAMES, st.none() | st.binary(max_size=5)), max_size=3),
)
APPENDS = st.lists(st.tuples(st.lists(RECORDS, min_size=1, max_size=9), st.booleans()), max_size=8)
WANTED = st.fixed_dictionaries(
    {},
    optional={
        "start": st.integers(0, 60),
        "stop": st.integers(0, 60),
        "since": st.integers(-2, 62),
        "until": st.integers(-2, 62),
        "key": st.sampled_from([b"", b"key", b"none"]),
        "key_prefix": st.sampled_from([b"", b"k", b"key2", b"x" * 13]),
        "header": st.sampled_from(["h", ("h", None), ("name", b""), {"h": None, "ñ": b""}, {}]),
    },
)
SHAPES = st.fixed_dictionaries(
    {},
    optional={
        "batch_rows": st.integers(1, 40),
        "batch_bytes": st.integers(1, 500),
        "views": st.booleans(),
        "threads": st.sampled_from([1, 2]),
    },
)


@examples(60)
@given(
    APPENDS,
    st.sampled_from(["uncompressed", "gzip", "snappy", "lz4", "zstd"]),
    st.lists(
        st.tuples(WANTED, SHAPES, st.sets(st.sampled_from(COLUMNS), min_size=1)), min_size=1, max_size=6
    ),
)
def test_random_logs(appends: Any, codec: str, questions: Any) -> None:
    with tempfile.TemporaryDirectory() as directory:
        options = {"compression_type": codec, "index_interval_bytes": 50}
        with kstore.open(Path(directory, "random-0"), "a", **options) as log:
            for records, roll in appends:
                log.extend(
                    [value for _, value, _, _ in records],
                    keys=[key for key, _, _, _ in records],
                    timestamps=[timestamp for _, _, timestamp, _ in records],
                    headers=[headers for _, _, _, headers in records],
                )
                if roll:
                    log.roll()
            for wanted, shape, columns in questions:
                names = sorted(columns)
                assert scanned(log, columns=names, **wanted, **shape) == expected(log, wanted, names)


def long_log(path: Path, codec: str, count: int = 4000, **options: Any) -> kstore.LogWriter:
    """Enough for several parts and windows: values of 3 KB that tell their offset."""
    log = kstore.open(path, "a", compression_type=codec, **options)
    for first in range(0, count, 100):
        offsets = range(first, first + 100)
        log.extend(
            [b"%010d" % i * 300 for i in offsets],
            keys=[b"%d" % i for i in offsets],
            timestamps=[10 * i for i in offsets],
        )
    return log


@pytest.mark.parametrize(
    ("codec", "views", "threads"),
    [("uncompressed", True, 1), ("uncompressed", False, 2), ("lz4", False, 1), ("lz4", True, 2)],
)
def test_many_windows_and_splits(tmp_path: Path, codec: str, views: bool, threads: int) -> None:
    with long_log(tmp_path / "long-0", codec, segment_bytes=5 << 20) as log:
        wanted = {"start": 17, "stop": 3990, "since": 500, "until": 39_000}
        right = expected(log, wanted)
        assert len(right[0]) == 3850
        for rows in (64, 10_000):
            assert scanned(log, views=views, threads=threads, batch_rows=rows, **wanted) == right
        batches = list(log.scan(views=views, threads=threads))  # all are kept: none may change another
        assert [row[0] for batch in batches for row in batch.rows()] == list(range(4000))
        assert [row[4] for batch in batches for row in batch.rows()] == [
            b"%010d" % i * 300 for i in range(4000)
        ]


def test_views_point_into_what_was_read(tmp_path: Path) -> None:
    with long_log(tmp_path / "long-0", "uncompressed", 300) as log:
        (batch,) = log.scan(["value"], views=True)
    column = batch.column("value")
    assert set(column.views["buffer"].tolist()).isdisjoint({0})
    assert column.buffers[2] is not None
    assert column.buffers[2].size == 0  # nothing was copied
    assert column.to_list()[299] == b"0000000299" * 300


def test_memory_is_bounded(tmp_path: Path) -> None:
    with long_log(tmp_path / "long-0", "uncompressed") as log:
        for views in (False, True):
            sizes = [batch.nbytes for batch in log.scan(batch_bytes=1 << 20, views=views)]
            assert max(sizes) < 4 << 20
        (batch,) = log.scan(key=b"77", views=True)  # what matches nothing holds nothing
        assert batch.nbytes < 2 << 20


def test_in_time_order(tmp_path: Path) -> None:
    with long_log(tmp_path / "long-0", "uncompressed") as log:
        wanted = {"since": 10_000, "until": 10_500}
        assert scanned(log, in_order=True, **wanted) == expected(log, wanted)


@pytest.mark.parametrize("shift", [-61, 3])
def test_splits_that_begin_at_no_batch(tmp_path: Path, shift: int) -> None:
    """An index that names bytes inside batches costs the second thread its work, and no row."""
    with long_log(tmp_path / "long-0", "uncompressed"):
        pass
    index = tmp_path / "long-0" / f"{0:020}.index"
    entries = bytearray(index.read_bytes())
    for at in range(80, len(entries) - 80, 8):
        position = int.from_bytes(entries[at + 4 : at + 8], "big") + shift
        entries[at + 4 : at + 8] = position.to_bytes(4, "big")
    index.write_bytes(entries)
    log = kstore.open(tmp_path / "long-0")
    rows, error = scanned(log, columns=["offset", "key"], threads=2)
    assert error is None
    assert rows == [(i, b"%d" % i) for i in range(4000)]
