"""The options of format("kstore"): one table with name, type, default and description, and how a text becomes
a value.

Names and meanings are those of Spark's Kafka source (spec spark 4), with `path` in place of servers. Checks
and errors come from the table, and so do the tables in docs/spark.md, by docs/generate_pages.py. Needs no
Spark.
"""

import difflib
import json
import re
import warnings
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Literal, TypeAlias

from kstore.arguments import MAX_OFFSET
from kstore.spark.errors import SparkSourceError, failure
from kstore.spark.paths import local_path

BESIDE = ":"
"""A key of offsets that begins with it is no topic: no topic can have such a name. Options that are given
offsets ignore it."""
POSITIONS = ":positions"
"""The key of what a stream stores beside offsets."""
SOURCE = ":source"
"""The key of the log directories, in offsets of a query's progress."""
Parse: TypeAlias = Callable[[str, str], Any]
"""From an option's name and text to its value; KSTORE_INVALID_OPTION."""


def bad(text: str) -> SparkSourceError:
    """The error for an option."""
    return failure("KSTORE_INVALID_OPTION", text)


# ---- types -------------------------------------------------------------------------------------------------


def _text(name: str, text: str) -> str:
    return text


def integer(least: int) -> Parse:
    """A whole number from `least` on."""

    def parse(name: str, text: str) -> int:
        if not re.fullmatch(r"-?[0-9]{1,19}", text.strip()) or not least <= int(text) <= MAX_OFFSET:
            raise bad(f"{name} is {text!r}, allowed is an integer from {least} to {MAX_OFFSET}")
        return int(text)

    return parse


_FACTORS = {"": 1, "k": 1 << 10, "m": 1 << 20, "g": 1 << 30, "t": 1 << 40}


def size(least: int) -> Parse:
    """Bytes, with a unit as in Spark's configuration."""

    def parse(name: str, text: str) -> int:
        found = re.fullmatch(r"([0-9]{1,15})\s*([kmgt]?)b?", text.strip().lower())
        if found is None or int(found[1]) < least:
            raise bad(
                f"{name} is {text!r}, allowed is a size from {least}, such as 128m; units are b, k, m, g, t"
            )
        return int(found[1]) * _FACTORS[found[2]]

    return parse


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


def _milliseconds(name: str, text: str) -> int:
    found = re.fullmatch(r"([0-9]{1,15})\s*([a-z]*)", text.strip().lower())
    if found is None or found[2] not in _UNITS_MS:
        raise bad(f"{name} is {text!r}, allowed is a time such as 15m; units are us, ms, s, m, min, h, d")
    return int(int(found[1]) * _UNITS_MS[found[2]])


def choice(*words: str) -> Parse:
    """One of these words."""

    def parse(name: str, text: str) -> str:
        word = text.strip().lower()
        if word not in words:
            raise bad(f"{name} is {text!r}, allowed is {' or '.join(words)}")
        return word

    return parse


def _boolean(name: str, text: str) -> bool:
    return bool(choice("true", "false")(name, text) == "true")


def read_json(name: str, text: str) -> Any:
    """The value of a JSON text in which no name is there twice."""
    try:
        return json.loads(text, object_pairs_hook=_once)
    except (ValueError, RecursionError) as e:
        words = "" if "Offsets" not in name else ", allowed are earliest, latest and JSON with offsets"
        raise bad(f"{name} is no JSON ({e}): {text!r:.500}{words}") from None


def _once(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) < len(pairs):
        raise ValueError("a name is there twice")
    return found


def _per_partition(name: str, text: str) -> dict[str, dict[int, int]]:
    raw = read_json(name, text)
    if isinstance(raw, dict):
        raw = {topic: own for topic, own in raw.items() if not topic.startswith(BESIDE)}
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


def _offsets(name: str, text: str) -> str | dict[str, dict[int, int]]:
    word = text.strip().lower()
    return word if word in ("earliest", "latest") else _per_partition(name, text)


def _names(name: str, text: str) -> list[str]:
    topics = [topic.strip() for topic in text.split(",") if topic.strip()]
    if not topics:
        raise bad(f"{name} names no topic")
    return topics


def _pattern(name: str, text: str) -> re.Pattern[str]:
    try:
        return re.compile(text)
    except re.error as e:
        raise bad(f"{name} is no regular expression ({e}): {text!r}") from None


def _partitions(name: str, text: str) -> dict[str, list[int]]:
    raw = read_json(name, text)
    if not isinstance(raw, dict) or not all(
        isinstance(own, list) and all(isinstance(p, int) and not isinstance(p, bool) for p in own)
        for own in raw.values()
    ):
        raise bad(f'{name} is {text!r}, allowed is JSON such as {{"orders": [0, 1]}}')
    return raw


def _not_empty(name: str, text: str) -> str:
    if not text.strip():
        raise bad(f"{name} is empty; leave it out, or give the job a name of its own")
    return text


# ---- the table ---------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Option:
    """An option: its type as a parser, its default as a text, and what docs/spark.md says.

    `only` names the queries that take it, if not all do. `shown` is what holds without it, in words.
    """

    name: str
    parse: Parse
    default: str | None
    meaning: str
    shown: str = ""
    only: Literal["", "batch queries", "streams", "batch jobs"] = ""


READER: tuple[Option, ...] = (
    Option(
        "subscribe",
        _names,
        None,
        "topics, as `a,b`. Pass one of `subscribe`, `subscribePattern` and `assign`",
    ),
    Option("subscribePattern", _pattern, None, "topics, as a Python regular expression for the whole name"),
    Option("assign", _partitions, None, 'partitions, as JSON `{"orders": [0, 1]}`'),
    Option(
        "startingOffsets",
        _offsets,
        None,
        '`earliest`, `latest` (streams only), or JSON `{"orders": {"0": 23, "1": -2}}`; -2 is the earliest, '
        "-1 the latest",
        "`earliest`; for streams `latest`",
    ),
    Option(
        "endingOffsets",
        _offsets,
        "latest",
        "`latest`, or JSON as for `startingOffsets`",
        only="batch queries",
    ),
    Option("startingTimestamp", integer(0), None, "begin at the first record at or after this time, in ms"),
    Option("endingTimestamp", integer(0), None, "end before it", only="batch queries"),
    Option(
        "startingOffsetsByTimestamp",
        _per_partition,
        None,
        'times by partition, as JSON `{"orders": {"0": 1700000000000}}`',
    ),
    Option(
        "endingOffsetsByTimestamp",
        _per_partition,
        None,
        "times to end before, likewise",
        only="batch queries",
    ),
    Option(
        "startingOffsetsByTimestampStrategy",
        choice("error", "latest"),
        "error",
        "what to do if no record is at or after the time: `error`, or `latest` to begin at the end",
    ),
    Option(
        "minPartitions",
        integer(1),
        None,
        "approximate least number of splits: a split does not divide a batch",
    ),
    Option("maxRecordsPerPartition", integer(1), None, "approximate largest number of offsets in a task"),
    Option("maxPartitionBytes", size(1), "128m", "largest number of bytes that [a task](#tasks) reads"),
    Option("openCostInBytes", size(0), "64k", "bytes that are added to each split for its opening"),
    Option("minPartitionNum", integer(1), None, "number of tasks that can run at once", "from the session"),
    Option(
        "maxOffsetsPerTrigger",
        integer(1),
        None,
        "largest number of offsets in a micro-batch, divided among partitions in proportion to their backlog",
        only="streams",
    ),
    Option(
        "maxBytesPerTrigger",
        size(1),
        None,
        "largest number of bytes of `.log` files that a micro-batch reads, such as `64m`, divided likewise; "
        "but at least one batch of records",
        only="streams",
    ),
    Option(
        "minOffsetsPerTrigger",
        integer(1),
        None,
        "Spark 4.2 and later: a trigger waits until there are so many offsets. The first trigger and "
        "`AvailableNow` do not wait",
        only="streams",
    ),
    Option(
        "maxTriggerDelay", _milliseconds, "15m", "longest wait for `minOffsetsPerTrigger`", only="streams"
    ),
    Option(
        "failOnDataLoss",
        _boolean,
        "true",
        "whether [lost records](#lost-records) are an error, `KSTORE_DATA_LOST`",
    ),
    Option(
        "failOnCorruptBatch",
        _boolean,
        "true",
        "whether a damaged batch is an error, `KSTORE_CORRUPT_BATCH`; else [it is skipped](#damaged-batches)",
    ),
    Option("includeHeaders", _boolean, "false", "whether there is a column `headers`"),
    Option(
        "isolation",
        choice("read_uncommitted", "read_committed"),
        "read_uncommitted",
        "`read_committed` leaves out aborted transactions. `kafka.isolation.level` is an alias",
    ),
)
WRITER: tuple[Option, ...] = (
    Option("topic", _text, None, "the topic of all rows", "the column `topic`"),
    Option("numPartitions", integer(1), "1", "number of partitions of a topic that does not exist yet"),
    Option(
        "txnId",
        _not_empty,
        None,
        "the id under which the job is [written once](#what-is-promised)",
        "a new one",
        only="batch jobs",
    ),
    Option(
        "ifPublished",
        choice("skip", "error"),
        "skip",
        "if `txnId` was published before: `skip` writes nothing, `error` is an error",
    ),
    Option(
        "lockWait",
        _milliseconds,
        "1m",
        "longest wait of a commit for a locked partition, or for the commit of another job",
    ),
    Option("stagingPath", local_path, None, "directory of staged files", "beside the log directory"),
)
BOTH: tuple[Option, ...] = (
    Option(
        "path",
        _text,
        None,
        "the log directory, one path on every machine (`KSTORE_ROOT_MAP=FROM=TO` in an executor's "
        "environment maps it); for reading also [several](#several-directories) and [URLs](#object-stores)",
        "required",
    ),
)
CONFIG = "kstore."
"""`kstore.NAME` is the topic configuration NAME of what is written."""

_OF_SPARK = (
    Option("paths", _text, None, ""),
    Option("checkpointLocation", _text, None, ""),
    Option("queryName", _text, None, ""),
)
_TABLE = {option.name: option for option in (*BOTH, *READER, *WRITER, *_OF_SPARK)}
_NAMES = {name.lower(): name for name in _TABLE}
_SUBSCRIPTIONS = {"subscribe", "subscribepattern", "assign"}
_LOCATION = "location"  # of a table of the catalog
READER_TAKES = {"kafka.isolation.level": "isolation"}
WRITER_TAKES = {"kafka.compression.type": "kstore.compression.type"}
_MEANT = {("kstore.compression.type", "none"): "uncompressed"}  # a producer's word, and a topic's
_OF_CLIENTS = ("kafka.", "kafkaconsumer.", "fetchoffset.", "groupidprefix")
_warned: set[str] = set()


# ---- what was given ----------------------------------------------------------------------------------------


class Given:
    """The options that a reader or a writer was given. A value is checked when it is asked for.

    KSTORE_INVALID_OPTION, with the nearest name, for an option that does not exist. Those of Spark's Kafka
    source that are for clients of a broker are passed over, but for those that are `taken` under another
    name.
    """

    def __init__(self, options: Mapping[str, str], taken: Mapping[str, str]) -> None:
        self.texts: dict[str, str] = {}
        for name, text in options.items():
            lower = name.lower()
            if lower.startswith(CONFIG):
                self.texts[lower] = text
            elif lower in _NAMES:
                self.texts[_NAMES[lower]] = text
            elif lower == _LOCATION:
                raise _of_catalog()
            elif not lower.startswith(_OF_CLIENTS):
                near = difflib.get_close_matches(lower, _NAMES, 1, 0.5)
                hint = f"; the nearest is {_NAMES[near[0]]}" if near else ""
                raise bad(f"no option {name!r}{hint}")
        for name, text in options.items():
            own = taken.get(name.lower())
            if own is None:
                continue
            meant = _MEANT.get((own, text), text)
            if self.texts.setdefault(own, meant) != meant:
                raise bad(f"{own} is {self.texts[own]!r}, and {name} is {text!r}: leave one out")

    def __contains__(self, name: str) -> bool:
        return name in self.texts

    def __getitem__(self, name: str) -> Any:
        """The value of an option, its default if it was not given."""
        option = _TABLE[name]
        text = self.texts.get(name, option.default)
        return None if text is None else option.parse(name, text)

    def refuse(self, others: tuple[Option, ...], whose: str, hints: Mapping[str, str]) -> None:
        """KSTORE_INVALID_OPTION if an option of the other side was given."""
        for option in others:
            if option.name in self.texts:
                hint = f"; {hints[option.name]}" if option.name in hints else ""
                raise bad(f"{option.name} is an option of the {whose}{hint}")

    def paths(self) -> list[str]:
        """One log directory or several: Spark gives the list of load([…]) as JSON, under the name paths."""
        if not self.texts.keys() - {option.name for option in _OF_SPARK[1:]}:
            raise _of_catalog()
        if "path" in self and "paths" in self:
            raise bad("path and paths are both given: leave one out")
        name = "paths" if "paths" in self else "path"
        text = self.texts.get(name, "").strip()
        if not text.startswith("["):
            return [text]
        found = read_json(name, text)
        if not isinstance(found, list) or not all(isinstance(path, str) for path in found):
            raise bad(
                f'{name} is {text!r}, allowed is a directory, or a JSON list such as ["/disk1/kafka", '
                '"/disk2/kafka"]'
            )
        return found


TARGET_BYTES: int = Given({}, {})["maxPartitionBytes"]
OPEN_COST_BYTES: int = Given({}, {})["openCostInBytes"]
"""What a task reads in the time that a split takes beside its bytes, about 0.13 ms."""


def _of_catalog() -> SparkSourceError:
    return failure(
        "KSTORE_UNSUPPORTED",
        "a table of the catalog (by CREATE TABLE … USING kstore, saveAsTable or toTable) does not work: "
        "Spark does not hand its options on to a source in Python. CREATE TEMPORARY VIEW name USING kstore "
        "OPTIONS (path '…', subscribe '…') reads; "
        "df.write.format('kstore').mode('append').options(path='…', topic='…').save() writes",
    )


def warn_of_passed_over(options: Mapping[str, str]) -> None:
    """A RuntimeWarning for each option that is passed over, the first time in this process."""
    names = {name.lower() for name in options}
    taken = READER_TAKES if names & _SUBSCRIPTIONS else WRITER_TAKES
    for name in options:
        lower = name.lower()
        if lower.startswith(_OF_CLIENTS) and lower not in taken and lower not in _warned:
            _warned.add(lower)
            text = f"option {name!r} is passed over: it is for a client of a broker, and there is none here"
            warnings.warn(text, RuntimeWarning, stacklevel=3)


def markdown(options: tuple[Option, ...]) -> str:
    """The table of docs/spark.md."""
    lines = ["| option | default | meaning |", "|---|---|---|"]
    for option in options:
        only = f" (only {option.only})" if option.only else ""
        shown = option.shown or ("" if option.default is None else f"`{option.default}`")
        lines.append(f"| `{option.name}` | {shown} | {option.meaning}{only} |")
    return "\n".join(lines) + "\n"
