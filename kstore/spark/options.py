"""The options of the data source: names and meanings of Spark's Kafka source (spec spark 4), path in place of servers."""

import difflib
import json
import re
import warnings
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal

from kstore.arguments import MAX_OFFSET
from kstore.config import LogConfig
from kstore.errors import InvalidConfigError
from kstore.log.files import layout
from kstore.spark.errors import SparkSourceError, failure, translated
from kstore.spark.reading.logs import Isolation, local_path, roots_of
from kstore.spark.reading.packing import OPEN_COST_BYTES
from kstore.spark.reading.plan import LATEST, TARGET_BYTES, Bounds, PerPartition, Topics

_SOURCE = (
    "subscribe",
    "subscribePattern",
    "assign",
    "startingOffsets",
    "endingOffsets",
    "startingTimestamp",
    "endingTimestamp",
    "startingOffsetsByTimestamp",
    "endingOffsetsByTimestamp",
    "startingOffsetsByTimestampStrategy",
    "minPartitions",
    "maxRecordsPerPartition",
    "maxPartitionBytes",
    "openCostInBytes",
    "minPartitionNum",
    "maxOffsetsPerTrigger",
    "minOffsetsPerTrigger",
    "maxTriggerDelay",
    "failOnDataLoss",
    "includeHeaders",
    "isolation",
)
_SINK = ("topic", "txnId", "numPartitions", "stagingPath", "lockWait", "ifPublished")
_BOTH = ("path", "paths")
_OF_SPARK = {"checkpointLocation", "queryName"}  # Spark hands these on
NAMES = {name.lower(): name for name in (*_BOTH, *_SOURCE, *_SINK, *_OF_SPARK)}
_CONFIG = "kstore."
_SUBSCRIPTIONS = {"subscribe", "subscribepattern", "assign"}
_LOCATION = "location"  # of a table of the catalog
_TAKEN_BY_SOURCE = {"kafka.isolation.level": "isolation"}
_TAKEN_BY_SINK = {"kafka.compression.type": "kstore.compression.type"}
_MEANT = {("kstore.compression.type", "none"): "uncompressed"}  # a producer's word, and a topic's
_OF_CLIENTS = ("kafka.", "kafkaconsumer.", "fetchoffset.", "groupidprefix")
_warned: set[str] = set()
_TRIGGER_DELAY_MS = 15 * 60_000
_LOCK_WAIT_MS = 60_000


def bad(text: str) -> SparkSourceError:
    return failure("KSTORE_INVALID_OPTION", text)


def _of_catalog() -> SparkSourceError:
    return failure(
        "KSTORE_UNSUPPORTED",
        "a table of the catalog (by CREATE TABLE … USING kstore, saveAsTable or toTable) does not work: Spark does not hand "
        "its options on to a source in Python. CREATE TEMPORARY VIEW name USING kstore OPTIONS (path '…', subscribe '…') "
        "reads; df.write.format('kstore').mode('append').options(path='…', topic='…').save() writes",
    )


def canonical(options: Mapping[str, str], taken: Mapping[str, str] = _TAKEN_BY_SINK) -> dict[str, str]:
    """The options by their own names; KSTORE_INVALID_OPTION, with the nearest name, for one there is not.

    Those of Spark's Kafka source that are for clients of a broker are passed over, but for those that are `taken` under
    another name.
    """
    known: dict[str, str] = {}
    for name, value in options.items():
        lower = name.lower()
        if lower.startswith(_CONFIG):
            known[lower] = value
        elif lower in NAMES:
            known[NAMES[lower]] = value
        elif lower == _LOCATION:
            raise _of_catalog()
        elif not lower.startswith(_OF_CLIENTS):
            near = difflib.get_close_matches(lower, NAMES, 1, 0.5)
            hint = f"; the nearest is {NAMES[near[0]]}" if near else ""
            raise bad(f"no option {name!r}{hint}")
    for name, value in options.items():
        own = taken.get(name.lower())
        if own is None:
            continue
        meant = _MEANT.get((own, value), value)
        if known.setdefault(own, meant) != meant:
            raise bad(f"{own} is {known[own]!r}, and {name} is {value!r}: leave one out")
    return known


def warn_of_passed_over(options: Mapping[str, str]) -> None:
    """A RuntimeWarning for each option that `canonical` passes over, the first time in this process."""
    names = {name.lower() for name in options}
    taken = _TAKEN_BY_SOURCE if names & _SUBSCRIPTIONS else _TAKEN_BY_SINK
    for name in options:
        lower = name.lower()
        if lower.startswith(_OF_CLIENTS) and lower not in taken and lower not in _warned:
            _warned.add(lower)
            text = f"option {name!r} is passed over: it is for a client of a broker, and there is none here"
            warnings.warn(text, RuntimeWarning, stacklevel=3)


def _integer(options: Mapping[str, str], name: str, least: int) -> int | None:
    text = options.get(name)
    if text is None:
        return None
    if not re.fullmatch(r"-?[0-9]{1,19}", text.strip()) or not least <= int(text) <= MAX_OFFSET:
        raise bad(f"{name} is {text!r}, allowed is an integer from {least} to {MAX_OFFSET}")
    return int(text)


_UNITS_MS = {
    "us": 0.001,
    "": 1,
    "ms": 1,
    "s": 1000,
    "m": 60_000,
    "min": 60_000,
    "h": 3_600_000,
    "d": 86_400_000,
}


def _duration_ms(options: Mapping[str, str], name: str, default: int) -> int:
    text = options.get(name)
    if text is None:
        return default
    found = re.fullmatch(r"([0-9]{1,15})\s*([a-z]*)", text.strip().lower())
    if found is None or found[2] not in _UNITS_MS:
        raise bad(f"{name} is {text!r}, allowed is a time such as 15m; units are us, ms, s, m, min, h, d")
    return int(int(found[1]) * _UNITS_MS[found[2]])


_FACTORS = {"": 1, "k": 1 << 10, "m": 1 << 20, "g": 1 << 30, "t": 1 << 40}


def _bytes(options: Mapping[str, str], name: str, least: int, default: int) -> int:
    text = options.get(name)
    if text is None:
        return default
    found = re.fullmatch(r"([0-9]{1,15})\s*([kmgt]?)b?", text.strip().lower())
    if found is None or int(found[1]) < least:
        raise bad(
            f"{name} is {text!r}, allowed is a size from {least}, such as 128m; units are b, k, m, g, t"
        )
    return int(found[1]) * _FACTORS[found[2]]


def _boolean(options: Mapping[str, str], name: str, default: bool) -> bool:
    text = options.get(name)
    if text is None:
        return default
    if text.strip().lower() not in ("true", "false"):
        raise bad(f"{name} is {text!r}, allowed is true or false")
    return text.strip().lower() == "true"


def _json(name: str, text: str) -> Any:
    try:
        return json.loads(text, object_pairs_hook=_once)
    except (ValueError, RecursionError) as e:
        words = "" if "Offsets" not in name else ", allowed are earliest, latest and JSON with offsets"
        raise bad(f"{name} is no JSON ({e}): {text!r:.500}{words}") from None


def _once(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    """What is named twice has two meanings."""
    found = dict(pairs)
    if len(found) < len(pairs):
        raise ValueError("a name is there twice")
    return found


def _table(name: str, text: str) -> PerPartition:
    """{"topic": {"0": number}}."""
    raw = _json(name, text)
    example = 'such as {"orders": {"0": 23}}'
    if not isinstance(raw, dict) or not all(isinstance(own, dict) for own in raw.values()):
        raise bad(f"{name} is {text!r}, allowed is JSON {example}")
    for own in raw.values():
        for partition, number in own.items():
            if not re.fullmatch("0|[1-9][0-9]{0,9}", partition):
                raise bad(f"{name} is {text!r}: partitions are numbers, {example}")
            if isinstance(number, bool) or not isinstance(number, int) or number > MAX_OFFSET:
                raise bad(f"{name} is {text!r}: offsets and timestamps are numbers, {example}")
    return {topic: {int(p): n for p, n in own.items()} for topic, own in raw.items()}


def _topics(options: Mapping[str, str]) -> Topics:
    given = [name for name in ("subscribe", "subscribePattern", "assign") if name in options]
    if len(given) != 1:
        found = " and ".join(given) if given else "none of them"
        raise bad(f"one of subscribe, subscribePattern and assign says what to read; given is {found}")
    name, text = given[0], options[given[0]]
    if name == "subscribe":
        topics = [topic.strip() for topic in text.split(",") if topic.strip()]
        if not topics:
            raise bad("subscribe names no topic")
        return topics
    if name == "subscribePattern":
        try:
            return re.compile(text)
        except re.error as e:
            raise bad(f"subscribePattern is no regular expression ({e}): {text!r}") from None
    raw = _json(name, text)
    if not isinstance(raw, dict) or not all(
        isinstance(own, list) and all(isinstance(p, int) and not isinstance(p, bool) for p in own)
        for own in raw.values()
    ):
        raise bad(f'assign is {text!r}, allowed is JSON such as {{"orders": [0, 1]}}')
    return raw


def _bounds(options: Mapping[str, str], side: Literal["starting", "ending"], default: str) -> Bounds:
    offsets: Any = options.get(f"{side}Offsets", default)
    word = offsets.strip().lower()
    if word in ("earliest", "latest"):
        offsets = word
        if side == "ending" and word == "earliest":
            raise bad("endingOffsets is 'earliest', allowed is latest or JSON with offsets")
    else:
        offsets = _table(f"{side}Offsets", offsets)
    times = options.get(f"{side}OffsetsByTimestamp")
    strategy = options.get("startingOffsetsByTimestampStrategy", "error").strip().lower()
    if strategy not in ("error", "latest"):
        raise bad(f"startingOffsetsByTimestampStrategy is {strategy!r}, allowed is error or latest")
    return Bounds(
        offsets,
        _integer(options, f"{side}Timestamp", 0),
        None if times is None else _table(f"{side}OffsetsByTimestamp", times),
        "latest" if strategy == "latest" else "error",
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
                            topic=topic,
                            partition=partition,
                        )


def _paths(options: Mapping[str, str]) -> list[str]:
    """One log directory or several: Spark gives the list of load([…]) as JSON, under the name paths."""
    if not options.keys() - _OF_SPARK:
        raise _of_catalog()
    if "path" in options and "paths" in options:
        raise bad("path and paths are both given: leave one out")
    name = "paths" if "paths" in options else "path"
    text = options.get(name, "").strip()
    if not text.startswith("["):
        return [text]
    found = _json(name, text)
    if not isinstance(found, list) or not all(isinstance(path, str) for path in found):
        raise bad(
            f'{name} is {text!r}, allowed is a directory, or a JSON list such as ["/disk1/kafka", "/disk2/kafka"]'
        )
    return found


def _sink_path(options: Mapping[str, str]) -> str:
    given = _paths(options)
    if given == [""]:
        raise bad("path is missing: the log directory to write in, as in .option('path', …)")
    paths = roots_of(given)
    if len(paths) > 1:
        raise bad(f"a sink writes in one log directory, path names {len(paths)}: {', '.join(paths)}")
    return paths[0]


def _checkpoint(options: Mapping[str, str]) -> str | None:
    """Where Spark keeps a query's progress, if that is in this file system."""
    given = options.get("checkpointLocation")
    try:
        return None if given is None else local_path(given, "checkpointLocation")
    except SparkSourceError:
        return None


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
    min_offsets_per_trigger: int | None
    max_trigger_delay_ms: int
    fail_on_data_loss: bool
    include_headers: bool
    isolation: Isolation

    @classmethod
    def of(cls, given: Mapping[str, str], *, stream: bool) -> "SourceOptions":
        """From a reader's options."""
        options = canonical(given, _TAKEN_BY_SOURCE)
        for name in options:
            if name in _SINK or name.startswith(_CONFIG):
                more = "; what to read, subscribe says" if name == "topic" else ""
                raise bad(f"{name} is an option of the writer{more}")
        if stream:
            for name in ("endingOffsets", "endingTimestamp", "endingOffsetsByTimestamp"):
                if name in options:
                    raise bad(f"{name} is an option of batch queries; a stream has no end")
        elif options.get("startingOffsets", "").strip().lower() == "latest":
            raise bad("startingOffsets is 'latest', which only streams take: there is nothing after the end")
        isolation = options.get("isolation", "read_uncommitted")
        if isolation not in ("read_uncommitted", "read_committed"):
            raise bad(f"isolation is {isolation!r}, allowed is read_uncommitted or read_committed")
        least, most = (_integer(options, f"{m}OffsetsPerTrigger", 1) for m in ("min", "max"))
        if least is not None and most is not None and least > most:
            raise bad(f"minOffsetsPerTrigger, {least}, is more than maxOffsetsPerTrigger, {most}")
        roots, topics = roots_of(_paths(options)), _topics(options)
        starting = _bounds(options, "starting", "latest" if stream else "earliest")
        ending = _bounds(options, "ending", "latest")
        if not stream and starting.table is not None:
            for topic, own in starting.table.items():
                if LATEST in own.values():
                    raise bad(f"startingOffsets of {topic} has -1, the end, which only streams take")
        _check_order(starting, ending)
        return cls(
            roots,
            topics,
            starting,
            ending,
            _integer(options, "minPartitions", 1),
            _integer(options, "maxRecordsPerPartition", 1),
            _bytes(options, "maxPartitionBytes", 1, TARGET_BYTES),
            _bytes(options, "openCostInBytes", 0, OPEN_COST_BYTES),
            _integer(options, "minPartitionNum", 1),
            most,
            least,
            _duration_ms(options, "maxTriggerDelay", _TRIGGER_DELAY_MS),
            _boolean(options, "failOnDataLoss", True),
            _boolean(options, "includeHeaders", False),
            "read_committed" if isolation == "read_committed" else "read_uncommitted",
        )


@dataclass(frozen=True, slots=True)
class SinkOptions:
    """Where to write; checked when it is made."""

    root: str
    topic: str | None
    transaction: str | None
    partition_count: int
    staging: str | None
    lock_wait_s: float
    refuses_published: bool
    checkpoint: str | None
    config: LogConfig

    @classmethod
    def of(cls, given: Mapping[str, str]) -> "SinkOptions":
        """From a writer's options; kstore.NAME is the topic configuration NAME of what is written, in Kafka's notation."""
        options = canonical(given)
        for name in _SOURCE:
            if (
                name in options and name != "includeHeaders"
            ):  # Spark's sink has it too; headers are the column's here
                more = "; where to write, topic says" if name in ("subscribe", "assign") else ""
                raise bad(f"{name} is an option of the reader{more}")
        if options.get("txnId", "-").strip() == "":
            raise bad("txnId is empty; leave it out, or give the job a name of its own")
        topic = options.get("topic")
        if topic is not None and not layout.is_valid_topic(topic):
            raise bad(f"topic is {topic!r}, which is no name of a topic")
        if_published = options.get("ifPublished", "skip").strip().lower()
        if if_published not in ("skip", "error"):
            raise bad(f"ifPublished is {if_published!r}, allowed is skip or error")
        own = {
            name.removeprefix(_CONFIG): value for name, value in options.items() if name.startswith(_CONFIG)
        }
        try:
            config = LogConfig.from_topic(own)
        except InvalidConfigError as e:
            raise translated(e) from None
        return cls(
            _sink_path(options),
            topic,
            options.get("txnId"),
            _integer(options, "numPartitions", 1) or 1,
            local_path(options["stagingPath"], "stagingPath") if "stagingPath" in options else None,
            _duration_ms(options, "lockWait", _LOCK_WAIT_MS) / 1000,
            if_published == "error",
            _checkpoint(options),
            config,
        )
