"""Where a micro-batch ends if a trigger reads at most so many offsets, or bytes. Needs no Spark."""

from collections.abc import Mapping

import numpy

from kstore.errors import CorruptRecordError
from kstore.log.files.layout import TopicPartition
from kstore.log.partition import PartitionLog
from kstore.spark.reading.logs import Logs
from kstore.spark.reading.offsets import Positions
from kstore.spark.reading.plan import Stretch, indexed_positions, stretches_of

Offsets = Mapping[TopicPartition, int]


def limited_by_offsets(begin: Offsets, ends: Positions, most: int) -> Positions:
    """Ends so that about `most` offsets lie between, shared in proportion to what each partition has to
    read."""
    backlog = {tp: end.offset - begin[tp] for tp, end in ends.items() if end.offset > begin[tp]}
    shares = _shares(backlog, most)
    return {tp: end.at(begin[tp] + shares[tp]) if tp in shares else end for tp, end in ends.items()}


def limited_by_bytes(logs: Logs, begin: Offsets, ends: Positions, most: int) -> Positions:
    """Ends between batches so that at most `most` bytes of .log files lie between, shared likewise. If no
    partition has a batch that is so small, the partition with the most bytes to read gives one batch."""
    backlog = {
        tp: logs.read(tp, lambda log, tp=tp, end=end: _size(log, begin[tp], end.offset))  # type: ignore[misc]
        for tp, end in ends.items()
        if end.offset > begin[tp]
    }
    if sum(backlog.values()) <= most:
        return ends
    shares = _shares(backlog, most)
    limited = dict(ends)
    for tp, share in shares.items():
        limited[tp] = ends[tp].at(_cut(logs, tp, begin[tp], ends[tp].offset, share))
    if all(limited[tp].offset == begin[tp] for tp in shares):
        tp = max(shares, key=shares.__getitem__)
        limited[tp] = ends[tp].at(_cut(logs, tp, begin[tp], ends[tp].offset, 0, least=1))
    return limited


def _shares(backlog: Mapping[TopicPartition, int], most: int) -> dict[TopicPartition, int]:
    """What each partition gives of its backlog; in sum as much as there is, but at most `most`."""
    waiting = sum(backlog.values())
    left = min(most, waiting)
    shares = {}
    for tp in sorted(backlog):
        share = round(left * backlog[tp] / waiting) if waiting else 0  # what one rounds up the next get less
        shares[tp] = share
        left -= share
        waiting -= backlog[tp]
    return shares


def _size(log: PartitionLog, start: int, stop: int) -> int:
    return sum(stretch.size for stretch in stretches_of(log, start, stop, lenient=True))


def _cut(logs: Logs, tp: TopicPartition, start: int, stop: int, most: int, least: int = 0) -> int:
    """The offset from `start` to `stop` where a batch ends after at most `most` bytes, but after at least so
    many batches."""

    def cut(log: PartitionLog) -> int:
        left, batches = most, least
        for stretch in stretches_of(log, start, stop, lenient=True):
            if not batches and stretch.size <= left:
                left -= stretch.size
                continue
            try:
                position = _before(stretch, stretch.begin + left)
                left -= position - stretch.begin
                while position < stretch.end:
                    batch = stretch.segment.batch_at(position)
                    if batch.size > left and batches <= 0:
                        return min(max(start, batch.base_offset), stop)
                    position, left, batches = position + batch.size, left - batch.size, batches - 1
            except CorruptRecordError:  # the task that reads it reports it
                return min(stretch.segment.end_offset, stop)
        return stop

    return logs.read(tp, cut)


def _before(stretch: Stretch, position: int) -> int:
    """The last batch at or before a position that the index has; the first batch if there is none."""
    positions = indexed_positions(stretch.segment)
    slot = int(numpy.searchsorted(positions, position, side="right")) - 1
    known = int(positions[slot]) if slot >= 0 else 0
    if known > stretch.begin and stretch.segment.batch_at(known).is_valid:  # an index is a hint
        return known
    return stretch.begin
