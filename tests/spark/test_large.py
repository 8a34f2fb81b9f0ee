"""A log of many records is the same through every path. KSTORE_SPARK_RECORDS says how many: 5000000 takes minutes."""

import os
import zlib
from collections.abc import Iterable, Iterator
from functools import reduce
from operator import xor
from pathlib import Path
from typing import Any

import pytest

import kstore
import kstore.spark

pytestmark = [pytest.mark.spark, pytest.mark.filterwarnings("ignore")]
RECORDS = int(os.environ.get("KSTORE_SPARK_RECORDS", "200000"))
SUM = ("count(*)", "sum(offset)", "bit_xor(crc32(concat(key, value)) * 1000003 + offset + partition)")


def mark(offset: int, partition: int, cells: bytes) -> int:
    """What a record adds to the check sum."""
    return zlib.crc32(cells) * 1_000_003 + offset + partition


def summed(marks: Iterable[tuple[int, int]]) -> Iterator[tuple[int, int, int]]:
    """(count, sum of offsets, check sum) of pairs of offset and mark."""
    count = total = check = 0
    for offset, one in marks:
        count, total, check = count + 1, total + offset, check ^ one
    yield count, total, check


def of_records(records: Iterable[Any]) -> Iterator[tuple[int, int, int]]:
    return summed((o, mark(o, p, key + value)) for o, p, key, value in records)


def of_batches(batches: Iterable[Any]) -> Iterator[tuple[int, int, int]]:
    for b in batches:
        yield from summed(
            (int(o), mark(int(o), b.partition, b.keys[i] + b.values[i])) for i, o in enumerate(b.offsets)
        )


def of_arrow(batches: Iterable[Any]) -> Iterator[tuple[int, int, int]]:
    for b in batches:
        columns = (b.column(name).to_pylist() for name in ("offset", "partition", "key", "value"))
        yield from of_records(zip(*columns, strict=True))


@pytest.fixture(scope="module")
def large(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("large")
    for partition in range(2):
        codec = ("producer", "lz4")[partition]
        with kstore.open(
            path / f"t-{partition}", "a", compression_type=codec, internal_segment_bytes=64 << 20
        ) as log:
            for start in range(partition, RECORDS, 200_000):
                numbers = range(start, min(start + 200_000, RECORDS), 2)
                log.extend([b"%068d" % (n * 7919) for n in numbers], [b"%016d" % n for n in numbers])
    return path


def test_every_path_gives_all_records(spark: Any, large: Path) -> None:
    expected = (0, 0, 0)

    def add(one: tuple[int, ...], other: tuple[int, ...]) -> tuple[int, ...]:
        return one[0] + other[0], one[1] + other[1], xor(one[2], other[2])

    for partition in range(2):
        with kstore.open(large / f"t-{partition}") as log:
            own = of_records((r.offset, partition, r.key, r.value) for r in log)
            expected = reduce(add, own, expected)
    assert expected[0] == RECORDS

    sc, splits = spark.sparkContext, {"target_bytes": 8 << 20}
    names = ["offset", "partition", "key", "value"]
    for as_, of in (("records", of_records), ("batches", of_batches), ("arrow", of_arrow)):
        rdd = kstore.spark.rdd(sc, large, "t", as_=as_, columns=names, **splits)  # type: ignore[arg-type]
        assert rdd.mapPartitions(of).reduce(add) == expected, as_
    for via in ("datasource", "mapInArrow") if spark.version >= "4" else ("mapInArrow",):
        frame = kstore.spark.dataframe(spark, large, "t", via=via, minPartitions=8)  # type: ignore[arg-type]
        assert tuple(frame.selectExpr(*SUM).first()) == expected, via
