"""A log as a table, in four libraries: how many records and bytes each key has since a point in time.

python examples/columns.py DIRECTORY [MILLISECONDS]
"""

import sys

import kstore


def with_pyarrow(log: kstore.PartitionLog, since: int) -> list[tuple[bytes | None, int, int]]:
    import pyarrow
    import pyarrow.compute as pc

    table = pyarrow.table(log.scan(["key", "value"], since=since))
    sizes = table.append_column("size", pc.binary_length(table["value"]))
    found = sizes.group_by("key").aggregate([([], "count_all"), ("size", "sum")]).sort_by("key")
    return list(zip(*(found[name].to_pylist() for name in ("key", "count_all", "size_sum")), strict=True))


def with_polars(log: kstore.PartitionLog, since: int) -> list[tuple[bytes | None, int, int]]:
    import polars as pl

    frame = pl.DataFrame(log.scan(["key", "value"], since=since, views=True))  # views are its own format
    return frame.group_by("key").agg(pl.len(), pl.col("value").bin.size().sum()).sort("key").rows()


def with_duckdb(log: kstore.PartitionLog, since: int) -> list[tuple[bytes | None, int, int]]:
    import duckdb

    scan = log.scan(["key", "value"], since=since)  # noqa: F841, the query finds it by its name
    query = "select key, count(*), sum(octet_length(value))::bigint from scan group by key order by key"
    return duckdb.sql(query).fetchall()


def with_pandas(log: kstore.PartitionLog, since: int) -> list[tuple[bytes | None, int, int]]:
    frame = log.scan(["key", "value"], since=since).to_pandas()
    sizes = frame["value"].map(len, na_action="ignore")
    found = sizes.groupby(frame["key"], dropna=False).agg(["size", "sum"])
    return [
        (key if isinstance(key, bytes) else None, int(n), int(size)) for key, n, size in found.itertuples()
    ]


if __name__ == "__main__":
    if len(sys.argv) < 2:
        sys.exit(__doc__)
    opened = kstore.open(sys.argv[1])
    for work in (with_pyarrow, with_polars, with_duckdb, with_pandas):
        try:
            print(work.__name__, work(opened, int(sys.argv[2]) if len(sys.argv) > 2 else 0))
        except ImportError as e:
            print(work.__name__, e)
