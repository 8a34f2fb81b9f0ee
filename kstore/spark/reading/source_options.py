"""What a reader's options ask for. Needs no Spark."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

from kstore.log.files.layout import TopicPartition
from kstore.spark.errors import failure
from kstore.spark.options import CONFIG, READER, READER_TAKES, WRITER, Given, bad
from kstore.spark.paths import roots_of
from kstore.spark.reading.logs import Isolation
from kstore.spark.reading.plan import LATEST, Bounds, PerPartition, Topics

_OF_WRITER = {"topic": "what to read, subscribe says"}


@dataclass(frozen=True, slots=True)
class SourceOptions:
    """What to read; checked when it is made."""

    roots: tuple[str, ...]
    topics: Topics
    starting: Bounds
    ending: Bounds
    min_partitions: int | None
    max_records_per_partition: int | None
    max_partition_bytes: int
    open_cost_bytes: int
    parallelism: int | None
    max_offsets_per_trigger: int | None
    max_bytes_per_trigger: int | None
    min_offsets_per_trigger: int | None
    max_trigger_delay_ms: int
    fail_on_data_loss: bool
    fail_on_corrupt_batch: bool
    include_headers: bool
    isolation: Isolation

    @classmethod
    def of(cls, options: Mapping[str, str], *, stream: bool) -> "SourceOptions":
        """From a reader's options. SparkSourceError."""
        given = Given(options, READER_TAKES)
        given.refuse(WRITER, "writer", _OF_WRITER)
        for name in given.texts:
            if name.startswith(CONFIG):
                raise bad(f"{name} is an option of the writer")
        if stream:
            for option in READER:
                if option.only == "batch queries" and option.name in given:
                    raise bad(f"{option.name} is an option of batch queries; a stream has no end")
        else:
            _check_start(given["startingOffsets"])
        least, most = given["minOffsetsPerTrigger"], given["maxOffsetsPerTrigger"]
        if least is not None and most is not None and least > most:
            raise bad(f"minOffsetsPerTrigger, {least}, is more than maxOffsetsPerTrigger, {most}")
        roots, topics = roots_of(given.paths()), _topics(given)
        starting = _bounds(given, "starting", "latest" if stream else "earliest")
        ending = _bounds(given, "ending", "latest")
        _check_order(starting, ending)
        return cls(
            roots,
            topics,
            starting,
            ending,
            given["minPartitions"],
            given["maxRecordsPerPartition"],
            given["maxPartitionBytes"],
            given["openCostInBytes"],
            given["minPartitionNum"],
            most,
            given["maxBytesPerTrigger"],
            least,
            given["maxTriggerDelay"],
            given["failOnDataLoss"],
            given["failOnCorruptBatch"],
            given["includeHeaders"],
            given["isolation"],
        )


def _check_start(offsets: str | PerPartition | None) -> None:
    """KSTORE_INVALID_OPTION if a batch query starts at the end."""
    if offsets == "latest":
        raise bad("startingOffsets is 'latest', which only streams take: there is nothing after the end")
    for topic, own in offsets.items() if isinstance(offsets, Mapping) else ():
        if LATEST in own.values():
            raise bad(f"startingOffsets of {topic} has -1, the end, which only streams take")


def _topics(given: Given) -> Topics:
    names = [name for name in ("subscribe", "subscribePattern", "assign") if name in given]
    if len(names) != 1:
        found = " and ".join(names) if names else "none of them"
        raise bad(f"one of subscribe, subscribePattern and assign says what to read; given is {found}")
    topics: Topics = given[names[0]]
    return topics


def _bounds(
    given: Given, side: Literal["starting", "ending"], default: Literal["earliest", "latest"]
) -> Bounds:
    offsets = given[f"{side}Offsets"] or default
    if side == "ending" and offsets == "earliest":
        raise bad("endingOffsets is 'earliest', allowed is latest or JSON with offsets")
    return Bounds(
        offsets,
        given[f"{side}Timestamp"],
        given[f"{side}OffsetsByTimestamp"],
        given["startingOffsetsByTimestampStrategy"],
    )


def _check_order(starting: Bounds, ending: Bounds) -> None:
    """KSTORE_INVALID_OPTION for ranges that end before they start."""
    if (
        starting.timestamp is not None
        and ending.timestamp is not None
        and starting.timestamp > ending.timestamp
    ):
        raise bad(f"startingTimestamp {starting.timestamp} lies after endingTimestamp {ending.timestamp}")
    for name, first, last in (
        ("Offsets", starting.table, ending.table),
        ("OffsetsByTimestamp", starting.timestamps, ending.timestamps),
    ):
        if isinstance(first, Mapping) and isinstance(last, Mapping):
            for topic, own in first.items():
                for partition, start in own.items():
                    end = last.get(topic, {}).get(partition, -1)
                    if start > end >= 0:
                        raise failure(
                            "KSTORE_INVALID_OPTION",
                            f"starting{name} {start} lies after ending{name} {end}",
                            TopicPartition(topic, partition),
                        )
