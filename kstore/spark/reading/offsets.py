"""The offsets of a stream, in the form in which Spark's checkpoint stores them. Needs no Spark.

{"topic": {"0": next offset}} is the form of Spark's Kafka source. kstore adds one key, which detects a
truncation or another topic of that name: {":positions": {"topic": {"0": [leader epoch, generation, topic
id]}}}. Older versions of kstore did not write it.
"""

from collections.abc import Mapping
from typing import Any, TypeAlias

from kstore.arguments import MAX64
from kstore.log.files.layout import TopicPartition
from kstore.log.follow.position import Position
from kstore.spark.options import BESIDE, POSITIONS, SOURCE

_UNKNOWN = (-1, MAX64, "")  # with these, diverged_at detects only that the log ends below the offset

Json: TypeAlias = dict[str, Any]


Positions: TypeAlias = Mapping[TopicPartition, Position]


def encoded(positions: Positions) -> Json:
    """Offsets of a stream."""
    known = {tp: own[1:] for tp, own in positions.items()}
    offsets = _by_topic({tp: own.offset for tp, own in positions.items()})
    return offsets | ({POSITIONS: _by_topic(known)} if known else {})


def encoded_ends(ends: Mapping[TopicPartition, int], place: str) -> Json:
    """Offsets for a query's progress, and the log directories: Spark takes no description of a source."""
    return _by_topic(ends) | {SOURCE: place}


def decoded(offsets: Json) -> dict[TopicPartition, Position]:
    """The positions in offsets of a stream."""
    known = offsets.get(POSITIONS, {})
    found = {}
    for tp, offset in offsets_in(offsets).items():
        found[tp] = Position(offset, *known.get(tp.topic, {}).get(str(tp.partition), _UNKNOWN))
    return found


def offsets_in(offsets: Json) -> dict[TopicPartition, int]:
    """The offsets alone. ValueError, TypeError or AttributeError if another source wrote them."""
    found = {}
    for topic, own in offsets.items():
        for partition, offset in own.items() if not topic.startswith(BESIDE) else ():
            if not partition.isdecimal() or type(offset) is not int:
                raise ValueError(f"{offset!r} is no offset of partition {partition!r}")
            found[TopicPartition(topic, int(partition))] = offset
    return found


def _by_topic(values: Mapping[TopicPartition, object]) -> Json:
    nested: Json = {}
    for tp in sorted(values):
        nested.setdefault(tp.topic, {})[str(tp.partition)] = values[tp]
    return nested
