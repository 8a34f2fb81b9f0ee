"""Splits: what each task of a job reads. Made on the driver from indexes and headers alone; needs no
Spark."""

import operator
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import pairwise
from typing import Literal, NamedTuple, TypeAlias

import numpy
from numpy.typing import NDArray

from kstore.arguments import choice, integer
from kstore.engine.segment.segment import Segment, start_of
from kstore.errors import CorruptRecordError
from kstore.log.files.layout import CLUSTER_METADATA, TopicPartition
from kstore.log.follow.position import Position, are_of_one_topic
from kstore.log.partition import PartitionLog
from kstore.log.recovery.loader import Loaded
from kstore.log.recovery.report import in_short
from kstore.spark.errors import RECREATED, failure
from kstore.spark.options import TARGET_BYTES
from kstore.spark.paths import Paths, roots_of
from kstore.spark.reading.logs import Isolation, Logs

LEAST_BYTES = 4 << 20  # a task takes about as long to start as to read these
EARLIEST, LATEST = -2, -1
_MOST_NAMED = 5  # topics, in an error
_MANY = 1000

Topics: TypeAlias = str | Iterable[str] | Mapping[str, Iterable[int]] | re.Pattern[str]
PerPartition: TypeAlias = Mapping[str, Mapping[int, int]]


class Piece(NamedTuple):
    """Whole batches of one segment: `size` bytes at `position` of its file; the first batch has
    `base_offset`, and the first one of the next piece there `next_offset`, -1 if there is none."""

    stem: str
    segment_offset: int
    segment_end: int
    suffixes: tuple[tuple[str, str], ...]
    origin: int
    position: int
    size: int
    base_offset: int
    next_offset: int

    @property
    def first_offset(self) -> int:
        """The least offset that it may have; that of the segment does not depend on an undamaged batch."""
        return self.segment_offset if self.position == 0 else self.base_offset


@dataclass(frozen=True, slots=True)
class Split:
    """The records of one partition with start <= offset < stop, and where they lie. Plain values, so it
    pickles small.

    No two splits share a batch. `aborted` holds (producer id, first offset, marker's offset) of the
    transactions to be left out, None where everything is read. `planned` is the position at `stop` in the log
    that was planned; None if that is not known.
    """

    root: str
    topic: str
    partition: int
    start: int
    stop: int
    pieces: tuple[Piece, ...]
    aborted: tuple[tuple[int, int, int], ...] | None = None
    fail_on_data_loss: bool = True
    fail_on_corrupt_batch: bool = True
    planned: Position | None = None

    @property
    def tp(self) -> TopicPartition:
        """The partition."""
        return TopicPartition(self.topic, self.partition)

    @property
    def size(self) -> int:
        """The bytes it reads."""
        return sum(piece.size for piece in self.pieces)


class Range(NamedTuple):
    """The offsets of a partition that a job reads: from `start` up to a position in the log that is
    planned."""

    start: int
    stop: Position


@dataclass(frozen=True, slots=True)
class Bounds:
    """Where reading starts and ends. A timestamp wins over timestamps for each partition, and those over
    offsets."""

    offsets: Literal["earliest", "latest"] | PerPartition = "earliest"
    timestamp: int | None = None
    timestamps: PerPartition | None = None
    when_none_later: Literal["error", "latest"] = "error"

    def __post_init__(self) -> None:
        try:
            if isinstance(self.offsets, str):
                choice("offsets", self.offsets, ("earliest", "latest"))
            elif not isinstance(self.offsets, Mapping):
                raise TypeError(
                    f'offsets are "earliest", "latest" or {{topic: {{partition: offset}}}}, not '
                    f"{self.offsets!r:.80}"
                )
            choice("when_none_later", self.when_none_later, ("error", "latest"))
        except (TypeError, ValueError) as e:
            raise failure("KSTORE_INVALID_OPTION", str(e)) from None

    @property
    def table(self) -> PerPartition | None:
        """The offsets that are named for each partition, if these are what counts."""
        if self.timestamp is not None or self.timestamps is not None or isinstance(self.offsets, str):
            return None
        return self.offsets


START = Bounds("earliest")
END = Bounds("latest")


def chosen(logs: Logs, topics: Topics) -> list[TopicPartition]:
    """The partitions meant: names (also one text with commas), a compiled pattern, or {topic: partitions}.

    KSTORE_TOPIC_NOT_FOUND for a name that is not there; a pattern may match nothing. KSTORE_INVALID_OPTION
    for other types.
    """
    there = logs.names()
    if isinstance(topics, re.Pattern):
        return [tp for tp in there if topics.fullmatch(tp.topic) and tp.topic != CLUSTER_METADATA]
    if isinstance(topics, Mapping):
        asked = sorted({TopicPartition(t, operator.index(p)) for t, ps in topics.items() for p in ps})
        for tp in asked:
            logs.root_of(tp)  # if it is there
        return asked
    if isinstance(topics, str):
        topics = topics.split(",")
    given = list(topics) if isinstance(topics, Iterable) else [topics]
    if not all(isinstance(name, str) for name in given):
        reason = f"topics are a name, names, a compiled pattern or {{topic: partitions}}, not {topics!r:.80}"
        raise failure("KSTORE_INVALID_OPTION", reason)
    names = {name.strip() for name in given}
    topics_there = sorted({tp.topic for tp in there})
    for name in sorted(names.difference(topics_there)):
        most = ", ".join(topics_there[:_MOST_NAMED]) or "none at all"
        more = f" and {len(topics_there) - _MOST_NAMED} more" if len(topics_there) > _MOST_NAMED else ""
        reason = f"no such topic there; there are {most}{more}"
        raise failure("KSTORE_TOPIC_NOT_FOUND", reason, topic=name, file=logs.place)
    return [tp for tp in there if tp.topic in names]


def check_named(logs: Logs, partitions: Iterable[TopicPartition], table: PerPartition, name: str) -> None:
    """KSTORE_INVALID_OPTION if a table of offsets or timestamps names a partition that is not read, as in
    Kafka's source."""
    read = set(partitions)
    for tp in (TopicPartition(topic, partition) for topic, own in table.items() for partition in own):
        if tp not in read:
            raise failure(
                "KSTORE_INVALID_OPTION",
                f"{name} names this partition, which is not among those that are read",
                tp,
                file=logs.place,
            )


def _of_partition(table: PerPartition, tp: TopicPartition, name: str) -> int:
    reason = f"{name} says nothing about this partition; it must name all that are read"
    try:
        return integer(name, table[tp.topic][tp.partition], EARLIEST)
    except KeyError:
        pass
    except (TypeError, ValueError) as e:
        reason = str(e)
    raise failure("KSTORE_INVALID_OPTION", reason, tp)


def _by_time(logs: Logs, tp: TopicPartition, timestamp: int, bounds: Bounds, *, start: bool) -> int:
    check_numbers(("a timestamp", timestamp, 0))
    found = logs.read(tp, lambda log: log.find(timestamp=timestamp))
    if found is not None:
        return min(found.offset, logs.end(tp))
    if start and bounds.when_none_later == "error":
        raise failure(
            "KSTORE_OFFSET_OUT_OF_RANGE",
            f"no record at or after timestamp {timestamp}; startingOffsetsByTimestampStrategy=latest starts "
            "at the end instead",
            tp,
        )
    return logs.end(tp)


def resolve(
    logs: Logs,
    partitions: Iterable[TopicPartition],
    bounds: Bounds,
    *,
    start: bool,
    fail_on_data_loss: bool = True,
) -> dict[TopicPartition, int]:
    """Every bound as a number, now: later runs of the job then read those records again."""
    found: dict[TopicPartition, int] = {}
    name = "startingOffsets" if start else "endingOffsets"
    partitions = list(partitions)
    if bounds.timestamp is None and bounds.timestamps is not None:
        check_named(logs, partitions, bounds.timestamps, f"{name}ByTimestamp")
    elif bounds.table is not None:
        check_named(logs, partitions, bounds.table, name)
    for tp in partitions:
        log = logs.open(tp)
        first, end = log.log_start_offset, logs.end(tp)
        if bounds.timestamp is not None:
            offset = _by_time(logs, tp, bounds.timestamp, bounds, start=start)
        elif bounds.timestamps is not None:
            offset = _by_time(
                logs, tp, _of_partition(bounds.timestamps, tp, f"{name}ByTimestamp"), bounds, start=start
            )
        elif isinstance(bounds.offsets, str):
            if not start and bounds.offsets == "earliest":
                raise failure(
                    "KSTORE_INVALID_OPTION", "endingOffsets is 'earliest', allowed are latest and offsets"
                )
            offset = first if bounds.offsets == "earliest" else end
        else:
            offset = _of_partition(bounds.offsets, tp, name)
            if offset == LATEST:
                offset = end
            elif offset == EARLIEST and start:
                offset = first
            elif offset == EARLIEST:
                raise failure(
                    "KSTORE_INVALID_OPTION",
                    f"{name} is {offset}, which is no end; -1 is the latest",
                    tp,
                )
        found[tp] = checked(logs, tp, offset, fail_on_data_loss=fail_on_data_loss)
    return found


def checked(logs: Logs, tp: TopicPartition, offset: int, *, fail_on_data_loss: bool) -> int:
    """The offset, if it lies in the log; KSTORE_DATA_LOST, or the nearest that does if losses are to be
    passed over."""
    first, end = logs.open(tp).log_start_offset, logs.end(tp)
    if first <= offset <= end:
        return offset
    if not fail_on_data_loss:
        return min(max(offset, first), end)
    lost = offset < first
    raise failure(
        "KSTORE_DATA_LOST" if lost else "KSTORE_OFFSET_OUT_OF_RANGE",
        f"the log holds offsets {first} to {end} (exclusive)"
        + ("; failOnDataLoss=false goes on at the first that is left" if lost else ""),
        tp,
        offset=offset,
        file=logs.open(tp).path,
    )


def ranges_of(
    logs: Logs,
    partitions: Iterable[TopicPartition],
    starting: Bounds,
    ending: Bounds,
    *,
    fail_on_data_loss: bool,
) -> dict[TopicPartition, Range]:
    """What a job reads of these partitions."""
    starts = resolve(logs, partitions, starting, start=True, fail_on_data_loss=fail_on_data_loss)
    ends = resolve(logs, partitions, ending, start=False, fail_on_data_loss=fail_on_data_loss)
    return {tp: Range(starts[tp], logs.position(tp, ends[tp])) for tp in partitions}


def plan_splits(
    path: Paths,
    topics: Topics,
    *,
    starting: Bounds | Literal["earliest", "latest"] | PerPartition = START,
    ending: Bounds | Literal["earliest", "latest"] | PerPartition = END,
    min_partitions: int | None = None,
    max_records_per_partition: int | None = None,
    target_bytes: int = TARGET_BYTES,
    isolation: Isolation = "read_uncommitted",
    fail_on_data_loss: bool = True,
    fail_on_corrupt_batch: bool = True,
) -> list[Split]:
    """What a job reads of the log directory `path`, or of several: splits of about `target_bytes`, cut
    between batches.

    pack_splits then says which of them share a task.

    `topics`: a name or several (also with commas), a compiled pattern, or {topic: partitions}. `starting`,
    `ending`: "earliest", "latest", {topic: {partition: offset}} with -2 and -1 for these, or Bounds, which
    can name times too. They are resolved here, once. `min_partitions` asks for at least about so many splits
    in all; `max_records_per_partition` cuts after at most so many offsets, to the next batch.
    `fail_on_corrupt_batch`: False has tasks skip damaged batches and log a warning. SparkSourceError.
    """
    logs = Logs(roots_of(path), isolation)
    starting = starting if isinstance(starting, Bounds) else Bounds(starting)
    ending = ending if isinstance(ending, Bounds) else Bounds(ending)
    partitions = chosen(logs, topics)
    return split_ranges(
        logs,
        ranges_of(logs, partitions, starting, ending, fail_on_data_loss=fail_on_data_loss),
        min_partitions=min_partitions,
        max_records_per_partition=max_records_per_partition,
        target_bytes=target_bytes,
        fail_on_data_loss=fail_on_data_loss,
        fail_on_corrupt_batch=fail_on_corrupt_batch,
    )


def check_numbers(*given: tuple[str, object, int]) -> None:
    """KSTORE_INVALID_OPTION for a name's value, if there is one, that is no whole number from the least one
    on."""
    for name, value, least in given:
        try:
            _ = None if value is None else integer(name, value, least)
        except (TypeError, ValueError) as e:
            raise failure("KSTORE_INVALID_OPTION", str(e)) from None


def split_ranges(
    logs: Logs,
    ranges: Mapping[TopicPartition, Range],
    *,
    min_partitions: int | None = None,
    max_records_per_partition: int | None = None,
    target_bytes: int = TARGET_BYTES,
    parallelism: int | None = None,
    fail_on_data_loss: bool = True,
    fail_on_corrupt_batch: bool = True,
) -> list[Split]:
    """The splits of ranges of offsets that were resolved before. `parallelism`: how many tasks can run at
    once; then the splits are small enough that all have something to do."""
    check_numbers(
        ("minPartitions", min_partitions, 1),
        ("maxRecordsPerPartition", max_records_per_partition, 1),
        ("target_bytes", target_bytes or 0, 1),
    )
    plans = [
        _Plan(logs, tp, own, fail_on_data_loss, fail_on_corrupt_batch)
        for tp, own in ranges.items()
        if own.start < own.stop.offset
    ]
    sizes = [logs.read(plan.tp, plan.size, plan.range.start) for plan in plans]
    total = sum(sizes)
    if parallelism is not None:
        target_bytes = min(target_bytes, max(LEAST_BYTES, total // parallelism))
    splits: list[Split] = []
    for plan, size in zip(plans, sizes, strict=True):
        if not size:
            continue
        parts = max(1, round(size / target_bytes))
        if min_partitions is not None:
            parts = max(parts, round(size / total * min_partitions))
        cut = partial(plan.splits, parts=parts, most=max_records_per_partition)
        splits += logs.read(plan.tp, cut, plan.range.start)
    return splits


class Stretch(NamedTuple):
    """The bytes of a segment that hold a range: whole batches from `begin` to `end`."""

    segment: Segment
    begin: int
    end: int

    @property
    def size(self) -> int:
        """The bytes."""
        return self.end - self.begin


def stretches_of(log: PartitionLog, start: int, stop: int, *, lenient: bool = False) -> list[Stretch]:
    """The bytes of a log that hold a range of offsets, segment by segment. CorruptRecordError if damage hides
    where a batch begins; lenient: then that segment as a whole."""
    found: list[Stretch] = []
    if start >= stop:
        return found
    segments = log.segments
    for segment in segments[start_of(segments, start) :]:
        if segment.base_offset >= stop:
            break
        begin, end = 0, segment.size
        try:
            first = segment.translate(start)
            if first is None:
                continue
            begin = first.position
            last = segment.translate(stop)
            if last is not None:
                # the batch has records before `stop` too
                holds = segment.batch_at(last.position).base_offset < stop
                end = last.position + last.size if holds else last.position
        except CorruptRecordError:
            if not lenient:
                raise
        if begin < end:
            found.append(Stretch(segment, begin, end))
    return found


def indexed_positions(segment: Segment) -> NDArray[numpy.int64]:
    """Where batches begin, as far as the offset index says."""
    entries = numpy.frombuffer(segment.offset_index.to_bytes(), ">i4").astype(numpy.int64)
    return entries[1::2]


def _cuts_by_size(stretches: Sequence[Stretch], size: int, parts: int) -> set[tuple[int, int]]:
    """(which stretch, position in it) of the beginnings of `parts` splits of about one size."""
    cuts = {(0, stretches[0].begin)}
    if parts == 1:
        return cuts
    ends = numpy.cumsum([stretch.size for stretch in stretches])
    positions: dict[int, NDArray[numpy.int64]] = {}
    for part in range(1, parts):
        wanted = size * part // parts
        at = int(numpy.searchsorted(ends, wanted, side="right"))
        stretch = stretches[at]
        position = stretch.begin + wanted - (int(ends[at]) - stretch.size)
        if at not in positions:
            positions[at] = indexed_positions(stretch.segment)
        slot = int(numpy.searchsorted(positions[at], position, side="right")) - 1
        known = int(positions[at][slot]) if slot >= 0 else stretch.begin
        if known <= stretch.begin:
            cuts.add((at, stretch.begin))
        elif known < stretch.end and stretch.segment.batch_at(known).is_valid:  # an index is a hint
            cuts.add((at, known))
    return cuts


def _cuts_by_offset(stretches: Sequence[Stretch], start: int, stop: int, most: int) -> set[tuple[int, int]]:
    """(stretch, position) of the beginnings of splits that span at most `most` offsets, and the batch at
    their end."""
    cuts: set[tuple[int, int]] = set()
    at, current = 0, start
    while current + most < stop:
        target = current + most
        while at + 1 < len(stretches) and stretches[at + 1].segment.base_offset <= target:
            at += 1
        stretch = stretches[at]
        located = stretch.segment.translate(target)
        position = stretch.end if located is None else located.position
        if located is not None and located.base_offset <= current:  # one batch holds them all
            position += located.size
        if position >= stretch.end:
            at += 1
            if at == len(stretches):
                break
            position = stretches[at].begin
        cuts.add((at, position))
        current = max(current + 1, stretches[at].segment.batch_at(position).base_offset)  # past any hole
    return cuts


class _Plan:
    """The splits of one partition's range. The stretches are those of the snapshot that was asked last."""

    def __init__(
        self,
        logs: Logs,
        tp: TopicPartition,
        own: Range,
        fail_on_data_loss: bool,
        fail_on_corrupt_batch: bool,
    ) -> None:
        self.logs = logs
        self.tp = tp
        self.range = own
        self._fail_on_data_loss = fail_on_data_loss
        self._fail_on_corrupt_batch = fail_on_corrupt_batch
        self._snapshot: Loaded | None = None
        self._stretches: list[Stretch] = []

    def _in(self, log: PartitionLog) -> list[Stretch]:
        """The stretches of the range in a log. KSTORE_DATA_LOST."""
        if log.snapshot is not self._snapshot:
            losses = self._losses(log) if self._fail_on_data_loss else []
            if losses:
                reason = f"{in_short(losses)}; failOnDataLoss=false goes on with what is there"
                raise failure("KSTORE_DATA_LOST", reason, self.tp)
            self._stretches = stretches_of(
                log, self.range.start, self.range.stop.offset, lenient=not self._fail_on_corrupt_batch
            )
            self._snapshot = log.snapshot
        return self._stretches

    def _losses(self, log: PartitionLog) -> list[str]:
        """Which records of the range are known to be lost: they were removed since the range was resolved, a
        file is missing, or recovery cuts the log off."""
        start, stop = self.range
        if not are_of_one_topic(stop.topic_id, self.logs.topic_id(self.tp)):
            return [RECREATED]
        first, cut = log.log_start_offset, self.logs.diverged_at(self.tp, stop)
        if cut >= 0:
            return [f"the log was truncated at offset {cut}"]
        if start < first:
            return [f"offsets {start} to {min(first, stop.offset) - 1} were deleted"]
        return log.losses_between(start, stop.offset)

    def size(self, log: PartitionLog) -> int:
        """The bytes of the range."""
        return sum(stretch.size for stretch in self._in(log))

    def splits(self, log: PartitionLog, *, parts: int, most: int | None) -> list[Split]:
        """About so many splits, of at most so many offsets."""
        stretches = self._in(log)
        if not stretches:
            return []
        start, stop = self.range.start, self.range.stop.offset
        if parts > _MANY:  # a split begins where an index has an entry, or a segment begins
            parts = min(parts, sum(len(stretch.segment.offset_index) + 1 for stretch in stretches))
        cuts = _cuts_by_size(stretches, self.size(log), parts)
        if most is not None:
            try:
                cuts |= _cuts_by_offset(stretches, start, stop, most)
            except CorruptRecordError:
                if self._fail_on_corrupt_batch:
                    raise
        groups = _pieces(stretches, sorted(cuts))
        firsts = [start, *(max(start, pieces[0].first_offset) for pieces in groups[1:]), stop]
        aborted = None
        if self.logs.isolation == "read_committed":
            found = log.aborted_transactions(start, stop)
            aborted = [(txn.producer_id, txn.first_offset, txn.last_offset) for txn in found]
        return [
            Split(
                self.logs.root_of(self.tp),
                *self.tp,
                first,
                end,
                tuple(pieces),
                None
                if aborted is None
                else tuple(txn for txn in aborted if txn[2] >= pieces[0].first_offset and txn[1] < end),
                self._fail_on_data_loss,
                self._fail_on_corrupt_batch,
                self.range.stop.at(end),
            )
            for (first, end), pieces in zip(pairwise(firsts), groups, strict=True)
        ]


def _pieces(stretches: Sequence[Stretch], cuts: Sequence[tuple[int, int]]) -> list[list[Piece]]:
    """The pieces of the split that begins at each cut."""
    groups: list[list[Piece]] = [[] for _ in cuts]
    group = -1
    for at, stretch in enumerate(stretches):
        own = [position for number, position in cuts if number == at]
        segment = stretch.segment
        begins = sorted({stretch.begin, *own})
        offsets = [_base_offset(segment, begin) for begin in begins]
        for begin, end, offset, after in zip(
            begins, [*begins[1:], stretch.end], offsets, [*offsets[1:], -1], strict=True
        ):
            group += begin in own
            groups[group].append(
                Piece(
                    segment.stem,
                    segment.base_offset,
                    segment.end_offset,
                    tuple(sorted((segment.suffixes or {}).items())),
                    segment.origin,
                    begin,
                    end - begin,
                    offset,
                    after,
                )
            )
    return groups


def _base_offset(segment: Segment, position: int) -> int:
    """The base offset of a batch; of a damaged one, that of the segment."""
    try:
        offset = segment.batch_at(position).base_offset
    except CorruptRecordError:
        return segment.base_offset
    return offset if segment.base_offset <= offset < segment.end_offset else segment.base_offset
