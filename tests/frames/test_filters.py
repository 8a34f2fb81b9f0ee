"""Frames with random filters give the rows that a filter of Record objects gives."""

from __future__ import annotations

import datetime
import operator
import tempfile
from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

import kstore
import kstore.arrow
import kstore.polars
from tests.helpers.examples import examples

pl = pytest.importorskip("polars")
duckdb = pytest.importorskip("duckdb")

Row = dict[str, Any]
OPERATORS = {"=": operator.eq, "<": operator.lt, "<=": operator.le, ">": operator.gt, ">=": operator.ge}
RECORDS = st.lists(
    st.tuples(
        st.sampled_from([None, "", "a", "ab", "b", "ñ"]),
        st.integers(-1, 12),
        st.lists(st.tuples(st.sampled_from(["h", "i"]), st.sampled_from([None, b"", b"x"])), max_size=2),
    ),
    max_size=30,
)


class Filter:
    """A filter three times: of a row, of Polars, of SQL (None if DuckDB has no such filter)."""

    def __init__(self, of_row: Callable[[Row], bool | None], of_polars: Any, sql: str | None) -> None:
        self.of_row, self.of_polars, self.sql = of_row, of_polars, sql


def at(milliseconds: float) -> datetime.datetime:
    return datetime.datetime(1970, 1, 1, tzinfo=datetime.UTC) + datetime.timedelta(milliseconds=milliseconds)


def compared(name: str, sign: str, value: Any, literal: str) -> Filter:
    compare = OPERATORS[sign]
    column = pl.col(name)
    return Filter(
        lambda row: None if row[name] is None else compare(row[name], value),
        compare(column, pl.lit(value, pl.Datetime("ms", "UTC")) if name == "timestamp" else value),
        f'"{name}" {sign} {literal}',
    )


def every(parts: list[Filter], *, is_all: bool) -> Filter:
    def of_row(row: Row) -> bool | None:
        found = [part.of_row(row) for part in parts]
        decided = [each for each in found if each is not None]
        if (not all(decided)) if is_all else any(decided):
            return not is_all
        return None if None in found else is_all

    return Filter(
        of_row,
        (pl.all_horizontal if is_all else pl.any_horizontal)([part.of_polars for part in parts])
        if len(parts) > 3
        else _joined([part.of_polars for part in parts], is_all),
        None
        if any(part.sql is None for part in parts)
        else "(" + (" and " if is_all else " or ").join(str(part.sql) for part in parts) + ")",
    )


def _joined(parts: list[Any], is_all: bool) -> Any:
    found = parts[0]
    for part in parts[1:]:
        found = found & part if is_all else found | part
    return found


SIGNS = st.sampled_from(list(OPERATORS))
LEAVES = st.one_of(
    st.builds(lambda sign, n: compared("offset", sign, n, str(n)), SIGNS, st.integers(-2, 16)),
    st.builds(lambda sign, n: compared("partition", sign, n, str(n)), SIGNS, st.integers(-1, 3)),
    st.builds(
        lambda sign, n: compared("timestamp", sign, at(n), f"timestamptz '{at(n).isoformat()}'"),
        SIGNS,
        st.integers(-2, 13),
    ),
    st.builds(
        lambda sign, k: compared("key", sign, k, f"'{k}'"), SIGNS, st.sampled_from(["", "a", "ab", "ñ"])
    ),
    st.builds(lambda t: compared("topic", "=", t, f"'{t}'"), st.sampled_from(["one", "two", "three"])),
    st.builds(
        lambda low, high, closed: Filter(
            lambda row: {"both": low <= row["offset"] <= high, "left": low <= row["offset"] < high}[closed],
            pl.col("offset").is_between(low, high, closed=closed),
            f'("offset" >= {low} and "offset" {"<=" if closed == "both" else "<"} {high})',
        ),
        st.integers(-1, 9),
        st.integers(-1, 9),
        st.sampled_from(["both", "left"]),
    ),
    st.builds(
        lambda values: Filter(
            lambda row: None if row["key"] is None else row["key"] in values,
            pl.col("key").is_in(values),
            "key in ({})".format(", ".join(f"'{each}'" for each in values)),
        ),
        st.lists(st.sampled_from(["a", "ab", "b", "c"]), min_size=1, max_size=3),
    ),
    st.builds(
        lambda prefix: Filter(
            lambda row: None if row["key"] is None else row["key"].startswith(prefix),
            pl.col("key").str.starts_with(prefix),
            f"starts_with(key, '{prefix}')",
        ),
        st.sampled_from(["", "a", "ab", "ñ"]),
    ),
    st.builds(
        lambda name, value: Filter(
            lambda row: {"key": name, "value": value} in row["headers"],
            pl.col("headers").list.contains(
                pl.lit({"key": name, "value": value}, pl.Struct({"key": pl.String, "value": pl.Binary}))
            ),
            None,
        ),
        st.sampled_from(["h", "i", "j"]),
        st.sampled_from([None, b"", b"x"]),
    ),
    st.builds(
        lambda part: Filter(
            lambda row: None if part.of_row(row) is None else not part.of_row(row),
            ~part.of_polars,
            f"(not {part.sql})",
        ),
        st.builds(lambda sign, n: compared("offset", sign, n, str(n)), SIGNS, st.integers(-2, 16)),
    ),
)
FILTERS = st.recursive(
    LEAVES,
    lambda inner: st.builds(
        lambda parts, is_all: every(parts, is_all=is_all),
        st.lists(inner, min_size=1, max_size=4),
        st.booleans(),
    ),
    max_leaves=6,
)


def rows_of(store: kstore.LogStore) -> list[Row]:
    return [
        {
            "topic": tp.topic,
            "partition": tp.partition,
            "offset": record.offset,
            "timestamp": at(record.timestamp),
            "key": None if record.key is None else record.key.decode(),
            "headers": [{"key": name, "value": value} for name, value in record.headers],
        }
        for tp in store.partitions
        for record in store.open(*tp)
    ]


@examples(25)
@given(
    st.lists(RECORDS, min_size=4, max_size=4),
    st.lists(FILTERS, min_size=1, max_size=8),
    st.sampled_from([1, 2]),
    st.integers(0, 20),
    st.integers(0, 6),
)
def test_random_filters(
    records: list[Any], filters: list[Filter], threads: int, start: int, length: int
) -> None:
    with tempfile.TemporaryDirectory() as directory:
        with kstore.LogStore(directory, mode="a", index_interval_bytes=50) as store:
            for topic in ("one", "two"):
                store.create_topic(topic, partitions=2)
            for tp, appended in zip(store.partitions, records, strict=True):
                for key, timestamp, headers in appended:
                    value = None if key is None else key.encode()
                    store.log(*tp).append(b"", key=value, timestamp=timestamp, headers=headers)
                store.log(*tp).roll()
        rows = rows_of(kstore.LogStore(directory))
        names = ["topic", "partition", "offset", "timestamp", "key", "headers"]
        frame = kstore.polars.scan(directory, threads=threads)
        dataset = kstore.arrow.dataset(directory, threads=threads)  # noqa: F841 - DuckDB finds it by its name
        for each in filters:
            wanted = [row for row in rows if each.of_row(row)]
            found = frame.filter(each.of_polars).select(names)
            assert found.collect().to_dicts() == wanted, found.explain()
            assert found.slice(start, length).collect().to_dicts() == wanted[start : start + length]
            cut = frame.head(length).filter(each.of_polars).select("topic", "offset", "partition").collect()
            assert cut.rows() == [
                (row["topic"], row["offset"], row["partition"]) for row in rows[:length] if each.of_row(row)
            ]
            if each.sql is not None:
                selected = duckdb.sql(
                    f'select topic, partition, "offset" from dataset where {each.sql} order by all'
                )
                assert selected.fetchall() == sorted(
                    (row["topic"], row["partition"], row["offset"]) for row in wanted
                )
