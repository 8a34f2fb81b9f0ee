from typing import Any

def split_by_partition(
    values: Any, keys: Any, timestamps: Any, count: int, keyless: int
) -> list[tuple[int, Any, Any, Any]]:
    """[(partition, values, keys, timestamps), …] of the partitions, of `count`, that get records; the columns are for
    RecordAppender.extend. A record's partition is that of its key as Kafka's default partitioner has it; one without a
    key goes to `keyless`."""
