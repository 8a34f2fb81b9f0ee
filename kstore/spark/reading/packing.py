"""Which splits share a task, as small files share one in Spark's file sources. Needs no Spark."""

from collections.abc import Iterable, Mapping
from typing import Any

from kstore.arguments import instances
from kstore.log.files.layout import TopicPartition
from kstore.spark.options import OPEN_COST_BYTES, TARGET_BYTES
from kstore.spark.reading.logs import Logs
from kstore.spark.reading.plan import LEAST_BYTES, Range, Split, check_numbers, split_ranges
from kstore.spark.reading.source_options import SourceOptions

_PARALLELISM = 200  # if it is unknown; Spark makes as many partitions of a shuffle


def pack_splits(
    splits: Iterable[Split],
    *,
    parallelism: int | None = None,
    max_records_per_partition: int | None = None,
    target_bytes: int = TARGET_BYTES,
    open_cost_bytes: int = OPEN_COST_BYTES,
) -> list[tuple[Split, ...]]:
    """Splits that share a task: each tuple is what one task should read. Their order stays as it is.

    `parallelism` is how many tasks can run at once: no task gets more than its share of all bytes, so that
    all have something to do. If it is None, the share is that of 200 tasks, but at least 4 MiB. No task gets
    more than `target_bytes`, or than `max_records_per_partition` offsets. A split counts for its size, and
    for `open_cost_bytes` before the next one; one that is larger has a task for itself. This is the formula
    of Spark's file sources. SparkSourceError, TypeError.
    """
    splits = instances("splits", splits, Split)
    check_numbers(
        ("parallelism", parallelism, 1),
        ("maxRecordsPerPartition", max_records_per_partition, 1),
        ("target_bytes", target_bytes or 0, 1),
        ("open_cost_bytes", -1 if open_cost_bytes is None else open_cost_bytes, 0),
    )
    costs = [split.size + open_cost_bytes for split in splits]
    share = sum(costs) // parallelism if parallelism else max(LEAST_BYTES, sum(costs) // _PARALLELISM)
    most = min(target_bytes, max(open_cost_bytes, share))
    groups: list[list[Split]] = []
    size = records = 0
    for split, cost in zip(splits, costs, strict=True):
        records += split.stop - split.start
        is_full = max_records_per_partition is not None and records > max_records_per_partition
        if not groups or size + split.size > most or is_full:
            groups.append([])
            size, records = 0, split.stop - split.start
        groups[-1].append(split)
        size += cost
    return [tuple(group) for group in groups]


def tasks(
    logs: Logs,
    ranges: Mapping[TopicPartition, Range],
    options: SourceOptions,
    parallelism: int | None,
) -> list[tuple[Split, ...]]:
    """What the tasks read of ranges of offsets that were resolved before. `parallelism`: how many can run at
    once, if the options do not say."""
    parallelism = options.min_partitions or options.parallelism or parallelism
    splits = split_ranges(
        logs,
        ranges,
        min_partitions=options.min_partitions,
        max_records_per_partition=options.max_records_per_partition,
        target_bytes=options.max_partition_bytes,
        parallelism=parallelism,
        fail_on_data_loss=options.fail_on_data_loss,
        fail_on_corrupt_batch=options.fail_on_corrupt_batch,
    )
    return pack_splits(
        splits,
        parallelism=parallelism,
        max_records_per_partition=options.max_records_per_partition,
        target_bytes=options.max_partition_bytes,
        open_cost_bytes=options.open_cost_bytes,
    )


def parallelism_of(sc: Any) -> int | None:
    """How many tasks of a SparkContext can run at once; None while no executor of a cluster has
    registered."""
    is_known = sc.master.startswith("local") or sc.getConf().contains("spark.default.parallelism")
    if not is_known and sc._jsc.sc().getExecutorMemoryStatus().size() < 2:  # the driver is one
        return None
    return int(sc.defaultParallelism)


def context_of(session: Any) -> Any:
    """The SparkContext of a session; None over Spark Connect, where there is none."""
    return getattr(session, "sparkContext", None)


def session_parallelism(session: Any) -> int | None:
    """How many tasks of a session can run at once, or what its configuration says for Spark's file sources;
    None if that is unknown, as over Spark Connect."""
    for name in ("spark.sql.files.minPartitionNum", "spark.sql.leafNodeDefaultParallelism"):
        if number := session.conf.get(name, None):
            return int(number)
    sc = context_of(session)
    return None if sc is None else parallelism_of(sc)
