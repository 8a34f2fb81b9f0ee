"""Columns of text and of times, and tables of other libraries."""

from __future__ import annotations

import datetime
import tempfile
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

import kstore
from tests.columns.plain import scanned
from tests.helpers.examples import examples

CELLS = (
    st.none()
    | st.text(max_size=20).map(lambda text: text.encode("utf-8", "surrogatepass"))
    | st.binary(max_size=6)
    | st.sampled_from(
        [b"a" * 40, b"a" * 17 + b"\xff", "ü".encode() * 9, b"\xed\xa0\x80", b"\xf4\x90\x80\x80"]
    )
)


def is_text(cell: bytes | None) -> bool:
    try:
        (cell or b"").decode()
    except UnicodeDecodeError:
        return False
    return True


@examples(80)
@given(
    st.lists(st.tuples(CELLS, CELLS), min_size=1, max_size=12),
    st.sampled_from([("key",), ("value",), ("value", "key")]),
    st.booleans(),
    st.sampled_from([["key", "value"], ["value"], ["offset", "value", "key"]]),
    st.sampled_from(["uncompressed", "lz4"]),
)
def test_text_is_what_python_decodes(
    cells: list[Any], text: tuple[str, ...], views: bool, columns: list[str], codec: str
) -> None:
    """A cell that Python does not decode raises, and the error names its record."""
    with tempfile.TemporaryDirectory() as directory:
        with kstore.open(Path(directory, "text-0"), "a", compression_type=codec) as log:
            log.extend([value for _, value in cells], keys=[key for key, _ in cells])
        log = kstore.open(Path(directory, "text-0"))
        read = [name for name in text if name in columns]
        wrong = [
            offset
            for offset, (key, value) in enumerate(cells)
            if not all(is_text({"key": key, "value": value}[name]) for name in read)
        ]
        if wrong:
            with pytest.raises(ValueError, match=r"record at offset \d+ is not UTF-8") as raised:
                list(log.scan(columns, text=text, views=views))
            assert int(str(raised.value).split("offset ")[1].split()[0]) in wrong
        else:
            rows, _ = scanned(log, columns=columns, views=views)
            decoded = [
                tuple(
                    cell.decode() if name in text and cell is not None else cell
                    for name, cell in zip(columns, row, strict=True)
                )
                for row in rows
            ]
            assert scanned(log, columns=columns, text=text, views=views) == (decoded, None)


def test_tables(tmp_path: Path) -> None:
    pytest.importorskip("polars")
    pytest.importorskip("pandas")
    with kstore.LogStore(tmp_path, mode="a") as store:
        store.create_topic("orders", partitions=2)
        store.extend("orders", [b"tea", b"milk"], keys=[b"ann", b"bob"], timestamps=[1711530458631, -1])
        scan = store.scan("orders", ["key", "timestamp"], timestamps="datetime", text=["key"])
        at = datetime.datetime(2024, 3, 27, 9, 7, 38, 631000, datetime.UTC)
        before = datetime.datetime(1969, 12, 31, 23, 59, 59, 999000, datetime.UTC)  # no timestamp is -1
        rows = [("ann", at), ("bob", before)]
        assert sorted(scan.to_polars().rows()) == rows
        assert sorted((row["key"], row["timestamp"]) for row in scan.to_arrow().to_pylist()) == rows
        frame = scan.to_pandas()
        assert sorted(zip(frame["key"], frame["timestamp"], strict=True)) == rows


@pytest.mark.parametrize("given", [{"text": ["offset"]}, {"text": "key"}, {"timestamps": "s"}])
def test_wrong_arguments(tmp_path: Path, given: dict[str, Any]) -> None:
    with (
        kstore.open(tmp_path / "orders-0", "a") as log,
        pytest.raises((TypeError, ValueError), match=next(iter(given))),
    ):
        log.scan(**given)
